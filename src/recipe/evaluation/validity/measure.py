"""Measures of predictions, sample by sample and prompt by prompt.

Where goals have task graphs, those of the embedded world or others, they include validity against them. Elsewhere there
is no such truth: what is left is the reward, the length, and how many samples differ.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from recipe.errors import InputError
from recipe.evaluation.diversity.plans import PLANS
from recipe.evaluation.metrics import Difference
from recipe.evaluation.validity.readings import MOST_LINES, GraphPlan, PlanReader, WorldReader
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.stats import Interval, mean_interval, paired_interval
from recipe.types import Example
from recipe.world.graph import World
from recipe.world.validity import PlanKey, Validity

REWARDS = ("paper", "grounded", "self-trained", "relevance")
"""Metrics that are rewards, by the name of what pays them."""
_SHOWN_DIFFERENCES = (
    "score", "matched_f1", "matched_ordered_f1", "f1", "ordered_f1", "order", "coverage", "clean", "perfect", "steps",
    "length_error", "length_apart", "repeats", "copied", "proxy", "reward", "distinct", *REWARDS,
)  # fmt: skip
# Plans whose lines are compared with steps together.
_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class RegimeScores:
    """One row of the table: a regime's means on a split, by metric (see `evaluation.metrics.METRICS`)."""

    split: str
    regime: str
    metrics: dict[str, Interval]
    prompts: int = 0
    samples: int = 0
    """Samples of each prompt."""

    @classmethod
    def of(cls, split: str, regime: str, means: "PromptMeans", seed: int = 0) -> "RegimeScores":
        """One row of the report's table: every metric's mean with its interval clustered by goal."""
        metrics = {name: mean_interval(values, means.goals, seed) for name, values in means.values.items()}
        return cls(split, regime, metrics, prompts=len(means.example_ids), samples=means.samples)


@dataclass(frozen=True, slots=True)
class Reranking:
    """Best-of-N by the verifier, without training: validity of a mean, its pick, the best sample."""

    split: str
    regime: str
    """Whose samples were ranked."""
    count: int
    """N, samples of each prompt."""
    mean: Interval
    best: Interval
    oracle: Interval
    metric: str = "score"
    verifier: str = "paper"

    @classmethod
    def of(
        cls,
        split: str,
        regime: str,
        scored: Sequence["ScoredPlan"],
        count: int,
        metric: str = "score",
        seed: int = 0,
        verifier: str = "paper",
    ) -> "Reranking":
        """Validity of the sample with the highest reward among the first `count`, with their mean and their best."""
        groups = _first_samples(scored, count)
        goals = [group[0].goal for group in groups]
        table = np.array([[plan.metrics()[metric] for plan in group] for group in groups])
        chosen = np.array([plan.metrics()[metric] for plan in best_of(scored, count)])
        parts = (table.mean(1), chosen, table.max(1))
        mean, best, oracle = (mean_interval(part, goals, seed) for part in parts)
        return cls(split, regime, count, mean, best, oracle, metric, verifier)


@dataclass(frozen=True, slots=True)
class PlanLengths:
    """How many plans have 0, 1, 2, ... steps; `counts[n]` is the number with n steps."""

    split: str
    regime: str
    counts: tuple[int, ...]

    @classmethod
    def of(cls, split: str, regime: str, scored: Sequence["ScoredPlan"]) -> "PlanLengths":
        """How many plans have how many steps."""
        counts = np.bincount([plan.steps for plan in scored])
        return cls(split, regime, tuple(int(count) for count in counts))


