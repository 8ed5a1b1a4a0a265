"""The planner: requests in, plans out, whatever engine writes them.

In the Video configuration a clip stands in place of the written history (paper, section 3.1).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from recipe.config import SamplingConfig
from recipe.errors import InputError
from recipe.models.protocol import Chat, Engine
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.prompting import PlannerPrompt
from recipe.text import first_list, parse_plan, plan_steps
from recipe.types import Example, Frames, Malformed, Plan


def steps_as_written(pieces: Iterable[str]) -> Iterator[str]:
    """The steps of a completion that arrives in `pieces`, each once its line is complete.

    Together they are what `parse_plan` reads in the whole text: lines without a number or bullet, which are steps only
    where no line has one, wait for the end.

    >>> list(steps_as_written(["1. Boil", " water\\n2. St", "eep the tea"]))
    ['Boil water', 'Steep the tea']
    """
    text, given = "", 0
    for piece in pieces:
        text += piece
        if "\n" in piece:
            steps = first_list(text[: text.rindex("\n") + 1])
            yield from steps[given:]
            given = len(steps)
    yield from plan_steps(text)[given:]


@dataclass(frozen=True, slots=True)
class Request:
    """A goal and what has been done: steps in words, of which there may be none, or frames that show them."""

    goal: str
    history: tuple[str, ...] = ()
    video: Frames | None = None

    def __post_init__(self) -> None:
        if not self.goal.strip():
            raise InputError("the goal is empty; give it a text.")
        if any(not step.strip() for step in self.history):
            raise InputError("a step of the history is empty; leave it out or write it.")
        if self.history and self.video is not None:
            raise InputError("the history is given in words and as a video; give one of them.")

    @classmethod
    def of(cls, example: Example) -> "Request":
        """The request for an example: its goal and history."""
        return cls(example.goal, example.history)

    def chat(self, prompt: PlannerPrompt) -> Chat:
        """The chat for the engine."""
        if self.video is not None:
            return prompt.video_chat(self.goal, self.video)
        return prompt.chat(self.goal, self.history)


class Planner:
    """Asks an engine for the rest of procedures and reads its answers."""

    def __init__(
        self, engine: Engine, sampling: SamplingConfig | None = None, prompt: PlannerPrompt | None = None
    ) -> None:
        """Without a prompt the engine's own is taken, that is, the one that its model was trained with."""
        self._prompt = prompt or engine.prompt
        self._engine = engine
        self._sampling = sampling or SamplingConfig()

    def complete(self, requests: Sequence[Request], count: int = 1, progress: Progress = SILENT) -> list[list[str]]:
        """`count` raw completions of each request; raises InputError unless `count` is positive."""
        if count < 1:
            raise InputError(f"{count} plans were asked for; ask for at least one.")
        return self._engine.generate(
            [request.chat(self._prompt) for request in requests], count, self._sampling, progress
        )

    def stream(self, request: Request) -> Iterator[str]:
        """The steps of one plan as they are written: those of the first plan that `plan` gives."""
        return steps_as_written(self._engine.stream(request.chat(self._prompt), self._sampling))

    def plan(
        self, requests: Sequence[Request], count: int = 1, progress: Progress = SILENT
    ) -> list[list[Plan | Malformed]]:
        """`count` plans of each request, a completion without steps as Malformed."""
        return [[parse_plan(text) for text in texts] for texts in self.complete(requests, count, progress)]

    def predict(
        self,
        examples: Sequence[Example],
        count: int = 1,
        progress: Progress = SILENT,
        see: Callable[[Example], Request] = Request.of,
    ) -> list[Prediction]:
        """`count` predictions of each example, in order of examples and then samples.

        `see` makes the request of an example.
        """
        answers = self.complete([see(example) for example in examples], count, progress)
        return [
            Prediction.of(example.example_id, sample, text)
            for example, texts in zip(examples, answers, strict=True)
            for sample, text in enumerate(texts)
        ]
