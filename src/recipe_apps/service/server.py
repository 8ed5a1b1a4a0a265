"""The service as a process: it opens a verifier, listens, and ends once what it accepted is answered."""

import gc
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from fastapi import FastAPI

from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError, CorpusError
from recipe.reward.scorer import PromptGroup, batches, outcomes_of
from recipe.reward.verifier import Verifier
from recipe_apps.service.app import RewardService
from recipe_apps.service.process import ScoringProcess
from recipe_apps.web.process import run_service

_BATCH = 64
# Seconds beyond the limit of a request after which a service that drains gives up.
_LONGEST_DRAIN = 10.0


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


def open_beside(
    folder: Path, config: RewardConfig, devices: Sequence[str], groups: Sequence[PromptGroup], identity: str
) -> ScoringProcess:
    """Start a process with the verifier of the corpus `identity`, in addition to the one that is serving.

    Raises ComputeError with the reason if that corpus cannot be served.
    """
    process = ScoringProcess(partial(open_verifier, folder, identity, config, devices, groups))
    process.start()
    return process


def warm_up(verifier: Verifier, groups: Sequence[PromptGroup] = ()) -> None:
    """Load the encoder and the corpus's pages, and score these groups, so that their steps and pools are in memory.

    What is in memory then is kept out of garbage collection (`gc.unfreeze` takes it back): the encoder's packages are
    a million objects that stay, and looking through them again takes half a second each time.
    """
    verifier.score(history=["boil the water"], continuations=[["pour the water"]], goal="make tea")
    for batch in batches(groups, _BATCH):
        outcomes_of(verifier, batch, log=True)  # a prompt that fails is logged, and fails again when it is asked for
    gc.collect()
    gc.freeze()


def serve(app: FastAPI, bound: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C, then finish what was accepted. Raises ComputeError where warming up failed."""
    service: RewardService = app.state.service

    def drain() -> None:
        service.draining = True

    limit = service.settings.timeout + _LONGEST_DRAIN
    run_service(app, bound, drain, limit, lambda: service.batcher.failure is not None)
    if service.batcher.failure is not None:
        raise ComputeError(f"The service could not warm up: {service.batcher.failure}")
