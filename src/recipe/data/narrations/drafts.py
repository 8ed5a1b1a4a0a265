"""Narrations as their files have them, and which of their captions are usable.

A reader knows a file's layout and hands on drafts: unchecked narrations, with the place of every part. `clean` knows
what a usable caption is, and nothing about files. A part that does not have the layout's shape travels as a `Fault`, so
that one policy decides on all of them.
"""

import codecs
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import field_validator

from recipe.config.base import Settings
from recipe.data.narrations.formats import FORMATS
from recipe.data.narrations.marks import speakers, without_marks, without_speaker
from recipe.data.narrations.times import is_time, times_of
from recipe.data.video_ids import LANGUAGE, normalised
from recipe.errors import HALVES, InputError, listed
from recipe.types import Narration, Segment

Duplicates = Literal["error", "keep-first"]
"""What to do with a video id that was read before: refuse it, or keep the narration that came first."""

# Type checkers cannot read a Literal from a table.
if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Literal["auto", *FORMATS]


class ReadingOptions(Settings):
    """How narration files are read (docs/data.md); part of a corpus' manifest, for it decides its segments."""

    format: FormatName = "auto"
    """Layout of the files; `auto` detects it from each file's name and first bytes."""
    captions: Literal["each", "joined", "first"] = "each"
    """Several captions of one time span become a segment each, one joined segment, or the first one alone."""
    min_score: float | None = None
    """Captions with a lower score are left out; only for files whose captions carry scores."""
    alignable: bool = False
    """Of HTM-Align, read only the sentences that are marked as alignable with the video."""
    rolling: Literal["collapse", "keep"] = "collapse"
    """Subtitles that roll, where each cue repeats the line before it: read each line once, or keep all."""
    marks: Literal["drop", "keep"] = "drop"
    """Non-speech marks such as [Music], (applause), a note or a speaker's name: drop them and count, or keep them."""
    bad: Literal["error", "skip"] = "error"
    """A caption or narration that cannot be used: refuse the file, or leave out that caption and count it."""
    encoding: str = "utf-8"
    """Character encoding of text files."""
    source: str | None = None
    """Name of the corpus, recorded where the files name none; left out: the format's own name."""
    language: str | None = None
    """Of the subtitles and transcripts of a video, those in this language, as `en` or `pt-BR` (docs/data.md)."""

    @field_validator("language")
    @classmethod
    def _language_tag(cls, tag: str | None) -> str | None:
        if tag is not None and LANGUAGE.fullmatch(tag.lower()) is None:
            raise ValueError("this is no language tag; examples are en, pt-BR and zh-Hans")
        return tag and normalised(tag)

    @field_validator("encoding")
    @classmethod
    def _encoding_exists(cls, name: str) -> str:
        try:
            # `codecs.lookup` knows hex and rot13, too, which are no encodings of text.
            "".encode(name)
        except LookupError:
            raise ValueError("the encoding is unknown; examples are utf-8, latin-1 and utf-16") from None
        return codecs.lookup(name).name


DEFAULTS = ReadingOptions()
NAMED = 100
"""Names of files of one kind that are kept in a report."""


