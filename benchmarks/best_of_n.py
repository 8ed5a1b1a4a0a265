"""Best of N when plans are served, training, or both: exact validity by the number of plans that are written.

    recipe run configs/teaching-tasks.toml --data DATA --output RUN          # keeps all plans and their rewards
    python benchmarks/best_of_n.py RUN [--arms narrations lists paper gold]

Of the n plans that the base and each arm wrote for a test prompt, the expected validity of the one that the grounded
reward likes best among N drawn ones: the plan of rank r (from 0, by falling reward) is the best of N with probability
C(n - 1 - r, N - 1) / C(n, N). Means over seeds and prompts, with 95% intervals over goals. Differences are paired by
prompt. Written plans are the cost of serving; training is paid once.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import add_json, table, write_result
from numpy.typing import NDArray

from recipe.data.examples import read_examples
from recipe.planning.prediction_files import read_predictions
from recipe.reward.scorer import PromptGroup, score_or_raise
from recipe.stats import mean_interval
from recipe.types import Example
from recipe.world.load import load_world
from recipe.world.validity import ValidityScorer

COUNTS = (1, 2, 4, 8)


def best_of(rewards: Sequence[float], validity: Sequence[float]) -> list[float]:
    """The expected validity of the best by reward of each of COUNTS plans drawn from these, and the best validity.

    >>> best_of([0.2, 0.9, 0.1, 0.0, 0, 0, 0, 0], [1.0, 0.5, 0, 0, 0, 0, 0, 0])[3:]
    [0.5, 1.0]
    """
    n, order = len(rewards), np.argsort(-np.asarray(rewards), kind="stable")
    expected = [
        sum(
            math.comb(n - 1 - rank, count - 1) / math.comb(n, count) * validity[place]
            for rank, place in enumerate(order)
        )
        for count in COUNTS
    ]
    return [*expected, max(validity)]


def curves(run: Path, name: str, examples: dict[str, Example], scorer: ValidityScorer) -> NDArray[np.float64]:
    """`best_of` for each example, in their order, [examples, counts and best]."""
    plans: dict[str, list[tuple[tuple[str, ...], float]]] = {}
    for one in read_predictions(run / "rewarded" / "grounded" / f"{name}.jsonl"):
        if one.reward is None:
            raise ValueError(f"{name}: a plan of {one.example_id} has no reward")
        plans.setdefault(one.example_id, []).append((one.steps, one.reward))
    groups = [
        PromptGroup.of(one.goal, one.history, [steps for steps, _ in plans[key]]) for key, one in examples.items()
    ]
    validity = [[reward.total for reward in own] for own in score_or_raise(scorer, groups)]
    rows = zip(examples, validity, strict=True)
    return np.array([best_of([reward for _, reward in plans[key]], own) for key, own in rows])


def cells(row: dict[str, Any]) -> dict[str, Any]:
    """A row's intervals and numbers, as a table shows them."""
    names = ("mean", "low", "high")
    return {
        key: dict(zip(names, value, strict=True)) if isinstance(value, list) else value
        for key, value in row.items()
        if not isinstance(value, dict)
    }


def main() -> None:
    """Read a run, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--arms", nargs="*", default=["narrations", "lists", "paper", "gold"])
    add_json(parser, "studies-best_of_n")
    asked = parser.parse_args()
    examples = {one.example_id: one for one in read_examples(asked.run / "data" / "test.jsonl")}
    goals, scorer = [one.goal for one in examples.values()], ValidityScorer(load_world())
    names = {path.stem for path in (asked.run / "rewarded" / "grounded").glob("*.jsonl")}
    found = {"base": curves(asked.run, "base", examples, scorer)}
    for arm in asked.arms:
        own = sorted(name for name in names if name.rpartition("-")[0] in (arm, f"{arm}-rounds"))
        found[arm] = np.mean([curves(asked.run, name, examples, scorer) for name in own], axis=0)

    def interval(values: NDArray[np.float64]) -> list[float | None]:
        one = mean_interval(values.tolist(), goals)
        return [None if value is None else round(value, 4) for value in (one.mean, one.low, one.high)]

    result: dict[str, Any] = {
        name: {f"best of {count}": interval(table[:, place]) for place, count in enumerate(COUNTS)}
        | {"best possible": round(float(table[:, -1].mean()), 4)}
        for name, table in found.items()
    }
    for name in asked.arms:
        result[name]["minus best of 8 of the base"] = {
            f"best of {count}": interval(found[name][:, place] - found["base"][:, -2])
            for place, count in enumerate(COUNTS)
        }
    print(json.dumps(result, indent=1))
    write_result(
        asked.json,
        result,
        title="Best of N when plans are served, training, or both",
        guide="studies.md",
        body=[
            f"Expected exact validity of the plan that the grounded reward likes best among N; {len(examples)} test "
            "prompts, "
            "intervals over goals.",
            table({name: cells(row) for name, row in result.items()}, "plans of"),
            table(
                {name: cells(result[name]["minus best of 8 of the base"]) for name in asked.arms},
                "plans of",
                title="Minus the best of 8 of the base, paired by prompt",
            ),
        ],
    )


if __name__ == "__main__":
    main()
