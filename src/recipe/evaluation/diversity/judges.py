"""Judges of how different two plans are: a language model, and a proxy by embeddings.

The paper's prompt is not printed; the prompt here follows its description. The two plans stand in the data as equals:
the caller decides which of them is `plan_1`. A value that is none of the five levels is no answer, because its scale is
not known; a pair without an answer is *unscored*, and never 0.

The proxy measures how little two plans agree by their embeddings, cut to the five levels:

    difference = 1 - (F + F ordered) / 2          of the likeness of their steps (see `proxy`), any order and in order

The nearest level is given, the higher one of two. It is at most 0.25 where a plan is of no use: one that is off the
goal, or that repeats the history for more than half. A plan is off the goal where it is no nearer to goal and history,
each embedded as one text, than 95% of the continuations of other goals are on the embedded world's training goals. The
proxy is not the paper's judge: it takes plans for different that differ in words which the encoder does not relate.
"""

import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from recipe.artifacts import JsonObject, fingerprint
from recipe.config.models import JudgeConfig
from recipe.errors import quoted
from recipe.evaluation.diversity.plans import LEVELS
from recipe.evaluation.judge.llm import LanguageModelJudge
from recipe.evaluation.judge.rubric import as_data, code_of
from recipe.evaluation.matching import PERCENTILE, Embed, Likeness, calibrate, ordered_likeness
from recipe.evaluation.scores import JudgeIdentity
from recipe.models.protocol import Answer, Chat, Engine, unanswered
from recipe.progress import SILENT, Progress
from recipe.prompting import fill, packaged
from recipe.text import final_answer
from recipe.types import Example
from recipe.world.examples import draw_examples
from recipe.world.load import load_world

SCHEMA: JsonObject = {
    "name": "diversity",
    "schema": {
        "type": "object",
        "properties": {"score": {"type": "number", "enum": list(LEVELS)}},
        "required": ["score"],
        "additionalProperties": False,
    },
}
# Characters at the end of an answer that are read.
_READ = 50_000
_OBJECT = re.compile(r"\{[^{}]*\}")
_MARKS = r"[\s\"'*_`]{0,8}"
_NAME = r"(?:(?:the|my|final|overall)[ \t]){0,3}(?:(?:procedural[ _-]{1,3})?diversity[ _-]{1,3})?score"
# Every repetition is bounded, so that an answer made to be slow costs time in proportion to its length only.
_PAIR = re.compile(
    rf"(?:^|[^\w\s])[ \t]{{0,8}}{_MARKS}{_NAME}{_MARKS}[:=]{_MARKS}"
    r"(?P<value>[-+]?(?:\d{1,6}(?:\.\d{1,6})?|\.\d{1,6}))(?![\w%/])(?!\.\d)",
    re.IGNORECASE | re.MULTILINE,
)


class Question(NamedTuple):
    """Two different plans for one prompt, in the order in which they are shown."""

    example: Example
    first: tuple[str, ...]
    second: tuple[str, ...]

    def turned(self) -> "Question":
        """The same with the plans shown the other way round."""
        return self._replace(first=self.second, second=self.first)


class DiversityRating(NamedTuple):
    """A judge's answer to a question."""

    level: float | None
    """One of LEVELS; None where there is none."""
    how: str = ""
    """`json`, `regex`, `rule` or `proxy`; empty without a level."""
    reason: str = ""
    """Why there is no level."""
    text: str = ""
    """The raw answer."""


class LlmDiversityJudge(LanguageModelJudge):
    """A language model that is shown goal, history and two plans."""

    def __init__(self, engine: Engine, model: str, config: JudgeConfig | None = None) -> None:
        """`model` is its name at the endpoint, a hub id or a folder."""
        texts = [packaged("recipe.evaluation.diversity", name) for name in ("diversity_system", "diversity")]
        super().__init__(engine, model, config, fingerprint([*texts, SCHEMA]), {"repeats", "batch_size"})

    def compare(self, questions: Sequence[Question], progress: Progress = SILENT) -> list[DiversityRating]:
        """One answer to each question.

        Raises ComputeError or InputError where the engine fails altogether; its answers are kept in its cache.
        """
        chats = [render(question) for question in questions]
        ratings = []
        for [(outcome, rating)] in self.answers(chats, SCHEMA, parse, 1, progress):
            text = outcome.text if isinstance(outcome, Answer) else ""
            ratings.append(rating or DiversityRating(None, reason=unanswered(outcome), text=text))
        return ratings


def render(question: Question) -> Chat:
    """The chat that asks how different two plans are; the plans are data, and fenced as the rubric's."""
    example = question.example
    data = as_data(
        {"goal": example.goal, "history": example.history, "plan_1": question.first, "plan_2": question.second}
    )
    return [
        {"role": "system", "content": packaged("recipe.evaluation.diversity", "diversity_system").strip()},
        {
            "role": "user",
            "content": fill(
                packaged("recipe.evaluation.diversity", "diversity"), {"code": code_of(data), "data": data}
            ),
        },
    ]


