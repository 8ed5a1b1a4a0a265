"""How far the proxy judge's verdicts move with the words of the reference: the same plans, other wordings.

Examples of the embedded world, whose steps have three or more wordings each, are worded several times: the goal stays,
each step of history and reference gets one of its wordings. The plans of four systems do not change. The table gives
each system's mean accuracy over the wordings, and the shares of the variance of a verdict.

    python benchmarks/judge_wordings.py --examples 100 --wordings 5
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from common import add_json, write_result
from common import table as cells
from numpy.typing import NDArray

from recipe.artifacts import to_json
from recipe.cli.console import print_table
from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.evaluation.judge.plans import Case
from recipe.evaluation.judge.proxy import ProxyJudge
from recipe.evaluation.judge.verdicts import accuracy_of
from recipe.report.elements import Cell, Table, headings, row
from recipe.types import Example, Verdict
from recipe.world.examples import draw_examples
from recipe.world.load import load_world

WORLD = load_world()
WORDINGS = {text: texts for texts in WORLD.wordings.values() for text in texts}


@dataclass(frozen=True, slots=True)
class RaterSpread:
    """Accuracies by each rater, in percent, over the plans that all of them rated.

    The raters may be one judge whose references are worded several times: the spread is then that over wordings.
    """

    plans: int
    means: dict[str, float]
    """Mean accuracy by rater."""
    deviation: float
    """Standard deviation of these means."""
    variance: dict[str, float] | None
    """Shares of the variance of a verdict: `plans`, `raters` (a rater is stricter on all plans) and `rest` (raters
    differ on a plan); the components of a two-way random-effects analysis of variance, at least 0. None where all
    verdicts are equal."""


def main() -> None:
    """Judge each system's plans against each wording, print the table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--wordings", type=int, default=5)
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--seed", type=int, default=0)
    add_json(parser, "judge-wordings")
    arguments = parser.parse_args()
    judge = ProxyJudge(open_encoder(EncoderConfig(name=arguments.encoder)).encode, arguments.encoder)
    examples = draw_examples(WORLD, "test_goals", arguments.examples, arguments.seed)
    worded = [[reworded(one, f"{arguments.seed} {n}") for one in examples] for n in range(arguments.wordings)]
    found = {name: judged(judge, plans, worded) for name, plans in systems(examples, arguments.seed).items()}
    made = table(found, judge.identity.name, arguments.wordings)
    print_table(made)
    titles = [heading.text for heading in made.headings]
    rows = {one.name: dict(zip(titles, (cell.value for cell in one.cells), strict=True)) for one in made.rows}
    write_result(
        arguments.json,
        {"judge": to_json(judge.identity), "systems": to_json(found)},
        title="Verdicts and the words of the reference",
        guide="judge.md",
        body=[
            f"{arguments.examples} examples of the embedded world, worded {arguments.wordings} times; the plans are "
            "always the "
            f"same. {made.caption}.",
            cells(rows, "plans"),
        ],
        partial=arguments.examples < parser.get_default("examples"),
    )


def reworded(example: Example, seed: str) -> Example:
    """The example with one of its wordings for each step."""
    rng = random.Random(f"{seed} {example.example_id}")
    history, continuation = (
        tuple(rng.choice(WORDINGS[step]) for step in steps) for steps in (example.history, example.continuation)
    )
    return replace(example, history=history, continuation=continuation, worded=True)


def systems(examples: list[Example], seed: int) -> dict[str, list[tuple[str, ...]]]:
    """The plans of four systems, none of them in the words of a reference but by chance."""
    valid = [reworded(one, f"{seed} plan").continuation for one in examples]
    rng = random.Random(seed)
    return {
        "valid, other words": valid,
        "first half": [plan[: len(plan) // 2] for plan in valid],
        "shuffled": [tuple(rng.sample(plan, len(plan))) for plan in valid],
        "other goal": valid[1:] + valid[:1],
    }


def judged(judge: ProxyJudge, plans: list[tuple[str, ...]], worded: list[list[Example]]) -> RaterSpread:
    """The spread over wordings of the accuracies of a system's plans."""
    rows = []
    for examples in worded:
        cases = [Case(example, steps) for example, steps in zip(examples, plans, strict=True)]
        outcomes = [one.outcome for one in judge.judge(cases)]
        rows.append([accuracy_of(one) for one in outcomes if isinstance(one, Verdict)])
    spread = spread_of([f"wording {n + 1}" for n in range(len(worded))], np.array(rows))
    assert spread is not None
    return spread


def table(found: dict[str, RaterSpread], judge: str, wordings: int) -> Table:
    """A row a system."""
    rows = []
    for name, one in found.items():
        means, shares = list(one.means.values()), one.variance or {}
        numbers = (fmean(means), one.deviation, min(means), max(means))
        parts = (shares.get(part) for part in ("plans", "raters", "rest"))
        rows.append(row(name, *(Cell(x, 1) for x in numbers), *(Cell(x, 1, percent=True) for x in parts)))
    return Table(
        caption=f"{judge}, {wordings} wordings: accuracy in percent, and shares of the variance of a verdict",
        first="system",
        headings=headings("mean", "sd", "lowest", "highest", "plans", "wordings", "rest"),
        rows=tuple(rows),
    )


def spread_of(names: Sequence[str], table: NDArray[np.float64]) -> RaterSpread | None:
    """The spread of accuracies [raters, plans], NaN where there is none; plans without one by every rater are left out.

    >>> spread_of(["a", "b"], np.array([[50.0, 70.0], [60.0, 80.0]])).variance
    {'plans': 0.8, 'raters': 0.2, 'rest': 0.0}
    """
    whole = table[:, ~np.isnan(table).any(axis=0)]
    raters, plans = whole.shape
    if plans < 2:
        return None
    by_rater, by_plan = whole.mean(axis=1), whole.mean(axis=0)
    rest = whole - by_rater[:, None] - by_plan + whole.mean()
    squares = float(np.square(rest).sum()) / ((raters - 1) * (plans - 1))
    components = {
        "plans": max(0.0, float(by_plan.var(ddof=1)) - squares / raters),
        "raters": max(0.0, float(by_rater.var(ddof=1)) - squares / plans),
        "rest": squares,
    }
    total = sum(components.values())
    shares = {name: value / total for name, value in components.items()} if total > 0 else None
    means = dict(zip(names, map(float, by_rater), strict=True))
    return RaterSpread(plans, means, float(by_rater.std(ddof=1)), shares)


if __name__ == "__main__":
    main()
