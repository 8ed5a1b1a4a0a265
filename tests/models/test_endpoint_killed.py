"""Jobs that ask an endpoint and are killed: what was answered is not asked again."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai")
from tests.models.endpoint_server import Reply, Server, completion, kept, opened, serving

from recipe.config import ModelConfig, SamplingConfig

QUESTIONS, AT_ONCE, KILLS = 150, 8, 5
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


def started(server: Server, cache: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", JOB, server.url, str(cache)], stderr=subprocess.DEVNULL)


def known(server: Server, cache: Path) -> set[str]:
    names = [f"question {n}" for n in range(QUESTIONS)]
    with opened(ModelConfig(endpoint=server.url, model="m"), cache) as engine:
        counts = kept(engine, [[{"role": "user", "content": name}] for name in names], 1, SAMPLING)
    return {name for name, count in zip(names, counts, strict=True) if count}


def asked(server: Server, since: int = 0) -> list[str]:
    return [body["messages"][0]["content"] for body in server.requests[since:]]


def wait_for(server: Server, requests: int, job: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while len(server.requests) < requests and job.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)


def test_a_job_that_is_killed_five_times_asks_for_nothing_twice_that_it_had(tmp_path: Path) -> None:
    def answer(body: dict[str, Any], before: int) -> Reply:
        return completion("1. Boil water")._replace(delay=0.005)

    with serving(answer) as server:
        for kill in range(1, KILLS + 1):
            before, had = len(server.requests), known(server, tmp_path)
            job = started(server, tmp_path)
            wait_for(server, before + 7 + 5 * kill, job)
            os.kill(job.pid, signal.SIGKILL)
            assert job.wait() == -signal.SIGKILL
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
    with serving(lambda body, before: completion("1. Boil water")._replace(delay=0.3)) as server:
        job = started(server, tmp_path)
        wait_for(server, 2 * AT_ONCE, job)
        job.send_signal(number)
        assert job.wait() == (-signal.SIGINT if code is None else code)
        assert len(server.requests) == len(known(server, tmp_path)) == 2 * AT_ONCE
