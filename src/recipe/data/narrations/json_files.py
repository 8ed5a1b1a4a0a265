"""Narrations as JSON, lines and files of any size, and as the parallel lists that HowTo100M and HowToCaption share.

JSON lines hold narrations in the project's own form, or procedures read as narrations. Narrations have two layouts,
one object a line. `segments` is a list of {"text", "start", "end"}, with times for all of them or for none;
`sentences` is a list of texts without times. `title`, `source` and `url` are optional, and fields that are not named
here are ignored. No time is ever invented. Procedures are {"source", "video_id", "goal", "steps": ["text" or {"text",
"start", "end"}]} (docs/data.md): each step becomes a segment and the goal the title. Where a procedure lacks the time
of any step, all its steps are read without times. Without an id it is named by a hash of its goal and steps.

Of files of HowTo100M and HTM-Align objects are decoded a member at a time: the standard library's decoder
moves along the text, with one member in memory. ijson would be shorter, but one NaN, which Python writes into JSON,
costs it the whole file, and 100 kB of opening brackets take it 25 GB.

HowToCaption's pickles (Shvetsova et al., ECCV 2024), filtered and unfiltered, plain and zipped, hold one dict: {video
id: {"start": [...], "end": [...], "text": [...]}}, whole seconds, not in time order. An item of `text` is a list of
captions, or of (caption, score), or one caption; a zipped value is the same as JSON under zlib. The pickle is read
without looking up a class or calling a function, in a process of its own.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from recipe.artifacts import JsonObject, json_line
from recipe.data.narrations.drafts import (
    NO_ID,
    UNREAD,
    Caption,
    Draft,
    Fault,
    Place,
    ReadingOptions,
    ReadingReport,
    caption,
    caption_place,
)
from recipe.data.narrations.files import HEAD, MOST_CHARACTERS, SourceFile, too_long
from recipe.data.procedures import made_id
from recipe.data.unpickle import unpickled
from recipe.errors import InputError, listed
from recipe.memory import require_memory
from recipe.types import Narration

_LISTS_LAYOUT = "give 'start', 'end' and 'text' as lists of equal lengths"
_NO_SCORE = Fault(
    "no score",
    "the caption has no score, but a smallest score is asked for",
    "leave out the smallest score or give a file with scores",
    "text",
)
_NO_CAPTION = Fault("not a caption", "not a text or a pair of text and score", "correct the entry", "text")


class Lists(NamedTuple):
    """The lists of one video, unchecked."""

    start: Any
    end: Any
    text: Any
    title: object = None
    source: str | None = None

    @classmethod
    def of(cls, value: object, source: str) -> "Lists | Fault":
        """The lists of a video that is given as an object."""
        if not isinstance(value, dict):
            return Fault("not a narration", "the video's entry is not an object", _LISTS_LAYOUT)
        return cls(value.get("start"), value.get("end"), value.get("text"), source=source)


def list_drafts(
    place: Place, video_id: object, lists: Lists | Fault, options: ReadingOptions, report: ReadingReport
) -> Iterator[Draft]:
    """The draft of one video; none where no caption reaches the smallest score that is asked for."""
    before = report.below_score
    captions: list[Caption | Fault] | Fault
    # The index in the lists that each caption comes from.
    rows: Sequence[int] = ()
    starts: Any = None if isinstance(lists, Fault) else lists.start
    ends: Any = None if isinstance(lists, Fault) else lists.end
    texts: Any = None if isinstance(lists, Fault) else lists.text
    title, source = (None, None) if isinstance(lists, Fault) else (lists.title, lists.source)
    if isinstance(lists, Fault):
        captions = lists
    elif not all(isinstance(items, list | tuple) for items in (starts, ends, texts)):
        captions = Fault("not a narration", "'start', 'end' or 'text' is missing or not a list", _LISTS_LAYOUT)
    elif not len(starts) == len(ends) == len(texts):
        problem = f"the lists differ in length: {len(starts)} 'start', {len(ends)} 'end', {len(texts)} 'text'"
        captions = Fault("lists of unequal length", problem, _LISTS_LAYOUT)
    # Almost every video of HowTo100M comes this way, without a step of Python for each caption.
    elif all(type(text) is str for text in texts) and options.min_score is None:
        captions, rows = list(map(Caption, texts, starts, ends)), range(len(texts))
    else:
        captions, numbers = [], list[int]()
        for row, (start, end, entry) in enumerate(zip(starts, ends, texts, strict=True)):
            chosen, below = _chosen(entry, options)
            report.below_score += below
            captions += [text if isinstance(text, Fault) else Caption(text, start, end) for text in chosen]
            numbers += [row] * len(chosen)
        rows = numbers
    if not captions and report.below_score > before:
        report.skipped_narrations["no caption reaches the smallest score"] += 1
        return
    where = partial(caption_place, place, f"{'.' if place.field else ''}{{list}}[{{n}}]", rows)
    yield Draft(place, video_id, captions, where, title, source)


def _chosen(entry: Any, options: ReadingOptions) -> tuple[list[object], int]:
    """The texts that one time span gives, `Fault`s among them, and how many captions scored too low."""
    entries = entry if isinstance(entry, list | tuple) else [entry]
    if not entries:
        return [Fault("no text for a time span", "the list of captions is empty", "give a caption", "text")], 0
    texts: list[object] = []
    for item in entries:
        if isinstance(item, str):
            texts.append(item if options.min_score is None else _NO_SCORE)
            continue
        pair = isinstance(item, list | tuple) and len(item) == 2
        text, score = item if pair else (None, None)
        # NaN is unequal to itself, and neither above nor below a smallest score.
        if isinstance(score, bool) or not isinstance(score, int | float) or score != score:
            texts.append(_NO_CAPTION)
        elif options.min_score is None or score >= options.min_score:
            texts.append(text)
    below = len(entries) - len(texts)
    if options.captions == "first":
        texts = texts[:1]
    elif options.captions == "joined":
        usable = [text.strip() for text in texts if isinstance(text, str) and text.strip()]
        bad = [text for text in texts if not isinstance(text, str) or not text.strip()]
        # One full stop between two captions, also where the first ends with its own.
        texts = [". ".join(text.rstrip(".") for text in usable), *bad] if usable else bad
    return texts, below


_BAD_SOURCE = Fault("bad source", "not a string", "give 'source' as a string or leave it out", "source")


_OWN = 'give {"video_id", "segments": [{"start", "end", "text"}]}'
# What to do with the lines of other projects, by a field that they have.
_OTHERS = {
    "vid_name": "name its fields video_id and segments (HERO and TVR have vid_name and sub), with times of the video",
    "audio_filepath": f"{_OWN}, for a manifest of NeMo has no times of captions",
}


def read_json_lines(file: SourceFile, options: ReadingOptions, _report: ReadingReport) -> Iterator[Draft]:
    """One draft a line; blank lines are skipped. Raises InputError for a line that is not a JSON object."""
    for number, row in objects(file, options.encoding):
        place = Place(file.label, number)
        where = partial(caption_place, place, "segments[{n}]{dot}", None)
        name = "sentences" if "sentences" in row else "segments"
        if name == "sentences":
            where = partial(caption_place, place._replace(field="sentences"), "", None)
        captions: Sequence[Caption | Fault] | Fault
        items = row.get(name)
        if not row.keys() & {"video_id", "segments", "sentences"}:
            problem = f"the line is no narration; its fields are {listed([repr(key) for key in row])}"
            other = next((key for key in _OTHERS if key in row), "")
            captions = Fault(UNREAD if other else NO_ID, problem, _OTHERS.get(other, _OWN))
        elif "segments" in row and "sentences" in row:
            problem = "'segments' and 'sentences' are both given"
            captions = Fault("segments and sentences", problem, "keep one of them", "sentences")
        elif not isinstance(row.get("source"), str | None):
            captions = _BAD_SOURCE
        elif not isinstance(items, list) or not items:
            problem = "the list is empty or not a list" if name in row else "the narration has no segments"
            remedy = "give 'segments' as a non-empty list of objects, or 'sentences' as a list of texts"
            if name == "sentences":
                remedy = "give 'sentences' as a non-empty list of strings"
            captions = Fault("no captions", problem, remedy, name)
        elif name == "segments":
            captions = [caption(item) for item in items]
        else:
            blank = Fault("blank text", "an item is empty or not a string", "give non-empty strings")
            captions = [Caption(item) if isinstance(item, str) and item.strip() else blank for item in items]
        title, url = row.get("title"), row.get("url")
        yield Draft(place, row.get("video_id"), captions, where, title, _source(row), ordered=True, url=url)


def objects(file: SourceFile, encoding: str) -> Iterator[tuple[int, JsonObject]]:
    """Line number and object of each line that is not blank. Raises InputError for any other line, and if all are."""
    rows = 0
    for number, line in enumerate(file.lines(encoding), start=1):
        if line.strip():
            rows += 1
            yield number, json_line(file.label, number, line)
    if not rows:
        raise InputError.at(file.label, "the file is empty", "give a file with one JSON object a line")


def to_row(narration: Narration) -> JsonObject:
    """A narration as an object that `read_narrations` takes; write many with `recipe.artifacts.write_jsonl`."""
    row: JsonObject = {"video_id": narration.video_id}
    for name in ("title", "source", "url"):
        if (value := getattr(narration, name)) is not None:
            row[name] = value
    if narration.segments[0].start is None:
        return row | {"sentences": [segment.text for segment in narration.segments]}
    return row | {
        "segments": [{"start": part.start, "end": part.end, "text": part.text} for part in narration.segments]
    }


def _source(row: JsonObject) -> str | None:
    """The source that a row names, if it names one."""
    source = row.get("source")
    return source.strip() or None if isinstance(source, str) else None


_NO_STEPS = Fault("no captions", "the list is missing, empty or not a list", "give 'steps' as a list of steps", "steps")
_BAD_GOAL = Fault("bad goal", "not a string", "give 'goal' as a string or leave it out", "goal")


def read_step_lists(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """One draft a line; blank lines are skipped. Raises InputError for a line that is not a JSON object."""
    for number, row in objects(file, options.encoding):
        place, video, goal = Place(file.label, number), row.get("video_id"), row.get("goal")
        title = (goal.strip() or None) if isinstance(goal, str) else None
        captions: Sequence[Caption | Fault] | Fault
        steps = row.get("steps")
        if not isinstance(goal, str | None):
            captions = _BAD_GOAL
        elif not isinstance(row.get("source"), str | None):
            captions = _BAD_SOURCE
        elif not isinstance(steps, list) or not steps:
            captions = _NO_STEPS
        else:
            captions = [Caption(step) if isinstance(step, str) else caption(step) for step in steps]
            if not all(isinstance(item, Fault) or None not in (item.start, item.end) for item in captions):
                captions = [item if isinstance(item, Fault) else Caption(item.text) for item in captions]
            if video is None and title is not None:
                video = made_id(title, [str(item.text).strip() for item in captions if isinstance(item, Caption)])
        report.no_goal += title is None and not isinstance(captions, Fault)
        where = partial(caption_place, place, "steps[{n}]{dot}", None)
        url = row.get("url")
        yield Draft(place, video, captions, where, title, _source(row), ordered=True, url=url, steps=True)


_SPACE = re.compile(r"[ \t\r\n]*")
_CLOSING = re.compile(r"[\]}]")
# An error or the end of a number this close to the end of the text may be different once the text goes on.
_SLACK = 16


def members(file: SourceFile, encoding: str) -> Iterator[tuple[str, Any]]:
    """Key and value of each member of the object that the file holds; NaN and infinities are floats.

    Raises InputError, with the position, where the file is cut off or is not one JSON object.
    """
    with closing(file.blocks(encoding)) as text:
        window = _Window(file.label, text)
        window.expect("{")
        if window.character() == "}":
            window.expect("}")
        else:
            while True:
                key = window.value()
                if not isinstance(key, str):
                    raise window.invalid("a key is not a string")
                window.expect(":")
                yield key, window.value()
                if window.character() == "}":
                    window.expect("}")
                    break
                window.expect(",")
        if window.character():
            raise window.invalid("more follows after the JSON object")


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
        following = self.character()
        if not following:
            raise self._cut_off()
        if following != character:
            raise self.invalid(f"{character!r} is missing")
        self._at += 1

    def value(self) -> Any:
        """The next value. Raises InputError."""
        self.character()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                # The decoder may stop because the text does: inside a string, or before a part of a token.
                near = error.pos >= len(self._text) - _SLACK and not _CLOSING.search(self._text, error.pos)
                if not near and not error.msg.startswith("Unterminated string"):
                    raise self.invalid(error.msg, error.pos) from None
                if not self._grow():
                    raise self._cut_off() from None
                continue
            except (RecursionError, ValueError) as error:  # ValueError: a number of more digits than Python reads
                raise self.invalid(str(error)) from None
            # A number that ends with the text may be the beginning of a longer one.
            if end < len(self._text) - _SLACK or not self._grow():
                self._at = end
                return value

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
        if len(rest) >= MOST_CHARACTERS:
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
        yield from list_drafts(place, video, Lists.of(value, source), options, report)


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
            captions = []
            for row in (rows[n] for n in kept):
                right = isinstance(row, list) and len(row) == 4 and row[0] in (0, 1)
                captions.append(Caption(row[3], row[1], row[2]) if right else _NO_ROW)
        yield Draft(
            place, video, captions, partial(caption_place, place, "[{n}]", kept), source=options.source or "htm-align"
        )


MEMORY, MEMORY_ZIPPED = 6.0, 1.5
"""Bytes of memory that a byte of the file takes at its peak, measured on HowToCaption's files."""


def read_howtocaption(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """One draft a video, in file order.

    Raises InputError for a pickle that is damaged, holds anything but plain data, or needs more memory than is free or
    more time than captions do.
    """
    if file.path is None:
        raise InputError.at(file.label, "a pickle cannot be read from an archive", "unpack it and give the file")
    remedy = "convert it to JSON lines on a machine with more memory (docs/data.md)"
    # In a zipped file no key of a video's entry can be read.
    factor = MEMORY if b"start" in file.stream.peek(HEAD)[:HEAD] else MEMORY_ZIPPED
    require_memory(file.path, factor * file.path.stat().st_size, remedy)
    source = options.source or "howtocaption"
    for key, value, fault in unpickled(file.path, options.encoding):
        lists = Lists.of(value, source) if fault is None else Fault(*fault)
        yield from list_drafts(Place(file.label, field=str(key)), key, lists, options, report)
