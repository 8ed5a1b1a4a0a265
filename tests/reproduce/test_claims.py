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


def of(found: Mapping[tuple[str, str], str], *words: str) -> list[str]:
    """The verdicts on the claims with these words, column by column."""
    chosen = [verdict for (sentence, _), verdict in found.items() if all(word in sentence for word in words)]
    assert chosen
    return chosen


def test_sft_peaks_at_a_mix(tmp_path: Path) -> None:
    """The best mix counts: one that is below both ends takes nothing away, and a rise up to 100% is no peak."""
    peak, rise, flat = (dict(zip(MIXES, levels, strict=True)) for levels in (
        (10, 12, 20, 5, 11), (10, 11, 12, 13, 20), (10, 10, 10, 10, 10)
    ))  # fmt: skip
    above, below = "annotations alone", "pseudo-traces alone"
    found = verdicts(tmp_path, "weak", peak)
    assert of(found, "peaks", above) == of(found, "peaks", below) == ["holds"] * 2
    found = verdicts(tmp_path, "weak", rise)
    assert of(found, "peaks", above) == ["holds"] * 2
    assert of(found, "peaks", below) == ["does not hold"] * 2
    found = verdicts(tmp_path, "weak", flat)
    assert {*of(found, "peaks")} == {"cannot tell"}
    apart = {name: (level, flat[name]) for name, level in peak.items()}
    assert of(verdicts(tmp_path, "weak", apart), "peaks", above) == ["holds", "cannot tell"]


@pytest.mark.parametrize(
    ("change", "noise", "wanted"),
    [
        ((0.4, 3.0), 0.02, ["holds", "holds"]),
        ((0.8, 3.0), 0.02, ["does not hold", "holds"]),
        ((0.4, 3.8), 0.02, ["holds", "does not hold"]),
        ((-0.8, -3.8), 0.02, ["does not hold", "does not hold"]),  # more is not like, either
        ((0.4, 3.0), 2.0, ["cannot tell", "cannot tell"]),
    ],
)
@pytest.mark.parametrize("percent", [25, 100])
def test_weak_supervision_hardly_matters(
    tmp_path: Path, percent: int, change: tuple[float, float], noise: float, wanted: list[str]
) -> None:
    """The paper's own loss at 3B is the margin: .6 in-domain, 3.4 zero-shot."""
    cells: Cells = {"rl-weak-0": (39.2, 39.4), f"rl-weak-{percent}": (39.2 - change[0], 39.4 - change[1])}
    assert of(verdicts(tmp_path, "weak", cells, noise=noise), f"RL with {percent}%", "is like") == wanted


@pytest.mark.parametrize(
    ("rl", "noise", "wanted"),
    [((46.6, 46.3), 0.02, "holds"), ((46.9, 46.1), 0.02, "does not hold"), ((45.3, 46.1), 0.02, "does not hold"),
     ((46.6, 46.3), 2.0, "cannot tell")],
)  # fmt: skip
def test_7b_is_as_good_in_domain_as_zero_shot(
    tmp_path: Path, rl: tuple[float, float], noise: float, wanted: str
) -> None:
    """Within half a point, at 7B alone."""
    cells: Cells = {"base": 30.0, "rl": rl}
    assert of(verdicts(tmp_path, "main", cells, noise=noise, title="Qwen2.5-7B"), "as good in-domain") == [wanted]
    assert not any("as good" in sentence for sentence, _ in verdicts(tmp_path, "main", cells, title="Qwen2.5-3B"))


@pytest.mark.parametrize(
    ("alpha", "noise", "wanted"),
    [((55.5, 69.0), 0.05, "holds"), ((69.0, 55.5), 0.05, "does not hold"), ((60.0, 60.1), 2.0, "cannot tell")],
)
def test_a_frontier_model_is_better_zero_shot(
    tmp_path: Path, alpha: tuple[float, float], noise: float, wanted: str
) -> None:
    """The order of its splits, whatever their distance to the base, whose own order is the reverse."""
    cells: Cells = {"base": (31.4, 23.1), "rl": (23.0, 31.0), "alpha": alpha}
    found = verdicts(tmp_path, "frontier", cells, noise=noise)
    assert of(found, "alpha") == [wanted]
    if noise < 1:
        assert of(found, "the base, in reverse") == ["holds"]
        assert of(found, "RL, in reverse") == ["does not hold"]


@pytest.mark.parametrize(
    ("rl", "above", "not_below"),
    [(0.373, "holds", "holds"), (0.34, "does not hold", "holds"), (0.30, "does not hold", "does not hold"),
     (0.348, "cannot tell", "holds")],
)  # fmt: skip
def test_plans_of_rl_are_more_diverse_than_those_of_the_base(
    tmp_path: Path, rl: float, above: str, not_below: str
) -> None:
    """The appendix says more, section 4.7 as much: two claims, of which the second has a margin of .02."""
    cells: Cells = {"base": 39.4, "rl": 48.9, "sft-annotated": 31.8}
    diversity: Cells = {"base": 0.348, "rl": rl, "sft-annotated": 0.165}
    found = verdicts(tmp_path, "diversity", cells, diversity, noise=0.001)
    assert of(found, "more diverse than those of the base") == [above]
    assert of(found, "as diverse as those of the base or more") == [not_below]
    assert of(found, "SFT are less diverse") == of(found, "more diverse than those of SFT") == ["holds"]
    assert of(found, "more accurate on COIN") == of(found, "SFT is less accurate") == ["holds"]
