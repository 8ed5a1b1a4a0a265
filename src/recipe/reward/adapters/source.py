"""Where a trainer's rewards come from: a verifier in the trainer's own process, or the reward service."""

import asyncio
import atexit
import importlib
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recipe.config import RewardConfig, load_config
from recipe.corpus.store import Corpus
from recipe.errors import ConfigError, MissingExtra
from recipe.reward.adapters.batch import Failure, Prefetch, Row, Scorer, score_rows
from recipe.reward.adapters.microbatch import MicroBatcher
from recipe.reward.verifier import Verifier
from recipe.types import Reward


class RewardSource:
    """A scorer as the trainers call it: by the batch, or one sample at a time.

    `prefetch` is that of `score_rows`. Calls of one sample that come within `window` seconds are scored together.
    Safe to share between threads and event loops.
    """

    def __init__(self, scorer: Scorer, prefetch: Prefetch | None = None, *, window: float = 0.005) -> None:
        self._scorer, self._prefetch = scorer, prefetch
        self._single = MicroBatcher(self.score, window=window)
        self._lock = threading.Lock()
        self.failures = 0
        """Rows that had no reward so far."""

    def score(self, rows: Sequence[Row]) -> list[Reward | Failure]:
        """The reward of each row, or why it has none."""
        outcomes = score_rows(self._scorer, rows, self._prefetch)
        with self._lock:
            self.failures += sum(not isinstance(outcome, Reward) for outcome in outcomes)
        return outcomes

    def score_each(self, rows: Sequence[Row]) -> list[Reward]:
        """The rewards of a caller's few rows, computed together with those of other threads. Raises as `score`."""
        return [_reward(outcome.result()) for outcome in [self._single.submit(row) for row in rows]]

    async def score_one(self, row: Row) -> Reward:
        """The reward of one row, computed together with those that others await. Raises as `score`."""
        return _reward(await asyncio.wrap_future(self._single.submit(row)))


class _Settings(NamedTuple):
    corpus: str
    reward_config: str
    service: str
    token: str


_VARIABLES = _Settings("RECIPE_CORPUS", "RECIPE_REWARD_CONFIG", "RECIPE_SERVICE", "RECIPE_TOKEN")
_opened: dict[_Settings, RewardSource] = {}
_opening = threading.Lock()


def reward_source(settings: Mapping[str, Any] | None = None) -> RewardSource:
    """The source that the settings name, opened once in a process.

    Settings are `corpus` (a folder) with `reward_config` (a TOML file; the paper's reward without one), or
    `service` (an address) with `token`; what is left out is read from RECIPE_CORPUS, RECIPE_REWARD_CONFIG,
    RECIPE_SERVICE and RECIPE_TOKEN, unless the settings name the other of corpus and service. Other keys are left
    alone. Raises ConfigError where neither or both of corpus and service are named.
    """
    named = _resolved(settings or {})
    with _opening:
        if named not in _opened:
            _opened[named] = _open(named)
        return _opened[named]


def _resolved(settings: Mapping[str, Any]) -> _Settings:
    given = _Settings(*(str(settings.get(name) or "") for name in _Settings._fields))
    asked = given if given.corpus or given.service else _from_environment(given)
    if asked.service and not asked.token:
        asked = asked._replace(token=os.environ.get(_VARIABLES.token, ""))
    if asked.corpus and not asked.reward_config:
        asked = asked._replace(reward_config=os.environ.get(_VARIABLES.reward_config, ""))
    if bool(asked.corpus) == bool(asked.service):
        what = "both a corpus and a service are named" if asked.corpus else "neither a corpus nor a service is named"
        raise ConfigError(f"{what}; set one of {_VARIABLES.corpus} and {_VARIABLES.service}.")
    return asked


def _from_environment(given: _Settings) -> _Settings:
    return _Settings(*(value or os.environ.get(name, "") for value, name in zip(given, _VARIABLES, strict=True)))


def _open(named: _Settings) -> RewardSource:
    if named.service:
        client = _client().ServiceClient(named.service, named.token or None)
        atexit.register(client.close)
        return RewardSource(client)
    config = load_config(Path(named.reward_config), RewardConfig) if named.reward_config else RewardConfig()
    verifier = Verifier(Corpus.open(named.corpus), config)
    return RewardSource(verifier, verifier.prepare)


def _client() -> Any:
    """The module of the service's client, whose packages a local verifier does without."""
    try:
        return importlib.import_module("recipe.reward.client")
    except ModuleNotFoundError as error:
        if error.name in ("httpx2", "tenacity"):
            raise MissingExtra("the client of the reward service", "client") from None
        raise


def _reward(outcome: Reward | Failure) -> Reward:
    if isinstance(outcome, Reward):
        return outcome
    raise outcome