def parse(text: str) -> DiversityRating:
    """The level in an answer: of the last JSON object with a score, else of what the text calls its score.

    >>> parse('Both steep tea. {"score": 0.25}').level, parse("**Score:** 1").level
    (0.25, 1.0)
    >>> parse('{"score": 0.3}').reason
    'the score is none of 0, 0.25, 0.5, 0.75, 1: 0.3'
    """
    if reason := unanswered(Answer(text)):
        return DiversityRating(None, reason=reason, text=text)
    read = (final_answer(text) or "")[-_READ:]
    how, values = "json", list[Any]()
    for text_of_object in reversed(_OBJECT.findall(read)):
        try:
            pairs: list[tuple[str, Any]] = json.loads(text_of_object, object_pairs_hook=list)
        except (ValueError, RecursionError):
            continue
        # All values, where an object repeats the key: two different ones are no score.
        names = ("score", "diversity_score", "diversity")
        if values := [value for name, value in pairs if name.strip().casefold() in names]:
            break
    else:
        how, values = "regex", [match["value"] for match in _PAIR.finditer(read)]
    if not values:
        return DiversityRating(None, reason=f"the answer holds no score: {quoted(text)}", text=text)
    levels = set[float | None]()
    for value in values:
        number = None
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            with suppress(ValueError, OverflowError):
                number = float(value)
        levels.add(number)
    level = next(iter(levels)) if len(levels) == 1 else None
    if level in LEVELS:
        return DiversityRating(level, how, text=text)
    shown = ", ".join(quoted(str(value)) if isinstance(value, str) else str(value)[:40] for value in values[:3])
    named = ", ".join(f"{known:g}" for known in LEVELS)
    return DiversityRating(None, reason=f"the score is none of {named}: {shown}", text=text)


CAP = 0.25
"""The most that a plan of no use can differ."""
MOST_COPIED = 0.5
"""Share of a plan that may repeat the history."""
VERSION = 1
"""Of the formula: another one is another judge."""
# Questions whose texts are embedded in one call.
_TOGETHER = 512


class ProxyDiversityJudge:
    """Rates plans by embeddings, as the docstring of the module describes."""

    def __init__(self, embed: Embed, encoder: str = "minilm") -> None:
        """`encoder` is part of the judge's name. Raises ComputeError for an encoder that does not relate texts."""
        self._embed, self.calibration = embed, calibrate(embed)
        # The cosine below which 95% of the continuations of other goals lie.
        world = load_world()
        goals = sum(not graph.held_out for graph in world.goals.values())
        drawn = draw_examples(world, "train", goals)
        done = embed([". ".join((example.goal, *example.history)) for example in drawn])
        following = embed([". ".join(example.continuation) for example in drawn])
        cosines = done @ following.T
        apart = [cosines[i, j] for i, j in permutations(range(goals), 2) if drawn[i].goal != drawn[j].goal]
        self.on_goal = round(float(np.percentile(apart, PERCENTILE)), 3)
        settings = {
            "encoder": encoder,
            "chance": f"{self.calibration.chance:.3f}",
            "same": f"{self.calibration.same:.3f}",
            "on_goal": f"{self.on_goal:.3f}",
        }
        computed = {"version": VERSION, "cap": CAP, "copied": MOST_COPIED, **settings}
        self.identity = JudgeIdentity(f"proxy ({encoder})", "proxy", encoder, fingerprint(computed), settings)

    def compare(self, questions: Sequence[Question], progress: Progress = SILENT) -> list[DiversityRating]:
        """The level of each question, in order."""
        ratings = []
        with progress.task("comparing plans by embeddings", total=len(questions)) as advance:
            for start in range(0, len(questions), _TOGETHER):
                batch = questions[start : start + _TOGETHER]
                likeness = self.likeness(batch)
                for example, first, second in batch:
                    level = nearest_level(difference(first, second, likeness))
                    if not all(self.useful(example, plan, likeness) for plan in (first, second)):
                        level = min(CAP, level)
                    ratings.append(DiversityRating(level, "proxy"))
                advance(len(batch))
        return ratings

    def likeness(self, questions: Sequence[Question]) -> Likeness:
        """Similarities of all texts of these questions."""
        texts = list[str]()
        for example, first, second in questions:
            texts += [*first, *second, *example.history]
            texts += [". ".join(steps) for steps in ((example.goal, *example.history), first, second)]
        return Likeness(self._embed, self.calibration, texts)

    def useful(self, example: Example, plan: tuple[str, ...], likeness: Likeness) -> bool:
        """Whether a plan is on the goal, and more than the history again."""
        [[cosine]] = likeness.cosines([". ".join((example.goal, *example.history))], [". ".join(plan)])
        done = likeness.between(plan, example.history).max(axis=1, initial=0.0)
        return bool(cosine > self.on_goal and (done == 1).mean() <= MOST_COPIED)


def difference(first: Sequence[str], second: Sequence[str], likeness: Likeness) -> float:
    """How little two plans agree, 0 to 1; the same in either order."""
    matched = sum(pair.likeness for pair in likeness.pairs(first, second))
    ordered = ordered_likeness(likeness.between(first, second))
    return 1 - (matched + ordered) / (len(first) + len(second))


def nearest_level(value: float) -> float:
    """The nearest of the five levels, the higher one of two.

    >>> nearest_level(0.37), nearest_level(0.375), nearest_level(1.0)
    (0.25, 0.5, 1.0)
    """
    steps = len(LEVELS) - 1
    # 1e-9: sums that stand for a middle may come out a little less, and the higher level is due.
    return min(math.floor(steps * value + 0.5 + 1e-9), steps) / steps


DiversityJudge = LlmDiversityJudge | ProxyDiversityJudge
"""What rates how different two plans are."""
