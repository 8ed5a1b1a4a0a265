"""Benchmarks of a few videos, invented here, in the layouts that are published."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from recipe.artifacts import fingerprint, read_json, read_jsonl, to_json, write_json
from recipe.rows import from_json
from recipe_studies.experiments.results import Provenance
from recipe_studies.reproduce import measures
from recipe_studies.reproduce.expand import ScaleRuns, expand, restrict
from recipe_studies.reproduce.page import RESULTS, ScaleResults, StudyResults, rerender
from recipe_studies.reproduce.study import PaperStudy

STEPS = ("boil water", "add mint", "pour tea", "stir tea", "drink tea")
COUNT = 10
"""Videos of each benchmark and split."""
CRITERIA = ("logical_progression", "temporal_alignment", "spatial_grounding", "continuation", "clarity",
            "semantic_alignment")  # fmt: skip


MICRO = [
    word
    for change in (
        *("world.narrations=40", "world.documents=120", "world.train=12", "world.test=4", "samples=1"),
        *("corpus.encoder.name=hash:64", "sampling.max_tokens=24", "sampling.batch_size=64"),
        *("base.steps=6", "base.hidden_size=32", "base.layers=1", "base.bf16=false"),
        *("sft.epochs=1", "sft.bf16=false", "sft.metrics=[]", "grpo.bf16=false", "grpo.metrics=[]"),
        *("grpo.steps=1", "grpo.prompts_per_step=2", "grpo.max_completion_tokens=16"),
    )
    for word in ("--set", change)
]
"""Options of `recipe reproduce --scale tiny` that leave a few thousand parameters and a few steps."""


@pytest.fixture
def lettered(monkeypatch: pytest.MonkeyPatch) -> None:
    """`letters` in place of the encoder of all measures."""
    monkeypatch.setattr(measures, "embed", lambda: letters)


def rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of lines."""
    return [row for _, row in read_jsonl(path)]


def letters(texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors by letters: an encoder that costs nothing."""
    counts = np.array([[text.count(chr(97 + n)) + 0.01 for n in range(26)] for text in texts], dtype=np.float32)
    unit: NDArray[np.float32] = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    return unit


def planned(study: PaperStudy, name: str = "") -> ScaleRuns:
    """What a study asks for at a scale, by default its first."""
    return restrict(study, expand(study, name or study.scales[0]))


def identities(made: ScaleRuns) -> dict[str, str]:
    """What decides whether an earlier output of each stage still holds."""
    return {stage.name: fingerprint(stage.identity) for stage in made.stages}


def write_page(folder: Path, *scales: ScaleResults) -> Path:
    """The page of results, which is written from their file alone."""
    results = StudyResults("The tables", Provenance("2026-01-01T00:00:00+00:00", "recipe reproduce", (0,)), scales)
    write_json(folder / RESULTS, to_json(results), sort_keys=False)
    assert read_results(folder) == results
    return rerender(folder)


def read_results(folder: Path) -> StudyResults:
    """What a study left."""
    return from_json(read_json(folder / RESULTS), StudyResults, RESULTS)


def benchmarks(root: Path) -> None:
    """COIN, CrossTask and NIV with narrations, and a video file for each video of the last two."""
    root.mkdir(exist_ok=True)
    (root / "coin").mkdir()
    annotation = [{"label": label, "segment": [10 * n + 2, 10 * n + 9]} for n, label in enumerate(STEPS)]
    subsets = {f"coin{n:02}": "training" if n < COUNT else "testing" for n in range(2 * COUNT)}
    database = {
        name: {"class": "BrewTea", "subset": subset, "annotation": annotation} for name, subset in subsets.items()
    }
    (root / "coin" / "COIN.json").write_text(json.dumps({"database": database}))
    release, splits = root / "crosstask" / "crosstask_release", root / "crosstask" / "splits"
    (release / "annotations").mkdir(parents=True)
    splits.mkdir()
    card = ["501", "Brew Mint Tea", "http://x", str(len(STEPS)), ",".join(STEPS)]
    (release / "tasks_primary.txt").write_text("\n".join(card) + "\n")
    rows = "".join(f"{n + 1},{10 * n + 2},{10 * n + 9}\n" for n in range(len(STEPS)))
    lists: dict[str, list[str]] = {"train": [], "test": [], "validation": []}
    for n in range(2 * COUNT):
        (release / "annotations" / f"501_cross{n:02}.csv").write_text(rows)
        lists["train" if n < COUNT else "test"].append(f"cross{n:02}")
    for name, videos in lists.items():
        (splits / f"{name}.txt").write_text("".join(f"{video}\n" for video in videos))
    (root / "niv").mkdir()
    steps = [{"action": label, "start": 10 * n + 2, "end": 10 * n + 9} for n, label in enumerate(STEPS)]
    valid = {f"kite_{n:04}": {"task": "making tea", "steps": steps} for n in range(COUNT)}
    (root / "niv" / "niv_valid.json").write_text(json.dumps(valid))
    (root / "narrations").mkdir()
    told = [
        {"video_id": f"told{n}", "sentences": [f"now we {step} for cup {n % 3}" for step in STEPS]} for n in range(30)
    ]
    (root / "narrations" / "told.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    (root / "videos").mkdir()
    for video in (*lists["train"], *lists["test"], *valid):
        (root / "videos" / f"{video}.mp4").write_bytes(b"frames")
