"""Jobs that ask an endpoint and are killed: what was answered is not asked again."""

import math
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("openai")
from tests.models.endpoint_server import Server, completion, kept, opened, serving

from recipe.config import ModelConfig, SamplingConfig

pytestmark = pytest.mark.thorough

QUESTIONS, AT_ONCE, KILLS = 80, 8, 2
SAMPLING = SamplingConfig(temperature=0.0)
JOB = f"""
import pathlib, signal, sys
from recipe.cli.console import terminated
from recipe.config import ModelConfig, SamplingConfig
from recipe.models.model import open_model
chats = [[{{"role": "user", "content": f"question {{n}}"}}] for n in range({QUESTIONS})]
config = ModelConfig(endpoint=sys.argv[1], model="m", concurrency={AT_ONCE}, cache=pathlib.Path(sys.argv[2]))
with terminated(), open_model(config) as engine:
    engine.outcomes(chats, 1, SamplingConfig(temperature=0.0))
"""


def started(server: Server, cache: Path, told: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", JOB, server.url, str(cache)], stderr=told)


def known(server: Server, cache: Path) -> set[str]:
    names = [f"question {n}" for n in range(QUESTIONS)]
    with opened(ModelConfig(endpoint=server.url, model="m"), cache) as engine:
        counts = kept(engine, [[{"role": "user", "content": name}] for name in names], 1, SAMPLING)
    return {name for name, count in zip(names, counts, strict=True) if count}


def asked(server: Server, since: int = 0) -> list[str]:
    return [body["messages"][0]["content"] for body in server.requests[since:]]


def wait_for(server: Server, requests: int, job: subprocess.Popen[bytes]) -> None:
    """The request that comes next is held back, so that the job does not end."""
    server.held_from = requests
    server.until(lambda: len(server.requests) >= requests or job.poll() is not None)


def test_a_job_that_is_killed_twice_asks_for_nothing_twice_that_it_had(tmp_path: Path) -> None:
    with serving(lambda body, before: completion("1. Boil water")) as server:
        for kill in range(1, KILLS + 1):
            before, had = len(server.requests), known(server, tmp_path)
            job = started(server, tmp_path)
            wait_for(server, before + 7 + 5 * kill, job)
            os.kill(job.pid, signal.SIGKILL)
            assert job.wait() == -signal.SIGKILL
            server.held_from = math.inf
            server.until(lambda: not server.under_way)
            assert had.isdisjoint(asked(server, before))
            has = known(server, tmp_path)
            assert had < has
            # Answered, or under way when it was killed.
            assert len(set(asked(server)) - has) <= AT_ONCE
        before, had = len(server.requests), known(server, tmp_path)
        assert started(server, tmp_path).wait() == 0
        assert sorted([*had, *asked(server, before)]) == sorted(f"question {n}" for n in range(QUESTIONS))
        assert len(server.requests) <= QUESTIONS + KILLS * AT_ONCE
        # A host that knows its requests again is paid once for each.
        keys = [headers["idempotency-key"] for headers in server.headers]
        assert len(Counter(zip(asked(server), keys, strict=True))) == len(set(keys)) == QUESTIONS
        assert started(server, tmp_path).wait() == 0
        assert len(server.requests) == len(keys)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, None)])
def test_a_job_that_is_asked_to_end_keeps_what_is_under_way(
    tmp_path: Path, number: signal.Signals, code: int | None
) -> None:
    with (
        serving(lambda body, before: completion("1. Boil water")) as server,
        started(server, tmp_path, subprocess.PIPE) as job,
    ):
        assert job.stderr is not None
        server.held_from = AT_ONCE
        server.until(lambda: len(server.requests) == 2 * AT_ONCE)
        job.send_signal(number)
        # It says so once it asks for nothing more.
        assert any(b"awaiting answers under way" in line for line in job.stderr)
        server.held_from = math.inf
        assert job.wait() == (-signal.SIGINT if code is None else code)
        assert len(server.requests) == len(known(server, tmp_path)) == 2 * AT_ONCE
