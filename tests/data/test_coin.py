"""The reader of COIN on an invented file of its layout, and on the real one."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import raises_input

from recipe.data.benchmarks import summarise
from recipe.data.coin import goal_of_class, read_coin
from recipe.types import Procedure, Step


def test_videos_come_by_id_with_their_steps_and_split(coin: Path) -> None:
    dash, solo, zeta = read_coin(coin)
    assert zeta == Procedure(
        "coin", "zeta", "patch TV stand", (Step("cut tape", 0.0, 1.5), Step("press tape", 2.0, 3.5)), "test"
    )
    assert (dash.video_id, dash.goal, dash.split) == ("-a_b", "brew tea", "train")
    assert [step.text for step in dash.steps] == ["boil water", "steep", "steep", "pour", "drink"]
    assert len(solo.steps) == 1


def test_segments_out_of_order_are_sorted_by_time(coin: Path) -> None:
    path = coin / "COIN.json"
    value = json.loads(path.read_text())
    value["database"]["-a_b"]["annotation"].reverse()
    path.write_text(json.dumps(value))
    starts = [step.start for step in read_coin(coin)[0].steps]
    assert starts == sorted(starts)


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("ReplaceCDDriveWithSSD", "replace CD drive with SSD"),
        ("MakeRJ45Cable", "make RJ45 cable"),
        ("PitchATent", "pitch a tent"),
        ("PerformCPR", "perform CPR"),
        ("UseEpinephrineAuto-injector", "use epinephrine auto-injector"),
        ("ReplaceBatteryOnTVControl", "replace battery on TV control"),
        ("AttendNBASkillsChallenge", "attend NBA skills challenge"),
        ("Sow", "sow"),
    ],
)
def test_class_names_become_words(name: str, goal: str) -> None:
    assert goal_of_class(name) == goal


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"class": ""}, "database.zeta.class"),
        ({"subset": "validation"}, "database.zeta.subset"),
        ({"annotation": None}, "database.zeta.annotation"),
        (
            {"annotation": [{"id": "1", "segment": [1.0], "label": "a"}]},
            "database.zeta.annotation[0].segment[1]",
        ),
        ({"annotation": [{"id": "1", "segment": [1, 2], "label": " "}]}, "database.zeta.annotation[0].label"),
        (
            {"annotation": [{"id": "1", "segment": [-1, 2], "label": "a"}]},
            "database.zeta.annotation[0].segment[0]",
        ),
        ({"annotation": [{"id": "1", "segment": [3, 2], "label": "a"}]}, "database.zeta.annotation[0].segment"),
    ],
)
def test_another_layout_is_named_by_its_field(coin: Path, change: dict[str, Any], field: str) -> None:
    path = coin / "COIN.json"
    value = json.loads(path.read_text())
    value["database"]["zeta"] |= change
    path.write_text(json.dumps(value))
    with raises_input(path, None, field, "coin-dataset/annotations"):
        read_coin(coin)


def test_a_missing_or_foreign_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "COIN.json"
    with raises_input(path):
        read_coin(tmp_path)
    path.write_text("{}")
    with raises_input(path, None, "database"):
        read_coin(tmp_path)
    path.write_text("[1, 2")
    with raises_input(path):
        read_coin(tmp_path)


@pytest.mark.real_data
def test_the_real_file(shared_data: Path) -> None:
    procedures = read_coin(shared_data / "coin")
    assert summarise(procedures) == (10_361, 40_590, 180, 749, {"train": 7_564, "test": 2_797})
    assert min(len(procedure.steps) for procedure in procedures) == 2
    by_id = {procedure.video_id: procedure for procedure in procedures}
    assert by_id["LtRSn-ntcLY"].goal == "replace CD drive with SSD"
    assert by_id["LtRSn-ntcLY"].steps[0] == Step("take out the laptop CD drive", 60.0, 69.0)
