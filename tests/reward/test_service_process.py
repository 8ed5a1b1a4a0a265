"""The service as users run it: a process that is asked over sockets, signalled, restarted, and left alone."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import built_corpus
from typer.testing import CliRunner

from recipe.cli import app
from recipe.config import RewardConfig
from recipe.corpus.change import add_to
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError, CorpusError, RecipeError
from recipe.reward.verifier import Verifier
from recipe.types import Narration, Segment

pytestmark = pytest.mark.thorough

pytest.importorskip("uvicorn")
server = pytest.importorskip("recipe_apps.service.server")

SLOW = """
import os, time, zlib, sys
from recipe_apps.service.app import create_app
from recipe_apps.service.server import serve
from recipe_apps.web.process import listen
from recipe.types import Reward

class Scorer:
    def score_groups(self, groups):
        while any(group.goal == "slow" for group in groups) and not os.path.exists(sys.argv[2]):
            time.sleep(0.01)
        return [[self.reward(goal, history, plan) for plan in plans] for goal, history, plans in groups]

    def reward(self, goal, history, plan):
        return Reward(zlib.crc32(repr((goal, *history, *plan)).encode()) / 2**32, 0, 0, 0, False, 1, (), None)

with listen("127.0.0.1", int(sys.argv[1])) as bound:
    print(bound.getsockname()[1], flush=True)
    serve(create_app(Scorer()), bound)
