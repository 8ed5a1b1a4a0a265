"""Requests and answers of an OpenAI-compatible endpoint: bodies, keys, optional fields, and completions as they come.

Frames become JPEG in data URLs. Hosted endpoints take images only (`image_url` parts), so that is the default, each
frame after a text with its time. vLLM also takes a whole clip as one `video_url` part of the form
`data:video/jpeg;base64,FRAME,FRAME,...`: the model's own video tokens, a quarter of an image's for Qwen2.5-VL as two
frames share their patches and positions follow time. The URL has no room for the rate of the frames, which vLLM takes
next to the messages, as `mm_processor_kwargs`.
"""

import base64
import contextlib
import hashlib
import io
import json
import logging
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from recipe.artifacts import JsonObject
from recipe.clock import clock
from recipe.config.models import ModelConfig
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
    last, of which null leaves one out.

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
            fields[name] = -1 if (name, value) == ("top_k", 0) else value
    # A seed of its own for each sample, in the 31 bits that every endpoint takes.
    sha = hashlib.sha256(f"{request.sampling.seed} {request.sample}".encode())
    fields["seed"] = int.from_bytes(sha.digest()[:4]) >> 1
    fields |= beside | config.extra_body
    return {name: value for name, value in fields.items() if value is not None}


def _images(video: Frames, config: ModelConfig) -> Iterator[tuple[str, str]]:
    """The time of each frame to the tenth of a second, as `0:03.5`, and the frame as JPEG in base64."""
    for time, frame in zip(video.times.tolist(), video.images, strict=True):
        image = Image.fromarray(frame)
        if config.max_pixels is not None and image.width * image.height > config.max_pixels:
            scale = math.sqrt(config.max_pixels / (image.width * image.height))
            size = max(1, int(image.width * scale)), max(1, int(image.height * scale))
            image = image.resize(size, Image.Resampling.BICUBIC)
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=config.fixed["jpeg_quality"])
        tenths = round(10 * time)
        moment = f"{clock(tenths // 10)}{f'.{tenths % 10}' if tenths % 10 else ''}"
        yield moment, base64.b64encode(stream.getvalue()).decode()


def body_and_headers(fields: JsonObject, request: ModelRequest, replied: int) -> tuple[bytes, dict[str, str]]:
    """The body that asks for an answer, in which half characters are escaped, as JSON allows, and its headers.

    The key in them differs for every request, and is the same when a request is sent again without having been
    answered. `replied` counts the failures that the endpoint answered it with: a host that remembers its answers would
    say the same for ever. Hosts that know the header `Idempotency-Key` do the work once; the others ignore it.
    """
    body = json.dumps(fields, separators=(",", ":")).encode()
    # The seed may not stand in the body.
    key = hashlib.sha256(body + f" {request.sampling.seed} {request.sample} {replied}".encode()).hexdigest()
    return body, {"Content-Type": "application/json", "Idempotency-Key": key}


_LOG = logging.getLogger(__name__)
Structured = Literal["json_schema", "json_object", "off"]
_LESS: dict[str, Structured] = {"json_schema": "json_object", "json_object": "off"}
_FORMAT, _LOGPROBS = "response_format", "logprobs"
# Fields that a host may know by another name only, and that name.
_REPLACED = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
# Fields, and types of response_format, that a host may do without, and what follows.
_WITHOUT = {
    **dict.fromkeys(("top_p", "top_k", "min_p"), "its own value applies and is unknown"),
    **{f"{name}_penalty": "its own value applies and is unknown" for name in ("repetition", "presence", "frequency")},
    **{name: f"{new} is sent in its place" for name, new in _REPLACED.items()},
    "seed": "answers cannot be repeated",
    _LOGPROBS: "log-probabilities of answers are unknown",
    "json_schema": "any JSON object is asked for",
    "json_object": "only the prompt asks for the format",
}
# How hosts name them where they refuse them, whatever the case, as `presencePenalty`.
_NAMES = {name: rf"\b{name.replace('_', '[-_ ]?')}\b" for name in _WITHOUT} | {
    **dict.fromkeys(_REPLACED, r"\bmax_completion_tokens\b"),
    **dict.fromkeys(_LESS, r"response[_ ]format|json_schema|json_object|structured output|guided|grammar"),
    _LOGPROBS: r"log[-_ ]?prob",
}
# Where an error names what is not refused: what it repeats of the request, suggests, or lists as known.
_OTHERS = re.compile(
    r"""["']input["']\s*:.*|input_value=.*|did you mean[^?]*|expected one of.*"""
    r"|(?<!not )(?<!not a )(?<!not an )\b(supported|allowed|permitted|valid|available) (\w+ )?"
    "(param|field|arg|propert|option|value|key).*",
    re.DOTALL | re.IGNORECASE,
)


