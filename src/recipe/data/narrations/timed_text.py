"""Subtitles in other layouts than lines of times: TTML, YouTube's srv1 to srv3, Advanced SubStation Alpha and LRC.

Layouts that are known and not read are named, with a way to convert them.
"""

import re
from collections.abc import Callable
from typing import NamedTuple
from xml.parsers import expat

from recipe.data.narrations.drafts import Fault
from recipe.data.narrations.time_lines import LINE_END, Parsed, make_cue, seconds
from recipe.errors import InputError, quoted

_CLOCK = re.compile(r"(\d{1,9}):(\d\d):(\d\d(?:\.\d{1,9})?)(?::(\d{1,9}))?")
_OFFSET = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(h|m|s|ms|f|t)")
_TIME_REMEDY = "give times such as 00:00:01.000"
_OUTSIDE = Fault("text outside a cue", "the text has no times", "give its element 'begin' and 'end', or remove it")
_DRAWING = re.compile(r"\{[^{}]*\\p[1-9][^{}]*\}.*?(?:\{[^{}]*\\p0[^{}]*\}|$)")
_STAMP = r"\[\d{1,9}:\d\d(?:[.:]\d{1,3})?\]"
_STAMPS = re.compile(rf"((?:{_STAMP}\s*)+)(.*)")


def layout_of(text: str) -> Callable[[str, str], Parsed] | str | None:
    """The reader of the layout that a text begins with, or its name where it is not read; None for no such layout.

    A reader takes the file's name for messages and the text, and raises InputError for XML that is damaged.
    """
    return next((read for beginning, read in _LAYOUTS if beginning.match(text)), None)


class _Element(NamedTuple):
    """An open element: its name, when it begins, and its end, None where neither it nor one around it has one."""

    name: str
    begin: float
    end: float | None


def _xml(label: str, text: str) -> Parsed:
    """TTML and YouTube's srv1, srv2 and srv3: the elements `p` and `text`, and timed spans in a `p` without times."""
    parsed: Parsed = []
    opened = [_Element("", 0.0, None)]
    parts: list[str] = []
    cue: tuple[int, int, float | Fault, float, bool] | None = None
    units: dict[str, float] = {}
    parser = expat.ParserCreate("utf-8", " ")
    parser.buffer_text = True

    def refuse(*_: object) -> None:
        problem, remedy = "the XML declares a document type", "remove the declaration"
        raise InputError.at(label, problem, remedy, line=parser.CurrentLineNumber)

    def begin(qualified: str, attributes: dict[str, str]) -> None:
        nonlocal cue
        name = qualified.rpartition(" ")[2]
        values = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        if name == "tt":
            units.update(_units(values))
        if values.get("timeContainer") == "seq":
            problem = "the times count from the end of the element before (timeContainer seq)"
            raise InputError.at(label, problem, "convert the file to WebVTT", line=parser.CurrentLineNumber)
        around = opened[-1]
        times = _times(values, units, around)
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
                parsed.append((line, make_cue(start, end, said.split("\n"))))
            cue = None
            parts.clear()
        opened.pop()

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = begin, finish, characters
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise InputError.at(label, f"not valid XML ({error})", "fetch the file again", line=error.lineno) from None
    return parsed


