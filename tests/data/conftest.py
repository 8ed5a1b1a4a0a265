"""Miniature benchmarks, invented, in the exact layouts that are published, and the commands that read them."""

import shutil
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


def coin_video(task: str, subset: str, *labels: str) -> dict[str, Any]:
    segments = [
        {"id": str(10 + index), "segment": [2.0 * index, 2.0 * index + 1.5], "label": label}
        for index, label in enumerate(labels)
    ]
    about = {"duration": 60.5, "video_url": "https://www.youtube.com/embed/x", "start": 0.0, "end": 60.0}
    return about | {"recipe_type": 3, "class": task, "subset": subset, "annotation": segments}


def copied(name: str) -> Any:
    """A fixture: a folder with an invented benchmark, of which files are changed."""

    @pytest.fixture(name=name)
    def folder(tmp_path: Path) -> Path:
        return Path(shutil.copytree(Path(__file__).parent / "benchmarks" / name, tmp_path / "root" / name))

    return folder


coin, crosstask, captaincook4d, egoprocel, niv, egoexo4d, egoper = map(copied, BENCHMARKS)


@pytest.fixture
def seven(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of all benchmarks."""
    for name in BENCHMARKS:
        request.getfixturevalue(name)
    return tmp_path / "root"
