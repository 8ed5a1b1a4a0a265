"""WebVTT, SubRip and SBV: files in which a line with two times begins a cue.

All text before the next such line belongs to the cue, except for the number or name of the next cue, comments, styles
and headers. A line that looks like times and cannot be read is a fault, and the text below it goes with it. Libraries
lose such cues, or read their times as text, without a word (docs/readers.md, Decisions).
"""

import html
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recipe.data.narrations.drafts import Fault, ReadingReport
from recipe.errors import quoted

LINE_END = re.compile(r"\r*\n|\r")
_JOINT = re.compile(r"\ufeff(?=\s*(?:WEBVTT|\d))|(?<=\S)(?=WEBVTT[ \t]*[\r\n])")
"""Where a file was appended to another: at a byte order mark, or at a header right behind the last word."""
_INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
_WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
"""Fullwidth forms of ASCII."""
_MARKUP = re.compile(r"</?[A-Za-z][^<>\n]*>|<\d[\d:.,]*>|\{\\[^{}\n]*\}")
_BREAK = re.compile(r"<br\s*/?>|\[br\]", re.IGNORECASE)

_DASH = r"[-\u2010-\u2015\u2212=~]"
_ARROW = rf"(?:{_DASH}|\s){{0,8}}(?:>|&gt;|[\u2192\u21d2\u2794\u279c\u27a1\u27f6]){{1,3}}"
_LONG_ARROW = r"[-\u2010-\u2015\u2212]{2}\s?(?:>|&gt;)"
_TIME = r"(?:\d{1,9}\s?:\s?)?\d{1,9}\s?:\s?\d{1,9}(?:\s?[.,]\s?\d{1,9}|[:;]\d{3}(?!\d))?"
_EXACT_TIME = r"\d{1,9}:\d{1,9}:\d{1,9}[.,]\d{1,9}"
_TIME_LINES = (
    re.compile(rf"\s*([\[(]?)\s*({_TIME}){_ARROW}\s*({_TIME})(.*)"),
    re.compile(rf"\s*([\[(]?)\s*({_EXACT_TIME})(?:{_DASH}|[,\s]){{1,5}}({_EXACT_TIME})(.*)"),
)
"""An arrow of any kind between two times, or, between two exact times, a dash, a comma or a space."""
_SETTINGS = re.compile(r"(?:\s+[A-Za-z][\w-]*[:=]\S+)*\s*")
_PARTS = re.compile(r"(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})(?:[.,:;](\d{1,18}))?")

_MAY_BE_TIMES = re.compile(r"\d\s?[:;]|>|&gt;|[\u2192\u21d2\u2794\u279c\u27a1\u27f6]")
_CLOCK = r"\d{1,9}\s?[:;]\s?-?\d{1,9}"
_LONG_CLOCK = rf"{_CLOCK}(?:\s?[:;.,]\s?-?\d{{1,9}}){{1,4}}"
_EXACT_CLOCK = r"\d{1,9}[:;]-?\d{1,9}(?:[:;]-?\d{1,9}[:;.,]-?\d{1,9}|[.,]-?\d{3})"
_LIKE_TIMES = re.compile(
    rf"{_LONG_CLOCK}{_ARROW}|{_ARROW}\s?{_DASH}?\s?{_LONG_CLOCK}"
    rf"|{_CLOCK}.{{0,40}}{_LONG_ARROW}|{_LONG_ARROW}.{{0,40}}{_CLOCK}|^\s*{_LONG_ARROW}|{_LONG_ARROW}\s*$"
    rf"|^\W*{_EXACT_CLOCK}\W*$|^\W*{_EXACT_CLOCK}\W{{1,6}}{_EXACT_CLOCK}"
)
"""What nobody says: an exact clock beside an arrow, an arrow without a time, or a line of exact clocks alone."""
_LONE_CLOCK = re.compile(rf"\W*{_EXACT_CLOCK}\W*")
_NEGATIVE = re.compile(rf"^\s*{_DASH}\s?\d|(?:>|&gt;|\u2192)\s*{_DASH}\s?\d|[:;.,]\s?-\d")
_FRAMES = re.compile(r"\d[:;]\d+[:;]\d+[:;]\d{1,2}(?!\d)|\d;\d")

