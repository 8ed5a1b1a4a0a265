"""The fuzz campaign finds what is planted, replays what was found, and finds nothing in a few hundred inputs."""

import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client")
FUZZ = Path(__file__).parents[2] / "fuzz"
sys.path.insert(0, str(FUZZ))

import apps  # noqa: E402
import campaign  # noqa: E402
from targets import Target, targets  # noqa: E402

QUICK = [name for name in sorted(targets()) if name != "pickle"]


@pytest.fixture(autouse=True, scope="module")
def services() -> Iterator[None]:
    """Services that a replay opens end with the tests; their threads would keep the process."""
    before = set(threading.enumerate())  # of tests that ran earlier in this process
    yield
    apps.close()
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert not [thread for thread in left if thread.name.startswith(("writer", "evidence", "recipe-"))]


@pytest.fixture
def alarm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Late inputs are interrupted, sooner than in a campaign."""
    import signal

    monkeypatch.setattr(campaign, "SECONDS", 0.2)
    before = signal.signal(signal.SIGPROF, campaign.late)
    yield
    signal.signal(signal.SIGPROF, before)


@pytest.mark.parametrize("path", [path for _, path in campaign.past_failures()], ids=lambda path: path.name)
def test_what_once_failed_is_read_or_refused(path: Path) -> None:
    assert campaign.replay(path.name.partition("--")[0], path.read_bytes()) is None


@pytest.mark.parametrize("name", apps.SERVICES)
def test_a_service_takes_the_request_that_the_campaign_changes_first(name: str, tmp_path: Path) -> None:
    """One that does not open would refuse every input, and the campaign would find nothing."""
    service, [first, *_] = apps.SERVICES[name]
    (tmp_path / "request").write_bytes(first)
    assert service().send(tmp_path / "request") in ("200", "201", "202")


def _twice_at_the_end(count: int) -> bytes:
    """An object of many names, of which only the last one comes again."""
    names = [*(f'"{number:x}":1' for number in range(count)), f'"{count - 1:x}":1']
    return b"{" + ",".join(names).encode() + b"}\n"


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("submission", 3 * _twice_at_the_end(22_000), id="a name that comes again"),
        pytest.param("rating table", b",".join(b"c%d" % number for number in range(50_000)), id="many columns"),
        pytest.param("trace text", b"Stir " + b"9" * 65_000 + b"m", id="a long number"),
        pytest.param("trace text", b"Stir " + b"-" * 65_000 + b"m", id="a long rule"),
    ],
)
def test_time_does_not_grow_with_the_square_of_the_input(name: str, data: bytes) -> None:
    assert campaign.replay(name, data) is None


@pytest.mark.thorough
@pytest.mark.parametrize("name", QUICK)
def test_a_few_hundred_inputs_of_every_target(name: str) -> None:
    draw, target = random.Random(0), targets()[name]
    pool = list(target.seeds)
    until = time.monotonic() + 0.25
    for _ in range(200):
        data = campaign.changed(draw.choice(pool), draw, draw.choice(pool))
        assert campaign.replay_of(target, data) is None, data
        if time.monotonic() > until:
            break


def raises(path: Path) -> None:
    raise KeyError(path.name)


def spins(path: Path) -> None:
    while True:
        pass


def swallows(path: Path) -> None:
    raise MemoryError


@pytest.mark.parametrize(
    ("run", "problem"), [(raises, "KeyError: 'f'"), (spins, "more than 0.2 s"), (swallows, "1 GB")]
)
def test_what_is_planted_is_found(alarm: None, tmp_path: Path, run: Callable[[Path], Any], problem: str) -> None:
    found = campaign.outcome(Target(run, "f", (b"x",)), b"x", tmp_path)
    assert found.failure is not None
    assert problem in found.failure


def test_changes_reach_keys_values_lines_and_bytes() -> None:
    draw, seed = random.Random(0), b'{"a": [1, {"b": "c"}]}\n{"d": 2}\n'
    made = {campaign.changed(seed, draw, seed) for _ in range(3000)}
    assert len(made) > 2000
    for part in (b"NaN", b"null", b"\x1b[2J", b'{"a": [1, {"b": "c"}]}\n{"a": [1, {"b": "c"}]}', b'{"d": 2}\n{"a"'):
        assert any(part in one for one in made)


@pytest.mark.thorough
def test_the_campaign_as_a_command() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(FUZZ / "campaign.py"), "--minutes", "0.05", "--jobs", "1", "--seed", "1"]
        command += ["--target", "plan text", "--target", "number text", "--failures", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    counted = {line.rsplit(maxsplit=1)[0].strip(): line.split()[-1] for line in done.stdout.splitlines()[:2]}
    assert counted.keys() == {"plan text", "number text"}
    assert done.stdout.splitlines()[-1].startswith("all ")
