"""The readers of published benchmarks on invented files of their layouts, and on the real ones."""

import json
import shutil
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import raises_input

from recipe.data.benchmarks import BENCHMARKS, Summary
from recipe.data.supervision import cut_procedures
from recipe.types import Procedure, Step

ANNOTATIONS = "annotation_json/complete_step_annotations.json"
SPLIT_LIST = "data_splits/recordings_data_split_combined.json"
KEYSTEPS = "annotations/keystep_val.json"
CARDS = "crosstask_release/tasks_primary.txt"
KITE = "crosstask_release/annotations/77_-kite.csv"
HEAD = "annotations/pc_assembly/Head_5.csv"
GONE = object()
DISHES = ("Eggs", "Pizza")


def read(folder: Path) -> list[Procedure]:
    return BENCHMARKS[folder.name].read(folder)


def set_aside(folder: Path) -> Any:
    """Entries of the annotation that are no steps, by video."""
    told = BENCHMARKS[folder.name].set_aside
    assert told is not None
    return told(folder)


def change(path: Path, place: str, value: Any) -> None:
    """Set the value at a place of a JSON file, such as `a.0.b`, or remove it."""
    content = json.loads(path.read_text())
    holder, *keys = content, *(int(key) if key.isdecimal() else key for key in place.split("/"))
    for key in keys[:-1]:
        holder = holder[key]
    if value is GONE:
        del holder[keys[-1]]
    else:
        holder[keys[-1]] = value
    path.write_text(json.dumps(content))


def cooked(start: float, end: float) -> dict[str, Any]:
    return {"step_id": 1, "description": "Boil -Boil 1 cup of water", "start_time": start, "end_time": end}


def keystep(start: float, end: float, **more: Any) -> list[dict[str, Any]]:
    return [{"start_time": start, "end_time": end, "step_id": 3, "step_name": "x"} | more]


