"""One endpoint, asked patiently: later each time, or when it says; by all who ask it together."""

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from recipe.artifacts import JsonObject
from recipe.config import EndpointConfig
from recipe.engines.endpoint.answers import Unreadable, read_answer, read_chunks
from recipe.engines.endpoint.connections import Connections
from recipe.engines.endpoint.failures import FAILURES, UNREAD_TRIES, Passing, Unfit, answered, understood
from recipe.engines.endpoint.fields import Fields, form_of
from recipe.engines.endpoint.questions import Question, body_of, fields_of, idempotency_key
from recipe.engines.ledger import Ledger
from recipe.engines.protocol import Answer, videos
from recipe.errors import ComputeError, InputError

_LOG = logging.getLogger(__name__)
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
"""Seconds."""
# Of its own, so that waiting leaves other draws alone; unseeded, so that clients do not wait alike.
_JITTER = random.Random()


class Host:
    """Asks one endpoint, from one event loop."""

    def __init__(self, config: EndpointConfig, ledger: Ledger) -> None:
        """Prepare to ask; nothing is sent. Raises InputError for an address or a key that cannot be used."""
        self.url, self._key = _address(config.url), _key(config.key_variable)
        self.fields = Fields(config.structured)
        self._config, self._ledger = config, ledger
        self._connections = Connections(self.url, self._key, config)
        self._quiet_until = 0.0

    async def answer(self, question: Question, ended: asyncio.Event) -> Answer:
        """The answer to a question, tried again until `ended`.

        Raises Unfit for a question that is not taken, InputError for what no try will change, and ComputeError for
        what did not pass in time.
        """
        fields = await self._fields(question)
        began, tries, unread, replied = time.monotonic(), 0, 0, 0
        while True:
            optional = self.fields.of(question)
            try:
                answer = await self._try(fields | optional, idempotency=(question.sample, replied), ended=ended)
            except Unfit as unfit:
                replied += 1
                self._ask_for_less(optional, unfit)
            except Passing as failure:
                tries, unread = tries + 1, unread + failure.unread
                replied += failure.replied
                last = tries >= self._config.tries or unread >= UNREAD_TRIES
                await self._pause(failure, tries, time.monotonic() - began, ended, last=last)
            else:
                self.fields.answered(optional)
                if question.schema is None:
                    return answer
                self._ledger.structured = self.fields.structured
                return answer._replace(structured=form_of(optional))

    async def stream(self, question: Question, hand_on: Callable[[str], None]) -> Answer:
        """Hand on the pieces of an answer as they come, and return it whole; raises what `FAILURES` lists."""
        body = body_of(await self._fields(question) | {"stream": True})
        began, told, finished, tokens = time.monotonic(), "", False, (0, 0)
        async with self._connections.streamed(body, idempotency_key(body, question.sample, 0)) as response:
            if not response.is_success:
                raise Unreadable(f"the endpoint answers {response.status_code}")
            async for chunk in read_chunks(response.aiter_lines()):
                finished, tokens = finished or chunk.last, chunk.tokens or tokens
                if chunk.text:
                    told += chunk.text
                    hand_on(chunk.text)
        if not finished:
            raise Unreadable("it has no end")
        return Answer(told, *tokens, round(time.monotonic() - began, 3))

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    def without_key(self, text: str) -> str:
        """A text with the key struck out, because endpoints repeat what they were sent."""
        return text.replace(self._key, "[key]") if self._key else text

    async def _fields(self, question: Question) -> JsonObject:
        if videos(question.chat):  # JPEG takes long
            return await asyncio.to_thread(fields_of, question, self._config)
        return fields_of(question, self._config)

    async def _try(self, fields: JsonObject, *, idempotency: tuple[int, int], ended: asyncio.Event) -> Answer:
        """One request. Raises Passing, InputError."""
        await _sleep(self._quiet_until - time.monotonic(), ended)
        body = body_of(fields)
        began = time.monotonic()
        failure: Passing | InputError
        try:
            # The client's own limit is for each read, and lets an endpoint that drips go on for ever.
            async with asyncio.timeout(self._config.timeout):
                response = await self._connections.post(body, idempotency_key(body, *idempotency))
            if response.is_success:
                return read_answer(response.content, round(time.monotonic() - began, 3))
            failure = answered(response, self.url)
        except FAILURES as error:
            failure = understood(error, self._config.timeout)
        failure.args = tuple(self.without_key(str(text)) for text in failure.args)
        raise failure

    def _ask_for_less(self, sent: JsonObject, unfit: Unfit) -> None:
        """Leave out a field that the host refuses. Raises `unfit` where it is none of these."""
        name = self.fields.refused(sent, unfit.said)
        if name is None:
            raise unfit
        if not self.fields.fall(name, sent):
            problem = str(unfit).removeprefix(f"{self.url}: ").partition("; ")[0]
            raise InputError.at(self.url, problem, "give what the endpoint takes with --structured") from None
        _LOG.info("%s: it does not take %s as sent; asking without", self.url, name)

    async def _pause(self, failure: Passing, tries: int, taken: float, ended: asyncio.Event, *, last: bool) -> None:
        """Wait before the next try. Raises ComputeError where there is none."""
        wait = _wait(failure, tries)
        if not last and taken + wait < self._config.patience and not ended.is_set():
            self._ledger.retry()
            if failure.wait is not None:  # it speaks to all who ask
                self._quiet_until = max(self._quiet_until, time.monotonic() + failure.wait)
            _LOG.info("%s: %s; asking again in %.1f s", self.url, failure, wait)
            await _sleep(wait, ended)
            if not ended.is_set():
                return
        asked = "" if failure.wait is None else f" and asks to wait {failure.wait:.0f} s"
        tried = f"{tries} {'try' if tries == 1 else 'tries'} in {taken:.0f} s"
        raise ComputeError(f"{self.url}: {failure}{asked} ({tried}); {failure.remedy}.")


def _wait(failure: Passing, tries: int) -> float:
    """Seconds until the next try: what the endpoint asked for and a little more, else twice as long as before."""
    if failure.wait is not None:
        return failure.wait + _JITTER.uniform(0.0, 0.5)
    doubled: float = _FIRST_WAIT * 2 ** min(tries - 1, 16)
    return min(doubled, _LONGEST_WAIT) * _JITTER.uniform(0.5, 1.0)


async def _sleep(seconds: float, ended: asyncio.Event) -> None:
    """Wait, but not on once all is over."""
    if seconds > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), seconds)


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InputError.at(url, "this is no address of HTTP", "give one such as http://localhost:8000/v1")
    if parts.username or parts.password:
        raise InputError("the endpoint's address holds a password; give it as a key by --key-variable.")
    if parts.path.rstrip("/").endswith("/chat/completions"):
        raise InputError.at(url, "this is one method of the API", "give its root, without /chat/completions")
    return url.rstrip("/")


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise InputError(f"the environment variable {variable} is to hold the endpoint's key, and is not set; set it.")
    return key
