"""The planner: requests in, plans out, whatever engine writes them.

In the Video configuration a clip stands in place of the written history (paper, section 3.1).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from recipe.config import SamplingConfig
from recipe.errors import InputError
from recipe.models.protocol import Answer, Chat, Engine, ModelRequest, Refusal, Stopped
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.prompting import PlannerPrompt
from recipe.text import as_steps, first_list, parse_plan, plan_steps, whole_text
from recipe.types import Example, Frames, Malformed, Plan


class GrowingPlan:
    """The steps of a completion that arrives in pieces, each once its line is complete.

    Together they are what `parse_plan` reads in the whole text: lines without a number or bullet, which are steps only
    where no line has one, wait for the end.

    >>> plan = GrowingPlan()
    >>> [plan.grown("1. Boil"), plan.grown(" water\\n2. St"), plan.grown("eep the tea"), plan.rest()]
    [(), ('Boil water',), (), ('Steep the tea',)]
    """

    def __init__(self) -> None:
        self.steps: tuple[str, ...] = ()
        self._text = ""

    def grown(self, piece: str) -> tuple[str, ...]:
        """The steps that a further piece completes."""
        self._text += piece
        return self._new(first_list(self._text[: self._text.rindex("\n") + 1])) if "\n" in piece else ()

    def rest(self) -> tuple[str, ...]:
        """The steps that the end of the text completes."""
        return self._new(plan_steps(self._text))

    def _new(self, steps: tuple[str, ...]) -> tuple[str, ...]:
        known, self.steps = len(self.steps), (*self.steps, *steps[len(self.steps) :])
        return self.steps[known:]


class Draft(NamedTuple):
    """One plan to be written: a sample of a request."""

    request: "Request"
    sample: int = 0
    seed: int = 0


class WrittenSteps(NamedTuple):
    """What came of a draft: steps that are complete, and at its end the answer or refusal."""

    draft: int
    """Its place among the drafts."""
    steps: tuple[str, ...]
    outcome: Answer | Refusal | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A goal and what has been done: steps in words, of which there may be none, or frames that show them."""

    goal: str
    history: tuple[str, ...] = ()
    video: Frames | None = None

    def __post_init__(self) -> None:
        if not whole_text("goal", self.goal).strip():
            raise InputError("the goal is empty; give it a text.")
        if any(not step.strip() for step in as_steps(self.history)):
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
        plan = GrowingPlan()
        for piece in self._engine.stream(request.chat(self._prompt), self._sampling):
            yield from plan.grown(piece)
        yield from plan.rest()

    def write(self, drafts: Sequence[Draft], stopped: Stopped = lambda _: False) -> Iterator[WrittenSteps]:
        """The steps of several plans as they are written side by side; each draft's last has its outcome.

        A draft that is `stopped` is written no further and has none. Raises as the engine's `stream_all`.
        """
        chats = {id(draft.request): draft.request.chat(self._prompt) for draft in drafts}
        asked = [
            ModelRequest(
                chats[id(draft.request)],
                self._sampling.model_copy(update={"seed": self._sampling.seed + draft.seed}),
                draft.sample,
            )
            for draft in drafts
        ]
        plans = [GrowingPlan() for _ in drafts]
        with closing(self._engine.stream_all(asked, stopped)) as written:
            for place, piece in written:
                if not isinstance(piece, str):
                    rest = plans[place].rest() if isinstance(piece, Answer) else ()
                    yield WrittenSteps(place, rest, piece)
                elif steps := plans[place].grown(piece):
                    yield WrittenSteps(place, steps)

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
