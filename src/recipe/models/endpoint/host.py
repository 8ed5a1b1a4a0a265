"""One endpoint, asked with retries: failures, and waiting as long as the host says.

Requests go through the SDK of OpenAI, without its retries. What may pass is tried again: time-outs, dropped and refused
connections, 408, 409, 425, 429 and 5xx, and answers that are no chat completion (a proxy's page, half a JSON), the last
a few times only, because a wrong address answers like that for ever. Every other status is final, and 429 for an empty
account. Of those, 400, 413 and 422 may concern one chat alone.
"""

import asyncio
import contextlib
import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from recipe.artifacts import JsonObject
from recipe.config.models import ModelConfig
from recipe.errors import ComputeError, InputError, MissingExtra, quoted, shortened
from recipe.models.costs import Ledger
from recipe.models.endpoint.wire import (
    HostError,
    OptionalFields,
    Unreadable,
    body_and_headers,
    form_of,
    parse_completion,
    parse_piece,
    read_error,
    request_fields,
)
from recipe.models.protocol import Answer, ModelRequest, videos

try:
    import httpx2
    import openai

    from recipe.http import connection_settings, retry_after, server_address, wait_before_try
except ModuleNotFoundError as error:
    raise MissingExtra("asking an endpoint", "llm") from error

# Those that openai's own client tries again, and 425, too early.
_PASSING = frozenset({408, 409, 425, 429})
# After these the request may still be worked on, or was answered behind a gateway.
_UNDECIDED = frozenset({408, 409, 502, 504})
# What may be wrong with one request and not with the others.
_ONE_CHAT = frozenset({400, 413, 422})
# llama.cpp's words for a chat that is too long, which may come with any status.
_CONTEXT = "context.size"
_TOO_LONG = f"{_CONTEXT}|context.(length|window)|max_model_len|too (long|large|many tokens)|at least 1, got -"
_FILTERED = "content.(filter|policy|management)|moderation|safety"
_EMPTY_ACCOUNT = "insufficient_quota"
UNREAD_TRIES = 3
"""An answer that could not be read so often will not be."""
# Remedies by patterns of the status and of what is said in lower case; the first applies.
_REMEDIES = {
    r"max_(completion_)?tokens.*(too large|less than|at most|context)": "lower max_tokens: --set "
    "sampling.max_tokens=N, of Phi phi.max_tokens, of a judge judge.max_tokens",
    "^413": "show fewer or smaller frames",
    _TOO_LONG: "shorten the chat, or serve the model with a longer context",
    "^401": "check the key and the environment variable that model.key_variable names (--set)",
    f"^402|{_EMPTY_ACCOUNT}": "check the account's balance",
    "^403": "check the key and its permissions",
    "^404": "check the model's name, and that the address is the API's root, which usually ends in /v1",
    "^405": "check that the address is the API's root, which usually ends in /v1",
    "^429": "ask less at once (--set model.concurrency=1) or later",
    "^(408|409|425|5)": "look into the endpoint's log, or try later",
    _FILTERED: "change the chat, or ask another model",
    "max_(completion_)?tokens": "give the field that it takes, as in --set "
    """'model.extra_body={"max_tokens": null, "max_completion_tokens": 512}'""",
    "temperature": "set a temperature that the model takes (--set sampling.temperature=1, of Phi "
    "phi.temperature, of a judge judge.temperature), or null in model.extra_body to send none",
    "video_url|mm_processor_kwargs": "give --set model.clips=images",
    r"\bseed\b": """give --set 'model.extra_body={"seed": null}'""",
    "response.format|json_schema|json_object|grammar": "give --set model.structured=off",
    r"\bmodel\b.*(not found|not exist|invalid)|(invalid|unknown) model": "check the model's name",
    "": "change the request: its frames, its length or the model",
}
_METHOD = "/chat/completions"
_LOG = logging.getLogger(__name__)
FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
"""Seconds before the second try, and before any later one at most, where the host asks for none."""
# Seconds at least between two lines that say that it waits.
_QUIET = 5.0


class _TransientError(Exception):
    """A failure that may be over at the next try."""

    def __init__(
        self, problem: str, remedy: str, *, wait: float | None = None, unread: bool = False, replied: bool = False
    ) -> None:
        super().__init__(problem)
        self.remedy = remedy
        # Seconds that the endpoint asked to wait.
        self.wait = wait
        # True where a response came that is no answer.
        self.unread = unread
        # True where the endpoint is done with the request, so that the next is another.
        self.replied = replied


class RequestRefused(InputError):
    """The endpoint does not take a request as it is; others may be answered."""

    def __init__(self, message: str, error: HostError) -> None:
        """`error` is what the endpoint says."""
        super().__init__(message)
        self.error = error


