"""What an experiment found, in sentences made from its figures, and what those figures do not show."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from recipe.experiments.results import SPLITS, Curve, Difference, Results
from recipe.experiments.settings import ExperimentConfig, WorldSource

WINDOW = 8
"""Steps averaged at either end of training, fewer in a short run."""


def summary(found: Results, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The findings, the most important first."""
    measure = "score" if any("score" in row.metrics for row in found.scores) else "reward"
    sentences = [_split_sentence(found, split, measure) for split in found.splits()]
    sentences += [_training_sentence(curve) for curve in found.curves]
    sentences += _hand_made_sentence(found)
    return (*sentences, *_cost_sentence(rows))


def caveats(config: ExperimentConfig) -> tuple[str, ...]:
    """What a reader must not conclude."""
    common = (
        "One seed, a base planner of two million parameters and a small corpus: nothing follows for the paper's scale.",
        "Intervals come from a bootstrap over goals; they do not cover the choice of seed.",
    )
    if not isinstance(config.source, WorldSource):
        return (
            *common,
            "No exact validity is known here: the reward is the verifier's own opinion, and its rise proves nothing "
            "about plans.",
            "The corpus covers cooking; most goals of the benchmarks do not occur in it.",
        )
    return (
        *common,
        "The base planner has read careless text about every goal, also the held-out ones, as a pretrained model has.",
        "A line counts as a step if its words match a wording of the world; a right step in foreign words is alien.",
        "SFT learns from gold continuations of the very graphs that evaluation uses; RL sees the narrations only.",
    )


def _split_sentence(found: Results, split: str, measure: str) -> str:
    means = {row.regime: row.metrics[measure].mean for row in found.scores if row.split == split}
    shown = ", ".join(f"{regime} {mean:.3f}" for regime, mean in means.items())
    name = {"score": "exact validity", "reward": "reward"}[measure]
    changes = [d for d in found.differences if d.split == split and d.metric == measure]
    return f"On {SPLITS.get(split, split)}, {name}: {shown}. Against the base: {'; '.join(map(_change, changes))}."


def _change(difference: Difference) -> str:
    value = difference.value
    bounds = "" if value.low is None else f" [{value.low:+.3f}, {value.high:+.3f}]"
    return f"{difference.regime} {value.mean:+.3f}{bounds}"


def _training_sentence(curve: Curve) -> str:
    window = max(1, min(WINDOW, len(curve.steps) // 2))
    parts = []
    for name, words in (("reward", "the reward"), ("length", "steps in a plan"), ("validity", "exact validity")):
        known = [value for value in curve.series.get(name, ()) if value is not None]
        if known:
            parts.append(f"{words} went from {fmean(known[:window]):.2f} to {fmean(known[-window:]):.2f}")
    ends = f"means of {window} steps at either end"
    return f"While {curve.regime} trained, over its own samples, {', '.join(parts)} ({ends})."


def _hand_made_sentence(found: Results) -> list[str]:
    known = {plan.name: plan.parts.total for plan in found.hand_made}
    if "true continuation" not in known:
        return []
    true = known.pop("true continuation")
    better = [f"{name} ({total:.3f})" for name, total in known.items() if total >= true]
    if not better:
        return [f"The verifier pays the true continuation {true:.3f}, more than each of {len(known)} spoiled plans."]
    return [f"The verifier pays the true continuation {true:.3f}, and no less for: {', '.join(better)}."]


def _cost_sentence(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    shares = [row["reward_seconds"] / row["step_seconds"] for row in rows if "reward_seconds" in row]
    return [f"The reward took {100 * fmean(shares):.1f}% of the time of a GRPO step."] if shares else []