COIN = "coin-dataset/annotations"
COOK = "github.com/CaptainCook4D/annotations"
TAKE = "annotations/uid-barn_kite_01_1/"
LABELS = "tea/segments/1/labels/"
JSON_FAULTS: list[tuple[str, str, str, Any, str, tuple[str, ...]]] = [
    ("coin", "COIN.json", "database", GONE, "database", ()),
    ("coin", "COIN.json", "database/zeta/class", "", "database.zeta.class", (COIN,)),
    ("coin", "COIN.json", "database/zeta/subset", "validation", "database.zeta.subset", ()),
    ("coin", "COIN.json", "database/zeta/annotation", None, "database.zeta.annotation", ()),
    ("coin", "COIN.json", "database/zeta/annotation/0/segment", [1.0], "database.zeta.annotation[0].segment[1]", ()),
    ("coin", "COIN.json", "database/zeta/annotation/0/segment", [-1, 2], "database.zeta.annotation[0].segment[0]", ()),
    ("coin", "COIN.json", "database/zeta/annotation/0/segment", [3, 2], "database.zeta.annotation[0].segment", ()),
    ("coin", "COIN.json", "database/zeta/annotation/0/label", " ", "database.zeta.annotation[0].label", ()),
    ("captaincook4d", ANNOTATIONS, "9_2/activity_name", GONE, "9_2.activity_name", ("missing",)),
    ("captaincook4d", ANNOTATIONS, "9_2/steps/1/description", " ", "9_2.steps[1].description", (COOK,)),
    ("captaincook4d", ANNOTATIONS, "9_2/steps/1/start_time", None, "9_2.steps[1].start_time", ("None",)),
    ("captaincook4d", ANNOTATIONS, "9_2/steps/1/start_time", -2, "9_2.steps[1].start_time", ("-2", "-1")),
    ("captaincook4d", ANNOTATIONS, "9_2/steps/1/end_time", float("nan"), "9_2.steps[1].end_time", ("nan",)),
    ("captaincook4d", ANNOTATIONS, "9_2/steps/1", cooked(-1, 20), "9_2.steps[1]", ("-1", "20")),
    ("captaincook4d", ANNOTATIONS, "9_2/steps/1", cooked(21, 20), "9_2.steps[1]", ("21", "20")),
    ("captaincook4d", ANNOTATIONS, "9_2/steps/1", cooked(-0.5, -0.5), "9_2.steps[1]", ("-0.5",)),
    ("captaincook4d", SPLIT_LIST, "test", GONE, "test", ("missing",)),
    ("captaincook4d", SPLIT_LIST, "val", ["9_3", "9_2"], "val[1]", ("'9_2'", "'train'")),
    ("captaincook4d", SPLIT_LIST, "train", ["9_4"], "train[0]", ("'9_4'",)),
    ("niv", "niv_valid.json", "kite_0001/task", "", "kite_0001.task", ("WenliangGuo/SCHEMA",)),
    ("niv", "niv_valid.json", "kite_0001/steps", None, "kite_0001.steps", ("None",)),
    ("niv", "niv_valid.json", "kite_0001/steps/0/end", GONE, "kite_0001.steps[0].end", ("missing",)),
    ("niv", "niv_valid.json", "kite_0001/steps/0/action", " ", "kite_0001.steps[0].action", ()),
    ("niv", "niv_valid.json", "kite_0001/steps/0/start", -1, "kite_0001.steps[0].start", ("-1",)),
    ("niv", "niv_valid.json", "kite_0001/steps/0/start", 3, "kite_0001.steps[0]", ("2", "3")),
    ("niv", "niv_valid.json", "coffee_0102", {"task": "a", "steps": []}, "coffee_0102", ("'train'",)),
    ("egoexo4d", KEYSTEPS, TAKE + "scenario", " ", "scenario", ()),
    ("egoexo4d", KEYSTEPS, TAKE + "segments", None, "segments", ("None",)),
    ("egoexo4d", KEYSTEPS, TAKE + "take_name", 4, "take_name", ("4",)),
    ("egoexo4d", KEYSTEPS, TAKE + "take_name", "hill_kite_02_1", "take_name", ("occurs twice",)),
    ("egoexo4d", KEYSTEPS, TAKE + "segments", keystep(1, 2, step_name=" "), "segments[0].step_name", ()),
    ("egoexo4d", KEYSTEPS, TAKE + "segments", keystep(3, 2), "segments[0]", ("2", "3")),
    ("egoexo4d", KEYSTEPS, TAKE + "segments", keystep(-1, 2), "segments[0].start_time", ("-1",)),
    ("egoper", "annotation.json", "tea/action2idx", GONE, "tea.action2idx", ()),
    ("egoper", "annotation.json", "tea/segments/1/video_id", "tea_u2_a1_error_002", "tea.segments[1].video_id", ()),
    ("egoper", "annotation.json", LABELS + "action", [1], "tea.segments[1].labels", ("2, 1, 2, 2",)),
    ("egoper", "annotation.json", LABELS + "action", [1, "x"], "tea.segments[1].labels.action[1]", ("'x'",)),
    ("egoper", "annotation.json", LABELS + "action", [1, 7], "tea.segments[1].labels.action[1]", ("7", "action2idx")),
    ("egoper", "annotation.json", LABELS + "action_type", [0, 9], "tea.segments[1].labels.action_type[1]", ("9",)),
    ("egoper", "annotation.json", LABELS + "time_stamp", [[0, 1], [3, 2]], "tea.segments[1].labels.time_stamp[1]", ()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "file", "place", "value", "field", "facts"), JSON_FAULTS)
def test_another_layout_is_named_by_its_field(
    seven: Path, name: str, file: str, place: str, value: Any, field: str, facts: tuple[str, ...]
) -> None:
    change(seven / name / file, place, value)
    whole = f"annotations.uid-barn_kite_01_1.{field}" if name == "egoexo4d" else field
    with raises_input(seven / name / file, None, whole, *facts):
        read(seven / name)