def _failure_of(error: Exception, url: str, timeout: float) -> _TransientError | InputError:
    """A failure of the connection, of the endpoint or of reading: one that passes, or one that does not."""
    if isinstance(error, openai.APIStatusError):
        response = error.response
        return _failure_of_status(response.status_code, response.text, url, retry_after(response.headers))
    if isinstance(error, TimeoutError | openai.APITimeoutError):
        remedy = "check that the endpoint is not overloaded or still loading, or allow more with model.timeout"
        return _TransientError(f"no answer within {timeout:g} s", remedy)
    if isinstance(error, Unreadable):
        return _TransientError(str(error), error.remedy, unread=True, replied=True)
    cause = (isinstance(error, openai.APIError) and error.__cause__) or error  # the SDK wraps errors of connections
    reason = f"the connection failed ({type(cause).__name__}: {str(cause).rstrip('.') or 'no reason given'})"
    return _TransientError(reason, "check that the endpoint runs and that the address is right")


def _failure_of_status(status: int, text: str, url: str, wait: float | None = None) -> _TransientError | InputError:
    """`wait` seconds are what the endpoint asks for."""
    error = read_error(text)
    said = repr(shortened(error.said)) if error.said and not error.said.startswith("<") else quoted(text)
    problem = f"the endpoint answers {status}: {said}"
    words = " ".join((str(status), error.said, *error.codes)).lower()
    remedy = next(remedy for pattern, remedy in _REMEDIES.items() if re.search(pattern, words))
    if status == 429 and _EMPTY_ACCOUNT in error.codes:
        return InputError.at(url, problem, remedy)
    too_long = re.search(_CONTEXT, words)
    if (status in _PASSING or status >= 500) and not too_long:
        return _TransientError(problem, remedy, wait=wait, replied=status not in _UNDECIDED)
    failure = InputError.at(url, problem, remedy)
    if status not in _ONE_CHAT and not too_long:
        return failure
    of_the_chat = bool(re.search(f"^413|{_TOO_LONG}|{_FILTERED}", words))
    return RequestRefused(str(failure), error._replace(of_the_chat=of_the_chat))