"""


def total(goal: str, history: Sequence[str], plan: Sequence[str]) -> float:
    return zlib.crc32(repr((goal, *history, *plan)).encode()) / 2**32


def text(port: int, path: str, body: object = None, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def ask(port: int, path: str, body: object = None) -> tuple[int, Any]:
    """Of a question with a body, or of a page without one."""
    status, said = text(port, path, body, "GET" if body is None else "POST")
    return status, json.loads(said)


def score(port: int, goal: str, *plan: str) -> Any:
    return ask(port, "/score", {"goal": goal, "history": ["h"], "continuation": plan})


def patiently(port: Callable[[], int], goal: str, *plan: str) -> float:
    """As trainers do: a request that is not answered is sent again."""
    while True:
        try:
            status, body = score(port(), goal, *plan)
        except (OSError, http.client.HTTPException):
            status = None
        if status == 200:
            return float(body["reward"]["total"])
        time.sleep(0.05)


class Started:
    """A process that serves the slow scorer, which scores the goal "slow" once the file `gate` is there."""

    def __init__(self, port: int = 0, gate: Path = Path("none")) -> None:
        command = [sys.executable, "-c", SLOW, str(port), str(gate)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def accepted(self, count: int) -> None:
        """Return when it has accepted so many plans."""
        held = 0
        while held < count:
            _, page = text(self.port, "/metrics")
            names = ("recipe_reward_queue_plans", "recipe_reward_batch_plans_sum")
            held = sum(float(line.split()[1]) for line in page.splitlines() if line.split()[0] in names)  # type: ignore[assignment]

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=300)
        return self.process.returncode


def test_nothing_is_lost_and_nothing_is_wrong_while_it_restarts_under_load() -> None:
    first = Started()
    ports = [first.port]
    samples = [(f"goal {n % 9}", f"plan {n}") for n in range(200)]
    with ThreadPoolExecutor(16) as clients:
        asked = [clients.submit(patiently, lambda: ports[-1], *sample) for sample in samples]
        while sum(request.done() for request in asked) < 50:
            time.sleep(0.01)
        code = first.end()
        second = Started(first.port)
        answers = [request.result() for request in asked]
    assert (code, second.end()) == (0, 0)
    assert answers == [total(goal, ["h"], [plan]) for goal, plan in samples]


def test_clients_that_hang_up_do_no_harm_and_sigterm_finishes_what_is_accepted(tmp_path: Path) -> None:
    service = Started(gate=tmp_path / "gate")
    body = json.dumps({"goal": "slow", "history": [], "continuation": ["gone"]}).encode()
    head = b"POST /score HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    with ThreadPoolExecutor(8) as clients:
        requests = [clients.submit(score, service.port, "slow", str(n)) for n in range(8)]
        service.accepted(8)
        for sent in (head + body, head + body, head + body[:10], head[:20], b"\x16\x03\x01 no HTTP at all\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", service.port)) as client:
                client.sendall(sent)
                time.sleep(0.02)
        page = ""
        while 'recipe_reward_failures_total{class="hung_up"} 3.0' not in page:
            _, page = text(service.port, "/metrics")
        service.process.send_signal(signal.SIGTERM)
        (tmp_path / "gate").touch()
        code = service.end()
        answers = [request.result() for request in requests]
    assert code == 0
    assert [status for status, _ in answers] == [200] * 8
    assert [body["reward"]["total"] for _, body in answers] == [total("slow", ["h"], [str(n)]) for n in range(8)]
    with pytest.raises(OSError):
        score(service.port, "tea", "late")


TALKS = {
    "tea": ["boil the water", "warm the pot", "put tea leaves in the pot", "pour the water"],
    "eggs": ["crack two eggs", "whisk the eggs with milk", "melt butter in a pan", "pour the eggs"],
    "tyre": ["lift the car", "remove the bolts", "take off the wheel"],
}
OTHER = {"toast": ["slice the bread", "toast the bread", "spread butter on the toast"]}


def built(folder: Path, talks: dict[str, list[str]]) -> Path:
    narrations = [Narration(name, tuple(map(Segment, texts))) for name, texts in talks.items()]
    return built_corpus(folder, narrations, "hash:128").folder


class Served:
    """`recipe reward serve`, and what it says on standard error."""

    def __init__(self, *options: object) -> None:
        command = [sys.executable, "-m", "recipe", "reward", "serve", "--port", "0", *map(str, options)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if " at http://" in line:
                self.port = int(line.rstrip().rpartition(":")[2])
                break
        while ask(self.port, "/readyz")[0] != 200:
            time.sleep(0.05)

    def end(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=300)
        assert self.process.returncode == 0
        return "".join(self.lines) + said


def assert_rewards_of_the_library(port: int, verifier: Verifier) -> None:
    steps = [text for talk in TALKS.values() for text in talk]
    prompts = [(steps[n % 7 : n % 7 + 2], [*steps[n % 5 :: 3], f"wait {n} minutes"][:6]) for n in range(48)]
    bodies = [{"goal": "g", "history": history, "continuation": plan} for history, plan in prompts]
    with ThreadPoolExecutor(32) as clients:
        answers = list(clients.map(lambda body: ask(port, "/score", body), bodies))
    rewards = [verifier.score(history=history, continuations=[plan], goal="g")[0] for history, plan in prompts]
    assert [body["reward"]["total"] for _, body in answers] == pytest.approx([one.total for one in rewards], abs=1e-6)
    assert len({one.total for one in rewards}) > 20


EGGS = {"goal": "eggs", "history": ["crack two eggs"], "continuation": ["whisk the eggs", "melt butter in the pan"]}


def eggs(verifier: Verifier) -> float:
    """The reward of `EGGS`."""
    return verifier.score(history=EGGS["history"], continuations=[EGGS["continuation"]], goal="eggs")[0].total


def serves(port: int, identity: str) -> Any:
    """What /info says once this corpus is served."""
    while (info := ask(port, "/info")[1])["corpus"]["id"] != identity:
        time.sleep(0.05)
    return info


def test_a_corpus_that_is_replaced_is_taken_over(tmp_path: Path) -> None:
    folder = built(tmp_path / "corpus", TALKS)
    examples = tmp_path / "warm.jsonl"
    examples.write_text(json.dumps({"goal": "tea", "history": ["boil the water"], "continuation": ["warm the pot"]}))
    kept = Verifier(Corpus.open(folder))
    served = Served("--corpus", folder, "--warm", examples)
    assert_rewards_of_the_library(served.port, kept)
    before = ask(served.port, "/info")[1]
    other = built(tmp_path / "other", OTHER)
    folder.rename(tmp_path / "old")
    missing = ask(served.port, "/info")[1]
    _, answer = ask(served.port, "/score", EGGS)
    other.rename(folder)
    ids = {name: Corpus.open(tmp_path / place).manifest["id"] for name, place in (("old", "old"), ("new", "corpus"))}
    after = serves(served.port, ids["new"])
    _, later = ask(served.port, "/score", EGGS)
    _, page = text(served.port, "/metrics")
    said = served.end()
    assert before["corpus"] | {"folder": ""} == {
        "folder": "",
        "id": ids["old"],
        "narrations": 3,
        "segments": 11,
        "too_small": None,
        "on_disk": {"id": ids["old"], "replaced": False},
    }
    assert missing["corpus"]["on_disk"] == {"id": None, "replaced": True}
    assert (after["corpus"]["narrations"], after["corpus"]["on_disk"]) == (1, {"id": ids["new"], "replaced": False})
    assert (before["encoder"]["name"], before["verifier"]["verifier"]) == ("hash:128", "paper")
    assert answer["reward"]["total"] == pytest.approx(eggs(kept), abs=1e-6)
    assert later["reward"]["total"] == pytest.approx(eggs(Verifier(Corpus.open(folder))), abs=1e-6)
    assert "recipe_reward_corpus_replaced 0.0" in page
    assert f'recipe_reward_corpus{{id="{ids["new"]}"}} 1.0' in page
    assert f'recipe_reward_corpus{{id="{ids["old"]}"}} 0.0' in page
    assert f"corpus {ids['new']} is served from now on, in place of {ids['old']}" in said


def test_no_request_fails_or_mixes_two_corpora_while_the_corpus_grows(tmp_path: Path) -> None:
    folder = built(tmp_path / "corpus", TALKS)
    served = Served("--corpus", folder)
    corpus = Corpus.open(folder)
    told = [eggs(Verifier(corpus))]
    plans = [EGGS["continuation"]] * 130  # three batches
    body = {"goal": "eggs", "history": EGGS["history"], "continuations": plans}
    answers: list[Any] = []
    with ThreadPoolExecutor(4) as clients:
        for number in range(2):
            words = ("crack two eggs", "whisk the eggs" if number else "whisk the eggs well", "melt butter in the pan")
            corpus = add_to(corpus, [Narration(f"new-{number}", tuple(map(Segment, words)))])
            told.append(eggs(Verifier(corpus)))
            while ask(served.port, "/info")[1]["corpus"]["id"] != corpus.manifest["id"]:
                answers += clients.map(lambda _: ask(served.port, "/score", body), range(8))
            answers += clients.map(lambda _: ask(served.port, "/score", body), range(8))
    served.end()
    assert len(set(told)) == 3
    assert {status for status, _ in answers} == {200}
    found = [{round(reward["total"], 6) for reward in answer["rewards"]} for _, answer in answers]
    assert all(len(totals) == 1 for totals in found)
    assert set().union(*found) == {round(total, 6) for total in told}
    assert found[-1] == {round(told[-1], 6)}


OWN = """
import os, signal
from recipe.errors import ServiceUnavailable

