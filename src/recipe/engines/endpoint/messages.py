"""A chat as an OpenAI-compatible endpoint takes it: frames become JPEG in data URLs.

Hosted endpoints take images only (`image_url` parts), so that is the default, each frame after a text that tells its
time. vLLM also takes a whole clip as one `video_url` part of the form `data:video/jpeg;base64,FRAME,FRAME,...`: the
model's own video tokens, a quarter of an image's for Qwen2.5-VL as two frames share their patches and positions follow
time. The URL has no room for the rate of the frames, which vLLM takes beside the messages as `mm_processor_kwargs`.
"""

import base64
import io
import math
from collections.abc import Iterator
from typing import NamedTuple

from recipe.artifacts import JsonObject
from recipe.clock import clock
from recipe.config import EndpointConfig
from recipe.engines.protocol import Chat
from recipe.errors import InputError, MissingExtra
from recipe.types import Frames

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
        yield {"type": "text", "text": f"[{_shown(time)}]"}
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


def _shown(seconds: float) -> str:
    """A time to the tenth of a second, because frames may be half a second apart.

    >>> _shown(62.5), _shown(3.0)
    ('1:02.5', '0:03')
    """
    tenths = round(10 * seconds)
    return f"{clock(tenths // 10)}{f'.{tenths % 10}' if tenths % 10 else ''}"