class OptionalFields:
    """The fields that not every host takes: structured output, log-probabilities, the seed, most sampling fields.

    Where a host refuses some by name before it has ever answered with them, it is asked again with less: a JSON schema,
    then any JSON object, then text; the limit of tokens by its other name, another field not at all. What it takes
    is remembered, so that one request pays for the discovery. The user's own fields, of `extra_body`, stay.
    """

    def __init__(self, config: ModelConfig, url: str) -> None:
        """`url` is named in the warnings, one for each field."""
        self.structured: Structured = "json_schema" if config.structured == "auto" else config.structured
        # Fields and types of response_format that the host refuses, and the name that it takes in their place.
        self.dropped: dict[str, str | None] = {}
        self._may_fall = config.structured == "auto"
        self._own, self._url = config.extra_body, url
        self._proven: set[str] = set()

    def of(self, request: ModelRequest, fields: JsonObject) -> JsonObject:
        """The body of a request: those of `fields` that the host takes, structured output and log-probabilities."""
        body = {name: value for name, value in fields.items() if name not in self.dropped}
        body |= {new: fields[name] for name, new in self.dropped.items() if new and name in fields}
        if request.schema is not None and self.structured != "off" and _FORMAT not in self._own:
            form = {"json_schema": {"strict": True} | request.schema} if self.structured == "json_schema" else {}
            body[_FORMAT] = {"type": self.structured} | form
        if request.logprobs and _LOGPROBS not in self.dropped:
            body[_LOGPROBS] = True
        return body

    def answered(self, sent: JsonObject) -> None:
        """Note that the host takes the fields of this body: a later refusal has another reason."""
        self._proven.update(sent, [form_of(sent)])

    def fall(self, sent: JsonObject, error: "HostError") -> bool:
        """Ask from now on without what of a body the host refuses by name and never took; False where that is nothing.

        A refusal of the chat, which is too long, names the limit of tokens without a fault of it.
        """
        settled = self._proven | {*self._own} | {*self.dropped.values()}
        if not self._may_fall or _FORMAT in self._own:
            settled |= _LESS.keys()
        if error.of_the_chat:
            settled |= _WITHOUT.keys() - _LESS.keys() - {_LOGPROBS}
        said = _OTHERS.sub("", error.said)
        names = [name for name in (*sent, form_of(sent)) if name in _NAMES and name not in settled]
        refused = [name for name in names if re.search(_NAMES[name], said, re.IGNORECASE)]
        for name in refused:
            if name not in self.dropped:  # another request may have found out before
                field = f"{_FORMAT} {name}" if name in _LESS else name
                _LOG.warning("%s: the host does not take %s: %s", self._url, field, _WITHOUT[name])
                self.dropped[name] = _REPLACED.get(name)
                self.structured = _LESS[name] if name == self.structured else self.structured
        return bool(refused)

    def card(self, request: ModelRequest, sent: JsonObject) -> Decoding:
        """How the answer to the body of a request was sampled."""
        wanted = decoding_of(request.sampling, extra_body=self._own)
        known = {name for name, (value, _) in wanted.settings().items() if value is not None}
        lacking = [name for name, new in self.dropped.items() if name in known and not new and name not in sent]
        return replace(wanted, **dict.fromkeys(lacking, Setting(None, "host"))) if lacking else wanted


def form_of(sent: JsonObject) -> Structured:
    """How fields hold an answer to a schema.

    >>> form_of({"response_format": {"type": "json_object"}}), form_of({})
    ('json_object', 'off')
    """
    form = sent.get(_FORMAT)
    return form["type"] if isinstance(form, dict) and "type" in form else "off"


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


class HostError(NamedTuple):
    """What the body of an error says, in whichever form a host gives it."""

    said: str
    """Its messages, in full and on one line."""
    codes: tuple[str, ...]
    """Its codes, types and statuses, outermost first."""
    generation: str | None
    """What the model wrote, where the error is that this is no JSON."""
    of_the_chat: bool = False
    """Whether a chat is too long, or a filter stopped it."""

    @property
    def status(self) -> int:
        """The status of HTTP that it names, 0 where it names none."""
        return next((int(code) for code in self.codes if re.fullmatch("[45][0-9]{2}", code)), 0)


def read_error(body: str) -> HostError:
    """The error in a response's body; a body that is no JSON is the message."""
    parts: list[tuple[str, str]] = []
    with contextlib.suppress(RecursionError):
        parts += _parts(body)
    said = "; ".join(dict.fromkeys(text for name, text in parts if name == "message"))
    for param in (text for name, text in parts if name == "param" and text not in said):
        said = f"{param}: {said}"
    codes = tuple(text for name, text in parts if name not in ("message", "param", "failed_generation"))
    generated = (text for name, text in parts if name == "failed_generation")
    return HostError(" ".join(said.split()), codes, next(generated, "" if "json_validate_failed" in codes else None))