TEXT_FAULTS: list[tuple[str, str, str, int | None, tuple[str, ...]]] = [
    ("coin", "COIN.json", "[1, 2", None, ("not valid JSON",)),
    ("captaincook4d", ANNOTATIONS, "[]", None, ("[]",)),
    ("captaincook4d", SPLIT_LIST, '{"train": [], "val": [], "test": []}', None, ("no recording",)),
    ("crosstask", CARDS, "501\nBrew\n", None, ("2 non-blank lines are not cards",)),
    ("crosstask", CARDS, "", None, ("0 non-blank lines",)),
    ("crosstask", CARDS, "1\nA\nu\n3\na,b\n", 5, ("2 steps are listed", "3")),
    ("crosstask", KITE, "1,0,1\n3,1,2\n", 2, ("step 3 is not among the 2",)),
    ("crosstask", KITE, "0,0,1\n", 1, ("step 0 is not among",)),
    ("crosstask", KITE, "1,0\n", 1, ("'1,0' is not step,start,end",)),
    ("crosstask", KITE, "one,0,1\n", 1, ("is not step,start,end",)),
    ("crosstask", KITE, "1,5,4\n", 1, ("'1,5,4' holds no time span",)),
    ("crosstask", KITE, "1,nan,4\n", 1, ("holds no time span",)),
    ("crosstask", "crosstask_release/annotations/9_new.csv", "1,0,1\n", None, ("task '9' is not in tasks_primary",)),
    ("crosstask", "crosstask_release/annotations/kite.csv", "1,0,1\n", None, ("not TASK_VIDEO.csv",)),
    ("crosstask", "splits/test.txt", "-kite\n\ngone\n", 3, ("video 'gone' is not annotated",)),
    ("crosstask", "splits/test.txt", "_x-_y\n", 1, ("video '_x-_y' is in split 'train' too",)),
    ("egoper", "tea/validation.txt", "\ntea_u9\n", 2, ("video 'tea_u9' is not annotated",)),
    ("egoper", "tea/validation.txt", "tea_u1_a1_normal_001\n", 1, ("is in split 'train' too",)),
    ("egoprocel", HEAD, "0,1,1 fix fan\n1,2\n", 2, ("'1,2' is not start,end,key-step",)),
    ("egoprocel", HEAD, "1,2,3 fix fan,4\n", 1, ("'1,2,3 fix fan,4' is not start,end,key-step",)),
    ("egoprocel", HEAD, "3,2,1 fix fan\n", 1, ("3,2 is no time span",)),
    ("egoprocel", HEAD, "nan,2,1 fix fan\n", 1, ("nan,2 is no time span",)),
    ("egoprocel", HEAD, "1,2,\n", 1, ("'' holds no key-step's name",)),
    ("egoprocel", HEAD, "2,33.54,39.94\n", 1, ("'39.94' holds no key-step's name", "not CrossTask's")),
    ("egoprocel", HEAD, "\udcff", None, ("the text is not UTF-8",)),
]


@pytest.mark.parametrize(("name", "file", "text", "line", "facts"), TEXT_FAULTS)
def test_a_bad_line_is_named(
    seven: Path, name: str, file: str, text: str, line: int | None, facts: tuple[str, ...]
) -> None:
    (seven / name / file).write_text(text, errors="surrogateescape")
    with raises_input(seven / name / file, line, None, *facts):
        read(seven / name)


@pytest.mark.parametrize(
    ("name", "file", "remedy"),
    [
        ("crosstask", CARDS, "crosstask_release as published"),
        ("crosstask", "splits/validation.txt", "VLaMP"),
        ("crosstask", "crosstask_release/annotations", "crosstask_release as published"),
        ("egoprocel", "annotations", "none of CMU-MMAC"),
    ],
)
def test_a_missing_file_is_named_with_where_to_get_it(seven: Path, name: str, file: str, remedy: str) -> None:
    (seven / name / file).rename(seven / "aside")
    with raises_input(seven / name / file, None, None, remedy):
        read(seven / name)


