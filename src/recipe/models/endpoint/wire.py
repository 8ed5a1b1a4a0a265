"""What is sent to an OpenAI-compatible endpoint, and what its answers say."""

import base64
import hashlib
import io
import json
import math
from collections.abc import AsyncIterator, Iterator
from statistics import fmean
from typing import Literal, NamedTuple

from pydantic import BaseModel, Field

from recipe.artifacts import JsonObject
from recipe.clock import clock
from recipe.config import EndpointConfig, SamplingConfig
from recipe.errors import InputError, MissingExtra, quoted
from recipe.models.protocol import Answer, Chat, videos, without_arrays
from recipe.types import Frames

# A chat as an OpenAI-compatible endpoint takes it: frames become JPEG in data URLs.
#
# Hosted endpoints take images only (`image_url` parts), so that is the default, each frame after a text that tells its
# time. vLLM also takes a whole clip as one `video_url` part of the form `data:video/jpeg;base64,FRAME,FRAME,...`: the
# model's own video tokens, a quarter of an image's for Qwen2.5-VL as two frames share their patches and positions
# follow time. The URL has no room for the rate of the frames, which vLLM takes beside the messages as
# `mm_processor_kwargs`.


try:
    from PIL import Image
except ModuleNotFoundError as error:
    raise MissingExtra("asking an endpoint", "llm") from error


class Wire(NamedTuple):
    """What is sent: the messages, and the fields beside them that the clip asks for."""

    messages: list[JsonObject]
    beside: JsonObject


def to_wire(chat: Chat, config: EndpointConfig) -> Wire:
    """The messages of a chat with its frames as JPEG. Raises InputError for a part that is neither text nor video."""
    messages, beside = [], {}
    for message in chat:
        content = message["content"]
        if isinstance(content, str):
            messages.append({"role": message["role"], "content": content})
            continue
        parts: list[JsonObject] = []
        for part in content:
            if part["type"] == "text":
                parts.append({"type": "text", "text": part["text"]})
            elif part["type"] == "video" and config.clips == "images":
                parts.extend(_images(part["video"], config))
            elif part["type"] == "video":
                parts.append(_video(part["video"], config))
                beside = {"mm_processor_kwargs": {"fps": part["video"].rate}}
            else:
                raise InputError(f"a message holds a part of type {part['type']!r}; give text and video.")
        messages.append({"role": message["role"], "content": parts})
    return Wire(messages, beside)


