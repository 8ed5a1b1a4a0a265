"""Files of plans that every measure reads alike: what is refused with its place, and plans that no one should write."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")
from tests.conftest import Outcome, Recipe
from tests.evaluation.conftest import overall

GRAPH = {
    "goal": "make tea",
    "steps": {"boil": "Boil the water", "steep": "Steep the tea"},
    "edges": [["boil", "steep"]],
}
OPTIONS: dict[str, tuple[object, ...]] = {
    "judge": ("--judge", "proxy", "--encoder", "hash:256", "--controls", 0),
    "diversity": ("--judge", "proxy", "--encoder", "hash:256", "--fewer"),
    "validity": ("--graphs", "graph.json", "--encoder", "hash:256", "--threshold", 0.5),
    "match": ("--encoder", "hash:256"),
}
EXAMPLES = [
    {"example_id": name, "video_id": name, "goal": "Make tea", "split": split}
    | {"history": ["boil the water"], "continuation": ["steep the tea", "pour a cup"]}
    for name, split in (("a", "test"), ("b", "test"), ("c", "test"), ("d", "val"))
]


def plan(name: str, *steps: str, sample: int = 0) -> dict[str, Any]:
    return {"example_id": name, "steps": steps, "sample": sample}


class Evaluated:
    """A measure of plans, in the folder of its files."""

    def __init__(self, recipe: Recipe, measure: str) -> None:
        self.recipe, self.measure = recipe, measure

    def __call__(self, plans: list[dict[str, Any]], *more: object) -> Outcome:
        Path("plans.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plans))
        asked = (
            "plans.jsonl",
            "--examples",
            "examples.jsonl",
            *OPTIONS[self.measure],
            "--output",
            "out.json",
            "--json",
        )
        return self.recipe("evaluate", self.measure, *asked, *more)


@pytest.fixture(params=OPTIONS)
def evaluated(
    request: pytest.FixtureRequest, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Evaluated:
    monkeypatch.chdir(tmp_path)
    Path("examples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in EXAMPLES))
    Path("graph.json").write_text(json.dumps(GRAPH))
    return Evaluated(recipe, request.param)


REFUSED: dict[str, tuple[list[dict[str, Any]], tuple[object, ...], str]] = {
    "for nobody": ([plan("a", "pour a cup"), plan("nobody", "x")], (), "nobody"),
    "twice": ([plan("a", "pour a cup")] * 2, (), r"plans\.jsonl, line 2, field 'sample': .*'a'.* line 1"),
    "of no split": ([plan("a", "pour a cup")], ("--split", "nowhere"), "'nowhere'"),
    "missing": ([plan("a", "pour a cup"), plan("c")], ("--missing", "refuse", "--split", "test"), r"1 of 3 .*: b\b"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_plans_that_cannot_be_used_are_named(evaluated: Evaluated, fault: str) -> None:
    plans, more, because = REFUSED[fault]
    if fault == "missing" and evaluated.measure == "diversity":
        pytest.skip("a prompt without two samples is in no pair")
    code, out, err = evaluated(plans, *more)
    assert (code, out) == (1, "")
    assert re.search(because, err), err
    assert err.count("error: ") == 1
    assert not Path("out.json").exists()


def test_plans_that_no_one_should_write(evaluated: Evaluated) -> None:
    """Ten megabytes in a line, five hundred steps, other scripts, characters that cannot be printed, nothing."""
    plans = [
        plan("a", "x" * 10_000_000),
        plan("a", *(f"step {n}" for n in range(500)), sample=1),
        plan("b", "\x00\x1b[31mSteep the tea\x01", "泡茶", "سخن الماء", "🫖"),
        plan("b", sample=1),
        plan("c", "...", "—"),
        plan("c", "pour a cup", sample=1),
    ]
    code, out, err = evaluated(
        plans, "--split", "test", *(("--samples", 2) if evaluated.measure == "diversity" else ())
    )
    assert code == 0, err
    counts = overall(json.loads(out))["counts"]
    assert counts["plans"] == (6 if evaluated.measure in ("validity", "match") else 3)  # every sample, or one a prompt
    assert "\x00" not in out
    if evaluated.measure != "match":  # whose rows hold plans as they were written
        assert Path("out.rows.jsonl").stat().st_size < 100_000
    if evaluated.measure == "judge":
        assert (counts["shortened"], counts["empty"]) == (1, 1)