def test_coin_comes_by_id_in_time_order(coin: Path) -> None:
    change(coin / "COIN.json", "database/zeta/annotation", [
        {"segment": [2.0, 3.5], "label": "press tape"}, {"segment": [0.0, 1.5], "label": "cut tape"},
    ])  # fmt: skip
    dash, solo, zeta = read(coin)
    steps = (Step("cut tape", 0.0, 1.5), Step("press tape", 2.0, 3.5))
    assert zeta == Procedure("coin", "zeta", "patch TV stand", steps, "test")
    assert (dash.video_id, dash.goal, dash.split) == ("-a_b", "brew tea", "train")
    assert [step.text for step in dash.steps] == ["boil water", "steep", "steep", "pour", "drink"]
    assert len(solo.steps) == 1


def test_crosstask_comes_by_id_in_time_order(crosstask: Path) -> None:
    (crosstask / KITE).write_text("2,1.0,2.0\n1,1.0,2.0\n1,0.5,9.0\n")
    procedures = read(crosstask)
    assert [(video.video_id, video.split) for video in procedures] == [
        ("-kite", "test"), ("_x-_y", "train"), ("aside", ""), ("short", "train"),
    ]  # fmt: skip
    assert [step.text for step in procedures[0].steps] == ["cut tape", "press tape", "cut tape"]
    steps = (("boil water", 3.0, 9.25), ("pour tea", 20.5, 29.0), ("add mint", 20.5, 30.0), ("add mint", 40.0, 41.0))
    assert procedures[1].goal == "Brew Mint Tea"
    assert procedures[1].steps == tuple(Step(*step) for step in steps)
    (crosstask / "crosstask_release/annotations/501_-kite.csv").write_text("1,0,1\n")
    with raises_input(crosstask / KITE, None, None, "annotated in 501_-kite.csv too"):
        read(crosstask)


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0b", "\x1c"])
def test_a_line_of_a_card_ends_at_a_line_feed_alone(crosstask: Path, mark: str) -> None:
    path = crosstask / CARDS
    path.write_text(path.read_text().replace("cut tape", f"cut{mark}tape"))
    kite = BENCHMARKS["crosstask"].read(crosstask)[0]
    assert (kite.goal, kite.steps[0].text) == ("Patch a Kite", f"cut{mark}tape")


def test_captaincook_has_the_performed_steps_in_time_order(captaincook4d: Path) -> None:
    last, first, empty = read(captaincook4d)
    steps = (
        Step("Boil 1 cup of water", 3.25, 20.0),
        Step("then stir well", 20.0, 20.0),
        Step("then stir well", 20.0, 20.0),
        Step("Pour the tea", 50.5, 61.0),
    )
    assert first == Procedure("captaincook4d", "9_2", "Mint Tea", steps, "train")
    assert [step.text for step in last.steps] == ["Boil 1 cup of water", "add 2 leaves of mint"]
    assert (last.video_id, last.split) == ("9_11", "test")
    assert (empty.video_id, empty.steps, empty.split) == ("9_3", (), "")
    assert set_aside(captaincook4d) == {"9_2": ("add 2 leaves of mint",), "9_3": ("Boil 1 cup of water",)}


@pytest.mark.parametrize(
    ("steps", "order"),
    [
        ((("b", 3, 9), ("a", 0, 20), ("c", 4, 5)), "abc"),
        ((("a", 0, 1), ("a", 1, 2), ("b", 2, 3), ("a", 5, 6)), "aaba"),
        ((("a", 0, 3), ("b", 3, 3), ("b", 3, 3), ("c", 3, 4)), "abbc"),
        ((("a", 0, 3), ("gone", -1, -1), ("b", 4, 5)), "ab"),
        ((("b", 1, 2), ("a", 1, 2), ("c", 1, 1)), "cba"),
    ],
)
def test_captaincook_keeps_each_step_however_they_lie(
    captaincook4d: Path, steps: tuple[tuple[str, float, float], ...], order: str
) -> None:
    rows = [{"description": text, "start_time": start, "end_time": end} for text, start, end in steps]
    change(captaincook4d / ANNOTATIONS, "9_2/steps", rows)
    recording = read(captaincook4d)[1]
    assert "".join(step.text for step in recording.steps) == order
    assert {(step.text, step.start, step.end) for step in recording.steps} == {step for step in steps if step[1] >= 0}


