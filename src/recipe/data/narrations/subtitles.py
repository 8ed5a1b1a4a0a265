"""Subtitle files, one a video, as yt-dlp and speech recognisers save them; the video id is the file's name.

Cues come from `time_lines` or `timed_text`. Here displays are undone that show the same words several times: captions
that roll or grow, words that are highlighted one after another, cues that the segments of a stream repeat.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise

from recipe.data.narrations.drafts import Caption, Draft, Fault, Place, ReadingOptions, ReadingReport
from recipe.data.narrations.files import SourceFile, whole
from recipe.data.narrations.time_lines import Cue, Parsed, begins_with_times, time_lines
from recipe.data.narrations.timed_text import layout_of
from recipe.data.video_ids import video_name

_WORD_TIME = re.compile(r"<\d+:\d\d[\d:.,]*>")
_TOUCH = 0.5
"""Seconds between cues up to which an equal line counts as a repeat, not as said again."""
_FLASH = 0.1
"""Seconds up to which a cue that repeats the one beside it is a step of the display."""
_UTF_16 = Fault("not subtitles", "the text is UTF-16 without a byte order mark", "give its encoding, such as utf-16-le")


def is_subtitles(text: str) -> bool:
    """Whether a file that begins with this text, without leading space, holds subtitles."""
    return layout_of(text) is not None or begins_with_times(text)


def read_subtitles(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """The draft of the file's video. Raises InputError for XML that is damaged."""
    text = whole(file, options.encoding)
    numbers: list[int] = []
    captions: list[Caption | Fault] | Fault
    layout = layout_of(text.lstrip("\ufeff \t\r\n"))
    if isinstance(layout, str):
        problem, remedy = f"this is {layout}, which is not read", "convert it to WebVTT, for example with ffmpeg"
        parsed: Parsed | Fault = Fault("subtitles that are not read", problem, remedy)
    elif layout is not None:
        parsed = layout(file.label, text)
    else:
        parsed = _UTF_16 if 4 * text.count("\0") > len(text) else time_lines(text, report)
    if isinstance(parsed, Fault):
        captions = parsed
    else:
        if options.rolling == "collapse":
            cues = [(number, item) for number, item in parsed if isinstance(item, Cue)]
            read = _said(cues, several_parts=text.count("WEBVTT") > 1)
            report.collapsed += sum(bool(cue.lines) for _, cue in cues) - sum(bool(cue.lines) for _, cue in read)
            faults = [(number, item) for number, item in parsed if isinstance(item, Fault)]
            parsed = sorted([*read, *faults], key=lambda item: item[0])
        numbers = [number for number, _ in parsed]
        captions = [
            item if isinstance(item, Fault) else Caption(" ".join(item.lines), item.start, item.end)
            for _, item in parsed
        ]
    where = partial(_cue_place, Place(file.label), numbers)
    yield Draft(Place(file.label), video_name(file.name).id, captions, where, source=options.source or "subtitles")


def _cue_place(place: Place, numbers: Sequence[int], index: int, _part: str) -> Place:
    return place._replace(line=numbers[index])


def _said(cues: Sequence[tuple[int, Cue]], several_parts: bool) -> list[tuple[int, Cue]]:
    """The cues with each word once, from when it appears to when the next line does.

    A cue that begins with the last lines of the one before and adds to them is always reduced to what it adds. A cue
    that adds nothing may be said again, unless most of the file rolls, the text has times of words or other markup than
    the cue before, or one of both is shown for an instant.
    """
    # A cue that lies across two segments of a stream is in both.
    distinct = {(cue.start, cue.end, cue.lines): (number, cue) for number, cue in reversed(cues)}
    cues = list(distinct.values())[::-1]
    shown = [item for item in cues if item[1].lines]
    pairs = [_repeated(before, cue, "") for (_, before), (_, cue) in pairwise(shown)]
    most = max(len(pairs) / 2, 1)
    rolls = sum(size > 0 for size, _ in pairs) > most
    rolls = rolls or several_parts or any(_WORD_TIME.search(cue.source) for _, cue in cues)
    boundary = "" if sum(grown for _, grown in pairs) > most else " "
    said: list[tuple[int, Cue]] = []
    before: Cue | None = None
    for number, cue in shown if rolls else cues:
        size, grown = _repeated(before, cue, boundary) if before else (0, False)
        new = cue.lines[size:]
        if before and size and not grown and not new:
            instant = min(before.end - before.start, cue.end - cue.start) <= _FLASH
            highlighted = before.lines == cue.lines and before.source != cue.source
            size = size if rolls or instant or highlighted else 0
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
        before = cue
    return said


def _repeated(before: Cue, cue: Cue, boundary: str) -> tuple[int, bool]:
    """How many of the cue's first lines are the last lines of the one before it, which it follows at once.

    True beside it where the last of these lines has grown: by words for the boundary " ", by characters for "".
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
            return size, True
    return 0, False
