"""The client of the reward service (docs/trainers.md): a verifier in another process, as a scorer.

Scoring changes nothing, so a request may be sent twice.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx2
from pydantic import TypeAdapter, ValidationError

from recipe.artifacts import JsonObject
from recipe.errors import ComputeError, ConfigError, ServiceUnavailable
from recipe.http import HttpClient, server_address
from recipe.reward.scorer import Outcome, PromptGroup, outcomes_of
from recipe.text import whole_text
from recipe.types import Plan, Reward

_REWARDS = TypeAdapter(list[Reward])


class ServiceClient(HttpClient):
    """A `Scorer` that asks the service, one request a prompt; safe to share between threads.

    `url` is the service's root. `timeout`: seconds for one request, more than the service's own limit. `patience`:
    seconds after which a request is given up, all tries included. `concurrency`: requests under way at once; others
    wait. Raises ConfigError for an address that is none of HTTP.
    """

    server = "reward service"
    # A body that came too slowly, a full queue, a proxy without its server, a service that starts or stops, a request
    # whose time was over.
    retried = frozenset({408, 429, 502, 503, 504})
    # The batch of a scorer that died fails, and succeeds once it has restarted; a prompt that always fails must end.
    most_tries = {"compute_failed": 4}  # noqa: RUF012 - read only
    unavailable = ServiceUnavailable

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 90.0,
        patience: float = 300.0,
        concurrency: int = 16,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        address = server_address(url, "http://localhost:8000", ConfigError)
        super().__init__(
            address, token, timeout=timeout, patience=patience, connections=concurrency, transport=transport
        )
        self._concurrency = concurrency

    def score_groups(self, groups: Sequence[PromptGroup]) -> Sequence[Sequence[Outcome]]:
        """The outcome of each plan: InputError where the service refuses it, ComputeError where it gives no reward.

        Raises ServiceUnavailable where the service does not answer, and the failure of a group that is alone.
        """
        # `outcomes_of` comes back here with one group, and makes what it raises the outcome of its plans.
        if len(groups) == 1:
            return [self._score(groups[0])]
        with ThreadPoolExecutor(self._concurrency) as pool:
            return [own for [own] in pool.map(lambda group: outcomes_of(self, [group]), groups)]

    def score(
        self, *, goal: str, history: Sequence[str], continuations: Sequence[Sequence[str] | Plan]
    ) -> list[Reward]:
        """The reward of each continuation of one prompt, in order.

        Raises InputError where the service refuses the request, ComputeError where it gives no reward, and
        ServiceUnavailable where it does not answer.
        """
        return self._score(PromptGroup.of(goal, history, continuations))

    def info(self) -> JsonObject:
        """What the service says about its verifier. Raises as `score`."""
        return self.send("GET", "/info")

    def _score(self, group: PromptGroup) -> list[Reward]:
        if not group.plans:
            return []
        whole_text("goal", group.goal)
        for step in group.steps:
            whole_text("step", step)
        body = {"goal": group.goal, "history": group.history, "continuations": group.plans}
        try:
            rewards = _REWARDS.validate_python(self.send("POST", "/score", json=body).get("rewards"))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            what = f"the answer's rewards cannot be read ({where} {first['msg']})"
            raise ComputeError(f"{self.url}: {what}; use the same version at both ends.") from None
        if len(rewards) != len(group.plans):
            raise ComputeError(f"{self.url}: {len(rewards)} rewards came for {len(group.plans)} continuations.")
        if not all(math.isfinite(reward.total) for reward in rewards):
            raise ComputeError(f"{self.url}: a reward is not a finite number; look into the service's log.")
        return rewards
