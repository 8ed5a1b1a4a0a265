"""The paper's claims, each fed with cells on its side, on the other side, and too far apart to tell."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.reproduce.conftest import planned

from recipe.artifacts import write_jsonl
from recipe.data.examples import write_examples
from recipe.planning.planner import prediction_of
from recipe.planning.prediction_files import write_predictions
from recipe.types import Example
from recipe_studies.reproduce.data import PROMPTS
from recipe_studies.reproduce.findings import measure_table
from recipe_studies.reproduce.study import Endpoints, PaperStudy
from recipe_studies.reproduce.tables import table

GOALS, SPLITS = 12, {"test_cuts": "in-domain", "test_goals": "zero-shot"}
Cells = Mapping[str, float | tuple[float, float]]
"""Of each regime the mean in-domain and zero-shot, or in both."""
MIXES = ("sft-weak-0", "sft-weak-25", "sft-weak-50", "sft-weak-75", "sft-weak-100")


def verdicts(
    folder: Path, name: str, cells: Cells, diversity: Cells | None = None, noise: float = 0.05, title: str = ""
) -> dict[tuple[str, str], str]:
    """The verdict on each claim of a table, by what it begins with and its column, where cells have these means.

    Prompts are of a goal each. They differ by `noise`, in each regime in its own way, so that differences do, too.
    """
    server = {"model": "m", "endpoint": "http://127.0.0.1:1/v1"}
    endpoints = Endpoints.model_validate({"frontier": {"alpha": server}} if name == "frontier" else {})
    made = planned(PaperStudy((name,), ("tiny",), None, seeds=(1,), endpoints=endpoints))
    examples = [
        Example(f"{split}-{n}", "world", f"{split}{n}", f"goal {split} {n}", ("start",), ("go on", "end"), 1, split)
        for split in SPLITS
        for n in range(GOALS)
    ]
    write_examples(folder / PROMPTS, examples)
    order = [*dict.fromkeys(run.regime for run in (*made.runs, *made.frontier))]
    for run in (*made.runs, *made.frontier):
        write_predictions(folder / run.file("plans"), [prediction_of(e.example_id, 0, "1. go on") for e in examples])
        for kind, measure, given in (("scores", "accuracy", cells), ("diversity", "diversity", diversity or {})):
            level = given.get(run.regime, 0.0)
            levels = level if isinstance(level, tuple) else (level, level)
            away = np.random.default_rng(order.index(run.regime)).normal(size=(len(SPLITS), GOALS)) * noise
            away -= away.mean(axis=1, keepdims=True)  # so that the means are those of the cells
            values = (np.array(levels)[:, None] + away).ravel()
            rows = [
                {"example_id": example.example_id, "sample": 0, measure: float(value), "steps": 1}
                for example, value in zip(examples, values, strict=True)
            ]
            write_jsonl(folder / run.file(kind), rows)
    if title:
        made = replace(made, scale=made.scale.model_copy(update={"title": title}))
    found = measure_table(folder, made, table(name)).findings
    return {(one.sentence, one.column): one.verdict for one in found}


def mix(*levels: float) -> Cells:
    """Means of SFT by the share of weak examples."""
    return dict(zip(MIXES, levels, strict=True))


def weaker(in_domain: float, zero_shot: float) -> Cells:
    """RL with weak examples so far below RL without."""
    weak = (39.2 - in_domain, 39.4 - zero_shot)
    return {"rl-weak-0": (39.2, 39.4), "rl-weak-25": weak, "rl-weak-100": weak}


HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot tell"
ABOVE, BELOW = "above annotations alone", "above pseudo-traces alone"


@pytest.mark.parametrize(
    ("name", "cells", "noise", "wanted"),
    [
        # The best mix counts: one that is below both ends takes nothing away, and a rise up to 100% is no peak.
        ("weak", mix(10, 12, 20, 5, 11), 0.05, {ABOVE: [HOLDS] * 2, BELOW: [HOLDS] * 2}),
        ("weak", mix(10, 11, 12, 13, 20), 0.05, {ABOVE: [HOLDS] * 2, BELOW: [FAILS] * 2}),
        ("weak", mix(10, 10, 10, 10, 10), 0.05, {ABOVE: [OPEN] * 2, BELOW: [OPEN] * 2}),
        ("weak", dict.fromkeys(MIXES, 10) | {"sft-weak-50": (20, 10)}, 0.05, {ABOVE: [HOLDS, OPEN]}),
        # The paper's own loss at 3B is the margin: .6 in-domain, 3.4 zero-shot.
        ("weak", weaker(0.4, 3.0), 0.02, {"RL with 25%": [HOLDS, HOLDS], "RL with 100%": [HOLDS, HOLDS]}),
        ("weak", weaker(0.8, 3.0), 0.02, {"RL with 25%": [FAILS, HOLDS], "RL with 100%": [FAILS, HOLDS]}),
        ("weak", weaker(0.4, 3.8), 0.02, {"RL with 25%": [HOLDS, FAILS], "RL with 100%": [HOLDS, FAILS]}),
        ("weak", weaker(-0.8, -3.8), 0.02, {"RL with 25%": [FAILS] * 2}),  # more is not like, either
        ("weak", weaker(0.4, 3.0), 2.0, {"RL with 100%": [OPEN] * 2}),
        # Within half a point, at 7B alone.
        ("main", {"base": 30.0, "rl": (46.6, 46.3)}, 0.02, {"as good in-domain": [HOLDS]}),
        ("main", {"base": 30.0, "rl": (46.9, 46.1)}, 0.02, {"as good in-domain": [FAILS]}),
        ("main", {"base": 30.0, "rl": (45.3, 46.1)}, 0.02, {"as good in-domain": [FAILS]}),
        ("main", {"base": 30.0, "rl": (46.6, 46.3)}, 2.0, {"as good in-domain": [OPEN]}),
        # The order of a frontier model's splits, whatever their distance to the base, whose own order is the reverse.
        (
            "frontier",
            {"base": (31.4, 23.1), "rl": (23.0, 31.0), "alpha": (55.5, 69.0)},
            0.05,
            {"alpha": [HOLDS], "the base, in reverse": [HOLDS], "RL, in reverse": [FAILS]},
        ),
        ("frontier", {"base": 1.0, "rl": 1.0, "alpha": (69.0, 55.5)}, 0.05, {"alpha": [FAILS]}),
        ("frontier", {"base": 1.0, "rl": 1.0, "alpha": (60.0, 60.1)}, 2.0, {"alpha": [OPEN]}),
    ],
)
def test_claims_of_accuracy(
    tmp_path: Path, name: str, cells: Cells, noise: float, wanted: Mapping[str, list[str]]
) -> None:
    found = verdicts(tmp_path, name, cells, noise=noise, title="Qwen2.5-7B" if name == "main" else "")
    for words, expected in wanted.items():
        assert [verdict for (sentence, _), verdict in found.items() if words in sentence] == expected


@pytest.mark.parametrize(
    ("rl", "noise", "above", "not_below"),
    [
        (0.373, 0.001, HOLDS, HOLDS),
        (0.34, 0.001, FAILS, HOLDS),
        (0.30, 0.001, FAILS, FAILS),
        (0.348, 0.001, OPEN, HOLDS),
        (0.34, 0.03, OPEN, OPEN),
    ],
)
def test_claims_of_diversity(tmp_path: Path, rl: float, noise: float, above: str, not_below: str) -> None:
    """The appendix says more, section 4.7 as much: two claims, of which the second has a margin of .02."""
    cells: Cells = {"base": 39.4, "rl": 48.9, "sft-annotated": 31.8}
    diversity: Cells = {"base": 0.348, "rl": rl, "sft-annotated": 0.165}
    found = verdicts(tmp_path, "diversity", cells, diversity, noise=noise)
    assert [*found.values()] == [HOLDS, not_below, above, HOLDS, HOLDS, HOLDS]
