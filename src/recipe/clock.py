"""Moments of a video as a player shows them, and as people and models write them."""

import re

_WRITTEN = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d+)?)")


def clock(seconds: float) -> str:
    """A second as a player shows it.

    >>> clock(62.5), clock(3725)
    ('1:02', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def read_clock(text: str) -> float | None:
    """The second that `text` names, as hours:minutes:seconds, minutes:seconds or seconds; None where it names none.

    Only the first of the numbers may pass 59, and only the last may have a fraction.

    >>> read_clock("00:41"), read_clock("1:02:05.5"), read_clock("90"), read_clock("1:75")
    (41.0, 3725.5, 90.0, None)
    """
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        return None
    numbers = [float(number) for number in match.groups() if number is not None]
    if any(number >= 60 for number in numbers[1:]):
        return None
    seconds = 0.0
    for number in numbers:
        seconds = 60 * seconds + number
    return seconds