def test_the_video_history_of_overlapping_steps_ends_where_the_next_one_starts() -> None:
    steps = (Step("a", 0, 20), Step("b", 3, 9), Step("c", 4, 5))
    recording = Procedure("captaincook4d", "9_2", "Mint Tea", steps, "train")
    # The first step goes on until 20 s, and is history from the start of the second on, at 3 s.
    assert [(e.history, e.until) for e in cut_procedures([recording]).examples] == [(("a",), 3), (("a", "b"), 4)]


CLASS = ("coin", "COIN.json", "database/zeta/class")
DESCRIPTION = ("captaincook4d", ANNOTATIONS, "9_11/steps/0/description")
TASK = ("niv", "niv_valid.json", "kite_0001/task")
TOLD: list[tuple[tuple[str, str, str], str, str]] = [
    (CLASS, "ReplaceCDDriveWithSSD", "replace CD drive with SSD"),
    (CLASS, "MakeRJ45Cable", "make RJ45 cable"),
    (CLASS, "PitchATent", "pitch a tent"),
    (CLASS, "UseEpinephrineAuto-injector", "use epinephrine auto-injector"),
    (CLASS, "AttendNBASkillsChallenge", "attend NBA skills challenge"),
    # The verb before the hyphen is said once.
    (DESCRIPTION, "rinse-Rinse the rice", "Rinse the rice"),
    (DESCRIPTION, "Chop or tear-Chop or tear the kale", "Chop or tear the kale"),
    (DESCRIPTION, "dry-gently dry the kale", "gently dry the kale"),
    (DESCRIPTION, "Place-Place the 8-inch wrap", "Place the 8-inch wrap"),
    (DESCRIPTION, "Weigh and add-1.5 oz of rice", "Weigh and add 1.5 oz of rice"),
    (DESCRIPTION, "Cut-cutlets into cubes", "Cut cutlets into cubes"),
    (DESCRIPTION, "Put the rice in a heat-proof bowl", "Put the rice in a heat-proof bowl"),
    (DESCRIPTION, "Boil 2 heat-proof bowls", "Boil 2 heat-proof bowls"),
    (DESCRIPTION, "Rinse-", "Rinse-"),
    (DESCRIPTION, "-Rinse", "-Rinse"),
    (TASK, "ressucitation with coffe, then cofee", "resuscitation with coffee, then coffee"),
    (TASK, "coffee decofee Coffe", "coffee decofee Coffe"),
]


@pytest.mark.parametrize(("place", "written", "told"), TOLD)
def test_what_annotators_wrote_is_told_in_words(
    seven: Path, place: tuple[str, str, str], written: str, told: str
) -> None:
    name, file, field = place
    change(seven / name / file, field, written)
    assert told in {text for video in read(seven / name) for text in (video.goal, *(step.text for step in video.steps))}


def test_niv_comes_by_id_in_right_spelling(niv: Path) -> None:
    short, coffee, kite = read(niv)
    steps = (Step("grind coffee", 1.25, 4.0), Step("tamp", 9.5, 11.0), Step("pour coffee", 9.5, 12.0))
    assert coffee == Procedure("niv", "coffee_0102", "making coffee", steps, "train")
    assert kite.steps == (Step("cut tape", 1.0, 2.0), Step("cut tape", 2.0, 3.0))
    assert (kite.goal, kite.split) == ("Patching a kite", "test")
    assert (short.video_id, short.steps) == ("coffee_0007", (Step("grind coffee", 0.0, 0.0),))


