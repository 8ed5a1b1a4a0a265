"""A run whose rewards come from a service: the service goes away, comes back, and comes back as another one."""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Outcome, Recipe

from recipe.artifacts import read_json, read_jsonl
from recipe.config import GRPOConfig, RewardConfig
from recipe.corpus.store import Corpus
from recipe.errors import ConfigError, ServiceUnavailable
from recipe.reward.scorer import PromptGroup
from recipe.reward.verifier import Verifier
from recipe.training.grpo import train_grpo

pytest.importorskip("httpx2")
pytest.importorskip("recipe_apps.service.server")
served = pytest.importorskip("recipe.training.served")

# One process loads the packages, and each service is a child of it.
SERVICES = """
import os, signal, sys
from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe_apps.service.app import create_app
from recipe_apps.service.messages import ServiceSettings
from recipe_apps.service.server import serve
from recipe_apps.web.process import listen
from recipe.reward.verifier import Verifier

with listen("127.0.0.1", 0) as free:
    port = free.getsockname()[1]
child = 0
for line in sys.stdin:
    if child:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
    child = 0 if line == "stop\\n" else os.fork()
    if line != "stop\\n" and not child:
        corpus, config = Corpus.open(sys.argv[1]), RewardConfig(tau=float(line))
        with listen("127.0.0.1", port) as bound:
            print(port, flush=True)
            serve(create_app(Verifier(corpus, config), ServiceSettings(), corpus=corpus, config=config), bound)
        os._exit(0)
    if not child:
        print(port, flush=True)
"""


