"""Subtitle files, one a video, as yt-dlp and speech recognisers save them; the video id is the file's name.

In WebVTT, SubRip and SBV a line with two times begins a cue. All text before the next such line belongs to the cue,
except for the number or name of the next cue, comments, styles and headers. A line that looks like times and cannot be
read is a fault, and the text below it goes with it. Libraries lose such cues, or read their times as text, without a
word. TTML, YouTube's srv1 to srv3, Advanced SubStation Alpha and LRC are read, too; layouts that are known and not read
are named, with a way to convert them.

Displays are undone that show the same words several times: captions that roll or grow, words that are highlighted one
after another, cues that the segments of a stream repeat.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple
from xml.parsers import expat

from recipe.data.narrations.drafts import (
    UNREAD,
    Caption,
    Draft,
    Fault,
    Place,
    ReadingOptions,
    ReadingReport,
    caption_place,
)
from recipe.data.narrations.files import SourceFile
from recipe.data.narrations.times import clock
from recipe.data.video_ids import video_name
from recipe.errors import InputError, quoted

# Also \r\r\n, which writing \r\n as text leaves on Windows.
_LINE_END = re.compile(r"\r*\n|\r")
# Where a file was appended to another: at a byte order mark, or at a header right behind the last word.
_JOINT = re.compile(r"\ufeff(?=\s*(?:WEBVTT|\d))|(?<=\S)(?=WEBVTT[ \t]*[\r\n])")
# Zero-width and directional marks, which players do not show and `\s` does not match.
_INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
# Fullwidth forms of ASCII.
_WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_MARKUP = re.compile(r"</?[A-Za-z][^<>\n]*>|<\d[\d:.,]*>|\{\\[^{}\n]*\}")
_BREAK = re.compile(r"<br\s*/?>|\[br\]", re.IGNORECASE)

# Word processors and translators turn the `-->` between two times into these.
_DASH = r"[-\u2010-\u2015\u2212=~]"
_ARROW = rf"(?:{_DASH}|\s){{0,8}}(?:>|&gt;|[\u2192\u21d2\u2794\u279c\u27a1\u27f6]){{1,3}}"
_LONG_ARROW = r"[-\u2010-\u2015\u2212]{2}\s?(?:>|&gt;)"
_TIME = r"(?:\d{1,9}\s?:\s?)?\d{1,9}\s?:\s?\d{1,9}(?:\s?[.,]\s?\d{1,9}|[:;]\d{3}(?!\d))?"
_EXACT_TIME = r"\d{1,9}:\d{1,9}:\d{1,9}[.,]\d{1,9}"
# An arrow of any kind between two times, or, between two exact times, a dash, a comma or a space.
_TIME_LINES = (
    re.compile(rf"\s*([\[(]?)\s*({_TIME}){_ARROW}\s*({_TIME})(.*)"),
    re.compile(rf"\s*([\[(]?)\s*({_EXACT_TIME})(?:{_DASH}|[,\s]){{1,5}}({_EXACT_TIME})(.*)"),
)
_SETTINGS = re.compile(r"(?:\s+[A-Za-z][\w-]*[:=]\S+)*\s*")

_MAY_BE_TIMES = re.compile(r"\d\s?[:;]|>|&gt;|[\u2192\u21d2\u2794\u279c\u27a1\u27f6]")
_CLOCK = r"\d{1,9}\s?[:;]\s?-?\d{1,9}"
_LONG_CLOCK = rf"{_CLOCK}(?:\s?[:;.,]\s?-?\d{{1,9}}){{1,4}}"
_EXACT_CLOCK = r"\d{1,9}[:;]-?\d{1,9}(?:[:;]-?\d{1,9}[:;.,]-?\d{1,9}|[.,]-?\d{3})"
# What nobody says: an exact clock next to an arrow, an arrow without a time, or a line of exact clocks alone.
_LIKE_TIMES = re.compile(
    rf"{_LONG_CLOCK}{_ARROW}|{_ARROW}\s?{_DASH}?\s?{_LONG_CLOCK}"
    rf"|{_CLOCK}.{{0,40}}{_LONG_ARROW}|{_LONG_ARROW}.{{0,40}}{_CLOCK}|^\s*{_LONG_ARROW}|{_LONG_ARROW}\s*$"
    rf"|^\W*{_EXACT_CLOCK}\W*$|^\W*{_EXACT_CLOCK}\W{{1,6}}{_EXACT_CLOCK}"
)
_LONE_CLOCK = re.compile(rf"\W*{_EXACT_CLOCK}\W*")
_NEGATIVE = re.compile(rf"^\s*{_DASH}\s?\d|(?:>|&gt;|\u2192)\s*{_DASH}\s?\d|[:;.,]\s?-\d")
_FRAMES = re.compile(r"\d[:;]\d+[:;]\d+[:;]\d{1,2}(?!\d)|\d;\d")

_NUMBER = re.compile(r"\W{0,2}(\d{1,9})\W{0,2}[A-Za-z]?\W{0,2}")
_HEADER = re.compile(r"WEBVTT(?:[ \t].*)?")
_NEXT_HEADER = re.compile(r"WEBVTT(?: FILE|[ \t]+-.*)?")
_HEADER_LINE = re.compile(r"(?:Kind|Language)\s*:")
# Comments, styles and regions of WebVTT (w3.org/TR/webvtt1).
_NO_CUE = re.compile(r"NOTE(?:[ \t].*)?|STYLE|REGION")
# HLS maps the clock of a segment to that of its stream (RFC 8216, section 3.5).
_CLOCKS = re.compile(r"X-TIMESTAMP-MAP\s*=(?=.*MPEGTS:(\d{1,20}))(?=.*LOCAL:([\d:.,]+))")
# Ticks of an MPEG clock in a second; its counter has 33 bits.
_TICKS = 90_000

_NOT_SUBTITLES = Fault(
    UNREAD,
    "the file is neither WebVTT nor SubRip: it has no line of times",
    "give a file with lines such as 00:00:01,000 --> 00:00:02,000",
)
_EARLY = Fault("text outside a cue", "text stands before the first cue", "remove the text or give it times")
_BETWEEN = Fault(
    "line between two cues",
    "the line above the times may be text of the cue before or the number of the next",
    "put a blank line below it where it is text, or remove it",
)


class _Cue(NamedTuple):
    """Lines that are shown together, from `start` to `end` in seconds."""

    start: float
    end: float
    lines: tuple[str, ...]
    """The lines without markup, entities and superfluous space; none for a cue without text."""
    source: str
    """The text as the file has it."""

    @classmethod
    def of(cls, start: float, end: float, lines: Sequence[str]) -> "_Cue":
        """A cue from lines as a file has them."""
        source = "\n".join(lines)
        shown = _BREAK.sub("\n", source) if "br" in source or "BR" in source else source
        # Markup goes first: what an entity unfolds to is text, and no markup.
        shown = html.unescape(_MARKUP.sub("", shown))
        plain = (" ".join(line.split()) for line in shown.split("\n"))
        # Milliseconds are all that WebVTT and SubRip write; a shifted clock adds digits that mean nothing.
        return cls(round(start, 3), round(end, 3), tuple(line for line in plain if line), source)


# Cues and faults with the number of their lines, in file order.
_Parsed = list[tuple[int, _Cue | Fault]]


def is_subtitles(text: str) -> bool:
    """Whether a file that begins with this text, without leading space, holds subtitles.

    Its layout is known, or it begins as WebVTT does, or has times in the first line or below the first number.
    """
    if _layout_of(text) is not None:
        return True
    rows = [line for _, line in _rows(text[:1000]) if line][:2]
    at = 1 if rows and _NUMBER.fullmatch(rows[0]) else 0
    times = _times(rows[at], arrow=False) if at < len(rows) else None
    return _HEADER.match(text) is not None or not (times is None or isinstance(times, Fault))


def _time_lines(text: str, report: ReadingReport) -> _Parsed | Fault:
    """The cues of a file; names of cues are counted in `report`. A fault where no line has times."""
    parsed: _Parsed = []
    webvtt = _HEADER.match(text.lstrip("\ufeff \t\r\n")) is not None
    numbers = _Numbers(webvtt)
    current: tuple[int, tuple[float, float, str] | Fault] | None = None
    # The lines since the last time line.
    above: list[tuple[int, str]] = []
    # The comment, style or header that the lines belong to until a blank line.
    skipped = ""
    origin: tuple[int, float] | None = None
    shift = 0.0

    def close() -> None:
        if current is None:
            parsed.extend([(number, _EARLY) for number, line in above if line][:1])
            return
        number, times = current
        if isinstance(times, Fault):
            parsed.append(current)  # type: ignore[arg-type]
            return
        start, end, rest = times
        parsed.append((number, _Cue.of(start + shift, end + shift, [rest, *(line for _, line in above)])))

    for number, line in _rows(text):
        begins = not above[-1][1] if above else current is None
        times = _times(line, webvtt or begins or (bool(above) and _NUMBER.fullmatch(above[-1][1]) is not None))
        broken = current and isinstance(current[1], Fault) and not any(line for _, line in above)
        if broken and isinstance(times, Fault) and _LONE_CLOCK.fullmatch(line):
            continue  # times on two lines are one fault
        if times is not None:
            doubt = numbers.take(above, report)
            close()
            parsed.extend([doubt] if doubt else [])
            current, above, skipped = (number, times), [], ""
        elif not line:
            above.append((number, line))
            skipped = ""
        elif webvtt and (clocks := _CLOCKS.match(line)):
            # The segments of a stream count from clocks of their own.
            mapped = int(clocks[1]), clock(clocks[2]) or 0.0
            origin = origin or mapped
            close()
            current, above = None, []
            # The nearer way round the counter, which may have begun again in between.
            ticks = (mapped[0] - origin[0] + 2**32) % 2**33 - 2**32
            shift = ticks / _TICKS - (mapped[1] - origin[1])
            skipped = "WEBVTT"
        elif skipped:
            if skipped == "WEBVTT" and line.isdigit():
                above.append((number, line))
        elif webvtt and (_NEXT_HEADER if parsed or current else _HEADER).fullmatch(line):
            close()
            current, above, skipped = None, [], "WEBVTT"
        elif webvtt and begins and (_NO_CUE.fullmatch(line) or (current is None and _HEADER_LINE.match(line))):
            skipped = line
        else:
            above.append((number, line))
    close()
    if not webvtt and parsed and all(item is _EARLY for _, item in parsed):
        return _NOT_SUBTITLES
    return parsed


def _rows(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of each line; files that were appended to one another begin on lines of their own."""
    joined = _JOINT.sub("\v", text.replace("\0", "")).replace("\ufeff", "")
    for number, line in enumerate(_LINE_END.split(joined), start=1):
        first, *appended = line.split("\v")
        yield number, first.strip()
        for part in appended:
            yield number, ""
            yield number, part.strip()


