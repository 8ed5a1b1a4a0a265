"""The reader of EgoPER on invented files of its layout."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import raises_input

from recipe.data.egoper import additions_and_corrections, read_egoper
from recipe.errors import InputError
from recipe.types import Procedure, Step


def test_recordings_come_by_id_with_the_names_of_their_actions(egoper: Path) -> None:
    coffee, normal, error = read_egoper(egoper)
    steps = (Step("Heat the kettle", 0, 5), Step("Hang the bag", 5, 9))
    assert normal == Procedure("egoper", "tea_u1_a1_normal_001", "make tea", steps, "train")
    assert coffee == Procedure("egoper", "coffee_u1_a1_normal_009", "make coffee", (Step("Grind beans", 1, 2),), "test")
    assert (error.video_id, error.split) == ("tea_u2_a1_error_002", "test")


def test_errors_are_told_as_the_recipe_asks_and_what_it_does_not_ask_for_is_set_aside(egoper: Path) -> None:
    error = read_egoper(egoper)[2]
    assert error.steps == (
        Step("Heat the kettle", 3.5, 8.0),
        Step("Stir in honey", 9.0, 12.0),
        Step("Hang the bag", 12.0, 14.0),
    )
    assert additions_and_corrections(egoper) == {"tea_u2_a1_error_002": ("Pick the bag up", "Wipe the table")}


def changed(egoper: Path, recipe: str = "tea", **change: Any) -> Path:
    path = egoper / "annotation.json"
    value = json.loads(path.read_text())
    value[recipe] |= change
    path.write_text(json.dumps(value))
    return path


def test_without_names_action_types_are_read_by_number(egoper: Path) -> None:
    changed(egoper, actiontype2idx={})
    # There 1 is a slip, 2 a correction, 3 an addition and 4 a modification; -1 has no name that could be told.
    with raises_input(egoper / "annotation.json", None, "tea.segments[0].labels.action[5]", "-1"):
        read_egoper(egoper)
    value = json.loads((egoper / "annotation.json").read_text())
    value["tea"]["segments"][0]["labels"]["action_type"] = [0, 4, 0, 1, 2, 3]
    (egoper / "annotation.json").write_text(json.dumps(value))
    assert [step.text for step in read_egoper(egoper)[2].steps] == ["Heat the kettle", "Stir in honey", "Hang the bag"]


def test_a_name_that_belongs_to_an_error_is_put_right(egoper: Path) -> None:
    path = egoper / "annotation.json"
    value = json.loads(path.read_text())
    value["quesadilla"] = {
        "action2idx": {"BG": 0, "Fold tortilla into quarter-circle": 6},
        "segments": [
            {
                "video_id": "quesadilla_u1_a1_normal_001",
                "labels": {"time_stamp": [[0, 1]], "action": [6], "action_type": [0], "error_description": ["x"]},
            }
        ],
    }
    path.write_text(json.dumps(value))
    assert read_egoper(egoper)[1].steps == (Step("Fold tortilla in half", 0, 1),)


def test_recordings_in_no_list_are_in_no_split(egoper: Path) -> None:
    (egoper / "tea" / "test.txt").unlink()
    assert [video.split for video in read_egoper(egoper)] == ["test", "train", ""]


@pytest.mark.parametrize(
    ("labels", "field", "facts"),
    [
        ({"action": [1]}, "labels", ["2, 1, 2, 2"]),
        ({"action": [1, "x"]}, "labels.action[1]", ["'x'"]),
        ({"action": [1, 7]}, "labels.action[1]", ["7", "action2idx"]),
        ({"action_type": [0, 9]}, "labels.action_type[1]", ["9"]),
        ({"time_stamp": [[0, 1], [3, 2]]}, "labels.time_stamp[1]", ["2", "3"]),
    ],
)
def test_another_layout_is_named_by_its_field(
    egoper: Path, labels: dict[str, Any], field: str, facts: list[str]
) -> None:
    path = egoper / "annotation.json"
    value = json.loads(path.read_text())
    value["tea"]["segments"][1]["labels"] |= labels
    path.write_text(json.dumps(value))
    with raises_input(path, None, f"tea.segments[1].{field}", *facts):
        read_egoper(egoper)


def test_names_of_actions_are_required(egoper: Path) -> None:
    path = egoper / "annotation.json"
    value = json.loads(path.read_text())
    del value["tea"]["action2idx"]
    path.write_text(json.dumps(value))
    with raises_input(path, None, "tea.action2idx"):
        read_egoper(egoper)


def test_lists_and_annotations_must_agree(egoper: Path) -> None:
    (egoper / "tea" / "validation.txt").write_text("\ntea_u9\n")
    with pytest.raises(InputError, match=r"validation\.txt, line 2: video 'tea_u9' is not annotated"):
        read_egoper(egoper)
    (egoper / "tea" / "validation.txt").write_text("tea_u1_a1_normal_001\n")
    with pytest.raises(InputError, match=r"validation\.txt, line 1: video .* is in split 'train' too"):
        read_egoper(egoper)


def test_a_recording_twice_is_an_error(egoper: Path) -> None:
    value = json.loads((egoper / "annotation.json").read_text())
    changed(egoper, "coffee", segments=[*value["coffee"]["segments"], *value["coffee"]["segments"]])
    with pytest.raises(InputError, match=r"coffee\.segments\[1\]\.video_id': recording .* occurs twice"):
        read_egoper(egoper)
