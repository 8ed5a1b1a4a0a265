"""A build killed at any moment is finished by the same command, and ends byte for byte as an uninterrupted one.

Two ways to kill: in a forked copy of the process, just before any one of its calls to the file system; and the
command itself, by `kill -9` at a random state of its folder.
"""

import os
import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.corpus.conftest import digest, narrations, write_narrations

KILLED = """
import shutil, sys
from pathlib import Path
from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.build import narration_source
from recipe.data.narrations import ReadingOptions
from tests.corpus.conftest import digest
from tests.corpus.killed import killed_before

source, output, stride = Path(sys.argv[1]), Path(sys.argv[2]) / "c", int(sys.argv[3])
config = CorpusConfig(encoder=EncoderConfig(name="hash:12"), shard_size=5)

def build():
    narrations, origin = narration_source([source], ReadingOptions())
    build_corpus(narrations, output, config, origin=origin)

build()
whole = digest(output)
shutil.rmtree(output)
moment = 1
while killed_before(moment, build, output):
    killed_before(1 + moment // 2, build, output)  # and killed again while it goes on
    build()
    assert digest(output) == whole, moment
    assert not list(output.rglob(".*")), moment
    shutil.rmtree(output)
    moment += stride
print(moment)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("stride", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_before_any_call_to_the_file_system(tmp_path: Path, narration_file: Path, stride: int) -> None:
    command = [sys.executable, "-c", KILLED, str(narration_file), str(tmp_path), str(stride)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment())
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}


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
        kill_after(
            draw.randrange(1, 130), [*command, str(output)], output
        )  # staging makes some 16 entries, encoding more
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
