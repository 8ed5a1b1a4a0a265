"""Times of captions, from whichever fields of an object hold them, in seconds.

A unit is certain by the field's name (`startMs`, `offsetInTicks`), by the form of the value (`1.4s`, `PT1.4S`,
`00:00:01,400`), or because plain numbers under plain names (`start`, `end_time`) are seconds in all published layouts.
Numbers under `offset` and `t0` are seconds, milliseconds, hundredths or frames, and only the whole file can tell.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple, TypeGuard

# Numbers beyond are no times in any unit, and are not calculated with.
# Eleven days in nanoseconds; floats hold whole numbers exactly up to 9 * 10**15.
_HUGE = 10**15
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_ROLES = {
    word: role
    for role, words in {
        "start": ("start", "begin", "from", "offset"),
        "end": ("end", "stop", "until"),
        "length": ("duration", "dur"),
        "both": ("timestamp", "timestamps", "times", "span", "interval", "offsets"),
    }.items()
    for word in words
}
# Words that the name of a time may have besides.
_PLAIN = {"time", "times", "timestamp", "ts", "in", "at", "t", "d", "offset"}
_UNITS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millis", "millisecond", "milliseconds"), 1e-3),
    # "ticks" are those of .NET, 100 ns.
    **{"us": 1e-6, "microseconds": 1e-6, "ns": 1e-9, "nanos": 1e-9, "nanoseconds": 1e-9, "ticks": 1e-7},
    **{"m": 60.0, "min": 60.0, "minutes": 60.0, "h": 3600.0, "hours": 3600.0},
}
_PARTS = re.compile(r"(?:(\d{1,9}):)?(\d{1,9}):(\d{1,9})(?:[.,:;](\d{1,18}))?")
# hh:mm:ss:ff, the time code of video: frames, whose length nothing tells.
_FRAMES = re.compile(r"\d+[:;]\d+[:;]\d+[:;]\d{1,2}")
_AMOUNT = re.compile(r"(-?\d{1,15}(?:\.\d{1,15})?)\s?([a-z]*)")
# Durations of ISO 8601 up to hours, as Azure writes them.
_ISO = re.compile(r"PT(?=\d)(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,12})?)S)?")


class _Field(NamedTuple):
    role: str
    unit: float
    rank: int
    """0 for `start` and `end`, 1 for a unit in the name, 2 for seconds, 3 where the name leaves the unit open."""


# A corpus has millions of captions and few names of fields.
@lru_cache(maxsize=4096)
def _field(name: str) -> _Field | None:
    """What a field of this name holds; None for a name that is none of a time."""
    if name in ("start", "end"):
        return _Field(name, 1.0, 0)
    words = [word.lower() for word in _WORDS.findall(name)]
    if words == ["to"] or words == ["t", "1"]:
        return _Field("end", 1.0, 2 + (name != "to"))
    if words in (["t", "0"], ["ts"], ["time"]):
        return _Field("both" if words == ["time"] else "start", 1.0, 3)
    # `endOffset` is an end, `offset` alone a start.
    role = next((_ROLES[word] for word in sorted(words, key="offset".__eq__) if word in _ROLES), "")
    units = [_UNITS[word] for word in words if word in _UNITS]
    if not role or any(word not in _ROLES and word not in _PLAIN and word not in _UNITS for word in words):
        return None
    if name == "offsets":  # whisper.cpp
        units = [1e-3]
    return _Field(role, units[0] if units else 1.0, 1 if units else 3 if "offset" in words else 2)


def _is_like_time(name: object) -> bool:
    words = {word.lower() for word in _WORDS.findall(str(name))}
    return bool(words & (_ROLES.keys() | {"time", "timecode", "ts"}))


def times_of(item: Mapping[str, object]) -> tuple[object, object, str]:
    """Start and end of a caption that is given as an object, whatever its fields are called, and a field in doubt.

    They are seconds, or None where there is none; what cannot be read is handed on as it is. The field is one whose
    unit only the whole file can tell, or, without times, one that looks like a time; it is empty where there is none.
    """
    fields: dict[str, tuple[_Field, str]] = {}
    for name, value in item.items():
        field = _field(name) if isinstance(name, str) and value is not None else None
        if field and (field.role not in fields or field.rank < fields[field.role][0].rank):
            fields[field.role] = field, name
    pair, doubt = fields.get("both"), ""
    values: dict[str, object] = {}
    if pair and fields.keys() <= {"both", "length"}:
        value, field = item[pair[1]], pair[0]
        if isinstance(value, list | tuple) and len(value) == 2:
            values = {"start": seconds(value[0], field.unit), "end": seconds(value[1], field.unit)}
        elif isinstance(value, dict):
            inner = times_of({name: seconds(part, field.unit) for name, part in value.items()})
            values = dict(zip(("start", "end"), inner[:2], strict=True))
    for role in ("start", "end", "length"):
        if role in fields and role not in values:
            field, name = fields[role]
            values[role] = seconds(item[name], field.unit)
            # What reads otherwise in another unit.
            doubt = name if field.rank == 3 and values[role] != seconds(item[name], 2.0) else doubt
    start, end, length = values.get("start"), values.get("end"), values.get("length")
    if start is not None and end is None and length is not None:
        end = length
        if is_time(start) and is_time(length):
            end = round(start + length, 6)
            # Rounding must not put the end of a short caption before its start.
            end = max(start, end) if length >= 0 else end
    if start is None and end is None:
        like = (name for name, value in item.items() if value is not None and _is_like_time(name))
        return None, None, next(like, "")
    return (None, None, doubt) if doubt and end is None else (start, end, doubt)


def seconds(value: object, unit: float = 1.0) -> object:
    """A time of any form in seconds, numbers counted in `unit`; what is no time is returned as it is.

    >>> [seconds(value) for value in ("01:02:03,5", "PT1M2.5S", "1.4s", "250 ms", "4.87", "00:61:00", "soon")]
    [3723.5, 62.5, 1.4, 0.25, 4.87, '00:61:00', 'soon']
    """
    if is_time(value):
        # To the microsecond, so that 1400 ms are 1.4 s and not the nearest product of two floats.
        return value if unit == 1.0 else round(value * unit, 6)
    if isinstance(value, dict) and value and value.keys() <= {"seconds", "nanos"}:  # a duration of protocol buffers
        parts = seconds(value.get("seconds", 0)), seconds(value.get("nanos", 0), 1e-9)
        return parts[0] + parts[1] if is_time(parts[0]) and is_time(parts[1]) else value
    if not isinstance(value, str):
        return value
    text = value.strip()
    if (read := clock(text)) is not None and not _FRAMES.fullmatch(text):
        return read
    if amount := _AMOUNT.fullmatch(text):
        scale = _UNITS.get(amount[2], unit if not amount[2] else 0.0)
        return round(float(amount[1]) * scale, 6) if scale else value
    if iso := _ISO.fullmatch(text):
        return int(iso[1] or 0) * 3600 + int(iso[2] or 0) * 60 + float(iso[3] or 0)
    return value


def clock(time: str) -> float | None:
    """The seconds of [hours:]minutes:seconds[.fraction]; None where it is no such time.

    >>> clock("01:02:03,5"), clock("62:03"), clock("00:61:00")
    (3723.5, 3723.0, None)
    """
    parts = _PARTS.fullmatch("".join(time.split()))
    if parts is None or int(parts[3]) >= 60 or (parts[1] and int(parts[2]) >= 60):
        return None
    return int(parts[1] or 0) * 3600 + int(parts[2]) * 60 + float(f"{int(parts[3])}.{parts[4] or 0}")


def is_time(value: object) -> TypeGuard[float]:
    """Whether a value is a number that may be a time."""
    # True is an int in Python.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _HUGE
