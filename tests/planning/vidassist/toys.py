"""A closed set of four actions, and models that answer as they are told to."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from recipe.models.protocol import Answer, Engine, ModelRequest, Refusal
from recipe.planning.admissible import AdmissibleActions
from recipe.planning.vidassist.search import Proposal, State, Value
from recipe.progress import SILENT, Progress

ACTIONS = ("boil water", "add tea", "pour milk", "stir")
GOAL = "make tea"
START = State(GOAL, ())


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """One direction for each first letter; a text with a tilde lies between its action and none, at a cosine of 0.6."""
    vectors = np.zeros((len(texts), 27), np.float32)
    for row, text in zip(vectors, texts, strict=True):
        letter = ord(text[0].lower()) - ord("a")
        row[letter if 0 <= letter < 26 else 26] = 0.6 if "~" in text else 1.0
        row[26] += 0.8 if "~" in text else 0.0
    return vectors


KNOWN = AdmissibleActions(embed, ACTIONS)


def actions_of(goal: str) -> AdmissibleActions:
    return KNOWN


class ToyProposer:
    """Proposes what a table says about the plan so far."""

    def __init__(self, table: Mapping[tuple[str, ...], Sequence[str]]) -> None:
        self.table, self.asked = table, list[State]()

    def __call__(self, states: Sequence[State], count: int, progress: Progress = SILENT) -> list[list[Proposal]]:
        self.asked.extend(states)
        return [[Proposal("toy", text, text) for text in self.table.get(state.planned, ())] for state in states]


def toy_value(score: Callable[[tuple[str, ...]], float | None]) -> Value:
    """Scores a plan that goes on with an action as a function says."""
    return lambda steps, progress: [score((*state.planned, candidate.action)) for state, candidate in steps]


class ScriptedEngine(Engine):
    """Answers the last message of a chat as a function says, and counts what it is asked."""

    def __init__(self, answer: Callable[[str, int], str | Answer | Refusal]) -> None:
        self._answer = answer
        self.asked: list[tuple[str, int]] = []
        self.batches: list[int] = []

    def answer(self, requests: Sequence[ModelRequest], *_: object, **__: object) -> list[Answer | Refusal]:
        self.batches.append(len({id(request.chat) for request in requests}))
        return [self._one(request.chat[-1]["content"], request.sample) for request in requests]

    def _one(self, text: str, sample: int) -> Answer | Refusal:
        self.asked.append((text, sample))
        answer = self._answer(text, sample)
        return Answer(answer) if isinstance(answer, str) else answer