@dataclass(slots=True)
class ReadingReport:
    """Counts of one pass over narration files; filled while `read_narrations` is consumed."""

    narrations: int = 0
    segments: int = 0
    files: Counter[str] = field(default_factory=Counter)
    """Files read, by format."""
    skipped_captions: Counter[str] = field(default_factory=Counter)
    """Captions that could not be used, by reason."""
    skipped_narrations: Counter[str] = field(default_factory=Counter)
    """Narrations that could not be used, or of which no caption was left, by reason."""
    duplicates: int = 0
    """Narrations of a video that was read before."""
    below_score: int = 0
    """Captions with a score below the smallest asked for."""
    not_alignable: int = 0
    """Sentences left out because they are marked as not alignable."""
    no_goal: int = 0
    """Procedures without a goal, read as narrations without a title."""
    no_link: int = 0
    """Narrations whose address is none of the web, read without it."""
    collapsed: int = 0
    """Cues that only repeated lines already said."""
    cue_names: int = 0
    """Names of cues, which are no numbers, left out."""
    only_marks: int = 0
    """Captions that held nothing but non-speech marks, left out."""
    cut_marks: int = 0
    """Captions from which non-speech marks were cut."""
    speakers: Counter[str] = field(default_factory=Counter)
    """Captions from which the name of a speaker that returns in the narration was cut, by name."""
    unread_times: Counter[str] = field(default_factory=Counter)
    """Captions read without times although a field looks like one, by field."""
    milliseconds: int = 0
    """Narrations whose times are milliseconds, by the pace of the words, under names that mean seconds."""
    slow: int = 0
    """Narrations read in seconds although a word would take minutes."""
    moments: int = 0
    """Last captions without an end, read as moments."""
    titled: int = 0
    """Narrations whose title comes from a file of titles."""
    untitled: int = 0
    """Narrations without a title of their own for which that file has none."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """Files that were not read, by reason, such as files in folders that hold no narrations."""
    passed_over_names: dict[str, list[str]] = field(default_factory=dict)
    """The first hundred of each reason."""
    unclear_ids: int = 0
    """Files of one video whose name may mean another id than the one that was taken."""
    unclear_names: list[str] = field(default_factory=list)
    """The first hundred of them."""

    def pass_over(self, label: str, reason: str) -> None:
        """Count a file that is not read."""
        self.passed_over[reason] += 1
        self.passed_over_names.setdefault(reason, []).extend([label] * (self.passed_over[reason] <= NAMED))

    def lines(self, read: bool | None = None) -> list[str]:
        """What is not as its file has it, one line each: what was left out, and what was read all the same.

        `read` chooses one of the two.
        """
        left_out = [
            *((n, "caption", f"skipped: {reason}") for reason, n in self.skipped_captions.most_common()),
            *((n, "narration", f"skipped: {reason}") for reason, n in self.skipped_narrations.most_common()),
            (self.duplicates, "narration", "of a video that was read before"),
            (self.below_score, "caption", "below the smallest score"),
            (self.not_alignable, "sentence", "not alignable"),
            (self.collapsed, "rolling cue", "collapsed"),
            (self.cue_names, "name", "of a cue, above its times, left out"),
            (self.only_marks, "caption", "of non-speech marks only, such as [Music]"),
            *(
                (n, "file", f"passed over: {reason} ({_names_of(self.passed_over_names[reason])})")
                for reason, n in self.passed_over.items()
            ),
        ]
        noted = [
            (self.no_goal, "procedure", "without a goal, read without a title"),
            (self.no_link, "narration", "whose address is none of the web, read without it"),
            (self.cut_marks, "caption", "read without their non-speech marks, such as (laughs) or a speaker's name"),
            (self.speakers.total(), "caption", f"read without a speaker's name ({listed(list(self.speakers))})"),
            (self.unread_times.total(), "caption", f"read without times, not in {listed(list(self.unread_times))}"),
            (self.milliseconds, "narration", "whose words tell that its times are milliseconds"),
            (self.slow, "narration", "read in seconds, whose times may be milliseconds"),
            (self.moments, "last caption", "without an end, read as a moment"),
            (self.untitled, "narration", "without a title in the file of titles"),
            (self.unclear_ids, "file", f"read, whose name may mean another video id ({_names_of(self.unclear_names)})"),
        ]
        counts = [*(() if read else left_out), *(() if read is False else noted)]
        return [f"{n:,} {noun}{'' if n == 1 else 's'} {rest}" for n, noun, rest in counts if n]


def _names_of(labels: Sequence[str]) -> str:
    """The first names of files, without their folders, for a sentence."""
    return listed([PurePath(label).name for label in labels])


class Place(NamedTuple):
    """A position in a file; `file` is what messages call the file, a member of an archive included."""

    file: str
    line: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}, line {self.line}"


class Fault(NamedTuple):
    """Why a caption or a narration cannot be used: the reason it is counted under, the problem and the remedy."""

    reason: str
    problem: str
    remedy: str
    part: str = ""
    """Name of the part that is at fault, such as `end`; empty for the whole."""

    def at(self, place: Place) -> InputError:
        """The error for a fault at this place."""
        remedy = f"{self.remedy}, or have it left out (--bad skip)"
        return InputError.at(place.file, self.problem, remedy, line=place.line, field=place.field)


NO_ID = "no video id"
UNREAD = "layout that is not read"
"""The reason of a fault of a whole file that is none of narrations: in a folder the file is passed over."""


class Caption(NamedTuple):
    """A text and the seconds from which to which it is spoken or shown; None for a caption without times."""

    text: object
    start: object = None
    end: object = None
    doubt: str = ""
    """The field whose unit is open, or, without times, one that looks like a time (`recipe.data.narrations.times`)."""

    def segment(self) -> Segment | Fault:
        """The segment that it is, or why it cannot be used."""
        text, start, end, _ = self
        if not isinstance(text, str) or not (text := text.strip()):
            return _BLANK
        if not text.isascii() and HALVES.search(text):
            return _NO_UNICODE
        # Almost all captions take this way: one chain of comparisons, which NaN and infinity fail.
        if type(start) in _NUMBERS and type(end) in _NUMBERS and 0 <= start <= end <= LATEST:  # type: ignore[operator]
            return Segment(text, float(start), float(end))  # type: ignore[arg-type]
        if start is None and end is None:
            return Segment(text)
        for part, value in (("start", start), ("end", end)):
            if value is None:
                return _HALF
            number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
            if not isinstance(value, int | float) or not number or value < 0:
                problem = f"the time {value!r:.60} is not a number of seconds from 0 on"
                reason = "negative time" if number else "time that is no number"
                return Fault(reason, problem, "give seconds from the start of the video", part)
            if value > LATEST:
                problem = f"the time {value:g} s is later than {LATEST // 3600} hours"
                remedy = "give seconds, not milliseconds or frames"
                return Fault(f"time beyond {LATEST // 3600} hours", problem, remedy, part)
        problem = f"the segment ends at {end:g} s, before its start at {start:g} s"
        return Fault("end before start", problem, "correct the times", "end")


def caption(item: object) -> Caption | Fault:
    """The caption of an object {"text", "start", "end"}, whatever its fields of times are called."""
    if not isinstance(item, dict):
        return Fault("not a caption", "not an object", 'give {"text", "start", "end"}')
    start, end = item.get("start"), item.get("end")
    if type(start) in _NUMBERS and type(end) in _NUMBERS:
        return Caption(item.get("text"), start, end)
    return Caption(item.get("text"), *times_of(item))


# Seconds that a word takes at most in speech; milliseconds that it takes at least.
_SLOWEST, _FASTEST = 20.0, 100.0
# Seconds of the longest video that YouTube takes.
_LONGEST_VIDEO = 12 * 3600
_UNIT = Fault(
    "times in no certain unit",
    "the numbers may be seconds, milliseconds or frames",
    "name the fields start_ms and end_ms for milliseconds, start and end for seconds",
)


def in_seconds(
    captions: Sequence[Caption | Fault], report: ReadingReport, *, recognised: bool = False, duration: object = None
) -> Sequence[Caption | Fault]:
    """The captions of a narration, with times in seconds where whole numbers are milliseconds by all evidence.

    That is where a word would take more than 100 s, and the file is `recognised` speech or would be longer than any
    video, or where the last end is a thousand times the `duration` that the file states. Faults where a field's name
    leaves the unit open, and the numbers too.
    """
    timed = {
        n: (item.start, item.end, str(item.text))
        for n, item in enumerate(captions)
        if isinstance(item, Caption) and is_time(item.start) and is_time(item.end)
    }
    latest = max((end for _, end, _ in timed.values()), default=0.0)
    # In milliseconds the last end lies from a hundredth of the length to a tenth and a second beyond it.
    stated = is_time(duration) and 0 < 10 * duration < latest <= 1100 * duration + 1000
    if not timed or (not stated and any(start % 1 or end % 1 for start, end, _ in timed.values())):
        return captions
    # A word of five letters; text without spaces counts by its characters.
    words = sum(max(len(text.split()), len(text) / 5) for _, _, text in timed.values())
    pace = sum(max(end - start, 0) for start, end, _ in timed.values()) / max(words, 1)
    doubts = [item.doubt if isinstance(item, Caption) else "" for item in captions]
    open_unit = any(doubt and "offset" not in doubt for doubt in doubts)  # `t0`, in hundredths at whisper.cpp
    evident = _FASTEST <= pace <= 1000 * _SLOWEST and (recognised or latest > _LONGEST_VIDEO)
    if not open_unit and (stated or evident):
        report.milliseconds += 1
        return [
            item._replace(start=timed[n][0] / 1000, end=timed[n][1] / 1000)
            if n in timed and isinstance(item, Caption)
            else item
            for n, item in enumerate(captions)
        ]
    report.slow += pace >= _FASTEST
    if open_unit or pace > _SLOWEST:
        return [_UNIT._replace(part=doubt) if doubt else item for item, doubt in zip(captions, doubts, strict=True)]
    return captions


def caption_place(
    place: Place, form: str, numbers: Sequence[int] | None, index: int, part: str, *, on_line: bool = False
) -> Place:
    """The place of a part of the caption with this index, from its number in the file and the `form` of its field.

    The form follows the field of `place`, and may name `{n}`, the number, `{part}`, `{list}`, `{dot}` and `{comma}`.
    The number is `numbers[index]`, or the index; `on_line` tells that it is the line, too.

    >>> caption_place(Place("f"), "segments[{n}]{dot}", [4, 7], 1, "end").field
    'segments[7].end'
    """
    n = index if numbers is None else numbers[index]
    names = {"list": part or "text", "dot": f".{part}" if part else "", "comma": f", {part}" if part else ""}
    field = (place.field or "") + form.format(n=n, part=part, **names)
    return Place(place.file, n if on_line else place.line, field or None)


class Draft(NamedTuple):
    """A narration as its file has it."""

    place: Place
    video_id: object
    captions: Sequence[Caption | Fault] | Fault
    """The captions in file order, or why the narration as a whole cannot be used."""
    caption_place: Callable[[int, str], Place]
    """The place of a part of the caption with this index."""
    title: object = None
    source: str | None = None
    ordered: bool = False
    """True where the layout promises captions sorted by start; others are sorted."""
    url: object = None
    """Address of the page that it is from."""
    steps: bool = False
    """True where the texts are written steps, which hold no non-speech marks."""

    def header_fault(self) -> Fault | None:
        """What is wrong with the id, or with what is said of the whole narration."""
        video, title, url = self.video_id, self.title, self.url
        if video is None:
            return Fault(NO_ID, "the field is missing", "give 'video_id' as a non-empty string", "video_id")
        if not isinstance(video, str) or not video.strip():
            problem, remedy = "the text is empty or not a string", "give 'video_id' as a non-empty string"
            return Fault(NO_ID, problem, remedy, "video_id")
        if title is not None and not isinstance(title, str):
            return Fault("bad title", "not a string", "give 'title' as a string or leave it out", "title")
        if url is not None and not isinstance(url, str):
            return Fault("bad address", "not a string", "give 'url' as a string or leave it out", "url")
        for name, text in (
            ("video_id", video),
            ("title", title or ""),
            ("url", url or ""),
            ("source", self.source or ""),
        ):
            if HALVES.search(text):
                return _NO_UNICODE._replace(part=name)
        return None


LATEST = 24 * 3600
"""No time lies beyond this many seconds: YouTube takes at most 12 hours, so a later time is in another unit."""

# Control characters, invisible spaces, marks of the direction of text, and halves of surrogate pairs.
_HIDDEN = r"\x00-\x20\x7f-\xa0\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
_ADDRESS = re.compile(rf"https?://[^{_HIDDEN}\"<>\\^`]{{1,2000}}", re.IGNORECASE)
_NUMBERS = (float, int)

_BLANK = Fault(
    "blank text", "the text is missing, blank or not a string", "give the text or remove the segment", "text"
)
_NO_UNICODE = Fault(
    "text that is not Unicode", "the text holds half of a surrogate pair", "convert the text to UTF-8", "text"
)
_HALF = Fault("only one of start and end", "only one of 'start' and 'end' is given", "give both or none")
_SOME = Fault(
    "times for some captions only",
    "some segments of the narration have times and some have none",
    "give times for all segments or for none",
)
_NOTHING = Fault("no captions", "the narration has no segments", "give it segments or remove it")


def clean(draft: Draft, options: ReadingOptions, report: ReadingReport) -> Narration | None:
    """The narration of a draft, or None where nothing of it can be used or is wanted.

    Bad captions raise InputError, or are left out and counted in `report`, as `options.bad` has it.
    """
    captions = draft.captions
    # A file that is none of narrations has no usable id either, which would be the lesser thing to say.
    fault = captions if isinstance(captions, Fault) and captions.reason in (UNREAD, NO_ID) else draft.header_fault()
    fault = fault or (captions if isinstance(captions, Fault) else None if captions else _NOTHING)
    if fault is not None or isinstance(captions, Fault):
        fault = fault or _NOTHING
        if options.bad == "error":
            raise fault.at(draft.place._replace(field=fault.part or draft.place.field))
        report.skipped_narrations[fault.reason] += 1
        return None

    def drop(index: int, fault: Fault) -> None:
        if options.bad == "error":
            raise fault.at(draft.caption_place(index, fault.part))
        report.skipped_captions[fault.reason] += 1

    if not draft.steps and any(map(_unlike_seconds, (captions[0], captions[-1]))):
        captions = in_seconds(captions, report)
    segments = _segments(captions, draft.ordered, drop, report)
    if not segments:
        report.skipped_narrations["no usable caption"] += 1
        return None
    if options.marks == "drop" and not draft.steps:
        spoken = []
        heads = speakers([segment.text for segment in segments])
        for segment in segments:
            said, name = without_speaker(segment.text, heads) if heads else (segment.text, "")
            report.speakers.update([name] if name else [])
            text = without_marks(said)
            if name and text:
                segment = replace(segment, text=text)
            elif text != segment.text:
                report.cut_marks += bool(text)
                report.only_marks += not text
                segment = replace(segment, text=text)
            if text:
                spoken.append(segment)
        segments = tuple(spoken)
        if not segments:
            report.skipped_narrations["nothing but non-speech marks"] += 1
            return None
    title = draft.title.strip() or None if isinstance(draft.title, str) else None
    url = web_address(draft.url)
    report.no_link += url is None and bool(draft.url)
    return Narration(str(draft.video_id).strip(), segments, title, draft.source or options.source, url)


def web_address(text: object) -> str | None:
    """A text as an address of the web, http or https and nothing that could hide text; None where it is none.

    >>> web_address(" https://example.org/tea?cups=2 "), web_address("javascript:alert(1)")
    ('https://example.org/tea?cups=2', None)
    """
    address = text.strip() if isinstance(text, str) else ""
    return address if _ADDRESS.fullmatch(address) else None


def _unlike_seconds(caption: Caption | Fault) -> bool:
    """Whether a caption is reason to look at the unit of all times, which takes longer."""
    if isinstance(caption, Fault) or not is_time(caption.start) or not is_time(caption.end):
        return False
    return bool(caption.doubt) or caption.end - caption.start > _SLOWEST


def _segments(
    captions: Sequence[Caption | Fault], ordered: bool, drop: Callable[[int, Fault], None], report: ReadingReport
) -> tuple[Segment, ...]:
    """The captions that can be used, in time order, equal times in file order."""
    kept: list[tuple[int, Segment]] = []
    for index, caption in enumerate(captions):
        segment = caption if isinstance(caption, Fault) else caption.segment()
        if isinstance(segment, Fault):
            drop(index, segment)
        else:
            kept.append((index, segment))
    untimed = [index for index, segment in kept if segment.start is None]
    report.unread_times.update(doubt for index in untimed if (doubt := captions[index][3]))
    if 0 < len(untimed) < len(kept):
        for index in untimed:
            drop(index, _SOME)
        kept = [(index, segment) for index, segment in kept if segment.start is not None]
    if not ordered:
        return tuple(
            sorted((segment for _, segment in kept), key=lambda segment: (segment.start or 0.0, segment.end or 0.0))
        )
    in_order: list[Segment] = []
    previous = 0.0
    for index, segment in kept:
        start = segment.start or 0.0
        if start < previous:
            problem = f"the segment starts at {start:g} s, before the previous one at {previous:g} s"
            drop(index, Fault("out of order", problem, "sort the segments by start", "start"))
        else:
            in_order.append(segment)
            previous = start
    return tuple(in_order)
