"""Files of plans that every measure reads alike: what is refused with its place, and plans that no one should write."""

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")
from tests.conftest import Outcome, Recipe
from tests.evaluation.conftest import overall

from recipe.artifacts import read_json, read_jsonl, write_json, write_jsonl

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
        write_jsonl(Path("plans.jsonl"), plans)
        asked = ("plans.jsonl", "--examples", "examples.jsonl", *OPTIONS[self.measure])
        return self.recipe("evaluate", self.measure, *asked, "--output", "out.json", *more)


@pytest.fixture(params=OPTIONS)
def evaluated(
    request: pytest.FixtureRequest, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Evaluated:
    monkeypatch.chdir(tmp_path)
    write_jsonl(Path("examples.jsonl"), EXAMPLES)
    write_json(Path("graph.json"), GRAPH)
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
    """A megabyte in a line, five hundred steps, other scripts, characters that cannot be printed, nothing."""
    plans = [
        plan("a", "x" * 1_000_000),
        plan("a", *(f"step {n}" for n in range(500)), sample=1),
        plan("b", "\x00\x1b[31mSteep the tea\x01", "泡茶", "سخن الماء", "🫖"),
        plan("b", sample=1),
        plan("c", "...", "—"),
        plan("c", "pour a cup", sample=1),
    ]
    two = ("--samples", 2) if evaluated.measure == "diversity" else ()
    code, out, err = evaluated(plans, "--split", "test", *two)
    assert code == 0, err
    assert "\x00" not in out
    counts = overall(read_json(Path("out.json")))["counts"]
    assert counts["plans"] == (6 if evaluated.measure in ("validity", "match") else 3)  # every sample, or one a prompt
    assert Path("out.rows.jsonl").stat().st_size < 100_000
    if evaluated.measure == "judge":
        assert (counts["shortened"], counts["empty"]) == (1, 1)


def test_what_is_missing_and_empty_is_measured_by_rule_and_counted(evaluated: Evaluated) -> None:
    if evaluated.measure == "diversity":
        pytest.skip("a prompt without two samples is in no pair")
    code, out, err = evaluated([plan("a", "steep the tea", "pour a cup"), plan("c"), plan("d", "x")], "--split", "test")
    assert code == 0, err
    scores = read_json(Path("out.json"))
    assert [overall(scores)["counts"][name] for name in ("plans", "missing", "empty")] == [3, 1, 1]
    assert scores["extras"]["left_out"] == {"other splits": 1}
    rows = {row["example_id"]: row for _, row in read_jsonl(Path("out.rows.jsonl")) if not row.get("control")}
    assert [rows[name].get("details", rows[name]).get("flags", []) for name in "abc"] == [[], ["missing"], ["empty"]]
    assert "1 missing and 1 empty" in " ".join(out.split())
