"""What an audit found, in sentences: first whether the corpus covers the tasks."""

from collections.abc import Iterator, Sequence

from recipe.evaluation.audit.results import CoverageResult, RewardAudit
from recipe.evaluation.formats import MINUS
from recipe.evaluation.results import Interval
from recipe.reward.audit.controls import LENGTH, RELEVANCE

YES, PARTLY = 0.85, 0.6
"""Shares from which on a corpus covers the tasks, or covers them in part where the interval lies above chance too."""


def percent(share: float) -> str:
    """A share in percent without the sign, to the nearest whole number.

    >>> percent(0.553)
    '55'
    """
    return f"{100 * share:.0f}"


def bounds(share: Interval) -> str:
    """The 95% interval of a share in brackets; empty where there is none.

    >>> bounds(Interval(0.5, 0.452, 0.61))
    ' [45, 61]'
    """
    return "" if share.low is None or share.high is None else f" [{percent(share.low)}, {percent(share.high)}]"


def answer(coverage: CoverageResult | None, problem: str = "") -> str:
    """Does the corpus cover the tasks? One sentence; `problem` says why there is no statistic."""
    if coverage is None:
        return f"Whether the corpus covers these tasks cannot be told: {problem}."
    sources = ", ".join(f"{source} {percent(share.mean)}%" for source, share in coverage.by_source.items())
    by_source = f", by source {sources}" if len(coverage.by_source) > 1 else ""
    return (
        f"{_verdict(coverage.wins)}: the steps of the task fit its narrations better than as many steps mixed from "
        f"other tasks in {percent(coverage.wins.mean)}%{bounds(coverage.wins)} of comparisons on "
        f"{coverage.wins.observations} procedures (50% is chance){by_source}."
    )


def findings(rewards: Sequence[RewardAudit]) -> tuple[str, ...]:
    """What the audit says of each verifier against the control that reads no corpus, and of its optimum."""
    verifiers = [one for one in rewards if one.name not in (LENGTH, RELEVANCE)]
    return tuple(sentence for one in verifiers for sentence in _about(one))


def _about(one: RewardAudit) -> Iterator[str]:
    yield (
        f"{one.name} earns the true continuation more in {percent(one.mean.mean)}%{bounds(one.mean)} of comparisons"
        f"{_gain(one.over_relevance)}; its worst class is {one.worst_class}, {percent(one.worst.mean)}%."
    )
    if one.unscored:
        yield f"{one.name} could not score {len(one.unscored)} prompts, the first of them {one.unscored[0]}"
    if one.attack is not None:
        made_of = ", ".join(f"{percent(share)}% {kind}" for kind, share in one.attack.composition.items() if share)
        yield (
            f"A plan grown greedily for {one.name} is {one.attack.length_ratio:.1f} times as long as the true one, "
            f"consists of {made_of or 'no steps'}, and earns more than it in "
            f"{percent(one.attack.beats_true.mean)}% of prompts."
        )


def _gain(gain: Interval | None) -> str:
    if gain is None:
        return ""
    points = f"{100 * gain.mean:+.0f}".replace("-", MINUS)
    if gain.low is None or gain.high is None:
        return f", {points} points against relevance, which reads no corpus"
    ends = f"[{100 * gain.low:+.0f}, {100 * gain.high:+.0f}]".replace("-", MINUS)
    return f", {points} points {ends} against relevance, which reads no corpus"


def _verdict(share: Interval) -> str:
    if share.mean >= YES:
        return "The corpus covers these tasks"
    if share.mean >= PARTLY and (share.low is None or share.low > 0.5):
        return "The corpus covers these tasks in part"
    return "The corpus hardly covers these tasks"
