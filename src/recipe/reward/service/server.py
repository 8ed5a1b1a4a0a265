"""The service as a process: it opens a verifier, listens, and ends once what it accepted is answered."""

import gc
import logging
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from fastapi import FastAPI

from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError, CorpusError, MissingExtra
from recipe.reward.scorer import PromptGroup, batches, logged_outcomes
from recipe.reward.service.app import RewardService
from recipe.reward.verifier import Verifier

try:
    import uvicorn
except ModuleNotFoundError as error:
    raise MissingExtra("the reward service", "serve") from error

_LOG = logging.getLogger(__name__)
_BATCH = 64
_RARELY = (20_000, 50, 50)
"""Thresholds of garbage collection: a request makes hundreds of objects, none of them in a cycle."""
_TURN = 0.0002
"""Seconds that the event loop may keep the interpreter while the thread that sends batches waits for it."""
_LONGEST_DRAIN = 10.0
"""Seconds beyond the limit of a request after which a service that drains gives up."""


def open_verifier(
    folder: Path, identity: str, config: RewardConfig, devices: Sequence[str], groups: Sequence[PromptGroup]
) -> Verifier:
    """The verifier of the corpus `identity`, warmed up. Raises CorpusError where the folder holds another by now."""
    corpus = Corpus.open(folder, devices=devices)
    if corpus.manifest["id"] != identity:
        raise CorpusError(f"{folder}: the corpus was replaced while the service started; start it again.")
    verifier = Verifier(corpus, config)
    warm_up(verifier, groups)
    return verifier


def warm_up(verifier: Verifier, groups: Sequence[PromptGroup] = ()) -> None:
    """Load the encoder and the corpus's pages, and score these groups, so that their steps and pools are in memory.

    What is in memory then is kept out of garbage collection (`gc.unfreeze` takes it back): the encoder's packages are
    a million objects that stay, and looking through them again takes half a second each time.
    """
    verifier.score(history=["boil the water"], continuations=[["pour the water"]], goal="make tea")
    for batch in batches(groups, _BATCH):
        logged_outcomes(verifier, batch)  # a prompt that fails is logged, and fails again when it is asked for
    gc.collect()
    gc.freeze()


class _Server(uvicorn.Server):
    """Turns readiness off at the first signal, and ends where warming up has failed."""

    def __init__(self, config: uvicorn.Config, service: RewardService) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._service.draining = True
        super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._service.batcher.failure is not None


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, so that a port in use is an error before anything is loaded. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=2048, reuse_port=False)


def serve(app: FastAPI, bound: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish what was accepted. Raises ComputeError where warming up failed."""
    service: RewardService = app.state.service
    limit = int(service.settings.timeout + _LONGEST_DRAIN)
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        proxy_headers=False,
        timeout_graceful_shutdown=limit,
        server_header=False,
        date_header=False,
    )
    # A server that has ended raises the signals again that ended it, for handlers like these.
    before = {number: signal.signal(number, _ended) for number in (signal.SIGTERM, signal.SIGINT)}
    collected, switched = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(*_RARELY)
    sys.setswitchinterval(_TURN)
    try:
        _Server(config, service).run([bound])
    finally:
        gc.set_threshold(*collected)
        sys.setswitchinterval(switched)
        for number, handler in before.items():
            signal.signal(number, handler)
    if service.batcher.failure is not None:
        raise ComputeError(f"The service could not warm up: {service.batcher.failure}")


def _ended(number: int, frame: FrameType | None) -> None:
    _LOG.info("the service has ended")