@pytest.mark.parametrize(("name", "file"), [("niv", "niv_train.json"), ("egoexo4d", "annotations/keystep_train.json")])
def test_the_training_file_may_be_absent(seven: Path, name: str, file: str) -> None:
    (seven / name / file).unlink()
    assert {video.split for video in read(seven / name)} == {"test"}


def test_egoexo4d_comes_by_name_and_headings_are_set_aside(egoexo4d: Path) -> None:
    empty, held_out, trained = read(egoexo4d)
    steps = (Step("Unroll the tail", 0.5, 8.5), Step("Tape the tear", 8.5, 11.0))
    assert trained == Procedure("egoexo4d", "hill_kite_02_1", "Mend a Kite", steps, "train")
    assert (empty.video_id, empty.steps, empty.split) == ("barn_kite_01_1", (), "test")
    assert (held_out.video_id, held_out.split) == ("hill_kite_01_2", "test")
    assert [step.text for step in held_out.steps] == ["Unroll the tail", "Tape the tear", "Tape the tear"]
    assert set_aside(egoexo4d) == {"hill_kite_01_2": ("Preparation",)}
    change(egoexo4d / KEYSTEPS, "taxonomy", GONE)  # a step that no taxonomy lists stays
    assert [step.text for step in read(egoexo4d)[1].steps][:2] == ["Unroll the tail", "Preparation"]
    assert set_aside(egoexo4d) == {}


def test_egoper_is_told_as_the_recipe_asks(egoper: Path) -> None:
    coffee, normal, error = read(egoper)
    steps = (Step("Heat the kettle", 0, 5), Step("Hang the bag", 5, 9))
    assert normal == Procedure("egoper", "tea_u1_a1_normal_001", "make tea", steps, "train")
    assert coffee == Procedure("egoper", "coffee_u1_a1_normal_009", "make coffee", (Step("Grind beans", 1, 2),), "test")
    assert (error.video_id, error.split) == ("tea_u2_a1_error_002", "test")
    told = (("Heat the kettle", 3.5, 8.0), ("Stir in honey", 9.0, 12.0), ("Hang the bag", 12.0, 14.0))
    assert error.steps == tuple(Step(*step) for step in told)
    assert set_aside(egoper) == {"tea_u2_a1_error_002": ("Pick the bag up", "Wipe the table")}
    (egoper / "tea" / "test.txt").unlink()
    assert [video.split for video in read(egoper)] == ["test", "train", ""]


def test_without_names_action_types_of_egoper_are_read_by_number(egoper: Path) -> None:
    path = egoper / "annotation.json"
    change(path, "tea/actiontype2idx", {})
    # There 1 is a slip, 2 a correction, 3 an addition and 4 a modification; -1 has no name that could be told.
    with raises_input(path, None, "tea.segments[0].labels.action[5]", "-1"):
        read(egoper)
    change(path, "tea/segments/0/labels/action_type", [0, 4, 0, 1, 2, 3])
    assert [step.text for step in read(egoper)[2].steps] == ["Heat the kettle", "Stir in honey", "Hang the bag"]


def test_a_name_of_egoper_that_belongs_to_an_error_is_put_right(egoper: Path) -> None:
    labels = {"time_stamp": [[0, 1]], "action": [6], "action_type": [0], "error_description": ["x"]}
    segments = [{"video_id": "quesadilla_u1_a1_normal_001", "labels": labels}]
    recipe = {"action2idx": {"BG": 0, "Fold tortilla into quarter-circle": 6}, "segments": segments}
    change(egoper / "annotation.json", "quesadilla", recipe)
    assert read(egoper)[1].steps == (Step("Fold tortilla in half", 0, 1),)


