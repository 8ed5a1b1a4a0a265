"""The planner: requests in, plans out, whatever engine writes them."""

from collections.abc import Sequence
from dataclasses import dataclass

from recipe.config import SamplingConfig
from recipe.engines.protocol import Engine
from recipe.errors import InputError
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.text import parse_plan, planner_messages
from recipe.types import Example, Malformed, Plan


@dataclass(frozen=True, slots=True)
class Request:
    """A goal and the steps already done; the history may be empty."""

    goal: str
    history: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.goal.strip():
            raise InputError("the goal is empty; say what is to be done.")
        if any(not step.strip() for step in self.history):
            raise InputError("a step of the history is empty; leave it out or write it.")

    @classmethod
    def of(cls, example: Example) -> "Request":
        """What a planner may see of an example."""
        return cls(example.goal, example.history)


class Planner:
    """Asks an engine for the rest of procedures and reads its answers."""

    def __init__(self, engine: Engine, sampling: SamplingConfig | None = None) -> None:
        self._engine = engine
        self._sampling = sampling or SamplingConfig()

    def complete(self, requests: Sequence[Request], count: int = 1, progress: Progress = SILENT) -> list[list[str]]:
        """`count` raw completions of each request; raises InputError unless `count` is positive."""
        if count < 1:
            raise InputError(f"{count} plans were asked for; ask for at least one.")
        chats = [planner_messages(request.goal, request.history) for request in requests]
        return self._engine.generate(chats, count, self._sampling, progress)

    def plan(
        self, requests: Sequence[Request], count: int = 1, progress: Progress = SILENT
    ) -> list[list[Plan | Malformed]]:
        """`count` plans of each request, a completion without steps as Malformed."""
        return [[parse_plan(text) for text in texts] for texts in self.complete(requests, count, progress)]

    def predict(self, examples: Sequence[Example], count: int = 1, progress: Progress = SILENT) -> list[Prediction]:
        """`count` predictions of each example, in order of examples and then samples."""
        answers = self.complete([Request.of(example) for example in examples], count, progress)
        return [
            Prediction.of(example.example_id, sample, text)
            for example, texts in zip(examples, answers, strict=True)
            for sample, text in enumerate(texts)
        ]