def reward(goal, history, plan):
    if "die" in plan:
        os.kill(os.getpid(), signal.SIGKILL)
    if "fault" in plan:
        raise ServiceUnavailable("of the run, and of no plan")
    return 1 / len(plan)
"""


def test_a_scoring_process_that_fails_or_dies_costs_its_own_batch_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    served = Served("--corpus", built(tmp_path / "corpus", TALKS), "--verifier", "mine:reward")
    good = (200, 0.5)
    for plan, status, told in (
        ([], 503, "ZeroDivisionError"),
        (["fault"], 503, "of the run, and of no plan"),
        (["die"], 503, f"exit code -{signal.SIGKILL.value}"),
    ):
        answer = score(served.port, "tea", *plan)
        assert (answer[0], told in answer[1]["error"]["message"]) == (status, True), answer
        answer = score(served.port, "tea", "pour", "wait")
        assert (answer[0], answer[1]["reward"]["total"]) == good
    assert "the scoring process is started again" in served.end()
    with pytest.raises(CorpusError, match="the corpus was replaced while the service started"):
        server.open_verifier(tmp_path / "corpus", "another", RewardConfig(), (), [])


def test_a_reward_that_was_trained_on_the_old_corpus_keeps_it_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from recipe_apps.service.app import create_app

    def refused(_: str) -> Any:
        raise ComputeError("The reward was trained on another corpus than this one.")

    corpus = Corpus.open(built(tmp_path / "corpus", TALKS))
    service = create_app(Verifier(corpus), corpus=corpus, reopen=refused).state.service
    add_to(corpus, [Narration("new", (Segment("whisk the eggs"),))])
    for _ in range(3):
        service.look()
        service.take_over()
    assert service.served == corpus.manifest["id"]
    assert service.replaced
    assert caplog.text.count("cannot be served, and") == 1
    assert "stays: The reward was trained on another corpus" in caplog.text


def test_a_manifest_that_cannot_be_read_for_a_moment_is_looked_at_again(tmp_path: Path) -> None:
    from recipe_apps.service.app import create_app

    corpus = Corpus.open(built(tmp_path / "corpus", TALKS))
    watch, manifest = create_app(Verifier(corpus), corpus=corpus).state.service.watch, corpus.folder / "manifest.json"
    text, status = manifest.read_bytes(), manifest.stat()
    for content, held in ((b" " * len(text), None), (text, corpus.manifest["id"])):
        manifest.write_bytes(content)
        os.utime(manifest, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
        assert (watch.look(), watch.on_disk) == (True, held)


def test_what_keeps_it_from_starting_is_told_in_one_sentence(tmp_path: Path) -> None:
    (token := tmp_path / "token").touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for options, told in (
            (["--corpus", tmp_path / "none", "--port", 0], "none: no corpus here"),
            (["--corpus", tmp_path, "--port", taken.getsockname()[1]], "already in use"),
            (["--corpus", tmp_path, "--token-file", token], "token: the file is empty"),
        ):
            with pytest.raises((RecipeError, OSError), match=told):
                CliRunner().invoke(app, ["reward", "serve", *map(str, options)], catch_exceptions=False)


@pytest.fixture(autouse=True)
def nothing_is_left_running() -> Iterator[None]:
    started: list[subprocess.Popen[str]] = []
    popen = subprocess.Popen.__init__

    def remember(self: Any, *arguments: Any, **options: Any) -> None:
        popen(self, *arguments, **options)
        started.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", remember)
        yield
    for process in started:
        process.kill()
        process.wait()
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()
