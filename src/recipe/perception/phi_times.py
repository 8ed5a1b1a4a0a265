"""Times in what a vision-language model tells: read where they are sound, left out where they are not.

A step may carry a start, or a start and an end, before its text or behind it, bare or in brackets: `00:05 - 00:12
Pour`, `[0:05] Pour`, `Pour (5s to 12s)`. A number alone is no time, and `Stir for 30 seconds` tells how long, not when.
Times are left out, and the step stays without any,

* where one is malformed (`00:75`), an end lies before its start, or a start lies at or after the end of the video; an
  end after the end of the video is the end of the video;
* where starts go back: the longest sequence of steps whose starts do not is kept, the last where several are as long,
  so that one wrong time costs one step its times and not all after it.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence

from recipe.clock import read_clock
from recipe.text import plan_steps
from recipe.types import Step

_CLOCK = r"\d+(?::\d\d){1,2}(?:\.\d+)?"
_UNITS = r"\d+(?:\.\d+)?\s*(?:s|secs?|seconds)\b"
_TO = r"\s*(?:-|–|—|→|to|until)\s*"
_SPANS = (
    rf"[\[(<]\s*(?P<start>{_CLOCK}|{_UNITS})(?:{_TO}(?P<end>{_CLOCK}|{_UNITS}))?\s*[\])>]",
    rf"(?P<start>{_CLOCK})(?:{_TO}(?P<end>{_CLOCK}))?",
    rf"(?P<start>{_UNITS}){_TO}(?P<end>{_UNITS})",
)
_BEFORE = [re.compile(rf"^\s*{span}\s*[-–—:.,|]*\s*", re.IGNORECASE) for span in _SPANS]
_BEHIND = [re.compile(rf"\s*[-–—:,|]*\s*(?:\b(?:at|from)\s+)?{span}\s*\.?\s*$", re.IGNORECASE) for span in _SPANS]
_UNIT = re.compile(r"\s*[a-z]+$", re.IGNORECASE)


def read_steps(text: str, duration: float) -> list[Step]:
    """The steps of an answer about a video of `duration` seconds, in the order told, with the times that hold.

    >>> read_steps("Here you are:\\n00:05 - 00:12 Pour\\n[00:03] Stir\\n00:20 Serve (2 cups)", 15)
    [Step(text='Pour', start=None, end=None), Step(text='Stir', start=3.0, end=None), \
Step(text='Serve (2 cups)', start=None, end=None)]
    """
    # A line that begins with a time is a step, as one that begins with a number is.
    lines = [f"- {line.strip()}" if _found(_BEFORE, line) else line for line in text.splitlines()]
    return _in_order([step for line in plan_steps("\n".join(lines)) if (step := _step(line, duration)).text])


def _found(patterns: Sequence[re.Pattern[str]], line: str) -> re.Match[str] | None:
    return next((found for pattern in patterns if (found := pattern.search(line))), None)


def _step(told: str, duration: float) -> Step:
    line = " ".join(told.split())  # else a long run of blanks would cost the patterns its square
    found = _found(_BEFORE, line) or _found(_BEHIND, line)
    if found is None:
        return Step(line)
    text = (line[: found.start()] + line[found.end() :]).strip()
    if not any(char.isalnum() for char in text):
        return Step("")
    start, end = _seconds(found["start"]), _seconds(found["end"])
    if start is None or start >= duration or (found["end"] and (end is None or end < start)):
        return Step(text)
    return Step(text, start, None if end is None else min(end, duration))


def _seconds(written: str | None) -> float | None:
    return None if written is None else read_clock(_UNIT.sub("", written))


def _in_order(steps: Sequence[Step]) -> list[Step]:
    """The steps, without times but for the longest sequence whose starts do not decrease."""
    timed = [(place, step.start) for place, step in enumerate(steps) if step.start is not None]
    lasts: list[float] = []  # the smallest start that a sequence of each length can end with
    lengths = []
    for _, start in timed:
        length = bisect_right(lasts, start)
        lasts[length : length + 1] = [start]
        lengths.append(length)
    # From the end, the last start of each length: of one length they fall, so that none is later than the one behind.
    kept, wanted = set[int](), len(lasts) - 1
    for (place, _), length in zip(reversed(timed), reversed(lengths), strict=True):
        if length == wanted:
            kept.add(place)
            wanted -= 1
    return [step if place in kept or step.start is None else Step(step.text) for place, step in enumerate(steps)]
