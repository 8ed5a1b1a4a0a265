"""What is asked of an endpoint: what makes an answer, what a request says, and the key that tells it from others."""

import hashlib
import json
from typing import NamedTuple

from recipe.artifacts import JsonObject
from recipe.config import EndpointConfig, SamplingConfig
from recipe.engines.endpoint.messages import to_wire
from recipe.engines.protocol import Chat, videos, without_arrays


class Question(NamedTuple):
    """One completion that is asked for."""

    chat: Chat
    sample: int
    sampling: SamplingConfig
    schema: JsonObject | None = None
    logprobs: bool = False


def identity(question: Question, config: EndpointConfig) -> JsonObject:
    """All that makes the answer: what it is kept under.

    A schema counts as it was asked for, whatever the host made of it, so that a resumed job finds what it has.
    """
    asked: JsonObject = {
        "model": config.model,
        "messages": without_arrays(question.chat),
        "sampling": question.sampling.model_dump(include={"temperature", "max_tokens", "seed"}),
        "sample": question.sample,
    }
    if videos(question.chat):
        asked["clips"] = config.model_dump(include={"clips", "jpeg_quality", "max_pixels"})
    if question.schema is not None:
        asked["schema"] = question.schema
    if question.logprobs:
        asked["logprobs"] = True
    return asked


def fields_of(question: Question, config: EndpointConfig) -> JsonObject:
    """What a request says, but for the fields that not every host takes."""
    wire = to_wire(question.chat, config)
    fields: JsonObject = {
        "model": config.model,
        "messages": wire.messages,
        "temperature": question.sampling.temperature,
        config.token_limit: question.sampling.max_tokens,
    }
    if config.send_seed:
        fields["seed"] = _seed(question.sampling.seed, question.sample)
    return fields | wire.beside


def body_of(fields: JsonObject) -> bytes:
    """A request's body; half characters are escaped, as JSON allows."""
    return json.dumps(fields, separators=(",", ":")).encode()


def idempotency_key(body: bytes, sample: int, replied: int) -> str:
    """What tells a request from all others, the same whenever it is sent again without having been answered.

    `replied` counts the failures that the endpoint answered it with: a host that remembers its answers would say the
    same for ever. Hosts that know the header `Idempotency-Key` do the work once; the others ignore it.
    """
    found = hashlib.sha256(body)
    found.update(f" {sample} {replied}".encode())
    return found.hexdigest()


def _seed(seed: int, sample: int) -> int:
    """A seed of its own for each sample, in the 31 bits that every endpoint takes."""
    return int.from_bytes(hashlib.sha256(f"{seed} {sample}".encode()).digest()[:4]) >> 1
