"""Requests and answers of an OpenAI-compatible endpoint: bodies, keys, optional fields, and completions as they come.

Frames become JPEG in data URLs. Hosted endpoints take images only (`image_url` parts), so that is the default, each
frame after a text with its time. vLLM also takes a whole clip as one `video_url` part of the form
`data:video/jpeg;base64,FRAME,FRAME,...`: the model's own video tokens, a quarter of an image's for Qwen2.5-VL as two
frames share their patches and positions follow time. The URL has no room for the rate of the frames, which vLLM takes
beside the messages as `mm_processor_kwargs`.
"""

import base64
import hashlib
import io
import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from recipe.artifacts import JsonObject
from recipe.clock import clock
from recipe.config import ModelConfig
from recipe.errors import InputError, MissingExtra, quoted
from recipe.models.protocol import Answer, ModelRequest, videos, without_arrays
from recipe.models.sampling import Decoding, Setting, decoding_of
from recipe.types import Frames

try:
    from PIL import Image
except ModuleNotFoundError as error:
    raise MissingExtra("asking an endpoint", "llm") from error


def answer_fields(request: ModelRequest, name: Callable[[Frames], str], config: ModelConfig) -> JsonObject:
    """All that makes the answer to a request, but for its decoding card: the key of the answer in a cache.

    A schema counts as it was requested, and so does the card, whatever the host made of it, so that a resumed job finds
    what it has.
    """
    fields: JsonObject = {
        "model": config.model,
        "messages": without_arrays(request.chat, name),
        "seed": request.sampling.seed,
        "sample": request.sample,
    }
    if videos(request.chat):
        fields["clips"] = config.model_dump(include={"clips", "jpeg_quality", "max_pixels"})
    if request.schema is not None:
        fields["schema"] = request.schema
    if request.logprobs:
        fields["logprobs"] = True
    if config.extra_body:
        fields["extra_body"] = config.extra_body
    return fields


def request_fields(request: ModelRequest, config: ModelConfig) -> JsonObject:
    """The body of a request without structured output and log-probabilities, frames as JPEG; the user's own fields
    last.

    All sampling fields are given: vLLM takes those of the checkpoint's generation_config.json in place of what is left
    out. Raises InputError for a part of a message that is neither text nor video.
    """
    messages: list[JsonObject] = []
    beside: JsonObject = {}
    for message in request.chat:
        content = message["content"]
        parts: list[JsonObject] = []
        for part in () if isinstance(content, str) else content:
            if part["type"] == "text":
                parts.append({"type": "text", "text": part["text"]})
            elif part["type"] == "video" and config.clips == "images":
                for moment, jpeg in _images(part["video"], config):
                    parts.append({"type": "text", "text": f"[{moment}]"})
                    parts.append({"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{jpeg}"}})
            elif part["type"] == "video":
                data = ",".join(jpeg for _, jpeg in _images(part["video"], config))
                parts.append({"type": "video_url", "video_url": {"url": f"data:video/jpeg;base64,{data}"}})
                beside |= {"mm_processor_kwargs": {"fps": part["video"].rate}}
            else:
                raise InputError(f"a message holds a part of type {part['type']!r}; give text and video.")
        messages.append({"role": message["role"], "content": content if isinstance(content, str) else parts})
    fields: JsonObject = {"model": config.model, "messages": messages}
    for name, (value, _) in decoding_of(request.sampling).settings().items():
        if value is not None:  # else it is the checkpoint's
            # Every version of vLLM takes -1 for off, and not every version 0.
            fields[config.token_limit if name == "max_tokens" else name] = (
                -1 if (name, value) == ("top_k", 0) else value
            )
    if config.send_seed:  # a seed of its own for each sample, in the 31 bits that every endpoint takes
        sha = hashlib.sha256(f"{request.sampling.seed} {request.sample}".encode())
        fields["seed"] = int.from_bytes(sha.digest()[:4]) >> 1
    return {**fields, **beside, **config.extra_body}