class Services:
    """Reward services at one port, one after the other."""

    def __init__(self, corpus: Path) -> None:
        command = [sys.executable, "-c", SERVICES, str(corpus)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def start(self, tau: float = 0.1) -> str:
        """Serve the paper's reward; returns the address."""
        return f"http://127.0.0.1:{self._send(str(tau))}"

    def stop(self) -> None:
        self._send("stop")

    def _send(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(line, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()


@pytest.fixture
def services(world_run: dict[str, Any]) -> Iterator[Services]:
    services = Services(world_run["corpus"])
    yield services
    services.stop()
    assert services.process.stdin is not None
    assert services.process.stdout is not None
    services.process.stdin.close()
    services.process.stdout.close()
    assert services.process.wait(300) == 0


class Back(logging.Handler):
    """Starts the service again once its client has asked twice in vain."""

    def __init__(self, services: Services) -> None:
        super().__init__()
        self.services, self.waits = services, 0

    def emit(self, record: logging.LogRecord) -> None:
        self.waits += "asking again in" in record.getMessage()
        if self.waits == 2:
            self.services.start()

    def __enter__(self) -> "Back":
        logging.getLogger("recipe.http").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("recipe.http").removeHandler(self)


class At:
    """Calls a function at the end of a step."""

    def __init__(self, step: int, then: Callable[[], object]) -> None:
        self.step, self.then = step, then

    @contextmanager
    def task(self, name: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if count and done == self.step:  # a count of 0 says that a step goes on
                self.then()

        yield advance


def recorded(config: GRPOConfig) -> list[list[dict[str, Any]]]:
    """The completions of all steps, with their rewards."""
    return [[row for _, row in read_jsonl(file)] for file in sorted((config.output / "completions").iterdir())]


def command(config: GRPOConfig, recipe: Recipe) -> Outcome:
    """How `recipe train grpo` with these settings ended."""
    file = config.output.parent / "grpo.toml"
    settings = config.model_dump(mode="json", exclude_unset=True)
    file.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items()))
    return recipe("train", "grpo", file, "--json")


@pytest.mark.thorough
def test_a_run_outlives_its_service_and_ends_as_one_on_the_corpus(
    services: Services,
    world_run: dict[str, Any],
    tmp_path: Path,
    recipe: Recipe,
) -> None:
    settings = {**world_run, "steps": 3, "save_every": 1}
    local = GRPOConfig(**settings, output=tmp_path / "local")
    train_grpo(local, Verifier(Corpus.open(world_run["corpus"]), local.reward))
    del settings["corpus"]
    address = services.start()
    config = GRPOConfig(**settings, output=tmp_path / "served", reward_service=address, reward_patience=0.3)

    # The service ends with the first step, and stays away: the command ends with one sentence and code 1.
    with pytest.raises(ServiceUnavailable, match=r"no answer in .* run the same command again to resume\.$"):
        train_grpo(config, None, At(1, services.stop))
    ended = command(config, recipe)
    assert ended.code == 1
    assert "no answer in" in ended.err
    assert (config.output / "checkpoints" / "checkpoint-1" / "complete.json").is_file()
    # What the service did not answer is recorded neither as a reward nor as a completion without one.
    assert recorded(config) == recorded(local)[:1]

    # It comes back with other settings: refused. As it was, and away for a moment after the second step: waited for.
    services.start(tau=0.2)
    with pytest.raises(ConfigError, match=r"reward.settings.tau was 0.1, is 0.2"):
        train_grpo(config, None)
    services.start()
    patient = config.model_copy(update={"reward_patience": 60.0})
    with Back(services) as back:
        model = train_grpo(patient, None, At(2, services.stop))
    assert back.waits == 2
    assert recorded(config) == recorded(local)
    card = read_json(model / "card.json")
    assert (card["reward"], card["config"]["reward"]["tau"]) == ("paper", 0.1)
    assert card["corpus"] == read_json(local.output / "model" / "card.json")["corpus"]
    assert address not in (model / "card.json").read_text()

    # The same command on the finished run needs no service.
    services.stop()
    ended = command(config, recipe)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["last_step"]["step"] == 3


class Info(BaseHTTPRequestHandler):
    """A service that says what it serves, and nothing else; what it says changes."""

    said: list[Any]

    def do_GET(self) -> None:
        self.reply(200, self.said.pop(0) if len(self.said) > 1 else self.said[0])

    def do_POST(self) -> None:
        self.reply(503, {"error": {"code": "stopped", "message": "The service ends."}})

    def reply(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


def said(tau: float = 0.1, corpus: str = "c") -> dict[str, Any]:
    return {
        "verifier": RewardConfig(tau=tau).model_dump(mode="json"),
        "corpus": {"id": corpus, "narrations": 3, "folder": "/elsewhere"},
        "encoder": {"name": "/elsewhere/encoder"},
    }


@pytest.fixture
def asked() -> Iterator[Callable[..., Any]]:
    """The settings of a run that asks a service which says these things in turn."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Info) as server:
        threading.Thread(target=server.serve_forever).start()

        def settings(*what: Any) -> GRPOConfig:
            Info.said = list(what)
            address = f"http://127.0.0.1:{server.server_port}"
            return GRPOConfig(model="m", examples="e", output="o", reward_service=address, reward_patience=0.2)

        yield settings
        server.shutdown()


@pytest.mark.parametrize(("name", "other"), [("settings", said(tau=0.2)), ("corpus", said(corpus="other"))])
@pytest.mark.parametrize("answers", [1, 2])
def test_a_service_that_becomes_another_ends_the_run(
    asked: Callable[..., Any], name: str, other: dict[str, Any], answers: int
) -> None:
    config = asked(*[said()] * answers, other)
    scorer = served.ServedReward(config)
    scorer.reward = scorer.first_reward()
    assert scorer.reward["corpus"]["encoder"]["name"] == "encoder"
    with pytest.raises(ConfigError, match=f"another {name}"):
        # The first time it is another before it scores, the second time after it.
        scorer.score_groups([])


def test_a_service_that_leaves_while_it_scores_leaves_no_gaps(asked: Callable[..., Any]) -> None:
    config = asked(said())
    scorer = served.ServedReward(config)
    scorer.reward = scorer.first_reward()
    with pytest.raises(ServiceUnavailable, match=r"no answer in .* run the same command again to resume\.$"):
        scorer.score_groups([PromptGroup("tea", (), [("pour",)])])


def test_a_service_without_a_verifier_is_no_source_of_a_run(asked: Callable[..., Any]) -> None:
    config = asked({"verifier": None, "corpus": None, "encoder": None})
    with pytest.raises(ConfigError, match="names no verifier"):
        served.ServedReward(config).first_reward()


def test_a_scorer_beside_the_service_is_refused(asked: Callable[..., Any], scorer: Sequence[Any]) -> None:
    with pytest.raises(ConfigError, match="give no other"):
        train_grpo(asked(said()), scorer)  # type: ignore[arg-type]