def _images(video: Frames, config: EndpointConfig) -> Iterator[JsonObject]:
    for time, jpeg in zip(video.times.tolist(), _jpegs(video, config), strict=True):
        yield {"type": "text", "text": f"[{_moment(time)}]"}
        yield {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{jpeg}"}}


def _video(video: Frames, config: EndpointConfig) -> JsonObject:
    return {"type": "video_url", "video_url": {"url": f"data:video/jpeg;base64,{','.join(_jpegs(video, config))}"}}


def _jpegs(video: Frames, config: EndpointConfig) -> Iterator[str]:
    for image in video.images:
        stream = io.BytesIO()
        _reduced(Image.fromarray(image), config.max_pixels).save(stream, "JPEG", quality=config.jpeg_quality)
        yield base64.b64encode(stream.getvalue()).decode()


def _reduced(image: Image.Image, most: int | None) -> Image.Image:
    width, height = image.size
    if most is None or width * height <= most:
        return image
    scale = math.sqrt(most / (width * height))
    return image.resize((max(1, int(width * scale)), max(1, int(height * scale))), Image.Resampling.BICUBIC)


def _moment(seconds: float) -> str:
    """A time to the tenth of a second, because frames may be half a second apart.

    >>> _moment(62.5), _moment(3.0)
    ('1:02.5', '0:03')
    """
    tenths = round(10 * seconds)
    return f"{clock(tenths // 10)}{f'.{tenths % 10}' if tenths % 10 else ''}"


# What is asked of an endpoint: what makes an answer, what a request says, and the key that tells it from others.


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


# Fields that not every host takes: structured output and log-probabilities.
#
# Where a host refuses one by name before it has ever answered with it, it is asked again with less: a JSON schema, then
# any JSON object, then text. What it takes is remembered, so that one question pays for finding out.


Structured = Literal["json_schema", "json_object", "off"]
_LESS: dict[Structured, Structured] = {"json_schema": "json_object", "json_object": "off"}
_FORMAT, _LOGPROBS = "response_format", "logprobs"
_NAMES = {
    _FORMAT: (
        "response_format",
        "response format",
        "json_schema",
        "json_object",
        "structured output",
        "guided",
        "grammar",
    ),
    _LOGPROBS: ("logprob",),
}
"""How hosts name a field that they refuse."""


class Fields:
    """What a host takes, as far as it is known."""

    def __init__(self, structured: Literal["auto", "json_schema", "json_object", "off"]) -> None:
        self.structured: Structured = "json_schema" if structured == "auto" else structured
        self.logprobs = True
        self._may_fall = structured == "auto"
        self._proven: set[str] = set()

    def of(self, question: Question) -> JsonObject:
        """The fields that a question asks for and the host may take."""
        fields: JsonObject = {}
        if question.schema is not None and self.structured == "json_schema":
            fields[_FORMAT] = {"type": "json_schema", "json_schema": {"strict": True} | question.schema}
        elif question.schema is not None and self.structured == "json_object":
            fields[_FORMAT] = {"type": "json_object"}
        if question.logprobs and self.logprobs:
            fields[_LOGPROBS] = True
        return fields

    def answered(self, sent: JsonObject) -> None:
        """The host answered with these fields, so that what it refuses later is no fault of theirs."""
        self._proven.update(_form(name, value) for name, value in sent.items())

    def refused(self, sent: JsonObject, said: str) -> str | None:
        """The field that the host refuses by name and never took; None where something else is wrong."""
        lower = said.lower()
        for name, value in sent.items():
            if _form(name, value) not in self._proven and any(word in lower for word in _NAMES[name]):
                return name
        return None

    def fall(self, name: str, sent: JsonObject) -> bool:
        """Ask for less than what was sent from now on; False where the settings leave no choice."""
        if name == _LOGPROBS:
            self.logprobs = False
            return True
        form: Structured = sent[_FORMAT]["type"]
        if self._may_fall and self.structured == form:  # another question may have found out before
            self.structured = _LESS[form]
        return self._may_fall


def form_of(sent: JsonObject) -> Structured:
    """How fields hold an answer to a schema.

    >>> form_of({"response_format": {"type": "json_object"}}), form_of({})
    ('json_object', 'off')
    """
    form: Structured = sent[_FORMAT]["type"] if _FORMAT in sent else "off"
    return form


def _form(name: str, value: object) -> str:
    return f"{name} {value['type']}" if isinstance(value, dict) else name


# What an endpoint answered: a chat completion in one body, or in pieces as server-sent events.


_EVENT, _DONE = "data:", "[DONE]"


class Unreadable(Exception):
    """An answer that is no chat completion."""


class _Message(BaseModel):
    content: str | None = None


class _Token(BaseModel):
    logprob: float


class _LogProbs(BaseModel):
    content: list[_Token] | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None
    logprobs: _LogProbs | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(BaseModel):
    """The part of a chat completion that is read; strict, because hosts answer 200 to what they could not do."""

    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


class _Piece(BaseModel):
    delta: _Message | None = None
    finish_reason: str | None = None


class _Chunk(BaseModel):
    choices: list[_Piece] | None = None
    usage: _Usage | None = None


class Chunk(NamedTuple):
    """A piece of an answer as it comes."""

    text: str
    last: bool
    """True where it says how the answer ended."""
    tokens: tuple[int, int] | None
    """Tokens of the prompt and of the answer, once they are told."""


def read_answer(body: bytes, seconds: float) -> Answer:
    """The completion in a response's body; raises Unreadable for HTML, half a JSON, no choices, an error in disguise.

    A completion may be without text, where a filter stepped in or the limit was reached before any: it is then empty,
    if the endpoint says how it ended.
    """
    try:
        completion = _Completion.model_validate_json(_whole_characters(body))
    except ValueError:  # also of pydantic
        raise Unreadable(f"the answer is no chat completion: {_start_of(body)}") from None
    [choice, *_] = completion.choices
    if choice.message.content is None and choice.finish_reason is None:
        raise Unreadable(f"the answer holds no text and does not say why: {_start_of(body)}")
    usage = completion.usage or _Usage()
    tokens = choice.logprobs.content if choice.logprobs else None
    mean = fmean(token.logprob for token in tokens) if tokens else None
    return Answer(choice.message.content or "", usage.prompt_tokens, usage.completion_tokens, seconds, logprob=mean)


def _whole_characters(body: bytes) -> bytes:
    r"""A JSON text whose escapes are whole characters: a limit of tokens may cut an emoji to `\ud83d`."""
    if b"\\ud" not in body and b"\\uD" not in body:
        return body
    return json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8", "replace")


def _start_of(body: bytes) -> str:
    return quoted(body.decode("utf-8", "replace"))


async def read_chunks(lines: AsyncIterator[str]) -> AsyncIterator[Chunk]:
    """The pieces in the lines of a stream; raises Unreadable for an event that is none."""
    async for line in lines:
        if not line.startswith(_EVENT):
            continue
        data = line.removeprefix(_EVENT).strip()
        if data == _DONE:
            return
        try:
            chunk = _Chunk.model_validate_json(_whole_characters(data.encode("utf-8", "replace")))
        except ValueError:
            raise Unreadable(f"a piece of the answer cannot be read: {quoted(data)}") from None
        pieces, usage = chunk.choices or [], chunk.usage
        yield Chunk(
            "".join(piece.delta.content or "" for piece in pieces if piece.delta),
            any(piece.finish_reason is not None for piece in pieces),
            None if usage is None else (usage.prompt_tokens, usage.completion_tokens),
        )
