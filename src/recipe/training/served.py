"""The reward service as the scorer of a run: it may be unavailable for a while, and may not become another verifier."""

import os
from collections.abc import Sequence
from typing import Any

from recipe.artifacts import JsonObject, read_json
from recipe.config.training import RewardTrainingSettings
from recipe.errors import ConfigError, MissingExtra, ServiceUnavailable
from recipe.reward.scorer import Outcome, PromptGroup, outcomes_of
from recipe.training.runs import corpus_identity

try:
    from recipe.reward.client import ServiceClient
except ModuleNotFoundError as error:
    raise MissingExtra("the client of the reward service", "client") from error


class ServedReward:
    """The `Scorer` of a run by the service that `config` names, which has to serve one verifier all the time.

    `reward` is that verifier: its version and settings, and id, size and encoder of its corpus.
    """

    def __init__(self, config: RewardTrainingSettings) -> None:
        assert config.reward_service is not None
        token = os.environ.get("RECIPE_TOKEN", "").strip() or None
        self.client = ServiceClient(config.reward_service, token, patience=config.reward_patience)
        self._record = config.output / "run.json"
        self.reward: JsonObject = {}

    def first_reward(self) -> JsonObject:
        """The verifier that a finished run recorded, which needs no service any more, else that of the service.

        Raises as `current_reward`.
        """
        known = read_json(self._record) if self._record.is_file() else None
        if isinstance(known, dict) and known.get("finished") and "reward" in known.get("inputs", {}):
            recorded: JsonObject = known["inputs"]["reward"]
            return recorded
        return self.current_reward()

    def current_reward(self) -> JsonObject:
        """The verifier of the service.

        Raises ServiceUnavailable where it does not answer, ConfigError where it names no verifier, InputError where it
        refuses to answer.
        """
        info: dict[str, Any] = self.client.info()
        if not info.get("verifier") or not info.get("corpus"):
            raise ConfigError(
                f"{self.client.url}: the service names no verifier and corpus; start it with this version's recipe "
                "reward serve."
            )
        corpus = corpus_identity({**info["corpus"], "encoder": info["encoder"]})
        return {"settings": info["verifier"], "corpus": corpus}

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        """The outcome of each plan, once the service answers.

        Raises ServiceUnavailable where it does not for as long as the run waits: to leave some completions out would
        make the run depend on when the service was unavailable. Raises ConfigError where another verifier answers.
        """
        try:
            self._require_same()
            outcomes = outcomes_of(self.client, groups)
            self._require_same()  # it may have been restarted in between
        except ServiceUnavailable as error:
            raise ServiceUnavailable(f"{str(error).rstrip('.')}, and run the same command again to resume.") from None
        return outcomes

    def _require_same(self) -> None:
        now = self.current_reward()
        for name, was in self.reward.items():
            if now[name] != was:
                raise ConfigError(
                    f"{self.client.url}: the service has another {name} than this run began with; start the service "
                    "as it was, and run the same command again to resume."
                )
