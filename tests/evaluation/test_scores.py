"""Files of scores: every kind there and back, and what is none refused."""

import json
from pathlib import Path

import pytest

from recipe.errors import InputError
from recipe.evaluation import scores as s
from recipe.stats import Interval

JUDGE = s.JudgeIdentity("a judge", "llm", "owner/a-judge", "0" * 64, {"repeats": "2"})
HALF = Interval(0.5, 0.4, 0.6, 10, 5)
COUNTS = s.Counts(10, 5, unscored=1)
MEASURED: list[s.SystemScores] = [
    s.JudgeScores(
        "ours",
        JUDGE,
        (s.DatasetScores("coin", "in-domain", None, {"clarity": HALF}, COUNTS),),
        (s.MacroAccuracy("in-domain", HALF, ("coin",)),),
        (s.ControlScores("empty", Interval(0.0), {}, COUNTS),),
        ledger={"answers": 3, "cost": None},
        findings=("The judge looks.",),
        how={"json": 9},
        left_out={"other splits": 1},
    ),
    s.CriticalScores(
        "ours",
        JUDGE,
        s.FailureScores("", HALF, HALF, COUNTS),
        (s.FailureScores("how2bench", None, None, COUNTS),),
        (s.FailureScores("empty", Interval(0.0), Interval(1.0), COUNTS),),
        ledger={"answers": 3, "cost": None},
    ),
    s.DiversityScores("ours", JUDGE, HALF, 100, 10, 45, 0, {"0.25": 45}),
    s.VpaScores("ours", "shared", "shared", "oracle", (s.HorizonScores(3, 10, 5, HALF, HALF, HALF, {"x": 1.0}),)),
    s.ValidityScores("ours", "world", {"score": HALF}, COUNTS, agreement=(s.JudgeAgreement(JUDGE, 9, None, None),)),
    s.MatchScores("ours", {"matched_f1": HALF}, COUNTS, settings={"floor": "0.67"}),
]


@pytest.mark.parametrize("measured", MEASURED, ids=lambda one: one.kind)
def test_scores_come_back(tmp_path: Path, measured: s.SystemScores) -> None:
    file = tmp_path / "new" / "s.json"
    s.write_scores(file, measured)
    assert s.read_scores(file) == measured
    assert set(s.KINDS) == {one.kind for one in MEASURED}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "verdict"}, "no kind of scores"),
        ({"kind": ["judge"]}, "no kind of scores"),
        ({"system": None}, r"s.json.system: .*string"),
        ({"extra": 1}, r"s.json.extra: the key is unknown"),
        ({"repeats": "2"}, r"s.json.repeats"),
    ],
)
def test_what_is_none_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    file = tmp_path / "s.json"
    s.write_scores(file, MEASURED[0])
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=message):
        s.read_scores(file)


@pytest.mark.parametrize("text", ["[]", "3", '"judge"', "{}"])
def test_other_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(InputError, match="no kind of scores"):
        s.read_scores(tmp_path / "s.json")


def test_rows_lie_beside_their_scores() -> None:
    assert s.rows_path(Path("a/b.judge.json")) == Path("a/b.judge.rows.jsonl")
