"""Miniature benchmarks, invented here, in the exact layouts that are published."""

import json
from pathlib import Path
from typing import Any

import pytest

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
    return {
        "duration": 60.5,
        "class": task,
        "video_url": "https://www.youtube.com/embed/x",
        "start": 0.0,
        "end": 60.0,
        "recipe_type": 3,
        "subset": subset,
        "annotation": segments,
    }


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
    complete = {
        name: {
            "recording_id": name,
            "activity_id": 9,
            "activity_name": "Mint Tea",
            "person_id": 2,
            "environment": 4,
            "steps": steps,
        }
        for name, steps in recordings.items()
    }
    (folder / "annotation_json" / "complete_step_annotations.json").write_text(json.dumps(complete))
    for name, lists in (
        ("recordings_data_split_combined", (["9_2"], [], ["9_11"])),
        ("person_data_split_combined", (["9_11"], ["9_2"], ["9_3"])),
        ("recipes_data_split_combined", ([], [], [])),
    ):
        text = json.dumps(dict(zip(("train", "val", "test"), lists, strict=True)))
        (folder / "data_splits" / f"{name}.json").write_text(text)
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
