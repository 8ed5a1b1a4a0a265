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