def _images(video: Frames, config: ModelConfig) -> Iterator[tuple[str, str]]:
    """The time of each frame to the tenth of a second, as `0:03.5`, and the frame as JPEG in base64."""
    for time, frame in zip(video.times.tolist(), video.images, strict=True):
        image = Image.fromarray(frame)
        if config.max_pixels is not None and image.width * image.height > config.max_pixels:
            scale = math.sqrt(config.max_pixels / (image.width * image.height))
            size = max(1, int(image.width * scale)), max(1, int(image.height * scale))
            image = image.resize(size, Image.Resampling.BICUBIC)
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=config.jpeg_quality)
        tenths = round(10 * time)
        moment = f"{clock(tenths // 10)}{f'.{tenths % 10}' if tenths % 10 else ''}"
        yield moment, base64.b64encode(stream.getvalue()).decode()


def body_and_headers(fields: JsonObject, sample: int, replied: int) -> tuple[bytes, dict[str, str]]:
    """A request's body, in which half characters are escaped, as JSON allows, and its headers.

    The key in them differs for every request, and is the same when a request is sent again without having been
    answered. `replied` counts the failures that the endpoint answered it with: a host that remembers its answers would
    say the same for ever. Hosts that know the header `Idempotency-Key` do the work once; the others ignore it.
    """
    body = json.dumps(fields, separators=(",", ":")).encode()
    key = hashlib.sha256(body + f" {sample} {replied}".encode()).hexdigest()
    return body, {"Content-Type": "application/json", "Idempotency-Key": key}


_LOG = logging.getLogger(__name__)
Structured = Literal["json_schema", "json_object", "off"]
_LESS: dict[Structured, Structured] = {"json_schema": "json_object", "json_object": "off"}
_FORMAT, _LOGPROBS = "response_format", "logprobs"
_NAMES = {
    _FORMAT: (
        "response_format", "response format", "json_schema", "json_object", "structured output", "guided", "grammar"
    ),
    _LOGPROBS: ("logprob",),
}  # fmt: skip
"""How hosts name a field that they refuse."""


