"""What a comparison found, in sentences made from its figures, and what those figures do not show."""

from collections.abc import Sequence

from recipe.evaluation.metrics import METRICS
from recipe.experiments.comparison.settings import ComparisonConfig
from recipe.experiments.results import SPLITS, Cost, Difference, Reranking, Results
from recipe.experiments.settings import WorldSource
from recipe.experiments.stages import BASE
from recipe.stats import Interval


def summary(found: Results, metric: str) -> tuple[str, ...]:
    """The findings by split, the most important first; `metric` says how good a plan is."""
    sentences = []
    for split in found.splits():
        sentences += [_trained(found, split, metric), _lengths(found, split), *_chosen(found, split)]
    return (*sentences, *_watched(found), *_cost(found.costs))


def caveats(config: ComparisonConfig) -> tuple[str, ...]:
    """What a reader must not conclude."""
    common = (
        "A base planner of two million parameters and a small corpus: nothing follows for the paper's scale.",
        f"Intervals come from a bootstrap over goals of means over {len(config.seeds)} seeds; the spread over seeds is "
        "shown by the seeds one by one. All runs start from one base and are measured on one set of prompts.",
        "Best of N chooses by a ranker's reward, so that this reward is high by choice there and proves nothing.",
    )
    if isinstance(config.source, WorldSource):
        return (
            *common,
            "The base planner has read careless text about every goal, as a pretrained model has.",
            "The ceiling is paid by the very task graphs that evaluation uses; the verifiers know narrations only.",
            "A line counts as a step if its words match a wording of the world; a right one in foreign words is alien.",
        )
    return (
        *common,
        "No exact validity is known here. Step F1 compares a plan with the one continuation that was annotated: a "
        "right plan that differs from it counts as wrong. It is not the paper's judge.",
        "The corpus covers cooking; most goals of the benchmarks do not occur in it.",
    )


def _trained(found: Results, split: str, metric: str) -> str:
    base = next(row.metrics[metric].mean for row in found.scores if row.split == split and row.regime == BASE)
    parts = []
    for change in _changes(found, split, metric):
        seeds = [one.value.mean for one in found.by_seed if _same(one, change)]
        if seeds:
            parts.append(f"{change.regime} {_signed(change.value)} (seeds {', '.join(f'{s:+.3f}' for s in seeds)})")
    name = {"score": "exact validity"}.get(metric, METRICS[metric])
    return f"On {SPLITS.get(split, split)}, {name} of the base {base:.3f}; against it, {'; '.join(parts)}."


def _lengths(found: Results, split: str) -> str:
    rows = [row for row in found.scores if row.split == split and not row.regime.startswith("best")]
    errors = ", ".join(f"{row.regime} {row.metrics['length_error'].mean:+.1f}" for row in rows)
    copied = ", ".join(f"{row.regime} {100 * row.metrics['copied'].mean:.0f}%" for row in rows)
    name = SPLITS.get(split, split)
    return f"On {name}, mean steps more (+) or less than the true continuation: {errors}; copied steps: {copied}."


def _chosen(found: Results, split: str) -> list[str]:
    own = [one for one in found.rerankings if one.split == split]
    if not own:
        return []
    first = own[0]
    choices = ", ".join(f"{one.verifier} {_gain(one)}" for one in own)
    return [
        f"On {SPLITS.get(split, split)}, best of {first.count} base samples, without training: mean sample "
        f"{first.mean.mean:.3f}, chosen by {choices}, best there is {first.oracle.mean:.3f}."
    ]


def _watched(found: Results) -> list[str]:
    regimes = dict.fromkeys(curve.regime for curve in found.curves)
    told = {regime: [alarm for alarm in found.alarms if alarm.regime == regime] for regime in regimes}
    counts = [f"{regime} {len(alarms)}" for regime, alarms in told.items()]
    return [f"Findings of the watchdog, all seeds together: {', '.join(counts)}."] if counts else []


def _cost(costs: Sequence[Cost]) -> list[str]:
    shares = ", ".join(f"{cost.regime} {100 * cost.share:.1f}%" for cost in costs)
    return [f"Of the time of a GRPO step the reward took: {shares}."] if costs else []


def _changes(found: Results, split: str, metric: str) -> list[Difference]:
    return [one for one in found.differences if one.split == split and one.metric == metric]


def _same(one: Difference, change: Difference) -> bool:
    return (one.split, one.regime, one.metric) == (change.split, change.regime, change.metric)


def _gain(one: Reranking) -> str:
    return f"{one.best.mean:.3f}"


def _signed(value: Interval) -> str:
    bounds = "" if value.low is None else f" [{value.low:+.3f}, {value.high:+.3f}]"
    return f"{value.mean:+.3f}{bounds}"
