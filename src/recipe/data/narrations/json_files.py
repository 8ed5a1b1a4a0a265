"""Narrations in JSON files of any size: HowTo100M, HTM-Align and WhisperX.

Objects are decoded a member at a time: the standard library's decoder moves along the text, with one member in memory.
ijson would be shorter, but one NaN, which Python writes into JSON, costs it the whole file, and 100 kB of opening
brackets take it 25 GB.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any, TypeGuard

from recipe.data.narrations.drafts import Caption, Draft, Fault, Place, ReadingOptions, ReadingReport, caption
from recipe.data.narrations.files import LONGEST, SourceFile, blocks, too_long, whole
from recipe.data.narrations.parallel import drafts, from_mapping
from recipe.data.video_ids import video_name
from recipe.errors import InputError

_SPACE = re.compile(r"[ \t\r\n]*")
_CLOSING = re.compile(r"[\]}]")
_SLACK = 16
"""An error or the end of a number this close to the end of the text may be different once the text goes on."""


def members(file: SourceFile, encoding: str) -> Iterator[tuple[str, Any]]:
    """Key and value of each member of the object that the file holds; NaN and infinities are floats.

    Raises InputError, with the position, where the file is cut off or is not one JSON object.
    """
    with closing(blocks(file, encoding)) as text:
        window = _Window(file.label, text)
        window.expect("{")
        if window.character() == "}":
            window.expect("}")
        else:
            yield from _members(window)
        if window.character():
            raise window.invalid("more follows after the JSON object")


def _members(window: "_Window") -> Iterator[tuple[str, Any]]:
    while True:
        key = window.value()
        if not isinstance(key, str):
            raise window.invalid("a key is not a string")
        window.expect(":")
        yield key, window.value()
        if window.character() == "}":
            window.expect("}")
            return
        window.expect(",")


class _Window:
    """The part of a text that is being decoded; it grows until a value fits and forgets what lies behind."""

    def __init__(self, label: str, blocks: Iterator[str]) -> None:
        self._label, self._blocks = label, blocks
        self._text, self._at, self._forgotten = "", 0, 0
        self._decode: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().raw_decode

    def character(self) -> str:
        """The next character that is no space, without passing it; empty at the end of the file."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._grow():
                return ""

    def expect(self, character: str) -> None:
        """Pass this character. Raises InputError where another one stands."""
        found = self.character()
        if not found:
            raise self._cut_off()
        if found != character:
            raise self.invalid(f"{character!r} is missing")
        self._at += 1

    def value(self) -> Any:
        """The next value. Raises InputError."""
        self.character()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._may_go_on(error):
                    raise self.invalid(error.msg, error.pos) from None
                if not self._grow():
                    raise self._cut_off() from None
                continue
            except (RecursionError, ValueError) as error:
                raise self.invalid(str(error)) from None
            # A number that ends with the text may be the beginning of a longer one.
            if end < len(self._text) - _SLACK or not self._grow():
                self._at = end
                return value

    def _may_go_on(self, error: json.JSONDecodeError) -> bool:
        """True where the decoder stopped because the text does: inside a string, or before a part of a token."""
        if error.msg.startswith("Unterminated string"):
            return True
        return error.pos >= len(self._text) - _SLACK and not _CLOSING.search(self._text, error.pos)

    def invalid(self, problem: str, at: int | None = None) -> InputError:
        """The error for text that is not the JSON that was expected."""
        position = self._forgotten + (self._at if at is None else at)
        return InputError.at(
            self._label, f"not valid JSON ({problem} at character {position:,})", "repair or recreate the file"
        )

    def _cut_off(self) -> InputError:
        end = self._forgotten + len(self._text)
        return InputError.at(
            self._label, f"the JSON object is incomplete (the file ends at character {end:,})", "fetch the file again"
        )

    def _grow(self) -> bool:
        """Add at least as much text as is still to be decoded, so that long values take linear time."""
        rest = self._text[self._at :]
        if len(rest) >= LONGEST:
            raise too_long(self._label, "an entry")
        parts, added = [rest], 0
        while added <= len(rest) and (block := next(self._blocks, "")):
            parts.append(block)
            added += len(block)
        if added:
            self._forgotten += self._at
            self._text, self._at = "".join(parts), 0
        return added > 0


