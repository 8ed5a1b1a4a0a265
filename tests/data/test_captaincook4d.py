"""The reader of CaptainCook4D on invented files of its layout, and on the real ones."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import raises_input

from recipe.data.benchmarks import summarise
from recipe.data.captaincook4d import ANNOTATIONS, instruction, missing_steps, read_captaincook4d
from recipe.data.supervision import cut_procedures
from recipe.errors import InputError
from recipe.types import Procedure, Step


def test_recordings_come_by_name_with_performed_steps_in_time_order(captaincook4d: Path) -> None:
    last, first, empty = read_captaincook4d(captaincook4d)
    assert first == Procedure(
        "captaincook4d",
        "9_2",
        "Mint Tea",
        (
            Step("Boil 1 cup of water", 3.25, 20.0),
            Step("then stir well", 20.0, 20.0),
            Step("then stir well", 20.0, 20.0),
            Step("Pour the tea", 50.5, 61.0),
        ),
        "train",
    )
    assert [step.text for step in last.steps] == ["Boil 1 cup of water", "add 2 leaves of mint"]
    assert (last.video_id, last.split) == ("9_11", "test")
    assert (empty.video_id, empty.steps, empty.split) == ("9_3", (), "")


def test_equal_times_keep_the_order_of_the_file(captaincook4d: Path) -> None:
    path = captaincook4d / ANNOTATIONS
    value = json.loads(path.read_text())
    for step in value["9_11"]["steps"]:
        step |= {"start_time": 1, "end_time": 2}
    value["9_11"]["steps"].reverse()
    path.write_text(json.dumps(value))
    texts = [step.text for step in read_captaincook4d(captaincook4d)[0].steps]
    assert texts == ["add 2 leaves of mint", "Boil 1 cup of water"]


SPANS: dict[str, tuple[tuple[str, float, float], ...]] = {
    "unordered": (("c", 8, 9), ("a", 0, 2), ("b", 3, 4)),
    "overlapping": (("b", 3, 9), ("a", 0, 20), ("c", 4, 5)),
    "inside one another": (("a", 0, 20), ("b", 3, 9), ("c", 3, 10)),
    "repeated": (("a", 0, 1), ("a", 1, 2), ("b", 2, 3), ("a", 5, 6)),
    "of no length": (("a", 0, 3), ("b", 3, 3), ("b", 3, 3), ("c", 3, 4)),
    "missing in between": (("a", 0, 3), ("gone", -1, -1), ("b", 4, 5)),
    "the same time": (("b", 1, 2), ("a", 1, 2), ("c", 1, 1)),
}
ORDERS = {
    "unordered": "abc",
    "overlapping": "abc",
    "inside one another": "abc",
    "repeated": "aaba",
    "of no length": "abbc",
    "missing in between": "ab",
    "the same time": "cba",
}


@pytest.mark.parametrize("rule", SPANS)
def test_each_rule_of_order_and_length(captaincook4d: Path, rule: str) -> None:
    path = captaincook4d / ANNOTATIONS
    value = json.loads(path.read_text())
    value["9_2"]["steps"] = [
        {"step_id": 1, "description": text, "start_time": start, "end_time": end, "has_errors": False}
        for text, start, end in SPANS[rule]
    ]
    path.write_text(json.dumps(value))
    recording = read_captaincook4d(captaincook4d)[1]
    assert "".join(step.text for step in recording.steps) == ORDERS[rule]
    assert {(step.text, step.start, step.end) for step in recording.steps} == {s for s in SPANS[rule] if s[1] >= 0}


def test_the_video_history_of_overlapping_steps_ends_where_the_next_one_starts(captaincook4d: Path) -> None:
    steps = tuple(Step(text, start, end) for text, start, end in sorted(SPANS["overlapping"]))
    recording = Procedure("captaincook4d", "9_2", "Mint Tea", steps, "train")
    # The first step goes on until 20 s, and is history from the start of the second on, at 3 s.
    assert [(e.history, e.until) for e in cut_procedures([recording]).examples] == [(("a",), 3), (("a", "b"), 4)]


def test_missing_steps_are_kept_apart(captaincook4d: Path) -> None:
    expected = {"9_2": ("add 2 leaves of mint",), "9_3": ("Boil 1 cup of water",)}
    assert missing_steps(captaincook4d) == expected


def test_another_list_gives_other_splits(captaincook4d: Path) -> None:
    found = read_captaincook4d(captaincook4d, "person_data_split_combined")
    assert [procedure.split for procedure in found] == ["train", "val", "test"]
    with pytest.raises(InputError, match=r"recipes_data_split_combined\.json: no recording is listed"):
        read_captaincook4d(captaincook4d, "recipes_data_split_combined")


@pytest.mark.parametrize(
    ("description", "text"),
    [
        ("Rinse-Rinse the rice", "Rinse the rice"),
        ("Rinse -Rinse the rice", "Rinse the rice"),
        ("Rinse - Rinse the rice", "Rinse the rice"),
        ("rinse-Rinse the rice", "Rinse the rice"),
        ("Add-add salt", "add salt"),
        ("Chop or tear-Chop or tear the kale", "Chop or tear the kale"),
        ("dry-gently dry the kale", "gently dry the kale"),
        ("boil-In a pot, boil water", "In a pot, boil water"),
        ("Place-Place the 8-inch wrap", "Place the 8-inch wrap"),
        ("Add-2 cups of rice", "Add 2 cups of rice"),
        ("Weigh and add-1.5 oz of rice", "Weigh and add 1.5 oz of rice"),
        ("Season-salt to taste", "Season salt to taste"),
        ("Cut-cutlets into cubes", "Cut cutlets into cubes"),
        ("Rinse the rice", "Rinse the rice"),
        ("Put the rice in a heat-proof bowl", "Put the rice in a heat-proof bowl"),
        ("Boil 2 heat-proof bowls", "Boil 2 heat-proof bowls"),
        ("Rinse-", "Rinse-"),
        ("-Rinse", "-Rinse"),
    ],
)
def test_the_verb_before_the_hyphen_is_said_once(description: str, text: str) -> None:
    assert instruction(description) == text


def cook_change(captaincook4d: Path, **change: Any) -> Path:
    path = captaincook4d / ANNOTATIONS
    value = json.loads(path.read_text())
    value["9_2"]["steps"][1] |= change
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize(
    ("change", "field", "facts"),
    [
        ({"description": " "}, ".description", []),
        ({"start_time": None}, ".start_time", ["None"]),
        ({"start_time": -2}, ".start_time", ["-2", "-1"]),
        ({"end_time": float("nan")}, ".end_time", ["nan"]),
        ({"start_time": -1}, "", ["-1", "20"]),
        ({"start_time": 21}, "", ["21", "20"]),
        ({"end_time": -1}, "", ["3.25", "-1"]),
        ({"start_time": -0.5, "end_time": -0.5}, "", ["-0.5"]),
    ],
)
def test_another_layout_of_a_step_is_named_by_its_field(
    captaincook4d: Path, change: dict[str, Any], field: str, facts: list[str]
) -> None:
    path = cook_change(captaincook4d, **change)
    with raises_input(path, None, f"9_2.steps[1]{field}", *facts, "github.com/CaptainCook4D/annotations"):
        read_captaincook4d(captaincook4d)


@pytest.mark.parametrize(
    ("file", "value", "field", "facts"),
    [
        (ANNOTATIONS, [], None, ["[]"]),
        (ANNOTATIONS, {"9_2": {"steps": []}}, "9_2.activity_name", ["missing"]),
        ("data_splits/recordings_data_split_combined.json", {"train": [], "val": []}, "test", ["missing"]),
        (
            "data_splits/recordings_data_split_combined.json",
            {"train": ["9_2"], "val": ["9_3", "9_2"], "test": []},
            "val[1]",
            ["'9_2'", "'train'"],
        ),
        (
            "data_splits/recordings_data_split_combined.json",
            {"train": ["9_4"], "val": [], "test": []},
            "train[0]",
            ["'9_4'"],
        ),
    ],
)
def test_another_layout_of_a_file_is_named(
    captaincook4d: Path, file: str, value: object, field: str | None, facts: list[str]
) -> None:
    (captaincook4d / file).write_text(json.dumps(value))
    with raises_input(captaincook4d / file, None, field, *facts):
        read_captaincook4d(captaincook4d)


@pytest.mark.parametrize("file", [ANNOTATIONS, "data_splits/recordings_data_split_combined.json"])
def test_a_missing_file_is_named(captaincook4d: Path, file: str) -> None:
    (captaincook4d / file).unlink()
    with raises_input(captaincook4d / file):
        read_captaincook4d(captaincook4d)


@pytest.mark.real_data
def test_the_real_annotations(shared_data: Path) -> None:
    folder = shared_data / "captaincook4d"
    procedures = read_captaincook4d(folder)
    splits = {"train": 213, "val": 62, "test": 109}
    assert summarise(procedures) == (384, 5_700 - 287, 24, 351, splits)
    assert sum(map(len, missing_steps(folder).values())) == 287
    assert min(len(procedure.steps) for procedure in procedures) == 5
    assert sum(len({s.text for s in p.steps}) < len(p.steps) for p in procedures) == 51
    overlapping = [p for p in procedures if any(b.start < a.end for a, b in pairwise(p.steps))]
    assert len(overlapping) == 222
    texts = {step.text for procedure in procedures for step in procedure.steps}
    assert not any(text.partition("-")[0].strip().isalpha() for text in texts)


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("split_list", "splits"),
    [
        ("recordings_data_split_normal", {"train": 90, "val": 26, "test": 48, "": 220}),
        ("person_data_split_combined", {"train": 204, "val": 84, "test": 96}),
        ("environment_data_split_combined", {"train": 216, "val": 115, "test": 53}),
    ],
)
def test_the_real_lists(shared_data: Path, split_list: str, splits: dict[str, int]) -> None:
    assert summarise(read_captaincook4d(shared_data / "captaincook4d", split_list)).splits == splits