_REPLACED = {"max_tokens": "max_completion_tokens"}
"""Fields that a host may know by another name only, and that name."""
_DROPPED = ("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
"""Sampling fields that a host may do without: it then samples as it likes."""


class OptionalFields:
    """The fields that not every host takes: structured output, log-probabilities and most sampling fields.

    Where a host refuses one by name before it has ever answered with it, it is asked again with less: a JSON schema,
    then any JSON object, then text; a sampling field not at all, the limit of tokens by its other name. What it takes
    is remembered, so that one request pays for the discovery. The user's own fields, of `extra_body`, stay.
    """

    def __init__(
        self, structured: Literal["auto", "json_schema", "json_object", "off"], own: Mapping[str, Any] | None = None
    ) -> None:
        """`own` are the fields that the user gave."""
        self.structured: Structured = "json_schema" if structured == "auto" else structured
        self.logprobs = True
        self.dropped: dict[str, str | None] = {}
        """Fields that the host refuses, and the name that it takes in their place."""
        self._may_fall = structured == "auto"
        self._own = own or {}
        self._proven: set[str] = set()

    def of(self, request: ModelRequest, fields: JsonObject) -> JsonObject:
        """The body of a request: `fields` that the host takes, and those that it may take of what is asked for."""
        body = {name: value for name, value in fields.items() if name not in self.dropped}
        body |= {new: fields[name] for name, new in self.dropped.items() if new and name in fields}
        if _FORMAT not in fields and request.schema is not None and self.structured == "json_schema":
            body[_FORMAT] = {"type": "json_schema", "json_schema": {"strict": True} | request.schema}
        elif _FORMAT not in fields and request.schema is not None and self.structured == "json_object":
            body[_FORMAT] = {"type": "json_object"}
        if request.logprobs and self.logprobs:
            body[_LOGPROBS] = True
        return body

    def answered(self, sent: JsonObject) -> None:
        """The host answered to this body, so that what it refuses later is no fault of its fields."""
        self._proven.update(_form(name, value) for name, value in sent.items())

    def refused(self, sent: JsonObject, said: str, *, of_the_chat: bool = False) -> str | None:
        """The field of a body that the host refuses by name and never took; None where something else is wrong.

        A refusal `of_the_chat`, which is too long, names the limit of tokens without a fault of it.
        """
        lower = _ECHO.sub("", said.lower())
        for name, value in sent.items():
            if _form(name, value) in self._proven or name in self._own:
                continue
            if name in _NAMES and any(word in lower for word in _NAMES[name]):
                return name
            word = _REPLACED.get(name, name if name in _DROPPED else "")
            if word and not of_the_chat and re.search(rf"\b{word}\b", lower):
                return name
        return None

    def fall(self, name: str, sent: JsonObject) -> bool:
        """Ask for less than what was sent from now on; False where the settings leave no choice."""
        if name in _DROPPED or name in _REPLACED:
            if name not in self.dropped:  # another request may have found out before
                self.dropped[name] = new = _REPLACED.get(name)
                instead = (
                    f"{new} is sent in its place" if new else "the host samples by its own value, which is unknown"
                )
                _LOG.warning("the endpoint does not take %s: %s", name, instead)
            return True
        if name == _LOGPROBS:
            self.logprobs = False
            return True
        form: Structured = sent[_FORMAT]["type"]
        if self._may_fall and self.structured == form:  # another request may have found out before
            self.structured = _LESS[form]
        return self._may_fall

    def card(self, request: ModelRequest, sent: JsonObject) -> Decoding:
        """How the answer to the body of a request was sampled."""
        wanted = decoding_of(request.sampling, extra_body=self._own)
        lacking = [name for name in _DROPPED if getattr(wanted, name).value is not None and name not in sent]
        return replace(wanted, **dict.fromkeys(lacking, Setting(None, "host"))) if lacking else wanted


_ECHO = re.compile(r"""["']input["']\s*:.*""", re.DOTALL)
"""What a host repeats of a request, behind what it says is wrong with it."""


def form_of(sent: JsonObject) -> Structured:
    """How fields hold an answer to a schema.

    >>> form_of({"response_format": {"type": "json_object"}}), form_of({})
    ('json_object', 'off')
    """
    form = sent.get(_FORMAT)
    return form["type"] if isinstance(form, dict) and "type" in form else "off"


def _form(name: str, value: object) -> str:
    return f"{name} {value['type']}" if name == _FORMAT and isinstance(value, dict) and "type" in value else name


class Unreadable(Exception):
    """An answer that is no chat completion, or that the host broke off, and what helps."""

    def __init__(
        self,
        reason: str,
        remedy: str = "check that the address is the root of an OpenAI-compatible API, which usually ends in /v1",
    ) -> None:
        """What cannot be read."""
        super().__init__(reason)
        self.remedy = remedy


_ENDS = {
    **dict.fromkeys(("", "stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete"), "stop"),
    **dict.fromkeys(("tool_calls", "tool_use", "function_call"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length"), "length"),
    **dict.fromkeys(("content_filter", "safety", "recitation", "blocklist", "prohibited_content"), "content_filter"),
    **dict.fromkeys(("spii", "sensitive", "refusal", "guardrail_intervened"), "content_filter"),
}
"""Our words for why an answer ended, by the words of hosts in lower case. Every other word, as `error`, `abort` and
`network_error`, says that the answer was broken off."""


class _Message(BaseModel):
    content: str | list[JsonObject] | None = None
    """A text, or parts of which those of type `text` are the answer."""
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None

    @property
    def text(self) -> str:
        """The answer."""
        return self.content if isinstance(self.content, str) else _text_of(self.content, "text")

    @property
    def thought(self) -> str:
        """What stands beside the answer, under the names that hosts give it."""
        beside = next((said for said in (self.reasoning_content, self.reasoning) if isinstance(said, str)), "")
        return beside or ("" if isinstance(self.content, str) else _text_of(self.content, "thinking"))


def _text_of(parts: object, kind: str) -> str:
    """The text of the parts of one type; a part may hold further ones."""
    if not isinstance(parts, list):
        return parts if isinstance(parts, str) else ""
    own = (part.get(kind) for part in parts if isinstance(part, dict) and part.get("type", kind) == kind)
    return "".join(said if isinstance(said, str) else _text_of(said, "text") for said in own)


class _Token(BaseModel):
    logprob: float


class _LogProbs(BaseModel):
    content: list[_Token] | None = None


class _Choice(BaseModel):
    message: _Message | None = None
    delta: _Message | None = None
    """The message of a piece of a stream."""
    finish_reason: str | None = None
    error: Any = None
    """What went wrong behind the host, after part of the answer had come."""
    logprobs: _LogProbs | None = None

    @property
    def finish(self) -> str | None:
        """Why it ended, in our words, and None where that is not told; raises Unreadable where it was broken off."""
        end = _ENDS.get((self.finish_reason or "").lower())
        if end is None or self.error:
            said = self.error.get("message") if isinstance(self.error, dict) else self.error
            why = quoted(str(said)) if said else f"finish_reason is {quoted(self.finish_reason or '')}"
            raise Unreadable(f"the host broke the answer off: {why}", "look into the endpoint's log, or try later")
        return end if self.finish_reason else None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(BaseModel):
    """The part of a chat completion that is read; strict, because hosts answer 200 to what they could not do."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None


class Piece(NamedTuple):
    """A piece of an answer as it comes."""

    text: str
    finish: str | None
    """How the answer ended, where it tells that."""
    tokens: tuple[int, int] | None
    """Tokens of the prompt and of the answer, once they are reported."""
    refusal: str
    reasoning: str


def parse_completion(body: bytes, seconds: float) -> Answer:
    """The completion in a response's body; raises Unreadable for HTML, half a JSON, no choices, an error in disguise.

    What the host broke off is unreadable, too.

    A completion may be without text, where the model refused, a filter stepped in, or the limit was reached before any:
    it is then empty, if the endpoint tells so.
    """
    try:
        whole = body if rb"\ud" not in body.lower() else _replaced(json.loads(body))
        completion = _Completion.model_validate_json(whole)
    except (ValueError, RecursionError):  # also of pydantic
        completion = _Completion()
    choice = completion.choices[0] if completion.choices else _Choice()
    if choice.message is None:
        raise Unreadable(f"the answer is no chat completion: {quoted(body.decode('utf-8', 'replace'))}")
    message = choice.message
    if message.content is None and not (choice.finish or message.refusal or message.thought):
        text = quoted(body.decode("utf-8", "replace"))
        raise Unreadable(f"the answer holds no text and does not say why: {text}")
    usage = completion.usage or _Usage()
    tokens = choice.logprobs.content if choice.logprobs else None
    mean = fmean(token.logprob for token in tokens) if tokens else None
    return Answer(
        message.text,
        usage.prompt_tokens,
        usage.completion_tokens,
        seconds,
        logprob=mean,
        finish=choice.finish or "",
        refusal=message.refusal or "",
        reasoning=message.thought,
    )


def parse_piece(event: object) -> Piece:
    """The piece in one event of a stream; raises Unreadable for an event that is none."""
    try:
        chunk = _Completion.model_validate_json(_replaced(event))
    except (ValueError, RecursionError):
        raise Unreadable(f"a piece of the answer cannot be read: {quoted(str(event))}") from None
    choices, usage = chunk.choices or [], chunk.usage
    deltas = [choice.delta for choice in choices if choice.delta]
    return Piece(
        "".join(delta.text for delta in deltas),
        next(filter(None, [choice.finish for choice in choices]), None),
        None if usage is None else (usage.prompt_tokens, usage.completion_tokens),
        "".join(delta.refusal or "" for delta in deltas),
        "".join(delta.thought for delta in deltas),
    )


def _replaced(value: object) -> bytes:
    r"""JSON without half characters: a limit of tokens may cut an emoji to `\ud83d`."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