class Host:
    """Asks one endpoint, from one event loop."""

    def __init__(self, config: ModelConfig, ledger: Ledger) -> None:
        """Prepare to ask; nothing is sent. Raises InputError for an address or a key that cannot be used."""
        self.url = server_address(config.endpoint or "", "http://localhost:8000/v1")
        if httpx2.URL(self.url).userinfo:
            raise InputError(
                "the endpoint's address holds a password; name the environment variable of its key by "
                "--set model.key_variable=NAME."
            )
        if self.url.endswith("/chat/completions"):
            raise InputError.at(self.url, "this is one method of the API", "give its root, without /chat/completions")
        self._key = os.environ.get(config.key_variable or "", "").strip()
        if config.key_variable is not None and not self._key:
            raise InputError(
                f"the environment variable {config.key_variable} for the endpoint's key is not set; set it."
            )
        self.fields = OptionalFields(config, self.url)
        ledger.refused_fields = self.fields.dropped
        self._config, self._ledger = config, ledger
        self._quiet_line = 0.0
        self._quiet_until = 0.0
        settings = connection_settings(config.timeout, config.concurrency)
        self._client = openai.AsyncOpenAI(
            api_key=self._key or "none",
            base_url=self.url,
            max_retries=0,
            timeout=settings["timeout"],
            http_client=httpx2.AsyncClient(follow_redirects=True, **settings),
        )
        # The SDK takes these from the environment, and would send them to any endpoint.
        self._client.organization = self._client.project = None

    async def answer(self, request: ModelRequest, ended: asyncio.Event) -> Answer:
        """The answer to a request; it is tried again until `ended` is set.

        Raises RequestRefused for a request that is not taken, InputError for what no try will change, and ComputeError
        for what did not pass in time.
        """
        fields = await self._fields(request)
        began, tries, unread, replied = time.monotonic(), 0, 0, 0
        while True:
            sent = self.fields.of(request, fields)
            try:
                answer = await self._try(sent, request, replied, ended)
            except RequestRefused as refused:
                # The host may refuse a field by name that it need not be sent.
                replied += 1
                if not self.fields.fall(sent, refused.error):
                    raise
            except _TransientError as failure:
                tries, unread = tries + 1, unread + failure.unread
                replied += failure.replied
                spent, wait = time.monotonic() - began, wait_before_try(tries, failure.wait, FIRST_WAIT, _LONGEST_WAIT)
                goes_on = tries < self._config.tries and unread < UNREAD_TRIES and spent + wait < self._config.patience
                if goes_on and not ended.is_set():
                    self._ledger.retry()
                    if failure.wait is not None:  # a limit of the host concerns all requests
                        self._quiet_until = max(self._quiet_until, time.monotonic() + failure.wait)
                    # One line for all requests that wait together.
                    new_line = time.monotonic() >= self._quiet_line
                    self._quiet_line = time.monotonic() + max(wait, _QUIET) if new_line else self._quiet_line
                    _LOG.log(
                        logging.WARNING if new_line else logging.INFO,
                        "%s: %s; waiting %.1f s, then try %d of %d, for %.0f s in all at most",
                        *(self.url, failure, wait, tries + 1, self._config.tries, self._config.patience),
                    )
                    await _sleep(wait, ended)
                    if not ended.is_set():
                        continue
                stated = "" if failure.wait is None else f" and asks to wait {failure.wait:.0f} s"
                effort = f"{tries} {'try' if tries == 1 else 'tries'} in {spent:.0f} s"
                raise ComputeError(f"{self.url}: {failure}{stated} ({effort}); {failure.remedy}.") from None
            else:
                self.fields.answered(sent)
                answer = answer._replace(decoding=self.fields.card(request, sent))
                if request.schema is None:
                    return answer
                self._ledger.structured = self.fields.structured
                return answer._replace(structured=form_of(sent))

    async def stream(self, request: ModelRequest, hand_on: Callable[[str], None]) -> Answer:
        """Hand on the pieces of an answer as they come, and return it whole; raises any error of the connection."""
        fields = await self._fields(request)
        began, tokens = time.monotonic(), (0, 0)
        text = finish = refusal = reasoning = ""
        while True:
            sent = self.fields.of(replace(request, schema=None, logprobs=False), fields)
            body, headers = body_and_headers(sent | {"stream": True}, request, 0)
            how: dict[str, Any] = {"cast_to": object, "stream": True, "stream_cls": openai.AsyncStream[object]}
            try:
                stream = await self._client.post(_METHOD, content=body, options={"headers": headers}, **how)
                break
            except openai.APIStatusError as error:
                refused = _failure_of(error, self.url, self._config.timeout)
                if not isinstance(refused, RequestRefused) or not self.fields.fall(sent, refused.error):
                    raise
        async with stream:
            async for event in stream:
                piece = parse_piece(event)
                finish = finish or piece.finish
                # The last report counts: some hosts send one at the end, some with each piece what there is so far.
                reported = (piece.tokens_in, piece.tokens_out)
                tokens = reported if any(reported) else tokens
                refusal, reasoning = refusal + piece.refusal, reasoning + piece.reasoning
                if piece.text:
                    text += piece.text
                    hand_on(piece.text)
        if not finish:
            raise Unreadable("the answer has no end")
        seconds = round(time.monotonic() - began, 3)
        self.fields.answered(sent)
        card = self.fields.card(request, sent)
        return Answer(text, *tokens, seconds, finish=finish, refusal=refusal, reasoning=reasoning, decoding=card)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def without_key(self, text: str) -> str:
        """A text with the key struck out, because endpoints repeat what they were sent."""
        return text.replace(self._key, "[key]") if self._key else text

    async def _fields(self, request: ModelRequest) -> JsonObject:
        if videos(request.chat):  # JPEG takes long; a thread for each text would cost more than the text does
            return await asyncio.to_thread(request_fields, request, self._config)
        return request_fields(request, self._config)

    async def _try(self, fields: JsonObject, request: ModelRequest, replied: int, ended: asyncio.Event) -> Answer:
        """One request; what the host says is no JSON is an answer. Raises _TransientError, InputError."""
        await _sleep(self._quiet_until - time.monotonic(), ended)
        (body, headers), began = body_and_headers(fields, request, replied), time.monotonic()
        try:
            # The client's own limit is for each read, and lets an endpoint that drips go on for ever.
            async with asyncio.timeout(self._config.timeout):
                response = await self._client.post(
                    _METHOD, cast_to=httpx2.Response, content=body, options={"headers": headers}
                )
            try:
                return parse_completion(response.content, round(time.monotonic() - began, 3))
            except Unreadable:
                error = read_error(response.text)  # it may have come with status 200, and without one of its own
                full = b'"error"' in response.content and re.search(_TOO_LONG, error.said.lower())
                if not (status := error.status or 400 * bool(full)):
                    raise
            failure = _failure_of_status(status, response.text, self.url)
        except (openai.APIError, httpx2.RequestError, Unreadable, TimeoutError) as error:
            failure = _failure_of(error, self.url, self._config.timeout)
        if isinstance(failure, RequestRefused) and failure.error.generation is not None:
            seconds = round(time.monotonic() - began, 3)
            said = self.without_key(failure.error.said)
            return Answer(failure.error.generation, seconds=seconds, finish="stop", refusal=said)
        failure.args = tuple(self.without_key(str(text)) for text in failure.args)
        raise failure


async def _sleep(seconds: float, ended: asyncio.Event) -> None:
    """Wait, at most until `ended` is set."""
    if seconds > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), seconds)