# Where hosts put messages, within each other: OpenRouter keeps the error of the host behind it in `metadata.raw`.
_MESSAGES = ("error", "message", "detail", "msg", "errors", "metadata", "raw")
_CODES = ("code", "type", "error_type", "status", "failed_generation")


def _parts(body: object) -> Iterator[tuple[str, str]]:
    """The messages, codes and generations in a body and in all that it holds, by name."""
    if isinstance(body, str):
        with contextlib.suppress(ValueError, RecursionError):
            body = inner if isinstance(inner := json.loads(body), dict | list) else body
    if isinstance(body, str) and body.strip():
        yield "message", body
    elif isinstance(body, list):
        for part in body:
            yield from _parts(part)
    elif isinstance(body, dict) and isinstance(body.get("loc"), list):  # of FastAPI
        place = ".".join(str(part) for part in body["loc"] if part != "body")
        yield "message", f"{place}: {body.get('msg') or body.get('type')}"
    elif isinstance(body, dict):
        yield from ((name, str(body[name])) for name in _CODES if isinstance(body.get(name), str | int))
        for name in _MESSAGES:
            yield from _parts(body.get(name))
        if isinstance(body.get("param"), str):
            yield "param", body["param"]


# Our words for why an answer ended, by the words of hosts in lower case. Every other word, as `error`, `abort` and
# `network_error`, says that the answer was broken off.
_ENDS = {
    **dict.fromkeys(("", "stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete"), "stop"),
    **dict.fromkeys(("tool_calls", "tool_use", "function_call"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "model_length"), "length"),
    **dict.fromkeys(("content_filter", "safety", "recitation", "blocklist", "prohibited_content"), "content_filter"),
    **dict.fromkeys(("spii", "sensitive", "refusal", "guardrail_intervened"), "content_filter"),
}


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
        """The reasoning that comes with the answer, under the names that hosts give it."""
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

    @property
    def mean(self) -> float | None:
        """Of a token of the answer; None where none are given."""
        return fmean(token.logprob for token in self.content) if self.content else None


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
        """Why it ended, in our words, and None while that is not known; raises Unreadable where it was broken off."""
        end = _ENDS.get((self.finish_reason or "").lower())
        if end is None or self.error:
            said = read_error(json.dumps(self.error)).said if self.error else ""
            why = quoted(said) if said else f"finish_reason is {quoted(self.finish_reason or '')}"
            raise Unreadable(f"the host broke the answer off: {why}", "look into the endpoint's log, or try later")
        return end if self.finish_reason else None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def tokens(self) -> tuple[int, int]:
        """Of the prompt and of the answer."""
        return self.prompt_tokens, self.completion_tokens


class _Completion(BaseModel):
    """The part of a chat completion that is read; strict, because hosts answer 200 to what they could not do."""

    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


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
    if choice.message is None or completion.error:
        text = body.decode("utf-8", "replace")
        raise Unreadable(f"the answer is no chat completion: {quoted(read_error(text).said or text)}")
    message = choice.message
    if message.content is None and not (choice.finish or message.refusal or message.thought):
        text = quoted(body.decode("utf-8", "replace"))
        raise Unreadable(f"the answer holds no text and does not say why: {text}")
    return Answer(
        message.text,
        *(completion.usage or _Usage()).tokens,
        seconds,
        logprob=None if choice.logprobs is None else choice.logprobs.mean,
        finish=choice.finish or "",
        refusal=message.refusal or "",
        reasoning=message.thought,
    )


def parse_piece(event: object) -> Answer:
    """The piece in one event of a stream, as an answer of what has come with it; raises Unreadable for an event that is
    none.

    `finish` is empty until the answer ends, and tokens are 0 until they are reported.
    """
    try:
        chunk = _Completion.model_validate_json(_replaced(event))
    except (ValueError, RecursionError):
        raise Unreadable(f"a piece of the answer cannot be read: {quoted(str(event))}") from None
    choices = chunk.choices or []
    deltas = [choice.delta for choice in choices if choice.delta]
    return Answer(
        "".join(delta.text for delta in deltas),
        *(chunk.usage or _Usage()).tokens,
        # All are read: each may say that the host broke the answer off.
        finish=next(filter(None, [choice.finish for choice in choices]), ""),
        refusal="".join(delta.refusal or "" for delta in deltas),
        reasoning="".join(delta.thought for delta in deltas),
    )


def _replaced(value: object) -> bytes:
    r"""JSON without half characters: a limit of tokens may cut an emoji to `\ud83d`."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