def _units(values: dict[str, str]) -> dict[str, float]:
    """Seconds of the units that TTML counts times in; frames and ticks where the file tells their length."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    try:
        if "frameRate" in values:
            over, under = values.get("frameRateMultiplier", "1 1").split()
            units["f"] = float(under) / float(over) / float(values["frameRate"])
        if "tickRate" in values:
            units["t"] = 1 / float(values["tickRate"])
    except (ValueError, ZeroDivisionError):
        pass  # times in such a unit cannot be read, and each of them is a fault
    return units


def _times(
    values: dict[str, str], units: dict[str, float], around: _Element
) -> tuple[float, float | None] | Fault | None:
    """Begin and end of an element; None where it has no times of its own."""
    if "begin" in values or "end" in values or ("dur" in values and "start" not in values):
        read = {key: _ttml_time(values[key], units) for key in ("begin", "end", "dur") if key in values}
        bad = next((key for key, value in read.items() if value is None), None)
        if bad is not None:
            problem = f"the time {quoted(values[bad])} cannot be read"
            return Fault("cue that cannot be read", problem, _TIME_REMEDY)
        start = around.begin + (read.get("begin") or 0.0)
        ends = [around.begin + (read["end"] or 0.0)] if "end" in read else []
        ends += [start + (read["dur"] or 0.0)] if "dur" in read else []
        return start, min(ends) if ends else around.end
    first, length, unit = ("t", "d", 0.001) if "t" in values else ("start", "dur", 1.0)
    if first not in values or around.name not in ("", "body", "timedtext", "transcript"):
        return None
    try:
        start = float(values[first]) * unit
        return start, start + float(values.get(length, 0)) * unit
    except ValueError:
        return Fault("cue that cannot be read", f"a time of {quoted(str(values))} cannot be read", "give numbers")


def _ttml_time(text: str, units: dict[str, float]) -> float | None:
    if clock := _CLOCK.fullmatch(text.strip()):
        hours, minutes, rest, frames = clock.groups()
        if frames is not None and "f" not in units:
            return None
        return int(hours) * 3600 + int(minutes) * 60 + float(rest) + int(frames or 0) * units.get("f", 0.0)
    offset = _OFFSET.fullmatch(text.strip())
    return float(offset[1]) * units[offset[2]] if offset and offset[2] in units else None


def _dialogue(_label: str, text: str) -> Parsed:
    """Advanced SubStation Alpha and SubStation Alpha: the lines `Dialogue:` with the columns that `Format:` names."""
    parsed: Parsed = []
    columns = ["layer", "start", "end", "style", "name", "marginl", "marginr", "marginv", "effect", "text"]
    section = "[events]"
    for number, line in enumerate(LINE_END.split(text), start=1):
        kind, _, rest = line.strip().partition(":")
        names = [name.strip().lower() for name in rest.split(",")]
        if line.startswith("["):
            section = line.strip().lower()
        elif section != "[events]":
            continue
        elif kind == "Format" and {"start", "end"} <= set(names) and names[-1] == "text":
            columns = names
        elif kind == "Dialogue":
            values = dict(zip(columns, (value.strip() for value in rest.split(",", len(columns) - 1)), strict=False))
            start, end = seconds(values.get("start", "")), seconds(values.get("end", ""))
            if start is None or end is None or "text" not in values:
                problem = f"the line has no two times and a text: {quoted(line)}"
                fault = Fault("cue that cannot be read", problem, "give Start, End and Text as 'Format:' has them")
                parsed.append((number, fault))
            else:
                said = _DRAWING.sub("", values["text"]).replace("\\h", " ")
                parsed.append((number, make_cue(start, end, re.split(r"\\[Nn]", said))))
        elif line.strip() and not re.match(r"[;!]|[A-Z]\w*:", line.strip()):
            parsed.append((number, Fault("text outside a cue", f"no event: {quoted(line)}", "remove the line")))
    return parsed


def _lyrics(_label: str, text: str) -> Parsed:
    """LRC, as whisper.cpp writes it too: `[minutes:seconds] text`, each a moment, for the file tells no end."""
    parsed: Parsed = []
    for number, line in enumerate(LINE_END.split(text), start=1):
        stamps = _STAMPS.fullmatch(line.strip("\ufeff \t"))
        if stamps is not None:
            times = [seconds(stamp[1:-1]) for stamp in re.findall(_STAMP, stamps[1])]
            if None in times:
                fault = Fault("cue that cannot be read", f"no time: {quoted(line)}", "give [minutes:seconds] first")
                parsed.append((number, fault))
            elif stamps[2]:
                parsed += [(number, make_cue(time, time, [stamps[2]])) for time in times if time is not None]
        elif line.strip() and not re.fullmatch(r"\s*\[[A-Za-z#]+:.*\]\s*", line):
            parsed.append((number, Fault("text outside a cue", f"a line has no time: {quoted(line)}", "give it one")))
    return parsed


_LAYOUTS: tuple[tuple[re.Pattern[str], Callable[[str, str], Parsed] | str], ...] = (
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
"""How a text in each layout begins, and its reader, or the name of a layout that is not read."""
