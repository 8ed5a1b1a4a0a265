"""What a choice among a base's plans depends on: how many narrations the reward reads, and whether plans are composed.

    recipe plan --model RUN/base/model --examples RUN/data/validation.jsonl --count 8 --output PLANS
    python benchmarks/choosing.py RUN PLANS RUN/data/validation.jsonl --name NAME --title TITLE [--corpus corpora/lists]

RUN is the folder of a teaching study. Of each prompt's plans the best by the grounded reward is taken, the best of them
and their crossings (`recipe.reward.composition`), and of these the one that the others agree with most, each weighed by
exp(reward / s), where s is the standard deviation of the rewards of the prompt. Two plans agree by the F1 of their
steps in order, of which two count as equal as far as the encoder finds them alike (Kumar and Byrne, Minimum
Bayes-risk decoding, 2004). Measured are exact validity on the embedded world, or else matched step F1 and the proxy;
differences are paired by prompt, with 95% intervals over goals.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from common import add_json, best, table, totals, write_result
from numpy.typing import NDArray

from recipe.config import RewardConfig, ValidationSettings
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples
from recipe.evaluation.matching import Likeness, calibrate
from recipe.evaluation.plan_measures import plan_measure
from recipe.planning.prediction_files import read_predictions
from recipe.reward.composition import crossings
from recipe.reward.scorer import Steps
from recipe.reward.verifier import Verifier
from recipe.stats import mean_interval

WAYS = (
    "Validation prompts. *Best* is the plan with the highest grounded reward, *composed* that of these and their "
    "crossings, *consensus* of all of these the one that the others agree with most, each weighed by its reward. "
    "Columns with *minus* are paired differences to the same way with {} narrations in the pool."
)
AGREEING = 300
"""Plans of a prompt, the best ones, that a consensus is made of."""
_AT_ONCE = 64


def agreement(plans: Sequence[Steps], likeness: Likeness) -> NDArray[np.float32]:
    """F1 in order of each two of P plans, [P, P], with likenesses in place of equal steps."""
    steps = sorted({step for plan in plans for step in plan})
    place = {step: number for number, step in enumerate(steps)}
    alike = np.pad(likeness.between(steps, steps), ((0, 1), (0, 1)))
    lengths = np.array([len(plan) for plan in plans])
    longest = int(lengths.max())
    index = np.array([[*(place[step] for step in plan), *[len(steps)] * (longest - len(plan))] for plan in plans])
    result = np.zeros((len(plans), len(plans)), np.float32)
    for first in range(0, len(plans), _AT_ONCE):
        some = index[first : first + _AT_ONCE]
        matched = np.zeros((len(some), len(plans), longest + 1), np.float32)
        for own in some.T:  # the dynamic programme of `ordered_likeness`, for all pairs at once
            also = matched[:, :, :-1] + alike[own[:, None, None], index[None]]
            matched[:, :, 1:] = np.maximum(matched[:, :, 1:], also)
            matched = np.maximum.accumulate(matched, axis=2)
        total = np.maximum(lengths[first : first + _AT_ONCE, None] + lengths[None], 1)
        result[first : first + _AT_ONCE] = 2 * matched[:, :, -1] / total
    return result


def consensus(own: Mapping[Steps, float], likeness: Likeness) -> Steps:
    """The plan that the others agree with most, by their rewards."""
    plans = sorted(own, key=own.__getitem__, reverse=True)[:AGREEING]
    earned = np.array([own[plan] for plan in plans])
    weights = np.exp((earned - earned.max()) / max(float(np.std([*own.values()])), 1e-12))
    return plans[int(np.argmax(agreement(plans, likeness) @ weights))]


def main() -> None:
    """Read plans, choose among them in each way, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("plans", type=Path)
    parser.add_argument("examples", type=Path)
    parser.add_argument("--name", required=True, help="ends the name of the result")
    parser.add_argument("--title", required=True, help="what the plans are for")
    parser.add_argument("--corpus", default="corpus", help="folder below RUN")
    parser.add_argument("--count", type=int, default=8, help="plans of a prompt")
    parser.add_argument("--pools", type=int, nargs="+", default=[100, 40, 20, 10])
    add_json(parser, "planning-choosing_NAME")
    asked = parser.parse_args()
    examples = {one.example_id: one for one in read_examples(asked.examples)}
    sampled: dict[str, list[Steps]] = {name: [] for name in examples}
    for one in read_predictions(asked.plans):
        if one.sample < asked.count and one.steps:
            sampled[one.example_id].append(one.steps)
    wanted = [one for name, one in examples.items() if sampled[name]]
    plans = [list(dict.fromkeys(sampled[one.example_id])) for one in wanted]
    prompts, goals = [(one.goal, one.history) for one in wanted], [one.goal for one in wanted]
    corpus = Corpus.open(asked.run / asked.corpus)
    names = ("validity",) if all(one.source == "world" for one in wanted) else ("matched_f1", "proxy")
    measures = {name: plan_measure(ValidationSettings(examples=asked.examples, measure=name)) for name in names}
    known: dict[str, dict[str, list[float]]] = {}
    rows: dict[str, dict[str, Any]] = {}

    def add(way: str, pool: int, chosen: Sequence[Steps]) -> None:
        row: dict[str, Any] = {"steps": round(fmean(map(len, chosen)), 2)}
        own: dict[str, list[float]] = {}
        for name, measure in measures.items():
            assert measure is not None
            own[name] = [value for value in measure(wanted, chosen) if value is not None]
            row[name] = fmean(own[name])
            if (first := known.get(way)) is not None:
                gap = mean_interval([a - b for a, b in zip(own[name], first[name], strict=True)], goals)
                row[f"{name}, minus that of {asked.pools[0]}"] = {"mean": gap.mean, "low": gap.low, "high": gap.high}
        known.setdefault(way, own)
        rows[f"{way}, {pool} narrations"] = row

    calibration = None
    for pool in asked.pools:
        config = RewardConfig.model_validate({"verifier": "grounded", "grounded": {"pool_size": pool}})
        verifier = Verifier(corpus, config)
        calibration = calibration or calibrate(verifier.embed)
        some = totals(verifier, prompts, plans)
        crossed = totals(verifier, prompts, [crossings([*own]) for own in some])
        both = [own | more for own, more in zip(some, crossed, strict=True)]
        add("best", pool, best(some))
        add("composed", pool, best(both))
        likenesses = (Likeness(verifier.embed, calibration, [step for plan in own for step in plan]) for own in both)
        add("consensus", pool, [consensus(own, alike) for own, alike in zip(both, likenesses, strict=True)])
    values = {"plans": asked.name, "prompts": len(wanted), "goals": len(set(goals)), "choices": rows}
    print(json.dumps(values, indent=1))
    text = f"{len(wanted)} prompts of {len(set(goals))} goals, {asked.count} plans of each."
    target = asked.json.with_name(asked.json.name.replace("NAME", asked.name))
    write_result(
        target,
        values,
        title=f"Choosing among {asked.count} plans: {asked.title}",
        guide="planning.md",
        body=[text, WAYS.format(asked.pools[0]), table(rows, "choice")],
    )


if __name__ == "__main__":
    main()
