"""docs/install.md: the service and its client run in two environments, each with the packages of its extras alone."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.plan_text import plan_steps
from recipe.reward.verifier import Verifier

for package in ("uvicorn", "fastapi", "httpx2", "sentence_transformers", "numba"):
    pytest.importorskip(package)

ROOT = Path(__file__).parents[2]
_BLOCKS = (ROOT / "docs" / "install.md").read_text(encoding="utf-8").split("```\n")[1::2]
[BLOCK] = [block for block in _BLOCKS if "reward serve" in block]
SERVICE, CLIENT = re.findall(r"/recipe\[([\w,]+)\]", BLOCK)
"""The extras that the page installs in the two environments."""
HIDING = """
import sys

HIDDEN = set({hidden!r})


class Without:
    '''A finder that finds no hidden package.'''

    def __init__(self, finder):
        self._finder = finder

    def __getattr__(self, name):
        return getattr(self._finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in HIDDEN else self._finder.find_spec(name, path, target)


sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""
TRAIN = """
import asyncio, json
from recipe.reward.trainers.trl import alignment_reward

print(json.dumps(asyncio.run(alignment_reward({completions!r}, goal={goals!r}, history={histories!r}))))
"""
TRAINERS = ("easyr1", "ms_swift", "openrlhf", "trl", "verifiers", "verl")


def environment(extras: str, folder: Path) -> dict[str, str]:
    """Variables of a process, and of those that it starts, that import this project and what `extras` install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra_lines = [line for extra in extras.split(",") for line in project["optional-dependencies"][extra]]
    waiting = [Requirement(line) for line in (*project["dependencies"], *extra_lines)]
    kept = set[str]()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in kept:
            continue
        kept.add(name)
        with suppress(importlib.metadata.PackageNotFoundError):  # of another system
            for needed in map(Requirement, importlib.metadata.requires(name) or []):
                if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in ("", *wanted.extras)):
                    waiting.append(needed)
    hidden = [
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not module.startswith("recipe") and not {canonicalize_name(owner) for owner in owners} & kept
    ]
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HIDING.format(hidden=hidden), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "src")])}


def test_the_client_needs_its_extra_alone(tmp_path: Path) -> None:
    own = environment(CLIENT, tmp_path / "client")
    modules = ["recipe.reward.client", *(f"recipe.reward.trainers.{name}" for name in TRAINERS)]
    for words in (
        ["-c", f"import {', '.join(modules)}"],
        ["-m", "recipe", "--help"],
        ["-m", "recipe", "reward", "--help"],
    ):
        subprocess.run([sys.executable, *words], env=own, cwd=tmp_path, check=True, capture_output=True)
    hidden = subprocess.run(
        [sys.executable, "-c", "import torch"], env=own, cwd=tmp_path, capture_output=True, text=True
    )
    assert "ModuleNotFoundError" in hidden.stderr  # the check can fail


@pytest.mark.thorough
def test_a_training_script_asks_the_service_of_another_environment(talks_folder: Path, tmp_path: Path) -> None:
    serve = next(line for line in BLOCK.splitlines() if "reward serve" in line).removesuffix(" &").split()[1:]
    changed = {"corpora/mine": str(talks_folder), "8000": "0"}
    command = [sys.executable, "-m", "recipe", *(changed.get(word, word) for word in serve)]
    with subprocess.Popen(
        command, env=environment(SERVICE, tmp_path / "service"), stderr=subprocess.PIPE, text=True
    ) as service:
        try:
            assert service.stderr is not None
            address = next(match[0] for line in service.stderr if (match := re.search(r"http://127.0.0.1:\d+", line)))
            history = ["boil the water", "warm the pot"]
            plans = ["1. put tea leaves in the pot\n2. pour the water", "1. lift the car"]
            script = TRAIN.format(completions=plans, goals=["make tea"] * 2, histories=[history] * 2)
            own = environment(CLIENT, tmp_path / "client") | {"RECIPE_SERVICE": address}
            trained = subprocess.run([sys.executable, "-c", script], env=own, stdout=subprocess.PIPE, check=True)
        finally:
            service.terminate()
            service.communicate(timeout=300)
    verifier = Verifier(Corpus.open(talks_folder), RewardConfig())
    expected = verifier.score(goal="make tea", history=history, continuations=[plan_steps(plan) for plan in plans])
    assert json.loads(trained.stdout) == pytest.approx([reward.total for reward in expected])
