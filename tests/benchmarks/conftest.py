"""The benchmarks are scripts beside each other, not a package."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture
def called_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """The words of the command line that a script finds."""
    return lambda *words: monkeypatch.setattr(sys, "argv", [*map(str, words)])
