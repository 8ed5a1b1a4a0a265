"""What an audit finds: frozen values, their JSON and their sentences. Shares lie in 0..1; what is not known is None."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from recipe.audit.classes import GROUP_OF, Group
from recipe.audit.score import LENGTH, RELEVANCE
from recipe.report.numbers import MINUS
from recipe.stats import Interval

YES, PARTLY = 0.85, 0.6
"""Shares from which on a corpus covers the tasks, or covers them in part where the interval lies above chance too."""


@dataclass(frozen=True, slots=True)
class Padding:
    """The true continuation with generic steps after it."""

    steps: int
    """How many."""
    reward: Interval
    true_wins: float
    """Share of prompts whose true continuation earns more without them, ties half."""


@dataclass(frozen=True, slots=True)
class AttackResult:
    """What the greedy optimum of a reward is made of."""

    prompts: int
    beats_true: Interval
    """Share of prompts in which the attack earns more than the true continuation, ties half."""
    length_ratio: float
    """Length of the attack in true lengths, mean over prompts."""
    composition: dict[str, float]
    """Kind of step -> share among all steps."""
    repeated: float
    """Share of steps that the attack holds already."""
    at_limit: float
    """Share of prompts in which the attack ends at its greatest length."""
    seconds: float
    example_goal: str = ""
    example: tuple[tuple[str, str], ...] = ()
    """(step, kind) of one attack."""


@dataclass(frozen=True, slots=True)
class RewardAudit:
    """What one reward can and cannot tell apart. A share is P(true > corrupted), ties half."""

    name: str
    prompts: int
    """Prompts that are scored."""
    unscored: tuple[str, ...]
    """Why the others are not."""
    mean: Interval
    """Mean over the classes."""
    groups: dict[Group, Interval]
    """Group -> mean over its classes."""
    classes: dict[str, Interval]
    alternative: Interval | None
    """P(true > another video of the same goal), ties half: 50% where the reward is fair."""
    over_relevance: Interval | None
    """`mean` less that of R0 on the same prompts."""
    length_correlation: float | None
    """Mean over prompts of the correlation of reward and length; None where neither varies."""
    gated: float
    """Share of true continuations below the gate."""
    gated_corrupted: float
    """The same of corrupted ones."""
    coverage: float | None
    """Mean coverage that the reward itself reports."""
    abstained: float
    """Share of prompts in which it declined."""
    mean_by_coverage: tuple[float, ...]
    """`mean` in the third of prompts that the corpus covers least, the middle third and the best third."""
    filler_curve: tuple[Padding, ...]
    attack: AttackResult | None
    seconds: float

    @property
    def worst_class(self) -> str:
        """The class told apart least."""
        return min(self.classes, key=lambda name: self.classes[name].mean)

    @property
    def worst(self) -> Interval:
        return self.classes[self.worst_class]


@dataclass(frozen=True, slots=True)
class CoverageResult:
    """How far the corpus covers the procedures: P(kappa of a procedure > kappa of a mixture), ties half."""

    wins: Interval
    by_source: dict[str, Interval]
    kappa: float
    """Mean over procedures."""
    mixed: float
    """Mean over mixtures."""


@dataclass(frozen=True, slots=True)
class Audit:
    """A whole audit."""

    settings: dict[str, Any]
    """What it takes to run it again."""
    procedures: dict[str, int]
    """Source -> audited procedures."""
    left_out: dict[str, int]
    """Reason -> procedures."""
    answer: str
    """Does the corpus cover the tasks? One sentence."""
    findings: tuple[str, ...]
    coverage: CoverageResult | None
    rewards: tuple[RewardAudit, ...]

    @property
    def prompts(self) -> int:
        return sum(self.procedures.values())


def audit_json(audit: Audit) -> dict[str, Any]:
    """The whole audit: the run, the corpus's coverage, and the rewards under `verifiers`."""
    coverage = audit.coverage
    return {
        "settings": audit.settings,
        "procedures": audit.procedures,
        "left_out": audit.left_out,
        "answer": audit.answer,
        "findings": list(audit.findings),
        "coverage": None
        if coverage is None
        else {
            **_share(coverage.wins),
            "by_source": {source: _share(share) for source, share in coverage.by_source.items()},
            "kappa": coverage.kappa,
            "mixed": coverage.mixed,
        },
        "verifiers": rewards_json(audit),
    }


def rewards_json(audit: Audit) -> dict[str, Any]:
    """Reward -> what the audit found of it."""
    return {one.name: _reward_json(one) for one in audit.rewards}


def _reward_json(one: RewardAudit) -> dict[str, Any]:
    attack = one.attack
    return {
        "mean": one.mean.mean,
        "mean_low": one.mean.low,
        "mean_high": one.mean.high,
        "worst": one.worst.mean,
        "worst_class": one.worst_class,
        "worst_group": GROUP_OF[one.worst_class],
        "groups": {group: _share(share) for group, share in one.groups.items()},
        "classes": {name: _share(share) for name, share in one.classes.items()},
        "alternative": None if one.alternative is None else _share(one.alternative),
        "over_relevance": None if one.over_relevance is None else _share(one.over_relevance),
        "length_correlation": one.length_correlation,
        "gated": one.gated,
        "gated_corrupted": one.gated_corrupted,
        "coverage": one.coverage,
        "abstained": one.abstained,
        "mean_by_coverage": list(one.mean_by_coverage),
        "filler_curve": [
            {"steps": point.steps, "reward": point.reward.mean, "low": point.reward.low, "high": point.reward.high}
            | {"true_wins": point.true_wins}
            for point in one.filler_curve
        ],
        "attack": None if attack is None else asdict(attack) | {"beats_true": _share(attack.beats_true)},
        "prompts": one.prompts,
        "unscored": list(one.unscored),
        "seconds": one.seconds,
    }


def _share(share: Interval) -> dict[str, Any]:
    return {"p": share.mean, "low": share.low, "high": share.high, "n": share.observations}


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
        return f"Whether the corpus covers these tasks is not known: {problem}."
    wins = coverage.wins
    verdict = "The corpus hardly covers these tasks"
    if wins.mean >= YES:
        verdict = "The corpus covers these tasks"
    elif wins.mean >= PARTLY and (wins.low is None or wins.low > 0.5):
        verdict = "The corpus covers these tasks in part"
    sources = ", ".join(f"{source} {percent(share.mean)}%" for source, share in coverage.by_source.items())
    by_source = f", by source {sources}" if len(coverage.by_source) > 1 else ""
    return (
        f"{verdict}: the steps of the task fit its narrations better than as many steps mixed from "
        f"other tasks in {percent(wins.mean)}%{bounds(wins)} of comparisons on "
        f"{wins.observations} procedures (50% is chance){by_source}."
    )


def findings(rewards: Sequence[RewardAudit]) -> Iterator[str]:
    """What the audit says of each verifier against the control that reads no corpus, and of its optimum."""
    for one in rewards:
        if one.name in (LENGTH, RELEVANCE):
            continue
        yield (
            f"{one.name} earns the true continuation more in {percent(one.mean.mean)}%{bounds(one.mean)} of comparisons"
            f"{_gain(one.over_relevance)}; its worst class is {one.worst_class}, {percent(one.worst.mean)}%. "
            f"By group: {', '.join(f'{group} {percent(share.mean)}' for group, share in one.groups.items())}."
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
    ends = "" if gain.low is None or gain.high is None else f" [{100 * gain.low:+.0f}, {100 * gain.high:+.0f}]"
    points = f"{100 * gain.mean:+.0f} points{ends}".replace("-", MINUS)
    return f", {points} against relevance, which reads no corpus"