def _times(line: str, arrow: bool) -> tuple[float, float, str] | Fault | None:
    """Start, end and the text behind them of a line of times; a fault where it only looks like one, None for text.

    `arrow` is whether an arrow alone looks like one.
    """
    plain = line if line.isascii() else _INVISIBLE.sub("", line.translate(_WIDE))
    plain = _MARKUP.sub("", plain) if "<" in plain or "{" in plain else plain
    if not _MAY_BE_TIMES.search(plain):
        return None
    match = _TIME_LINES[0].match(plain) or _TIME_LINES[1].match(plain)
    if match is not None:
        bracket, begin, until, rest = match.groups()
        start, end = clock(begin), clock(until)
        closed = bracket and rest.lstrip()[:1] in ("]", ")")
        if start is not None and end is not None and (closed or (not bracket and _SETTINGS.fullmatch(rest))):
            return start, end, rest.lstrip()[1:] if closed else ""
    elif not _LIKE_TIMES.search(plain) and not (arrow and re.search(_LONG_ARROW, plain)):
        return None
    if _NEGATIVE.search(plain):
        return Fault("negative time", f"a time is negative: {quoted(line)}", "count from the start of the video")
    if _FRAMES.search(plain):
        problem = f"the times count frames, whose length the file does not tell: {quoted(line)}"
        return Fault("time in frames", problem, "give fractions of a second")
    problem = f"the line looks like the times of a cue and is none: {quoted(line)}"
    return Fault("cue that cannot be read", problem, "write it as 00:00:01,000 --> 00:00:02,000 on a line of its own")


