"""An engine for any OpenAI-compatible endpoint: a vLLM server, or a hosted model.

It serves whoever asks chats: Phi, planners, judges. An answer is kept in the cache the moment it comes, under what was
asked (model, messages with a digest of their frames, sampling, sample), so that it is never paid for twice. An endpoint
that cannot answer now is asked again, later each time, or when it says; once one answer is given up, nothing new is
asked, what is under way is awaited and kept, and one error tells why.

Requests run on an event loop in a thread of their own, so that several threads may ask one engine at once.
"""

import asyncio
import hashlib
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from recipe.artifacts import JsonObject
from recipe.config import EndpointConfig, SamplingConfig
from recipe.engines.cache import AnswerCache
from recipe.engines.endpoint_answers import Ledger, Prices, Unreadable, read_answer
from recipe.engines.endpoint_failures import Passing, Unfit, understood
from recipe.engines.endpoint_messages import to_wire
from recipe.engines.protocol import Answer, Chat, Refused, videos, without_arrays
from recipe.errors import ComputeError, InputError, MissingExtra, RecipeError
from recipe.progress import SILENT, Advance, Progress

try:
    import openai
    import tenacity
except ModuleNotFoundError as error:
    raise MissingExtra("asking an endpoint", "llm") from error

_LOG = logging.getLogger(__name__)
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
"""Seconds."""
_CONNECT = 10.0
"""Seconds to reach the endpoint."""
# Of its own, so that waiting leaves other draws alone; unseeded, so that clients do not wait alike.
_JITTER = random.Random()

Result = TypeVar("Result")


