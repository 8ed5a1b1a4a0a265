"""WhisperX transcripts of HowTo100M: one JSON file a video, {"segments": [{"start", "end", "text", ...}], ...}.

The video id is the file's name. Words and their times, and the original of translated speech, are not read.
"""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from recipe.data.narrations.drafts import Caption, Draft, Fault, Place
from recipe.data.narrations.files import Opened
from recipe.data.narrations.names import video_id
from recipe.data.narrations.options import ReadingOptions
from recipe.data.narrations.report import ReadingReport
from recipe.data.narrations.text import whole
from recipe.errors import InputError

_LAYOUT = Fault("not a narration", "'segments' is missing or not a list", "give a transcript of WhisperX", "segments")
_NO_SEGMENT = Fault("not a caption", "not an object", 'give {"text", "start", "end"}')


def read(file: Opened, options: ReadingOptions, _report: ReadingReport) -> Iterator[Draft]:
    """The draft of the file's video. Raises InputError for a file that is not JSON."""
    place = Place(file.label)
    value = _value(file, options.encoding)
    items = value.get("segments") if isinstance(value, dict) else None
    captions = [_caption(item) for item in items] if isinstance(items, list) else _LAYOUT
    where = partial(_segment_place, place)
    yield Draft(place, video_id(file.name), captions, where, source=options.source or "whisperx")


def _value(file: Opened, encoding: str) -> Any:
    try:
        return json.loads(whole(file, encoding))
    except (ValueError, RecursionError) as error:
        raise InputError.at(file.label, f"not valid JSON ({error})", "fetch the file again") from None


def _caption(item: object) -> Caption | Fault:
    if not isinstance(item, dict):
        return _NO_SEGMENT
    return Caption(item.get("text"), item.get("start"), item.get("end"))


def _segment_place(place: Place, index: int, part: str) -> Place:
    return place._replace(field=f"segments[{index}].{part}" if part else f"segments[{index}]")
