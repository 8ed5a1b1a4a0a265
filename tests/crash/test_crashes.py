"""Every command that writes is killed at many moments and finished by the same command."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from crashes import CASES, ELSEWHERE

from recipe.cli import app

WRITES = {"output", "html", "database", "keep", "run_dir"}
"""Names of parameters that say where something is written."""
READS = {"corpus info", "corpus verify", "corpus search", "data doctor", "board serve", "board account list"}
"""Commands with such a parameter that write nothing there, or nothing of their own."""


@pytest.fixture(scope="module")
def harness() -> Iterator[subprocess.Popen[str]]:
    """The harness in a process of its own, which forks: this one has threads."""
    for package in ("numba", "jinja2", "matplotlib", "fsspec"):
        pytest.importorskip(package)
    script = Path(__file__).parent / "crashes.py"
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        yield run


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "kills"),
    [(name, case.kills) for name, case in CASES.items()]
    + [pytest.param(name, 0, marks=pytest.mark.slow) for name in CASES],
)
def test_killed_before_calls_to_the_file_system(
    harness: subprocess.Popen[str], tmp_path: Path, name: str, kills: int
) -> None:
    assert harness.stdin is not None
    assert harness.stdout is not None
    harness.stdin.write(json.dumps([name, str(tmp_path), kills]) + "\n")
    harness.stdin.flush()
    calls = json.loads(harness.stdout.readline())
    assert isinstance(calls, int), calls
    assert calls >= 2


def test_every_command_that_writes_is_registered() -> None:
    def leaves(command: Any, path: str, parent: Any = None) -> Iterator[tuple[str, set[str]]]:
        context = typer.Context(command, parent=parent, info_name=path.rpartition(" ")[2])
        if hasattr(command, "list_commands"):
            for name in command.list_commands(context):
                yield from leaves(command.get_command(context, name), f"{path} {name}".strip(), context)
        else:
            yield path, {parameter.name for parameter in command.params}

    found = dict(leaves(typer.main.get_command(app), ""))
    writing = {path for path, names in found.items() if names & WRITES} | {p for p in found if p.startswith("train ")}
    elsewhere = [name for names in ELSEWHERE.values() for name in names]
    assert writing - READS - {"train check"} <= {*CASES, *elsewhere} <= found.keys()
    assert len({*CASES, *elsewhere}) == len(CASES) + len(elsewhere)