class _Numbers:
    """The numbers or names of a file's cues, which stand above the times as those of the first cue do."""

    def __init__(self, webvtt: bool) -> None:
        self._webvtt = webvtt
        self._first = True
        self._kind = ""
        # Whether a blank line stands between a number and the times.
        self._apart = False
        self._last = 0

    def take(self, above: list[tuple[int, str]], report: ReadingReport) -> tuple[int, Fault] | None:
        """Remove the number or name of the next cue from the end of the lines above its times.

        A line that may be that or text is removed too, and is the fault that is returned.
        """
        first, self._first = self._first, False
        at = next((at for at in reversed(range(len(above))) if above[at][1]), None)
        if at is None:
            self._last += 1
            return None
        place, line = above[at]
        direct, alone = at == len(above) - 1, not above[at - 1][1] if at else first
        number = _NUMBER.fullmatch(line)
        value = int(number[1]) if number else self._last + 1
        follows = number is not None and value == self._last + 1
        doubt = False
        if first:
            self._apart = not direct
            if number and (direct or alone):
                self._kind = "number"
            elif direct and alone and (self._webvtt or re.search(r"\d", line)):
                self._kind = "name"
            mine = bool(self._kind)
        elif direct and alone:
            mine = number is not None or self._kind == "name"
            doubt = not mine and self._kind == "number"
        elif direct:
            mine = self._kind == "number" and follows
            doubt = number is not None and not mine
        else:
            mine = self._kind == "number" and number is not None and alone and (self._apart or follows)
        self._last = value if mine else self._last + 1
        if not mine and not doubt:
            return None
        del above[at:]
        if mine:
            # Where cues had no numbers, this may be text like 350.
            report.cue_names += number is None or not (self._kind or follows)
            self._kind = self._kind or "number"
        return (place, _BETWEEN) if doubt else None