def test_each_collection_of_egoprocel_has_its_layout_goal_and_split(egoprocel: Path) -> None:
    videos = read(egoprocel)
    assert [(video.video_id, video.goal, video.split) for video in videos] == [
        ("CMU-MMAC/Brownie/S07_Brownie_Video/S07_Brownie_7150991-1431", "make brownie", "train"),
        ("EGTEA_Gaze+/BaconAndEggs/OP01-R03-BaconAndEggs", "make bacon and eggs", "train"),
        ("EPIC-Tents/01.tent.090617.gopro", "set up a tent", "train"),
        ("MECCANO/0008", "assemble a toy motorbike", "test"),
        ("pc_assembly/Head_5", "assemble a desktop computer", "train"),
        ("pc_disassembly/Head_6", "disassemble a desktop computer", "train"),
    ]
    steps = {video.video_id.partition("/")[0]: video.steps for video in videos}
    assert steps["CMU-MMAC"] == (Step("break egg", 0.5, 2.5), Step("mix eggs", 2.5, 9.0))
    assert steps["EGTEA_Gaze+"] == (Step("take pan", 0, 4), Step("fry bacon, eggs", 4, 9), Step("serve", 9, 9))
    assert steps["EPIC-Tents"] == (Step("unfold tent", 1, 2), Step("insert pole", 2, 7.25))
    assert steps["MECCANO"] == (Step("take bolt", 10, 20), Step("place wheel", 12, 30), Step("take bolt", 30, 31))
    for name in ("CMU-MMAC", "MECCANO", "pc_assembly"):
        shutil.rmtree(egoprocel / "annotations" / name)
    assert len(read(egoprocel)) == 3


def test_a_person_of_egoprocel_is_trained_on_or_held_out(egoprocel: Path) -> None:
    annotations = egoprocel / "annotations"
    shutil.rmtree(annotations)
    names = [f"CMU-MMAC/{dish}/S{n:02}_{dish}_Video/S{n:02}_{dish}_7150991-1.csv" for n in range(40) for dish in DISHES]
    names += [f"{collection}/{n:04}.csv" for collection in ("MECCANO", "pc_assembly") for n in range(300)]
    for name in names:
        (annotations / name).parent.mkdir(parents=True, exist_ok=True)
        (annotations / name).write_text("0,1,1 fix fan\n")
    split = {video.video_id: video.split for video in read(egoprocel)}
    persons: dict[str, set[str]] = {}
    for name, own in split.items():
        if name.startswith("CMU-MMAC"):
            persons.setdefault(name.rpartition("/")[2][:3], set()).add(own)
    assert len(persons) == 40
    assert all(len(own) == 1 for own in persons.values())
    drawn = Counter(own for name, own in split.items() if not name.startswith("CMU-MMAC"))
    assert set(drawn) == {"train", "test"}
    # Binomial(600, 0.2): standard deviation 9.8; five of them on either side.
    assert abs(drawn["test"] - 120) < 49


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("coin", (10_361, 40_590, 180, 749, {"train": 7_564, "test": 2_797})),
        ("crosstask", (2_750, 20_919, 18, 105, {"train": 1_412, "val": 344, "test": 752, "": 2_750 - 2_508})),
        ("captaincook4d", (384, 5_700 - 287, 24, 351, {"train": 213, "val": 62, "test": 109})),
        ("niv", (148, 1_320, 5, 48, {"train": 103, "test": 45})),
    ],
)
def test_the_real_files_hold_what_is_published(shared_data: Path, name: str, counts: tuple[Any, ...]) -> None:
    procedures = read(shared_data / name)
    assert Summary.of(procedures) == counts
    known = {procedure.video_id: procedure for procedure in procedures}
    if name == "coin":
        assert known["LtRSn-ntcLY"].goal == "replace CD drive with SSD"
        assert known["LtRSn-ntcLY"].steps[0] == Step("take out the laptop CD drive", 60.0, 69.0)
    if name == "captaincook4d":
        assert sum(map(len, set_aside(shared_data / name).values())) == 287
        assert sum(any(b.start < a.end for a, b in pairwise(p.steps)) for p in procedures) == 222
        assert not any(step.text.partition("-")[0].strip().isalpha() for p in procedures for step in p.steps)
    if name == "niv":
        assert "perform cardio pulmonary resuscitation" in {procedure.goal for procedure in procedures}
