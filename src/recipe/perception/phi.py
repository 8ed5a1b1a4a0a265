"""Phi: a frozen vision-language model that tells a video as steps in words (paper, sections 3.1 and 4).

    h_hat = Phi(h_V)     what was done in the frames before the cut: what a Socratic planner reads
    y_hat = Phi(V)       the whole procedure with times where the model gives them: weak supervision

The paper states no prompt; those here are text files of the package, known by their hash. Answers are read as plans
are, by `recipe.text.parse_plan`. Then a step that is told again directly after itself counts once, because small
models stutter, and nothing else is repaired.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from recipe.artifacts import fingerprint
from recipe.config import PhiConfig, SamplingConfig
from recipe.engines.protocol import Chat, Engine
from recipe.perception.phi_times import read_steps
from recipe.progress import SILENT, Progress
from recipe.prompting import fill, packaged
from recipe.text import plan_steps
from recipe.types import Frames, Step

Kind = Literal["history", "trace"]
"""What Phi is asked for: the steps up to a moment, or a whole video's with times."""

_NOTHING = "none"
"""What the prompts ask for where there is no step."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What Phi is asked, beside the frames."""

    template: str
    goal: str | None
    """The line that tells the goal, None where the goal is kept from Phi."""
    other: str
    """The line in its place."""

    @classmethod
    def load(cls, kind: Kind, goal: bool = True) -> "Prompt":
        """The packaged prompt."""
        return cls(_file(kind), _file("goal") if goal else None, _file("no_goal"))

    @property
    def hash(self) -> str:
        """SHA-256 of all that the prompt says, whatever the goal."""
        return fingerprint([self.template, self.goal or self.other])

    def text(self, goal: str) -> str:
        """The prompt for a goal."""
        line = self.other if self.goal is None else fill(self.goal, {"name": goal})
        return fill(self.template, {"goal": line.strip()}).strip()

    def chat(self, video: Frames, goal: str) -> Chat:
        """The chat that shows a video and asks."""
        return [
            {"role": "user", "content": [{"type": "video", "video": video}, {"type": "text", "text": self.text(goal)}]}
        ]


class Phi:
    """Phi on any engine, for a few clips at hand; `recipe.perception.phi_run` is for many, and resumes."""

    def __init__(self, engine: Engine, config: PhiConfig | None = None) -> None:
        self._engine, self._config = engine, config or PhiConfig()
        self._prompt = Prompt.load("history", self._config.goal)

    def histories(
        self, goals: Sequence[str], videos: Sequence[Frames], progress: Progress = SILENT
    ) -> list[tuple[str, ...]]:
        """The steps done in each video; `goals` and `videos` are of one length."""
        chats = [self._prompt.chat(video, goal) for goal, video in zip(goals, videos, strict=True)]
        texts = self._engine.generate(chats, 1, phi_sampling(self._config), progress)
        return [read_history(text) for [text] in texts]


def phi_sampling(config: PhiConfig, batch_size: int = 1) -> SamplingConfig:
    """How Phi's answers are sampled."""
    return SamplingConfig(
        temperature=config.temperature, max_tokens=config.max_tokens, seed=config.seed, batch_size=batch_size
    )


def read_history(text: str) -> tuple[str, ...]:
    """The steps that an answer tells, none where it tells none.

    >>> read_history("1. Boil water\\n2. boil water.\\n3. Pour it"), read_history("None.")
    (('Boil water', 'Pour it'), ())
    """
    steps = tuple(next(group) for _, group in groupby(plan_steps(text), _sound))
    return () if [_sound(step) for step in steps] == [_NOTHING] else steps


def read_trace(text: str, duration: float) -> tuple[Step, ...]:
    """The steps that an answer tells of a video of `duration` seconds, with the times that hold (see `phi_times`).

    >>> read_trace("1. 00:02 - 00:05 Boil water\\n2. 00:05 - 00:06 Boil water\\n3. Pour it", 60)
    (Step(text='Boil water', start=2.0, end=6.0), Step(text='Pour it', start=None, end=None))
    """
    told = groupby(read_steps(text, duration), lambda step: _sound(step.text))
    steps = tuple(_joined(list(group)) for _, group in told)
    return () if [_sound(step.text) for step in steps] == [_NOTHING] else steps


def _joined(steps: list[Step]) -> Step:
    """One step for several of the same text, from the first start that is known to the latest end."""
    start = next((step.start for step in steps if step.start is not None), None)
    ends = [step.end for step in steps if step.end is not None]
    return Step(steps[0].text, start, max(ends, default=None))


def _sound(step: str) -> str:
    return "".join(char for char in step.casefold() if char.isalnum())


def _file(name: str) -> str:
    return packaged("recipe.perception", name)
