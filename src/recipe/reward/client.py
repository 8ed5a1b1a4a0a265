"""The client of the reward service (docs/service.md): a verifier in another process, as a scorer.

A request that cannot be answered now is sent again, later each time, until `patience` is used up: a service that
restarts is waited for. Scoring changes nothing, so a request may be sent twice.
"""

import logging
import math
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import httpx2
import tenacity
from pydantic import ValidationError

from recipe.errors import ComputeError, ConfigError, InputError, ServiceUnavailable
from recipe.models.endpoint.host import retry_after
from recipe.reward.scorer import Outcome, PromptGroup, try_groups
from recipe.reward.wire import rewards_of_rows
from recipe.text import whole_text
from recipe.types import Plan, Reward

_LOG = logging.getLogger(__name__)
_PASSING = frozenset({429, 502, 503, 504})
"""Statuses of a service that cannot answer now."""
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 5.0
"""Seconds."""
# Of its own, so that waiting leaves the draws of a training run alone; unseeded, so that clients do not wait alike.
_JITTER = random.Random()
_COMPUTE_TRIES = 4
"""Tries after which a reward that could not be computed is given up."""


class _Busy(Exception):
    """The service cannot answer now; `wait`: after how many seconds it said to ask again."""

    def __init__(self, reason: str, code: str, wait: float | None) -> None:
        super().__init__(reason)
        self.code, self.wait = code, wait


class ServiceClient:
    """A `Scorer` that asks the service, one request a prompt; safe to share between threads.

    `url` is the service's root. `timeout`: seconds for one request, more than the service's own limit. `patience`:
    seconds after which a request is given up, all tries included. `concurrency`: requests under way at once; others
    wait. Raises ConfigError for an address that is none of HTTP.
    """

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
        self.url, self._concurrency = _address(url), concurrency
        self._http = httpx2.Client(
            base_url=self.url,
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            timeout=httpx2.Timeout(timeout, connect=min(timeout, 10.0), pool=None),
            limits=httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
            transport=transport,
        )
        too_late = tenacity.stop_before_delay(patience)
        self._retrying: dict[str, Any] = {
            "retry": tenacity.retry_if_exception_type((_Busy, httpx2.TransportError)),
            "wait": _wait,
            "stop": lambda state: too_late(state) or _in_vain(state),
            "before_sleep": self._warn,
            "retry_error_callback": self._give_up,
        }

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        """The outcome of each plan: InputError where the service refuses it, ComputeError where it gives no reward.

        Raises ServiceUnavailable where it does not answer.
        """

        def outcomes(group: PromptGroup) -> list[Outcome]:
            return try_groups([group], lambda tried: [self._score(one) for one in tried])[0]

        with ThreadPoolExecutor(self._concurrency) as pool:
            return list(pool.map(outcomes, groups))

    def score(
        self, *, goal: str, history: Sequence[str], continuations: Sequence[Sequence[str] | Plan]
    ) -> list[Reward]:
        """The reward of each continuation of one prompt, in order.

        Raises InputError where the service refuses the request, ComputeError where it gives no reward, and
        ServiceUnavailable where it does not answer.
        """
        return self._score(PromptGroup.of(goal, history, continuations))

    def _score(self, group: PromptGroup) -> list[Reward]:
        if not group.plans:
            return []
        whole_text("goal", group.goal)
        for step in group.steps:
            whole_text("step", step)
        body = {"goal": group.goal, "history": group.history, "continuations": group.plans}
        return self._rewards(self._send("POST", "/score", json=body), len(group.plans))

    def info(self) -> dict[str, Any]:
        """What the service says about its verifier. Raises as `score`."""
        return dict(self._send("GET", "/info"))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _send(self, method: str, path: str, **body: Any) -> Any:
        """The body of the answer, after as many tries as it takes. Raises as `score`."""

        def once() -> httpx2.Response:
            answer = self._http.request(method, path, **body)
            if answer.status_code in _PASSING:
                raise _Busy(_message(answer), _error(answer)[0], retry_after(answer.headers))
            return answer

        answer = tenacity.Retrying(**self._retrying)(once)
        if answer.is_client_error:
            raise InputError(f"{self.url}: the service refuses the request: {_message(answer)}")
        if not answer.is_success:
            raise ComputeError(f"{self.url}: the service failed: {_message(answer)}")
        try:
            return answer.json()
        except ValueError:
            raise ComputeError(f"{self.url}: the answer is not JSON; check that this is a reward service.") from None

    def _rewards(self, body: Any, expected: int) -> list[Reward]:
        try:
            rewards = rewards_of_rows(body.get("rewards") if isinstance(body, dict) else body)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            what = f"the answer's rewards cannot be read ({where} {first['msg']})"
            raise ComputeError(f"{self.url}: {what}; use the same version at both ends.") from None
        if len(rewards) != expected:
            raise ComputeError(f"{self.url}: {len(rewards)} rewards came for {expected} continuations.")
        if not all(math.isfinite(reward.total) for reward in rewards):
            raise ComputeError(f"{self.url}: a reward is not a finite number; look into the service's log.")
        return rewards

    def _warn(self, state: tenacity.RetryCallState) -> None:
        _LOG.warning("%s: %s; asking again in %.1f s", self.url, _reason(state), state.upcoming_sleep)

    def _give_up(self, state: tenacity.RetryCallState) -> Any:
        tries, spent = state.attempt_number, state.seconds_since_start or 0.0
        what = f"no answer in {tries} {'try' if tries == 1 else 'tries'} and {spent:.0f} s ({_reason(state)})"
        kind = ComputeError if _in_vain(state) else ServiceUnavailable
        raise kind(f"{self.url}: {what}; check that the service runs.")


def _address(url: str) -> str:
    try:
        address = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ConfigError(f"{url!r} is no address ({error}); give one such as http://localhost:8000.") from None
    if address.scheme not in ("http", "https") or not address.host:
        raise ConfigError(f"{url!r} is no address of HTTP; give one such as http://localhost:8000.")
    return str(address).rstrip("/")


def _in_vain(state: tenacity.RetryCallState) -> bool:
    error = state.outcome.exception() if state.outcome else None
    failed = isinstance(error, _Busy) and error.code == "compute_failed"
    return failed and state.attempt_number >= _COMPUTE_TRIES


def _wait(state: tenacity.RetryCallState) -> float:
    """Seconds until the next try: what the service said and a little more, else twice as long as before."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, _Busy) and error.wait is not None:
        return error.wait + _JITTER.uniform(0.0, 0.5)
    doubled: float = _FIRST_WAIT * 2 ** min(state.attempt_number, 16)
    return min(doubled, _LONGEST_WAIT) * _JITTER.uniform(0.5, 1.0)


def _reason(state: tenacity.RetryCallState) -> str:
    error = state.outcome.exception() if state.outcome else None
    return f"{error}" if isinstance(error, _Busy) else f"{type(error).__name__}: {error}"


def _message(answer: httpx2.Response) -> str:
    code, message = _error(answer)
    return " ".join(filter(None, [f"{answer.status_code}", code and f"({code})", message]))


def _error(answer: httpx2.Response) -> tuple[str, str]:
    """Code and message of the service's envelope; of another's answer, no code and how it begins."""
    try:
        error = answer.json()["error"]
        return str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        return "", answer.text[:200] or answer.reason_phrase
