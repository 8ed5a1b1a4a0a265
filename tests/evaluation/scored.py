"""Scores of judgements made by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

from recipe.evaluation import measure_named
from recipe.evaluation.judge.verdicts import Judgement, verdict_rows
from recipe.evaluation.measures import summarise
from recipe.evaluation.scores import Group, JudgeIdentity, Scores
from recipe.stats import Interval
from recipe.types import Example


def judge_scores(
    system: str,
    judge: JudgeIdentity,
    examples: Sequence[Example],
    judged: Sequence[Judgement],
    seed: int = 0,
    ledger: Mapping[str, float | None] | None = None,
    left_out: Mapping[str, int] | None = None,
) -> Scores:
    """By the six criteria."""
    kind: Any = measure_named("judge")
    return summarise(kind(judge), system, verdict_rows(judged), examples, seed, ledger, left_out)


def accuracy(group: Group) -> Interval:
    """The accuracy of a group that has one."""
    return group.values["accuracy"]
