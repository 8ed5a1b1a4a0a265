"""Miniature benchmarks, invented here, in the exact layouts that are published, and the commands that read them."""

import json
from pathlib import Path
from typing import Any

import pytest
import tests.conftest

from recipe.data.benchmarks import BENCHMARKS


class Recipe(tests.conftest.Recipe):
    """Runs `recipe data ...`."""

    def __call__(self, *words: object) -> tests.conftest.Outcome:
        return super().__call__("data", *words)


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Recipe:
    monkeypatch.setenv("COLUMNS", "200")
    return Recipe(capfd)


CARDS = """501
Brew Mint Tea
http://www.wikihow.com/Brew-Mint-Tea
3
boil water,add mint,pour tea

77
Patch a Kite
http://www.wikihow.com/Patch-a-Kite
2
cut tape,press tape

"""


def coin_video(task: str, subset: str, *labels: str) -> dict[str, Any]:
    segments = [
        {"id": str(10 + index), "segment": [2.0 * index, 2.0 * index + 1.5], "label": label}
        for index, label in enumerate(labels)
    ]
    about = {"duration": 60.5, "video_url": "https://www.youtube.com/embed/x", "start": 0.0, "end": 60.0}
    return about | {"recipe_type": 3, "class": task, "subset": subset, "annotation": segments}