# Clock times and offset times of TTML2 (w3.org/TR/ttml2, section 12.3.1).
_TTML_CLOCK = re.compile(r"(\d{1,9}):(\d\d):(\d\d(?:\.\d{1,9})?)(?::(\d{1,9}))?")
_OFFSET = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(h|m|s|ms|f|t)")
_TIME_REMEDY = "give times such as 00:00:01.000"
_OUTSIDE = Fault("text outside a cue", "the text has no times", "give its element 'begin' and 'end', or remove it")
# In ASS {\p1} begins a drawing, whose text is coordinates, and {\p0} ends it.
_DRAWING = re.compile(r"\{[^{}]*\\p[1-9][^{}]*\}.*?(?:\{[^{}]*\\p0[^{}]*\}|$)")
# LRC: a line with several stamps is sung several times.
_STAMP = r"\[\d{1,9}:\d\d(?:[.:]\d{1,3})?\]"
_STAMPS = re.compile(rf"((?:{_STAMP}\s*)+)(.*)")


def _layout_of(text: str) -> Callable[[str, str], _Parsed] | str | None:
    """The reader of the layout that a text begins with, or its name where it is not read; None for no such layout.

    A reader takes the file's name for messages and the text, and raises InputError for XML that is damaged.
    """
    return next((read for beginning, read in _LAYOUTS if beginning.match(text)), None)


class _Element(NamedTuple):
    """An open element: its name, when it begins, and its end, None where neither it nor one around it has one."""

    name: str
    begin: float
    end: float | None

    def inside(self, values: dict[str, str], units: dict[str, float]) -> tuple[float, float | None] | Fault | None:
        """Begin and end of an element in this one, by its attributes; None where it has no times of its own."""
        if "begin" in values or "end" in values or ("dur" in values and "start" not in values):
            read = {key: _ttml_time(values[key], units) for key in ("begin", "end", "dur") if key in values}
            bad = next((key for key, value in read.items() if value is None), None)
            if bad is not None:
                problem = f"the time {quoted(values[bad])} cannot be read"
                return Fault("cue that cannot be read", problem, _TIME_REMEDY)
            # Times in TTML count from the beginning of the element around.
            start = self.begin + (read.get("begin") or 0.0)
            ends = [self.begin + (read["end"] or 0.0)] if "end" in read else []
            ends += [start + (read["dur"] or 0.0)] if "dur" in read else []
            # Where both are given, TTML ends an element at the earlier one.
            return start, min(ends) if ends else self.end
        first, length, unit = ("t", "d", 0.001) if "t" in values else ("start", "dur", 1.0)
        if first not in values or self.name not in ("", "body", "timedtext", "transcript"):
            return None
        try:
            start = float(values[first]) * unit
            return start, start + float(values.get(length, 0)) * unit
        except ValueError:
            return Fault("cue that cannot be read", f"a time of {quoted(str(values))} cannot be read", "give numbers")