_NUMBER = re.compile(r"\W{0,2}(\d{1,9})\W{0,2}[A-Za-z]?\W{0,2}")
_HEADER = re.compile(r"WEBVTT(?:[ \t].*)?")
_NEXT_HEADER = re.compile(r"WEBVTT(?: FILE|[ \t]+-.*)?")
_HEADER_LINE = re.compile(r"(?:Kind|Language)\s*:")
_NO_CUE = re.compile(r"NOTE(?:[ \t].*)?|STYLE|REGION")
_CLOCKS = re.compile(r"X-TIMESTAMP-MAP\s*=(?=.*MPEGTS:(\d{1,20}))(?=.*LOCAL:([\d:.,]+))")
_TICKS = 90_000
"""Ticks of an MPEG clock in a second; its counter has 33 bits."""

_NOT_SUBTITLES = Fault(
    "not subtitles",
    "the file is neither WebVTT nor SubRip: it has no line of times",
    "give a file with lines such as 00:00:01,000 --> 00:00:02,000",
)
_EARLY = Fault("text outside a cue", "text stands before the first cue", "remove the text or give it times")
_BETWEEN = Fault(
    "line between two cues",
    "the line above the times may be text of the cue before or the number of the next",
    "put a blank line below it where it is text, or remove it",
)


class Cue(NamedTuple):
    """Lines that are shown together, from `start` to `end` in seconds."""

    start: float
    end: float
    lines: tuple[str, ...]
    """The lines without markup, entities and superfluous space; none for a cue without text."""
    source: str
    """The text as the file has it."""


Parsed = list[tuple[int, Cue | Fault]]
"""Cues and faults with the number of their lines, in file order."""


def make_cue(start: float, end: float, lines: Sequence[str]) -> Cue:
    """A cue from lines as a file has them."""
    source = "\n".join(lines)
    shown = _BREAK.sub("\n", source) if "br" in source or "BR" in source else source
    shown = html.unescape(_MARKUP.sub("", shown))
    plain = (" ".join(line.split()) for line in shown.split("\n"))
    return Cue(round(start, 3), round(end, 3), tuple(line for line in plain if line), source)


def seconds(time: str) -> float | None:
    """The seconds of [hours:]minutes:seconds[.fraction]; None where it is no such time.

    >>> seconds("01:02:03,5"), seconds("62:03"), seconds("00:61:00")
    (3723.5, 3723.0, None)
    """
    parts = _PARTS.fullmatch("".join(time.split()))
    if parts is None or int(parts[3]) >= 60 or (parts[1] and int(parts[2]) >= 60):
        return None
    return int(parts[1] or 0) * 3600 + int(parts[2]) * 60 + float(f"{int(parts[3])}.{parts[4] or 0}")


def begins_with_times(text: str) -> bool:
    """Whether a text begins as WebVTT does, or has times in the first line or below the first number."""
    rows = [line for _, line in _rows(text[:1000]) if line][:2]
    at = 1 if rows and _NUMBER.fullmatch(rows[0]) else 0
    times = _times(rows[at], arrow=False) if at < len(rows) else None
    return _HEADER.match(text) is not None or not (times is None or isinstance(times, Fault))


def time_lines(text: str, report: ReadingReport) -> Parsed | Fault:
    """The cues of a file; names of cues are counted in `report`. A fault where no line has times."""
    parsed: Parsed = []
    webvtt = _HEADER.match(text.lstrip("\ufeff \t\r\n")) is not None
    numbers = _Numbers(webvtt)
    current: tuple[int, tuple[float, float, str] | Fault] | None = None
    above: list[tuple[int, str]] = []
    """The lines since the last time line."""
    skipped = ""
    """The comment, style or header that the lines belong to until a blank line."""
    clock: tuple[int, float] | None = None
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
        parsed.append((number, make_cue(start + shift, end + shift, [rest, *(line for _, line in above)])))

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
        elif webvtt and (found := _CLOCKS.match(line)):
            # The segments of a stream count from clocks of their own.
            mapped = int(found[1]), seconds(found[2]) or 0.0
            clock = clock or mapped
            close()
            current, above = None, []
            ticks = (mapped[0] - clock[0] + 2**32) % 2**33 - 2**32
            shift = ticks / _TICKS - (mapped[1] - clock[1])
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
    for number, line in enumerate(LINE_END.split(joined), start=1):
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
        start, end = seconds(begin), seconds(until)
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
        self._apart = False
        """Whether a blank line stands between a number and the times."""
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
