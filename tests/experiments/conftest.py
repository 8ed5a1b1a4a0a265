"""Miniature benchmarks in the layouts that are published, and narrations, below one folder of data."""

import json
from pathlib import Path
from typing import Any

import pytest

CARDS = "\n".join(["501", "Brew Mint Tea", "http://x", "3", "boil water,add mint,pour tea"]) + "\n"


def coin_video(subset: str, task: str = "PatchKite") -> dict[str, Any]:
    steps = [{"label": label, "segment": [n, n + 1]} for n, label in enumerate(("cut tape", "press tape", "fly"))]
    return {"class": task, "subset": subset, "annotation": steps}


def write_coin(root: Path, videos: dict[str, dict[str, Any]]) -> None:
    (root / "coin").mkdir(parents=True, exist_ok=True)
    (root / "coin" / "COIN.json").write_text(json.dumps({"database": videos}))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """COIN trains on `shared`, which CrossTask tests on; `tea` and `unlisted` are CrossTask's own."""
    root = tmp_path / "data"
    write_coin(root, {"shared": coin_video("training"), "own": coin_video("training"), "held": coin_video("testing")})
    annotations = root / "crosstask" / "crosstask_release" / "annotations"
    annotations.mkdir(parents=True)
    (annotations.parent / "tasks_primary.txt").write_text(CARDS)
    for video in ("shared", "tea", "unlisted"):
        (annotations / f"501_{video}.csv").write_text("1,0,2\n2,3,4\n3,5,6\n")
    splits = root / "crosstask" / "splits"
    splits.mkdir()
    for name, listed in (("train", "tea\n"), ("validation", ""), ("test", "shared\n")):
        (splits / f"{name}.txt").write_text(listed)
    narrations = root / "narrations"
    narrations.mkdir()
    for name in ("narrations_timed", "youcook2_asr_untimed"):
        (narrations / f"{name}.jsonl").write_text('{"video_id": "v", "sentences": ["boil water", "pour tea"]}\n')
    return root