def _xml(label: str, text: str) -> _Parsed:
    """TTML and YouTube's srv1, srv2 and srv3: the elements `p` and `text`, and timed spans in a `p` without times."""
    parsed: _Parsed = []
    opened = [_Element("", 0.0, None)]
    parts: list[str] = []
    cue: tuple[int, int, float | Fault, float, bool] | None = None
    # Seconds of the units that TTML counts times in; frames and ticks where the file tells their length.
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    # The encoding overrides the one that the XML declares, since the text is decoded already.
    parser = expat.ParserCreate("utf-8", " ")
    # Without it a text comes in pieces, one for each line and entity.
    parser.buffer_text = True

    def refuse(*_: object) -> None:
        problem, remedy = "the XML declares a document type", "remove the declaration"
        raise InputError.at(label, problem, remedy, line=parser.CurrentLineNumber)

    def begin(qualified: str, attributes: dict[str, str]) -> None:
        nonlocal cue
        name = qualified.rpartition(" ")[2]
        values = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        if name == "tt":
            try:
                if "frameRate" in values:
                    over, under = values.get("frameRateMultiplier", "1 1").split()
                    units["f"] = float(under) / float(over) / float(values["frameRate"])
                if "tickRate" in values:
                    units["t"] = 1 / float(values["tickRate"])
            except (ValueError, ZeroDivisionError):
                pass  # times in such a unit cannot be read, and each of them is a fault
        if values.get("timeContainer") == "seq":
            problem = "the times count from the end of the element before (timeContainer seq)"
            raise InputError.at(label, problem, "convert the file to WebVTT", line=parser.CurrentLineNumber)
        around = opened[-1]
        times = around.inside(values, units)
        start, end = (around.begin, around.end) if times is None or isinstance(times, Fault) else times
        opened.append(_Element(name, start, end))
        if cue is not None:
            parts.extend("\n" * (name == "br"))
        elif name in ("p", "text") or (name == "span" and times is not None):
            youtube = "begin" not in values and bool(values.keys() & {"t", "start"})
            if isinstance(times, Fault):
                cue = (len(opened), parser.CurrentLineNumber, times, 0.0, youtube)
            elif end is not None:
                cue = (len(opened), parser.CurrentLineNumber, start, end, youtube)
            elif times is not None:
                fault = Fault("only one of start and end", "the element has no end", "give 'end' or 'dur'")
                cue = (len(opened), parser.CurrentLineNumber, fault, 0.0, youtube)

    def characters(data: str) -> None:
        names = {element.name for element in opened}
        if cue is not None:
            parts.append(data if cue[4] else data.replace("\n", " "))
        elif data.strip() and "head" not in names and (len(opened) == 2 or "body" in names):
            parsed.append((parser.CurrentLineNumber, _OUTSIDE))

    def finish(_name: str) -> None:
        nonlocal cue
        if cue is not None and len(opened) == cue[0]:
            _, line, start, end, youtube = cue
            said = "".join(parts)
            if isinstance(start, Fault):
                parsed.append((line, start))
            elif said.strip() or not youtube:  # YouTube's windows and line feeds are elements of their own
                parsed.append((line, _Cue.of(start, end, said.split("\n"))))
            cue = None
            parts.clear()
        opened.pop()

    # The entities of a document type can unfold to gigabytes.
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = begin, finish, characters
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise InputError.at(label, f"not valid XML ({error})", "fetch the file again", line=error.lineno) from None
    return parsed


def _ttml_time(text: str, units: dict[str, float]) -> float | None:
    if time := _TTML_CLOCK.fullmatch(text.strip()):
        hours, minutes, rest, frames = time.groups()
        if frames is not None and "f" not in units:
            return None
        return int(hours) * 3600 + int(minutes) * 60 + float(rest) + int(frames or 0) * units.get("f", 0.0)
    offset = _OFFSET.fullmatch(text.strip())
    return float(offset[1]) * units[offset[2]] if offset and offset[2] in units else None