def read_howto100m(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """HowTo100M's `caption.json` and `raw_caption.json`, and HTM's sentences: {video id: {"text", "start", "end"}}.

    One draft a member, lists in seconds. Raises InputError for a file that is not one JSON object.
    """
    source = options.source or ("sentencified-htm" if file.name.startswith("sentencified") else "howto100m")
    for video, value in members(file, options.encoding):
        place = Place(file.label, field=video)
        yield from drafts(place, video, from_mapping(value, source), options, report)


_NO_LIST = Fault("not a narration", "the video's entry is not a list", "give [[alignable, start, end, text], ...]")
_NO_ROW = Fault("not a caption", "not [alignable, start, end, text]", "correct the row")


def read_htm_align(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """HTM-Align: {video id: [[alignable, start, end, text], ...]}, 80 videos aligned by hand (Han et al., CVPR 2022).

    A sentence is marked 1 where the video shows what it says; the others have the times of the speech recogniser. One
    draft a member. Raises InputError for a file that is not one JSON object.
    """
    for video, rows in members(file, options.encoding):
        place = Place(file.label, field=video)
        kept: list[int] = []
        captions: list[Caption | Fault] | Fault = _NO_LIST
        if isinstance(rows, list):
            kept = list(range(len(rows)))
            if options.alignable:
                kept = [n for n, row in enumerate(rows) if not (isinstance(row, list) and row and not row[0])]
                report.not_alignable += len(rows) - len(kept)
                if rows and not kept:
                    report.skipped_narrations["no sentence is alignable"] += 1
                    continue
            captions = [_aligned_caption(rows[n]) for n in kept]
        yield Draft(place, video, captions, partial(_row, place, kept), source=options.source or "htm-align")


def _aligned_caption(row: object) -> Caption | Fault:
    if not isinstance(row, list) or len(row) != 4 or row[0] not in (0, 1):
        return _NO_ROW
    _, start, end, text = row
    return Caption(text, start, end)


def _row(place: Place, kept: list[int], index: int, _part: str) -> Place:
    return place._replace(field=f"{place.field}[{kept[index]}]")


_LAYOUT = Fault(
    "not a narration",
    "no list of segments with times is in the file",
    "give a transcript of WhisperX, Whisper, OpenAI (verbose_json), whisper.cpp or YouTube",
    "segments",
)
_HUGE = 10**15
"""Numbers beyond are no times in any unit, and are not calculated with."""
_LISTS = {"segments": "whisperx", "transcription": "whisperx", "events": "youtube", "snippets": "youtube"}
"""The lists that hold a transcript's captions, and the source of the narration."""


def read_whisperx(file: SourceFile, options: ReadingOptions, _report: ReadingReport) -> Iterator[Draft]:
    """A transcript of one video in JSON; the name is the video id.

    {"segments": [{"start", "end", "text", ...}]} of WhisperX, Whisper and OpenAI's `verbose_json`, {"transcription":
    [{"offsets", "text"}]} of whisper.cpp, {"events": [{"tStartMs", "segs"}]} of YouTube's json3, and the list [{"text",
    "start", "duration"}] of youtube-transcript-api, also as `snippets`. Words and their times, and the original of
    translated speech, are not read. Raises InputError for a file that is not JSON.
    """
    try:
        value = json.loads(whole(file, options.encoding).removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        raise InputError.at(file.label, f"not valid JSON ({error})", "fetch the file again") from None
    if isinstance(value, list):
        value = {"snippets": value}
    name = next((name for name in _LISTS if isinstance(value, dict) and isinstance(value.get(name), list)), "")
    captions: list[Caption | Fault] | Fault = _LAYOUT
    kept: list[int] = []
    if name:
        read = [(n, item) for n, value in enumerate(value[name]) if (item := _transcribed(value)) is not None]
        kept, captions = [n for n, _ in read], [item for _, item in read]
    where = partial(_item, Place(file.label), name, kept)
    source = options.source or _LISTS.get(name, "whisperx")
    yield Draft(Place(file.label), video_name(file.name).id, captions, where, source=source)


def _item(place: Place, name: str, kept: list[int], index: int, part: str) -> Place:
    return place.item(name, kept[index], part)


def _transcribed(item: object) -> Caption | Fault | None:
    """The caption of an item; None for an event of json3 that opens a window or a line and says nothing."""
    if isinstance(item, dict) and isinstance(offsets := item.get("offsets"), dict):
        return Caption(item.get("text"), _scaled(offsets.get("from"), 1000), _scaled(offsets.get("to"), 1000))
    if isinstance(item, dict) and "tStartMs" in item:
        pieces = item.get("segs")
        texts = [piece.get("utf8") for piece in pieces if isinstance(piece, dict)] if isinstance(pieces, list) else []
        text = " ".join("".join(text for text in texts if isinstance(text, str)).split())
        start, lasts = _scaled(item["tStartMs"], 1000), _scaled(item.get("dDurationMs", 0), 1000)
        return Caption(text, start, _end(start, lasts)) if text else None
    if isinstance(item, dict) and "duration" in item and "end" not in item:
        return Caption(item.get("text"), item.get("start"), _end(item.get("start"), item["duration"]))
    return caption(item)


def _scaled(time: object, unit: int) -> object:
    """A time in seconds; what is no number of seconds is handed on, for `clean` to name."""
    return time / unit if _is_time(time) else time


def _end(start: object, lasts: object) -> object:
    return round(start + lasts, 3) if _is_time(start) and _is_time(lasts) else lasts


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _HUGE
