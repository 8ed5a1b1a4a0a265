"""The reward service as the scorer of a run: it may be away for a while, and may not become another verifier."""

import os
from collections.abc import Sequence
from typing import Any

from recipe.artifacts import JsonObject, read_json
from recipe.config import RewardTrainingSettings
from recipe.errors import ConfigError, MissingExtra, ServiceUnavailable
from recipe.reward.scorer import Outcome, PromptGroup, outcomes_of
from recipe.training.cards import corpus_card

try:
    from recipe.reward.client import ServiceClient
except ModuleNotFoundError as error:
    raise MissingExtra("the client of the reward service", "client") from error


def served_reward(config: RewardTrainingSettings) -> JsonObject:
    """What rewards a run by a service: version and settings of its verifier, id, size and encoder of its corpus.

    Of a finished run its record says it, so that no service is needed. Raises ServiceUnavailable where it does not
    answer, ConfigError where it names no verifier, InputError where it refuses to answer.
    """
    record = config.output / "run.json"
    known = read_json(record) if record.is_file() else None
    if isinstance(known, dict) and known.get("finished") and "reward" in known.get("inputs", {}):
        held: JsonObject = known["inputs"]["reward"]
        return held
    with _client(config) as client:
        return _reward(client)


class ServedReward:
    """The `Scorer` of a run by the service that `config` names, which has to serve `reward` all the time."""

    def __init__(self, config: RewardTrainingSettings, reward: JsonObject) -> None:
        self._client, self._reward = _client(config), reward

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        """The outcome of each plan, once the service answers.

        Raises ServiceUnavailable where it does not for as long as the run waits: to leave some completions out would
        make the run depend on when the service was away. Raises ConfigError where another verifier answers.
        """
        try:
            self._require_same()
            outcomes = outcomes_of(self._client, groups)
            self._require_same()  # it may have been restarted in between
        except ServiceUnavailable as error:
            raise ServiceUnavailable(f"{str(error).rstrip('.')}, and run the same command again to resume.") from None
        return outcomes

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _require_same(self) -> None:
        now = _reward(self._client)
        for name, was in self._reward.items():
            if now[name] != was:
                raise ConfigError(
                    f"{self._client.url}: the service has another {name} than this run began with; start the service "
                    "as it was, and run the same command again to resume."
                )


def _client(config: RewardTrainingSettings) -> ServiceClient:
    assert config.reward_service is not None
    token = os.environ.get("RECIPE_TOKEN", "").strip() or None
    return ServiceClient(config.reward_service, token, patience=config.reward_patience)


def _reward(client: ServiceClient) -> JsonObject:
    """What a service says of its verifier. Raises ConfigError where it names none."""
    info: dict[str, Any] = client.info()
    if not info.get("reward") or not info.get("corpus"):
        raise ConfigError(
            f"{client.url}: the service names no verifier and corpus; start it with this version's recipe reward serve."
        )
    corpus = corpus_card({**info["corpus"], "encoder": info["encoder"]})
    return {"version": info["reward"], "settings": info["verifier"], "corpus": corpus}