def _dialogue(_label: str, text: str) -> _Parsed:
    """Advanced SubStation Alpha and SubStation Alpha: the lines `Dialogue:` with the columns that `Format:` names."""
    parsed: _Parsed = []
    columns = ["layer", "start", "end", "style", "name", "marginl", "marginr", "marginv", "effect", "text"]
    section = "[events]"
    for number, line in enumerate(_LINE_END.split(text), start=1):
        kind, _, rest = line.strip().partition(":")
        names = [name.strip().lower() for name in rest.split(",")]
        if line.startswith("["):
            section = line.strip().lower()
        elif section != "[events]":
            continue
        elif kind == "Format" and {"start", "end"} <= set(names) and names[-1] == "text":
            columns = names
        elif kind == "Dialogue":
            # The text is the last column, because it may hold commas.
            values = dict(zip(columns, (value.strip() for value in rest.split(",", len(columns) - 1)), strict=False))
            start, end = clock(values.get("start", "")), clock(values.get("end", ""))
            if start is None or end is None or "text" not in values:
                problem = f"the line has no two times and a text: {quoted(line)}"
                fault = Fault("cue that cannot be read", problem, "give Start, End and Text as 'Format:' has them")
                parsed.append((number, fault))
            else:
                # "\h" is a hard space, "\N" a line break; what follows "\p1" are the coordinates of a drawing.
                said = _DRAWING.sub("", values["text"]).replace("\\h", " ")
                parsed.append((number, _Cue.of(start, end, re.split(r"\\[Nn]", said))))
        elif line.strip() and not re.match(r"[;!]|[A-Z]\w*:", line.strip()):
            parsed.append((number, Fault("text outside a cue", f"no event: {quoted(line)}", "remove the line")))
    return parsed


def _lyrics(_label: str, text: str) -> _Parsed:
    """LRC, as whisper.cpp writes it too: `[minutes:seconds] text`, each a moment, for the file tells no end."""
    parsed: _Parsed = []
    for number, line in enumerate(_LINE_END.split(text), start=1):
        stamps = _STAMPS.fullmatch(line.strip("\ufeff \t"))
        if stamps is not None:
            times = [clock(stamp[1:-1]) for stamp in re.findall(_STAMP, stamps[1])]
            if None in times:
                fault = Fault("cue that cannot be read", f"no time: {quoted(line)}", "give [minutes:seconds] first")
                parsed.append((number, fault))
            elif stamps[2]:
                parsed += [(number, _Cue.of(time, time, [stamps[2]])) for time in times if time is not None]
        elif line.strip() and not re.fullmatch(r"\s*\[[A-Za-z#]+:.*\]\s*", line):
            parsed.append((number, Fault("text outside a cue", f"a line has no time: {quoted(line)}", "give it one")))
    return parsed


# How a text in each layout begins, and its reader, or the name of a layout that is not read.
_LAYOUTS: tuple[tuple[re.Pattern[str], Callable[[str, str], _Parsed] | str], ...] = (
    (
        re.compile(
            r"(?:<\?xml[^>]*>\s*|<!--[^>]{0,2000}>\s*)*<(?:!DOCTYPE )?(?:\w+:)?(?:tt|timedtext|transcript)[\s>]"
        ),
        _xml,
    ),
    (re.compile(r"\[(?:Script Info|V4\+? Styles|Events)\]|Dialogue:", re.IGNORECASE), _dialogue),
    (re.compile(rf"{_STAMP}|\[(?:ti|ar|al|by|offset|length|re|tool|ve|au|la):"), _lyrics),
    (re.compile(r"<SAMI\b", re.IGNORECASE), "SAMI"),
    (re.compile(r"Scenarist_SCC"), "Scenarist closed captions (SCC)"),
    (re.compile(r"\{\d+\}\{\d*\}"), "MicroDVD, whose times are frames"),
    (re.compile(r"\[INFORMATION\]"), "SubViewer"),
)


_WORD_TIME = re.compile(r"<\d+:\d\d[\d:.,]*>")
_SENTENCE = re.compile(r"[.?!]$")
# Seconds between cues up to which an equal line counts as a repeat, not as said again.
_TOUCH = 0.5
# Seconds up to which a cue with the same lines as the one next to it is a step of the display.
_FLASH = 0.05
_UTF_16 = Fault("not subtitles", "the text is UTF-16 without a byte order mark", "give its encoding, such as utf-16-le")


