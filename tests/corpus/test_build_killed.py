"""A build killed by `kill -9` at random states of its folder is finished by the same command, with the same bytes.

`tests/crash` kills it before calls to the file system.
"""

import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.corpus.conftest import digest, narrations, write_narrations


@pytest.mark.thorough
def test_killed_by_signal_9_at_random_moments(tmp_path: Path) -> None:
    source = write_narrations(tmp_path / "narrations.jsonl", narrations(320))
    main = "from recipe.cli import main; main()"
    options = ("--encoder", "hash:256", "--shard-size", "20", "--output")
    command = [sys.executable, "-c", main, "corpus", "build", str(source), *options]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    whole, draw = digest(tmp_path / "whole"), random.Random(0)
    for turn in range(6):
        output = tmp_path / f"killed{turn}"
        entries = draw.randrange(1, 130)  # staging makes some 16 of them, encoding more
        kill_after(entries, [*command, str(output)], output)
        subprocess.run([*command, str(output)], check=True, capture_output=True)
        assert digest(output) == whole


def kill_after(entries: int, command: list[str], output: Path) -> None:
    """Start a build and kill it when that many files and folders of `output` have been seen; it must not end first.

    The moment is a state of the folder and not a time, so that a busy machine changes nothing.
    """
    seen: set[Path] = set()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(seen) < entries:
        assert process.poll() is None, f"the build ended after {len(seen)} entries"
        with suppress(FileNotFoundError):  # an entry that is renamed while the folder is read
            seen |= set(output.rglob("*"))
        time.sleep(0.001)
    process.kill()
    process.wait()
