"""Who encodes makes no difference to the bytes; a process that dies is named, and the next build does its work."""

import multiprocessing
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.corpus.conftest import digest, narrations, write_narrations

from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.encoders import HashEncoder
from recipe.errors import ComputeError, ConfigError, EncoderMismatch, MissingExtra

CONFIG = CorpusConfig(encoder=EncoderConfig(name="hash:12"), shard_size=2)


class Counts:
    """Progress that keeps what is reported."""

    def __init__(self) -> None:
        self.counted: list[int] = []

    def task(self, description: str, total: int | None = None) -> "Counts":
        return self

    def __enter__(self) -> Any:
        return self.counted.append

    def __exit__(self, *exc: object) -> None: ...


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, bytes]:
    return digest(build_corpus(narrations(20), tmp_path / "whole", CONFIG))


@pytest.mark.thorough
def test_two_devices_make_the_same_bytes(tmp_path: Path, whole: dict[str, bytes]) -> None:
    counts = Counts()
    output = build_corpus(narrations(20), tmp_path / "c", CONFIG, counts, devices=("cpu", "cpu"))
    assert digest(output) == whole
    assert sum(counts.counted) == 20 + sum(len(narration.segments) for narration in narrations(20))


@pytest.mark.thorough
def test_a_process_that_is_killed_is_named(tmp_path: Path, whole: dict[str, bytes]) -> None:
    class Kills(Counts):
        """Kills the process of the device as soon as it reports progress."""

        def __enter__(self) -> Any:
            def kill(n: int) -> None:
                for child in multiprocessing.active_children():
                    child.kill()

            return kill

    with pytest.raises(ComputeError, match=r"device cpu .*signal 9 at shard 0000\d"):
        build_corpus(narrations(20), tmp_path / "c", CONFIG, Kills(), devices=("cpu",))
    assert digest(build_corpus(narrations(20), tmp_path / "c", CONFIG)) == whole


@pytest.mark.thorough
def test_what_a_process_raises_comes_through(tmp_path: Path) -> None:
    class Other(HashEncoder):
        @property
        def identity(self) -> Any:
            return super().identity | {"weights": "1234"}

    with pytest.raises(EncoderMismatch, match="weights '1234'"):
        build_corpus(narrations(4), tmp_path / "c", CONFIG, encoder=Other(12), devices=("cpu", "cpu"))


@pytest.mark.thorough
@pytest.mark.parametrize("guarded", [True, False])
def test_a_script_builds_on_devices_below_its_main_guard(tmp_path: Path, guarded: bool) -> None:
    script = tmp_path / "build.py"
    script.write_text(f"""
from pathlib import Path
from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.types import Narration, Segment
if {"__name__ == '__main__'" if guarded else True}:
    narrations = [Narration(f"v{{n}}", (Segment("boil the water"), Segment("steep the tea"))) for n in range(6)]
    config = CorpusConfig(encoder=EncoderConfig(name="hash:12"), shard_size=2)
    build_corpus(narrations, Path({str(tmp_path / "c")!r}), config, devices=("cpu", "cpu"))
""")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == guarded
    assert guarded or "if __name__ == '__main__'" in done.stderr.splitlines()[-1]


def test_a_cluster_chooses_its_devices(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'ray'.*devices"):
        build_corpus(narrations(4), tmp_path / "c", CONFIG, engine="ray", devices=("cpu",))
    assert not (tmp_path / "c").exists()


def test_a_cluster_without_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in ("recipe.corpus.cluster.search", "recipe.corpus.cluster.build"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(MissingExtra, match=r"pip install .*\[cluster\]'"):
        build_corpus(narrations(4), tmp_path / "c", CONFIG, engine="ray")


@pytest.mark.slow
def test_processes_end_with_the_first_one(tmp_path: Path) -> None:
    """After kill -9 of the build no process of it goes on writing beside the next build."""
    source = write_narrations(tmp_path / "narrations.jsonl", narrations(3000))
    main = "from recipe.cli import main; main()"
    words = ["corpus", "build", str(source), "--encoder", "hash:512", "--shard-size", "20", "--output"]
    command = [sys.executable, "-c", main, *words]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    output = tmp_path / "killed"
    process = subprocess.Popen([*command, str(output), "--devices", "cpu,cpu"], stderr=subprocess.PIPE)
    while not (output / "shards" / "00003").is_dir():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 300
    while any(Path(f"/proc/{child}/exe").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(children) >= 2
    subprocess.run([*command, str(output), "--devices", "cpu,cpu"], check=True, capture_output=True)
    assert digest(output) == digest(tmp_path / "whole")