def read_subtitles(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """The draft of the file's video. Raises InputError for XML that is damaged."""
    text = file.whole(options.encoding)
    numbers: list[int] = []
    captions: list[Caption | Fault] | Fault
    layout = _layout_of(text.lstrip("\ufeff \t\r\n"))
    if isinstance(layout, str):
        problem, remedy = f"this is {layout}, which is not read", "convert it to WebVTT, for example with ffmpeg"
        parsed: _Parsed | Fault = Fault(UNREAD, problem, remedy)
    elif layout is not None:
        parsed = layout(file.label, text)
    else:
        parsed = _UTF_16 if 4 * text.count("\0") > len(text) else _time_lines(text, report)
    if isinstance(parsed, Fault):
        captions = parsed
    else:
        if options.rolling == "collapse":
            cues = [(number, item) for number, item in parsed if isinstance(item, _Cue)]
            read = _said(cues, [number for number, line in _rows(text) if line.startswith("WEBVTT")])
            report.collapsed += sum(bool(cue.lines) for _, cue in cues) - sum(bool(cue.lines) for _, cue in read)
            faults = [(number, item) for number, item in parsed if isinstance(item, Fault)]
            parsed = sorted([*read, *faults], key=lambda item: item[0])
        numbers = [number for number, _ in parsed]
        captions = [
            item if isinstance(item, Fault) else Caption(" ".join(item.lines), item.start, item.end)
            for _, item in parsed
        ]
    where = partial(caption_place, Place(file.label), "", numbers, on_line=True)
    yield Draft(Place(file.label), video_name(file.name).id, captions, where, source=options.source or "subtitles")


def _said(cues: Sequence[tuple[int, _Cue]], headers: Sequence[int]) -> list[tuple[int, _Cue]]:
    """The cues with each word once, from when it appears to when the next line does.

    A cue that begins with the last lines of the one before and adds to them is reduced to what it adds, except for a
    sentence that others follow. A cue that adds nothing may be said again, unless most of the file rolls, one of both
    has times of words, is shown for an instant or has other markup, or one of the file's `headers` lies between them.
    """
    # A cue that lies across two segments of a stream is in both.
    distinct = {(cue.start, cue.end, cue.lines): (number, cue) for number, cue in reversed(cues)}
    cues = list(distinct.values())[::-1]
    shown = [item for item in cues if item[1].lines]
    pairs = [_repeated(before, cue, "") for (_, before), (_, cue) in pairwise(shown)]
    most = max(len(pairs) / 2, 1)
    rolls = sum(size > 0 for size, _ in pairs) > most
    boundary = "" if sum(grown for _, grown in pairs) > most else " "
    said: list[tuple[int, _Cue]] = []
    before: _Cue | None = None
    line = 0
    for number, cue in shown if rolls else cues:
        size, grown = _repeated(before, cue, boundary) if before else (0, False)
        new = cue.lines[size:]
        if before and size and not grown and not new:
            instant = min(before.end - before.start, cue.end - cue.start) <= _FLASH
            marked = before.lines == cue.lines and before.source != cue.source
            marked = marked or any(_WORD_TIME.search(shown_cue.source) for shown_cue in (before, cue))
            size = size if rolls or instant or marked or any(line < header <= number for header in headers) else 0
            new = cue.lines[size:]
        if not said or not size:
            said.append((number, cue))
        else:
            place, current = said[-1]
            lines = current.lines
            if grown:
                lines = (*lines[:-1], cue.lines[size - 1])
            if grown or not new:
                said[-1] = place, current._replace(lines=lines, end=current.end if new else max(current.end, cue.end))
            if new:
                said.append((number, cue._replace(lines=new)))
        before, line = cue, number
    return said


def _repeated(before: _Cue, cue: _Cue, boundary: str) -> tuple[int, bool]:
    """How many of the cue's first lines are the last lines of the one before it, which it follows at once.

    The second value is whether the last of these lines has grown: by words for the boundary " ", by characters for "".
    """
    if cue.start - before.end > _TOUCH:
        return 0, False
    sizes = range(min(len(before.lines), len(cue.lines)), 0, -1)
    for size in sizes:
        if before.lines[-size:] == cue.lines[:size]:
            return size, False
    for size in sizes:
        same = before.lines[-size:-1] == cue.lines[: size - 1]
        if same and cue.lines[size - 1].startswith(before.lines[-1] + boundary):
            added = cue.lines[size - 1][len(before.lines[-1]) :].split()
            if not boundary or len(added) == 1 or not _SENTENCE.search(before.lines[-1]):
                return size, True
    return 0, False
