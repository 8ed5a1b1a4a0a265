"""Files of scores and rows: there and back, and what is none refused."""

import json
from pathlib import Path

import pytest

from recipe.artifacts import to_json, write_jsonl
from recipe.errors import InputError
from recipe.evaluation import board_measures, known_measures, measure_named
from recipe.evaluation import scores as s
from recipe.stats import Interval

JUDGE = s.JudgeIdentity("a judge", "llm", "owner/a-judge", "0" * 64, {"repeats": "2"})
HALF = Interval(0.5, 0.4, 0.6, 10, 5)
COUNTS = s.Counts(10, 5, unscored=1)
MEASURED = s.Scores(
    "judge",
    "ours",
    {"judge": to_json(JUDGE)},
    (
        s.Group("coin", "dataset", {"clarity": HALF}, COUNTS, {"missing_as_0": HALF}),
        s.Group("in-domain", "split", {"clarity": HALF}, COUNTS, datasets=("coin",)),
        s.Group("", "all", {}, COUNTS),
        s.Group("empty", "control", {"clarity": Interval(0.0)}, COUNTS, difference=HALF),
    ),
    ledger={"answers": 3, "cost": None},
    findings=("The judge looks.",),
    extras={"how": {"json": 9}, "left_out": {"other splits": 1}},
)


def test_scores_come_back(tmp_path: Path) -> None:
    file = tmp_path / "new" / "s.json"
    s.write_scores(file, MEASURED)
    assert s.read_scores(file) == MEASURED
    assert s.read_scores(file).judge == JUDGE


def test_rows_come_back(tmp_path: Path) -> None:
    rows = [
        s.Row("a", {"score": 0.5}, 3, cluster="goal", details={"steps": ["pour"], "flags": []}),
        s.Row("a", {}, control="empty", unscored="no answer"),
    ]
    assert s.write_rows(tmp_path / "rows.jsonl", rows) == 2
    assert s.read_rows(tmp_path / "rows.jsonl") == rows


def test_every_measure_says_what_reports_and_boards_need() -> None:
    assert all(len(name) <= 16 for name in board_measures())
    assert all(measure_named(name).title for name in known_measures())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measure": 3}, r"s.json.measure: 3 is no text"),
        ({"extra": 1}, r"s.json.extra: the field is unknown"),
        ({"groups": []}, "field 'groups'"),
        ({"identity": {"judge": {"name": "x"}}}, r"identity.judge.kind"),
        ({"format": 2}, r"s.json.format"),
    ],
)
def test_what_is_none_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    file = tmp_path / "s.json"
    s.write_scores(file, MEASURED)
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=message):
        s.read_scores(file)


@pytest.mark.parametrize(
    "bad",
    [
        {"sample": -1},
        {"metrics": {"diversity": "b"}},
        {"metrics": {"diversity": True}},
        {"metrics": {}},
        {"metrics": [1]},
        {"details": 1},
        {"extra": 1},
        {"example_id": " "},
    ],
)
def test_rows_of_another_form_are_located(tmp_path: Path, bad: dict[str, object]) -> None:
    write_jsonl(tmp_path / "rows.jsonl", [{"example_id": "e", "sample": 0, "metrics": {"diversity": 0.5}} | bad])
    with pytest.raises(InputError, match=f"rows.jsonl, line 1, field '{next(iter(bad))}"):
        s.read_rows(tmp_path / "rows.jsonl")


def test_scores_of_an_older_version_and_other_json_are_refused(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"system": "ours", "kind": "validity"}')
    with pytest.raises(InputError, match=r"before 0\.3.*evaluate the system again"):
        s.read_scores(tmp_path / "s.json")
    for text in ("[]", "3", '"judge"', "{}"):
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(InputError, match="no scores"):
            s.read_scores(tmp_path / "s.json")