@pytest.fixture
def coin(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "coin"
    folder.mkdir(parents=True)
    database = {
        "zeta": coin_video("PatchTVStand", "testing", "cut tape", "press tape"),
        "-a_b": coin_video("BrewTea", "training", "boil water", "steep", "steep", "pour", "drink"),
        "solo": coin_video("BrewTea", "training", "boil water"),
    }
    (folder / "COIN.json").write_text(json.dumps({"database": database}))
    return folder


@pytest.fixture
def crosstask(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "crosstask"
    annotations = folder / "crosstask_release" / "annotations"
    annotations.mkdir(parents=True)
    (folder / "crosstask_release" / "tasks_primary.txt").write_text(CARDS)
    (annotations / "501__x-_y.csv").write_text("2,20.5,30.0\n1,3.0,9.25\n3,20.5,29.0\n2,40,41\n")
    (annotations / "77_-kite.csv").write_text("1,0.0,2.5\n2,2.5,4\n")
    (annotations / "77_aside.csv").write_text("1,0.0,2.5\n2,2.5,4\n")
    (annotations / "77_short.csv").write_text("2,1,2\n")
    splits = folder / "splits"
    splits.mkdir()
    for name, videos in (("train", "_x-_y\nshort\n"), ("validation", ""), ("test", "-kite\n")):
        (splits / f"{name}.txt").write_text(videos)
    return folder


def cook_step(step_id: int, description: str, start: float, end: float) -> dict[str, Any]:
    times = {"start_time": start, "end_time": end}
    return {"step_id": step_id, **times, "description": description, "has_errors": start < 0}


@pytest.fixture
def captaincook4d(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "captaincook4d"
    (folder / "annotation_json").mkdir(parents=True)
    (folder / "data_splits").mkdir()
    recordings: dict[str, list[dict[str, Any]]] = {
        "9_2": [
            cook_step(4, "Pour-Pour the tea", 50.5, 61.0),
            cook_step(1, "Boil -Boil 1 cup of water", 3.25, 20.0),
            cook_step(2, "add-2 leaves of mint", -1.0, -1.0),
            cook_step(3, "stir-then stir well", 20.0, 20.0),
            cook_step(3, "stir-then stir well", 20.0, 20.0),
        ],
        "9_11": [cook_step(1, "Boil -Boil 1 cup of water", 0, 5), cook_step(2, "add-2 leaves of mint", 5, 9)],
        "9_3": [cook_step(1, "Boil -Boil 1 cup of water", -1, -1)],
    }
    about = {"activity_id": 9, "activity_name": "Mint Tea", "person_id": 2, "environment": 4}
    complete = {name: {"recording_id": name, **about, "steps": steps} for name, steps in recordings.items()}
    (folder / "annotation_json" / "complete_step_annotations.json").write_text(json.dumps(complete))
    splits = json.dumps({"train": ["9_2"], "val": [], "test": ["9_11"]})
    (folder / "data_splits" / "recordings_data_split_combined.json").write_text(splits)
    return folder


def niv_video(task: str, *steps: tuple[str, float, float]) -> dict[str, Any]:
    rows = [{"action": action, "action_id": 7, "start": start, "end": end} for action, start, end in steps]
    return {"task": task, "task_id": 1, "steps": rows}


@pytest.fixture
def niv(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "niv"
    folder.mkdir(parents=True)
    train = {
        "coffee_0102": niv_video(
            "making cofee", ("pour cofee", 9.5, 12.0), ("grind coffe", 1.25, 4.0), ("tamp", 9.5, 11)
        ),
        "coffee_0007": niv_video("making cofee", ("grind coffe", 0.0, 0.0)),
    }
    valid = {"kite_0001": niv_video("Patching a kite", ("cut tape", 1, 2), ("cut tape", 2, 3))}
    (folder / "niv_train.json").write_text(json.dumps(train))
    (folder / "niv_valid.json").write_text(json.dumps(valid))
    return folder


def egoexo_take(name: str, scenario: str, *segments: tuple[int, str, float, float]) -> dict[str, Any]:
    rows = [
        {"start_time": start, "end_time": end, "step_id": step, "step_name": text, "step_unique_id": 800 + step}
        | {"step_description": f"{text} once more, in an annotator's words", "is_essential": True}
        for step, text, start, end in segments
    ]
    about = {"annotation_meta": {"annotation_uid": "0e1a", "annotator_id": 7, "job_id": 9}}
    return {"take_uid": f"uid-{name}", "take_name": name, "scenario": scenario, **about, "segments": rows}


def egoexo_node(number: int, name: str, parent: int | None) -> dict[str, Any]:
    above = {"parent_id": parent, "parent_name": None if parent is None else "Flat kite"}
    leaf = number > 1
    return {"id": number, "is_leafnode": leaf, "name": name, **above} | ({"unique_id": 800 + number} if leaf else {})


@pytest.fixture
def egoexo4d(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "egoexo4d"
    (folder / "annotations").mkdir(parents=True)
    nodes = [(0, "Flat kite", None), (1, "Preparation", 0), (2, "Unroll the tail", 1), (3, "Tape the tear", 0)]
    tree = {"Mend a Kite": {str(number): egoexo_node(number, *rest) for number, *rest in nodes}}
    train = [
        egoexo_take("hill_kite_02_1", "Mend a Kite", (3, "Tape the tear", 8.5, 11.0), (2, "Unroll the tail", 0.5, 8.5))
    ]
    val = [
        egoexo_take(
            "hill_kite_01_2",
            "Mend a Kite",
            (1, "Preparation", 0.25, 9.0),
            (2, "Unroll the tail", 0.25, 4.0),
            (3, "Tape the tear", 9.0, 12.5),
            (3, "Tape the tear", 12.5, 12.5),
        ),
        egoexo_take("barn_kite_01_1", "Mend a Kite"),
    ]
    for name, takes in (("train", train), ("val", val)):
        value = {
            "annotations": {take["take_uid"]: take for take in takes},
            "taxonomy": tree,
            "vocabulary": {"802": "Unroll the tail", "803": "Tape the tear"},
        }
        (folder / "annotations" / f"keystep_{name}.json").write_text(json.dumps(value))
    return folder


def egoper_recording(video_id: str, *rows: tuple[float, float, int, int, str]) -> dict[str, Any]:
    labels = {
        "time_stamp": [[start, end] for start, end, *_ in rows],
        "action": [row[2] for row in rows],
        "action_type": [row[3] for row in rows],
        "error_description": [row[4] for row in rows],
    }
    return {"video_id": video_id, "labels": labels}


@pytest.fixture
def egoper(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "egoper"
    kinds = {"Normal": 0, "Error_Modification": 1, "Error_Slip": 2, "Error_Correction": 3, "Error_Addition": 4}
    tea = {
        "action2idx": {"BG": 0, "Heat the kettle": 1, "Hang up the bag": 2, "Hang the bag": 2, "Stir in honey": 3},
        "actiontype2idx": kinds,
        "segments": [
            egoper_recording(
                "tea_u2_a1_error_002",
                (0.0, 3.5, 0, 0, "BG"),
                (9.0, 12.0, 3, 1, "Stir in salt"),
                (3.5, 8.0, 1, 0, "Heat the kettle"),
                (12.0, 14.0, 2, 2, "Drop the bag"),
                (14.0, 16.0, 2, 3, "Pick the bag up"),
                (16.0, 20.5, -1, 4, "Wipe the table"),
            ),
            egoper_recording("tea_u1_a1_normal_001", (0.0, 5.0, 1, 0, "Heat the kettle"), (5, 9, 2, 0, "Hang the bag")),
        ],
    }
    grinding = egoper_recording("coffee_u1_a1_normal_009", (1.0, 2.0, 1, 0, "Grind beans"))
    coffee = {"action2idx": {"BG": 0, "Grind beans": 1}, "actiontype2idx": kinds, "segments": [grinding]}
    for recipe, lists in (
        ("tea", ("tea_u1_a1_normal_001\n", "", "tea_u2_a1_error_002\n")),
        ("Coffee", ("", "", "coffee_u1_a1_normal_009\n")),
    ):
        (folder / recipe).mkdir(parents=True)
        for name, text in zip(("training", "validation", "test"), lists, strict=True):
            (folder / recipe / f"{name}.txt").write_text(text)
    (folder / "annotation.json").write_text(json.dumps({"tea": tea, "coffee": coffee}))
    return folder


PROCEL = {
    "CMU-MMAC/Brownie/S07_Brownie_Video/S07_Brownie_7150991-1431.csv": "2.5,9.0,2 mix eggs\n0.5,2.5,1 break egg\n",
    "CMU-MMAC/Brownie/S07_Brownie_Video/S07_Brownie_6510211-1103.csv": "3.5,10.0,2 mix eggs\n1.5,3.5,1 break egg\n",
    "EGTEA_Gaze+/BaconAndEggs/OP01-R03-BaconAndEggs.csv": '0,4,1. take pan\n4,9,"2. fry bacon, eggs"\n9,9,3. serve\n',
    "EPIC-Tents/01.tent.090617.gopro.egoprocel.ann.csv": "1,2,1 unfold tent\n\n2,7.25,4 insert pole\n",
    "MECCANO/0008.csv": "10,20,1 take_bolt\n12,30,2 place_wheel\n30,31,1 take_bolt\n",
    "pc_assembly/Head_5.csv": "0,3,1 fix motherboard\n3,5,2 fix fan\n",
    "pc_disassembly/Head_6.csv": "0,3,1 remove fan\n",
}


@pytest.fixture
def egoprocel(tmp_path: Path) -> Path:
    folder = tmp_path / "root" / "egoprocel"
    for name, text in PROCEL.items():
        path = folder / "annotations" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def seven(request: pytest.FixtureRequest) -> Path:
    """The folder of all benchmarks."""
    return {name: request.getfixturevalue(name).parent for name in BENCHMARKS}["coin"]
