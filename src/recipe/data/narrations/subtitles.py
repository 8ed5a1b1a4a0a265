"""WebVTT and SubRip files, one a video, as yt-dlp saves them; the video id is the file's name.

Parsed by webvtt-py, which keeps the lines of a cue apart and follows the WebVTT rules for blocks. pysubs2 takes a line
with two word times for a new cue and drops a last line that is a number.
"""

import html
import io
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import webvtt
from webvtt.errors import MalformedFileError

from recipe.data.narrations.drafts import Caption, Draft, Fault, Place, ReadingOptions, ReadingReport
from recipe.data.narrations.files import SourceFile, video_id, whole

_TIMING = re.compile(r"^[ \t]*\d[\d:.,]*[ \t]*-->", re.MULTILINE)
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>|<\d[\d:.]*>|\{\\[^{}]*\}")
_WORD_TIME = re.compile(r"<\d+:\d\d[\d:.]*>")
_TOUCH = 0.5
"""Seconds between cues up to which an equal line counts as a repeat of rolling captions, not as said again."""

_UNREADABLE = Fault("cue that cannot be read", "a cue has no text or no valid times", "repair or remove the cue")


class _Cue(NamedTuple):
    start: float
    end: float
    lines: tuple[str, ...]


def read_subtitles(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """The draft of the file's video."""
    place = Place(file.label)
    captions = _captions(whole(file, options.encoding).lstrip(), options, report)
    where = partial(_cue_place, place, captions)
    source = options.source or "subtitles"
    yield Draft(place, video_id(file.name), captions, where, source=source)


def _cue_place(place: Place, captions: Sequence[Caption | Fault] | Fault, index: int, _part: str) -> Place:
    caption = captions if isinstance(captions, Fault) else captions[index]
    return place if isinstance(caption, Fault) else place._replace(field=f"cue at {caption.start} s")


def _captions(text: str, options: ReadingOptions, report: ReadingReport) -> Sequence[Caption | Fault] | Fault:
    kind = "vtt" if text.startswith("WEBVTT") else "srt"
    try:
        parsed = webvtt.from_buffer(io.StringIO(text), format=kind).captions if text else []
    except MalformedFileError:
        problem, remedy = "the file is neither WebVTT nor SubRip", "give a file that begins with WEBVTT or a first cue"
        return Fault("not subtitles", problem, remedy)
    cues = [_Cue(_seconds(cue.start), _seconds(cue.end), _lines(cue.lines)) for cue in parsed]
    if options.rolling == "collapse" and (_WORD_TIME.search(text) or _rolls(cues)):
        shown = [cue for cue in cues if cue.lines]
        cues = list(_collapsed(shown))
        report.collapsed += len(shown) - len(cues)
    captions: list[Caption | Fault] = [Caption(" ".join(cue.lines), cue.start, cue.end) for cue in cues]
    return captions + [_UNREADABLE] * (len(_TIMING.findall(text)) - len(parsed))


def _seconds(time: str) -> float:
    hours, minutes, seconds = time.split(":")
    return round(int(hours) * 3600 + int(minutes) * 60 + float(seconds), 3)


def _lines(lines: Sequence[str]) -> tuple[str, ...]:
    """The lines of a cue as they are read: without markup, entities and superfluous space; blank ones left out."""
    plain = (" ".join(html.unescape(_MARKUP.sub("", line)).split()) for line in lines)
    return tuple(line for line in plain if line)


def _rolls(cues: Sequence[_Cue]) -> bool:
    """True where most cues begin with the lines that the one before ended with."""
    repeated = [_repeated(before, cue) > 0 for before, cue in pairwise(cues)]
    return len(repeated) >= 2 and 2 * sum(repeated) > len(repeated)


def _repeated(before: _Cue, cue: _Cue) -> int:
    """How many of the cue's first lines are the last lines of the one before it, which it follows at once."""
    if cue.start - before.end > _TOUCH:
        return 0
    sizes = range(min(len(before.lines), len(cue.lines)), 0, -1)
    return next((size for size in sizes if before.lines[-size:] == cue.lines[:size]), 0)


def _collapsed(cues: Sequence[_Cue]) -> Iterator[_Cue]:
    """Each line once, from when it appears to when the next one does."""
    current: _Cue | None = None
    before: _Cue | None = None
    for cue in cues:
        new = cue.lines[_repeated(before, cue) if before else 0 :]
        if new or current is None:
            if current is not None:
                yield current
            current = cue._replace(lines=new)
        else:
            current = current._replace(end=max(current.end, cue.end))
        before = cue
    if current is not None:
        yield current