@dataclass(frozen=True, slots=True)
class ScoredPlan:
    """A prediction and its measures; what is not known is None."""

    example_id: str
    goal: str
    sample: int
    key: PlanKey
    """Equal for plans that differ in wording only; the texts themselves where there is no task graph."""
    steps: int
    validity: Validity | None = None
    """None where there is no task graph."""
    reward: float | None = None
    gated: bool | None = None
    more: Mapping[str, float] = field(default_factory=dict)
    """Further metrics of an experiment of its own."""
    reading: GraphPlan | None = None
    """The plan line by line; None where there is no task graph."""
    texts: tuple[str, ...] = ()
    """The plan as it was written."""

    def metrics(self) -> dict[str, float]:
        """Every metric of one plan (see `evaluation.metrics.METRICS`); those that are not known are left out."""
        known: dict[str, float | None] = {}
        if (validity := self.validity) is not None:
            known = {
                "score": validity.score,
                "order": validity.order,
                "coverage": validity.coverage,
                "clean": validity.clean,
                "perfect": float(validity.perfect),
                "repeats": validity.repeated + validity.copied,
                "alien": validity.alien + validity.unrecognised,
            }
        known |= {"steps": self.steps, "malformed": self.steps == 0}
        known |= {"reward": self.reward, "gated": self.gated, **self.more}
        return {name: float(value) for name, value in known.items() if value is not None}


@dataclass(frozen=True, slots=True)
class PromptMeans:
    """Each metric's mean over the samples of each prompt; arrays are [prompts]."""

    example_ids: tuple[str, ...]
    goals: tuple[str, ...]
    samples: int
    """Samples of a prompt: the smallest number where they differ."""
    values: dict[str, NDArray[np.float64]]

    @classmethod
    def of(cls, scored: Sequence[ScoredPlan]) -> "PromptMeans":
        """Means over the samples of each prompt, in order of first appearance.

        A metric that some plan lacks is left out. Distinct plans are counted where every prompt has ten samples.
        """
        groups: dict[str, list[dict[str, float]]] = {}
        for plan, metrics in zip(scored, plan_metrics(scored), strict=True):
            groups.setdefault(plan.example_id, []).append(metrics)
        names = next(iter(groups.values()))[0] if groups else {}
        values = {name: np.array([np.mean([plan[name] for plan in own]) for own in groups.values()]) for name in names}
        # In the order of the groups, which are by first appearance as well.
        goals = tuple({plan.example_id: plan.goal for plan in scored}.values())
        samples = min(map(len, groups.values()), default=0)
        return cls(tuple(groups), goals, samples, values)

    @classmethod
    def over_runs(cls, runs: Sequence["PromptMeans"]) -> "PromptMeans":
        """Each prompt's mean over several runs, such as seeds, of the metrics that all of them have.

        Raises InputError where their prompts differ.
        """
        first, *others = runs
        if any(run.example_ids != first.example_ids for run in others):
            raise InputError("runs of different prompts have no mean over runs; plan for equal ones.")
        shared = [name for name in first.values if all(name in run.values for run in others)]
        values = {name: np.mean([run.values[name] for run in runs], axis=0) for name in shared}
        return cls(first.example_ids, first.goals, min(run.samples for run in runs), values)


def score_predictions(
    reader: World | PlanReader | None,
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    progress: Progress = SILENT,
) -> list[ScoredPlan]:
    """Every prediction with what is known of it, in order; without a world or a reader there is no validity.

    Raises InputError for an unknown example, and for a goal that the reader does not know.
    """
    if isinstance(reader, World):
        reader = WorldReader(reader)
    known = {example.example_id: example for example in examples}
    if unknown := [prediction.example_id for prediction in predictions if prediction.example_id not in known]:
        raise InputError(f"no example is called {unknown[0]!r}; give the examples planned for.")
    scored = []
    with progress.task("checking plans", total=len(predictions)) as advance:
        for start in range(0, len(predictions), _AT_ONCE):
            block = [(known[prediction.example_id], prediction) for prediction in predictions[start : start + _AT_ONCE]]
            if reader is not None:  # the lines of a whole block are compared with steps in one call
                reader.learn(
                    (example.goal, text)
                    for example, prediction in block
                    for text in (*example.history[:MOST_LINES], *prediction.steps[:MOST_LINES])
                )
            for example, prediction in block:
                reading, key = None, tuple(step.casefold() for step in prediction.steps)
                if reader is not None:
                    reading = reader.read(example.goal, example.history, prediction.steps)
                scored.append(
                    ScoredPlan(
                        example_id=example.example_id,
                        goal=example.goal,
                        sample=prediction.sample,
                        key=key if reading is None else reading.plan,
                        steps=len(key if reading is None else reading.plan),
                        validity=None if reading is None else reading.score(),
                        reward=prediction.reward,
                        gated=prediction.gated,
                        reading=reading,
                        texts=prediction.steps,
                    )
                )
                advance(1)
    return scored