class EndpointEngine:
    """Completes chats over HTTP; a context manager, and safe to share between threads."""

    def __init__(self, config: EndpointConfig, cache: Path | None = None) -> None:
        """Prepare to ask; nothing is sent. Raises InputError for an address or a key that cannot be used."""
        self.config, self.ledger = config, Ledger(Prices(config.price_in, config.price_out))
        self._url, self._key = _address(config.url), _key(config.key_variable)
        self._cache = None if cache is None else AnswerCache(cache)
        self._client = openai.AsyncOpenAI(
            base_url=self._url,
            api_key=self._key or "none",  # else the SDK would send the key of another service from the environment
            max_retries=0,
            timeout=openai.Timeout(config.timeout, connect=min(config.timeout, _CONNECT)),
        )
        self._slots = asyncio.Semaphore(config.concurrency)
        self._asked: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._quiet_until = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up what is under way and close the connections."""
        if self._loop.is_closed():
            return
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def generate(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
    ) -> list[list[str]]:
        """`count` completions of each chat; raises InputError or ComputeError naming the endpoint and what to do."""
        return [[answer.text for answer in group] for group in self.answers(chats, count, sampling, progress)]

    def answers(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, progress: Progress = SILENT
    ) -> list[list[Answer]]:
        """As `generate`, with the tokens and the time that each completion took."""
        with progress.task(f"asking {self.config.model}", total=len(chats) * count) as advance:
            found = self._run(self._all(chats, count, sampling, advance, strict=True))
        return [[one for one in group if isinstance(one, Answer)] for group in found]

    def outcomes(
        self,
        chats: Sequence[Chat],
        count: int,
        sampling: SamplingConfig,
        progress: Progress = SILENT,
        *,
        schema: JsonObject | None = None,
        logprobs: bool = False,
    ) -> list[list[Answer | Refused]]:
        """As `answers`, with a chat refused that the endpoint does not take."""
        with progress.task(f"asking {self.config.model}", total=len(chats) * count) as advance:
            return self._run(self._all(chats, count, sampling, advance, strict=False))

    def stream(self, chat: Chat, sampling: SamplingConfig) -> Iterator[str]:
        """The first completion of `generate` in pieces, as they come; one that is kept comes whole.

        Where nothing comes, it is asked for as `generate` does. Raises as that does, and ComputeError for an answer
        that breaks off.
        """
        kept = self._cache is not None and self._cache.get(self._asked_for(chat, 0, sampling)) is not None
        if not kept:
            pieces: SimpleQueue[str | None] = SimpleQueue()
            future = asyncio.run_coroutine_threadsafe(self._feed(chat, sampling, pieces.put), self._loop)
            future.add_done_callback(lambda _: pieces.put(None))
            told = False
            try:
                while (piece := pieces.get()) is not None:
                    told = True
                    yield piece
            finally:
                future.cancel()
            if (failure := future.exception()) is None:
                return
            if told:
                reason = self._without_key(f"the answer broke off ({type(failure).__name__}: {failure})")
                raise ComputeError(f"{self._url}: {reason}; ask again.")
        [[text]] = self.generate([chat], 1, sampling)
        yield text

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C as well: what is under way ends
            future.cancel()
            raise

    async def _stop(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._client.close()

    async def _all(
        self, chats: Sequence[Chat], count: int, sampling: SamplingConfig, advance: Advance, strict: bool
    ) -> list[list[Answer | Refused]]:
        failures: list[RecipeError] = []

        async def one(chat: Chat, sample: int) -> Answer | Refused | None:
            async with self._slots:
                if failures:
                    return None
                try:
                    answer = await self._answer(chat, sample, sampling)
                except Unfit as error:
                    if strict:
                        failures.append(error)
                    return Refused(str(error))
                except RecipeError as error:
                    failures.append(error)
                    return None
            self.ledger.add(answer)
            advance(1)
            return answer

        found = await asyncio.gather(*(one(chat, sample) for chat in chats for sample in range(count)))
        if failures:
            raise failures[0]
        told = [answer for answer in found if answer is not None]
        return [told[start : start + count] for start in range(0, len(told), count)] if count else [[] for _ in chats]

    async def _answer(self, chat: Chat, sample: int, sampling: SamplingConfig) -> Answer:
        """The kept answer, or a new one that is kept."""
        if self._cache is None:
            return await self._ask(chat, sample, sampling)
        asked = await asyncio.to_thread(self._asked_for, chat, sample, sampling)
        # Equal questions at once are one question.
        lock = self._asked.setdefault(repr(asked), asyncio.Lock())
        async with lock:
            kept = self._cache.get(asked)
            if kept is not None:
                return Answer(kept["text"], kept["tokens_in"], kept["tokens_out"], kept["seconds"], cached=True)
            answer = await self._ask(chat, sample, sampling)
            await asyncio.to_thread(self._keep, asked, answer)
            return answer

    def _asked_for(self, chat: Chat, sample: int, sampling: SamplingConfig) -> JsonObject:
        asked: JsonObject = {
            "model": self.config.model,
            "messages": without_arrays(chat),
            "sampling": sampling.model_dump(include={"temperature", "max_tokens", "seed"}),
            "sample": sample,
        }
        if videos(chat):
            asked["clips"] = self.config.model_dump(include={"clips", "jpeg_quality", "max_pixels"})
        return asked

    async def _ask(self, chat: Chat, sample: int, sampling: SamplingConfig) -> Answer:
        fields, beside = await asyncio.to_thread(self._fields, chat, sample, sampling)
        too_late = tenacity.stop_before_delay(self.config.patience)
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(Passing),
            wait=_wait,
            stop=lambda state: too_late(state) or state.attempt_number >= self._tries(state),
            before_sleep=self._before_sleep,
            retry_error_callback=self._give_up,
        )
        return await retrying(self._try, fields, beside)

    def _fields(self, chat: Chat, sample: int, sampling: SamplingConfig) -> tuple[JsonObject, JsonObject]:
        """What a request says, and what it says beside the fields of the API."""
        wire = to_wire(chat, self.config)
        fields: JsonObject = {
            "model": self.config.model,
            "messages": wire.messages,
            "temperature": sampling.temperature,
            self.config.token_limit: sampling.max_tokens,
        }
        if self.config.send_seed:
            fields["seed"] = _seed(sampling.seed, sample)
        return fields, wire.beside

    async def _feed(self, chat: Chat, sampling: SamplingConfig, hand_on: Callable[[str], None]) -> None:
        """Hand on the pieces of one answer as they come, and keep it once it is whole."""
        async with self._slots:
            fields, beside = await asyncio.to_thread(self._fields, chat, 0, sampling)
            fields["stream_options"] = {"include_usage": True}
            began, told, finished, tokens_in, tokens_out = time.monotonic(), "", False, 0, 0
            create = self._client.chat.completions.create
            async for chunk in await create(**fields, stream=True, extra_body=beside):
                if chunk.usage:
                    tokens_in, tokens_out = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
                for choice in chunk.choices or ():
                    finished = finished or choice.finish_reason is not None
                    if piece := choice.delta.content:
                        told += piece
                        hand_on(piece)
        if not finished:
            raise Unreadable("it has no end")
        answer = Answer(told, tokens_in, tokens_out, round(time.monotonic() - began, 3))
        self.ledger.add(answer)
        await asyncio.to_thread(self._keep, self._asked_for(chat, 0, sampling), answer)

    def _keep(self, asked: JsonObject, answer: Answer) -> None:
        if self._cache is not None:
            self._cache.put(asked, answer._asdict() | {"model": self.config.model, "url": self._url})

    async def _try(self, fields: JsonObject, beside: JsonObject) -> Answer:
        """One request. Raises Passing, InputError."""
        await asyncio.sleep(max(0.0, self._quiet_until - time.monotonic()))
        began = time.monotonic()
        try:
            # The client's own limit is for each read, and lets an endpoint that drips go on for ever.
            async with asyncio.timeout(self.config.timeout):
                response = await self._client.chat.completions.with_raw_response.create(**fields, extra_body=beside)
            return read_answer(response.text, round(time.monotonic() - began, 3))
        except (openai.APIError, Unreadable, TimeoutError) as error:
            failure = understood(error, self._url, self.config.timeout)
        failure.args = tuple(self._without_key(str(text)) for text in failure.args)
        raise failure

    def _without_key(self, text: str) -> str:
        """A text with the key struck out, because endpoints repeat what they were sent."""
        return text.replace(self._key, "[key]") if self._key else text

    def _tries(self, state: tenacity.RetryCallState) -> int:
        failure = _failure(state)
        return min(self.config.tries, failure.tries or self.config.tries)

    async def _before_sleep(self, state: tenacity.RetryCallState) -> None:
        self.ledger.retry()
        failure = _failure(state)
        if failure.wait is not None:  # it speaks to all who ask
            self._quiet_until = max(self._quiet_until, time.monotonic() + failure.wait)
        _LOG.info("%s: %s; asking again in %.1f s", self._url, failure, state.upcoming_sleep)

    def _give_up(self, state: tenacity.RetryCallState) -> Answer:
        failure, tries = _failure(state), state.attempt_number
        asked = "" if failure.wait is None else f" and asks to wait {failure.wait:.0f} s"
        tried = f"{tries} {'try' if tries == 1 else 'tries'} in {state.seconds_since_start or 0.0:.0f} s"
        raise ComputeError(f"{self._url}: {failure}{asked} ({tried}); {failure.remedy}.")


def _failure(state: tenacity.RetryCallState) -> Passing:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, Passing)
    return error


def _wait(state: tenacity.RetryCallState) -> float:
    """Seconds until the next try: what the endpoint asked for and a little more, else twice as long as before."""
    failure = _failure(state)
    if failure.wait is not None:
        return failure.wait + _JITTER.uniform(0.0, 0.5)
    doubled: float = _FIRST_WAIT * 2 ** min(state.attempt_number - 1, 16)
    return min(doubled, _LONGEST_WAIT) * _JITTER.uniform(0.5, 1.0)


def _seed(seed: int, sample: int) -> int:
    """A seed of its own for each sample, in the 31 bits that every endpoint takes."""
    return int.from_bytes(hashlib.sha256(f"{seed} {sample}".encode()).digest()[:4]) >> 1


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
