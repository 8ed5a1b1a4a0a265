"""What an audit finds: frozen values and their sentences. Shares lie in 0..1; what is not known is None."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from recipe.audit.attack import BEST_OF
from recipe.audit.classes import Group
from recipe.audit.score import LENGTH, RELEVANCE, bounds, percent
from recipe.report.numbers import MINUS
from recipe.stats import Interval

YES, PARTLY = 0.85, 0.6
"""Shares from which on a corpus covers the tasks, or covers them in part where the interval lies above chance too."""
FEWEST_PROCEDURES = 5
"""With fewer procedures no share of them is reported."""


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
    """What the plans of an attack on a reward are made of."""

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
class SampleResult:
    """What a language model wrote for the prompts, against the true continuations."""

    true_wins: Interval
    """P(true > sample), ties half: mean over the samples of a prompt, then over prompts."""
    samples: int
    """Those that are scored."""
    unscored: int
    without_steps: float
    """Share of samples that hold no step; they are scored as empty plans."""
    length_ratio: float
    """Length of a sample in true lengths."""


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
    mean_by_coverage: tuple[float, ...]
    """`mean` in the third of prompts that the corpus covers least, the middle third and the best third."""
    filler_curve: tuple[Padding, ...]
    attack: AttackResult | None
    """The greedy attack."""
    seconds: float
    best_of: AttackResult | None = None
    """The best of 64 composed plans."""
    samples: dict[str, SampleResult] = field(default_factory=dict)
    """System -> its samples against the true continuations; in no mean."""

    @property
    def worst_class(self) -> str:
        """The class that the reward tells from the truth least often."""
        return min(self.classes, key=lambda name: self.classes[name].mean)

    @property
    def worst(self) -> Interval:
        """The share of the worst class."""
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

    @property
    def answer(self) -> str:
        """Does the corpus cover the tasks? One sentence."""
        share = self.wins
        if share.observations < FEWEST_PROCEDURES:
            count = f"{share.observations} procedure{'' if share.observations == 1 else 's'}"
            problem = f"Whether the corpus covers these tasks cannot be told from {count}"
            return f"{problem}; give {FEWEST_PROCEDURES} or more."
        verdict = "The corpus hardly covers these tasks"
        if share.mean >= YES:
            verdict = "The corpus covers these tasks"
        elif share.mean >= PARTLY and share.low is None:
            verdict = "Whether the corpus covers these tasks cannot be told"
        elif share.mean >= PARTLY and share.low is not None and share.low > 0.5:
            verdict = "The corpus covers these tasks in part"
        sources = ", ".join(f"{source} {percent(own.mean)}%" for source, own in self.by_source.items())
        by_source = f", by source {sources}" if len(self.by_source) > 1 else ""
        return (
            f"{verdict}: the steps of the task fit its narrations better than as many steps mixed from "
            f"other tasks in {percent(share.mean)}%{bounds(share)} of comparisons on "
            f"{share.observations} procedures (50% is chance){by_source}."
        )


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


def findings(rewards: Sequence[RewardAudit]) -> Iterator[str]:
    """What the audit says about each verifier against the control that reads no corpus, and about its optimum.

    Then attacks and samples, each with all rewards side by side in one sentence.
    """
    for reward in rewards:
        if reward.name in (LENGTH, RELEVANCE):
            continue
        gained, gain = "", reward.over_relevance
        if gain is not None:
            ends = f" (no interval: {gain.reason})" if gain.reason else ""
            if gain.low is not None and gain.high is not None:
                ends = f" [{100 * gain.low:+.0f}, {100 * gain.high:+.0f}]"
            points = f"{100 * gain.mean:+.0f} points{ends}".replace("-", MINUS)
            gained = f", {points} against relevance, which reads no corpus"
        name, mean, attack = reward.name, reward.mean, reward.attack
        worst = f"{reward.worst_class.replace('_', ' ')}, {percent(reward.worst.mean)}%"
        groups = ", ".join(f"{group} {percent(share.mean)}" for group, share in reward.groups.items())
        yield (
            f"{name} prefers the true continuation in {percent(mean.mean)}%{bounds(mean)} of comparisons{gained}. "
            f"Its worst class is {worst}. By group: {groups}."
        )
        if reward.unscored:
            yield f"{name} could not score {len(reward.unscored)} prompts, the first of them {reward.unscored[0]}"
        if attack is not None:
            kinds = [(kind, share) for kind, share in attack.composition.items() if share]
            made_of = ", ".join(f"{percent(share)}% {kind}" for kind, share in kinds)
            if len(kinds) < 2:
                made_of = f"all {kinds[0][0]}" if kinds else "none"
            yield (
                f"A plan grown greedily for {name} is {attack.length_ratio:.1f} times as long as the true one. Its "
                f"steps are: {made_of}. It earns more than the true one in {percent(attack.beats_true.mean)}% of "
                "prompts."
            )
    attacks = {
        "A plan grown greedily": [(reward.name, reward.attack) for reward in rewards],
        f"The best of {BEST_OF} composed plans": [(reward.name, reward.best_of) for reward in rewards],
    }
    for plan, results in attacks.items():
        shares = [f"{name} {percent(attack.beats_true.mean)}%" for name, attack in results if attack is not None]
        if shares:
            yield f"{plan} earns more than the true continuation: {', '.join(shares)} of prompts."
    for system in dict.fromkeys(system for reward in rewards for system in reward.samples):
        own = [(reward.name, reward.samples[system].true_wins) for reward in rewards if system in reward.samples]
        shares = [f"{name} {percent(share.mean)}%{bounds(share)}" for name, share in own]
        yield f"The true continuation earns more than what {system} wrote: {', '.join(shares)} of samples."