def plan_metrics(scored: Sequence[ScoredPlan]) -> list[dict[str, float]]:
    """The metrics of each plan; one that some plan lacks is left out.

    Distinct plans of an example are counted where every example has ten samples.
    """
    groups: dict[str, list[ScoredPlan]] = {}
    for plan in scored:
        groups.setdefault(plan.example_id, []).append(plan)
    rows = [plan.metrics() for plan in scored]
    # A mean over some plans would stand next to means over others.
    shared = [name for name in (rows[0] if rows else {}) if all(name in row for row in rows)]
    distinct: dict[str, float] = {}
    if min(map(len, groups.values()), default=0) >= PLANS:
        # Of equally many of each: more samples hold more different plans.
        distinct = {name: float(len({plan.key for plan in group[:PLANS]})) for name, group in groups.items()}
    return [
        {name: row[name] for name in shared} | ({"distinct": distinct[plan.example_id]} if distinct else {})
        for plan, row in zip(scored, rows, strict=True)
    ]


def differences(
    split: str, regime: str, means: PromptMeans, baseline: str, base: PromptMeans, seed: int = 0
) -> tuple[Difference, ...]:
    """`regime` minus `baseline` on the same prompts; raises InputError where the prompts differ."""
    if set(means.example_ids) != set(base.example_ids):
        raise InputError(f"{regime!r} and {baseline!r} have different prompts; pair equal ones.")
    index = {example_id: row for row, example_id in enumerate(base.example_ids)}
    # The rows of the baseline in the order of the other's prompts.
    order = [index[example_id] for example_id in means.example_ids]
    shared = [name for name in _SHOWN_DIFFERENCES if name in means.values and name in base.values]

    pairs = ((means.values[name], base.values[name][order]) for name in shared)
    intervals = [paired_interval(ours, theirs, means.goals, seed) for ours, theirs in pairs]
    return tuple(
        Difference(split, regime, baseline, name, value) for name, value in zip(shared, intervals, strict=True)
    )


def best_of(scored: Sequence[ScoredPlan], count: int) -> list[ScoredPlan]:
    """Of the first `count` samples of each prompt, the one with the highest reward; the earliest of equals.

    Raises InputError where a prompt has fewer samples or a plan has no reward.
    """
    groups = _first_samples(scored, count)
    if unscored := [plan.example_id for group in groups for plan in group if plan.reward is None]:
        raise InputError(f"a plan of {unscored[0]!r} has no reward; score the predictions first.")
    rewards = [[float(plan.reward or 0.0) for plan in group] for group in groups]
    # `index` takes the earliest of equals, so that a reward that says nothing chooses as chance does.
    return [group[own.index(max(own))] for group, own in zip(groups, rewards, strict=True)]


def _first_samples(scored: Sequence[ScoredPlan], count: int) -> list[list[ScoredPlan]]:
    """The first `count` samples of each prompt."""
    groups: dict[str, list[ScoredPlan]] = {}
    for plan in sorted(scored, key=lambda plan: plan.sample):
        groups.setdefault(plan.example_id, []).append(plan)
    short = [example_id for example_id, group in groups.items() if len(group) < count]
    if short:
        raise InputError(f"{short[0]!r} has fewer than {count} samples; sample more or choose among fewer.")
    # In the order that plans were given in, and not that of their sample numbers.
    return [groups[example_id][:count] for example_id in dict.fromkeys(plan.example_id for plan in scored)]
