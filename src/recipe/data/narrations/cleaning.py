"""From drafts to narrations: what a usable caption is, and what becomes of the others."""

import math
import re
from collections.abc import Callable, Sequence

from recipe.data.narrations.drafts import Caption, Draft, Fault
from recipe.data.narrations.options import ReadingOptions
from recipe.data.narrations.report import ReadingReport
from recipe.types import Narration, Segment

LATEST = 24 * 3600
"""No time lies beyond this many seconds: YouTube takes at most 12 hours, so a later time is in another unit."""

_SURROGATES = re.compile("[\ud800-\udfff]")

_BLANK = Fault(
    "blank text",
    "the text is missing, blank or not a string",
    "give the text or remove the segment",
    "text",
)
_NO_UNICODE = Fault(
    "text that is not Unicode",
    "the text holds half of a surrogate pair",
    "write the text anew as UTF-8",
    "text",
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
    fault = _header_fault(draft) or (captions if isinstance(captions, Fault) else None if captions else _NOTHING)
    if fault is not None or isinstance(captions, Fault):
        _reject(draft, fault or _NOTHING, options, report)
        return None

    def drop(index: int, fault: Fault) -> None:
        if options.bad == "error":
            raise fault.at(draft.caption_place(index, fault.part))
        report.skipped_captions[fault.reason] += 1

    segments = _segments(captions, draft.ordered, drop)
    if not segments:
        report.skipped_narrations["no usable caption"] += 1
        return None
    title = draft.title.strip() or None if isinstance(draft.title, str) else None
    return Narration(str(draft.video_id).strip(), segments, title, draft.source or options.source)


def _reject(draft: Draft, fault: Fault, options: ReadingOptions, report: ReadingReport) -> None:
    if options.bad == "error":
        raise fault.at(draft.place._replace(field=fault.part or draft.place.field))
    report.skipped_narrations[fault.reason] += 1


def _header_fault(draft: Draft) -> Fault | None:
    """What is wrong with the id or the title."""
    video, title = draft.video_id, draft.title
    if video is None:
        return Fault("no video id", "the field is missing", "give 'video_id' as a non-empty string", "video_id")
    if not isinstance(video, str) or not video.strip():
        problem, remedy = "the text is empty or not a string", "give 'video_id' as a non-empty string"
        return Fault("no video id", problem, remedy, "video_id")
    if title is not None and not isinstance(title, str):
        return Fault("bad title", "not a string", "give 'title' as a string or leave it out", "title")
    for name, text in (("video_id", video), ("title", title or "")):
        if _SURROGATES.search(text):
            return _NO_UNICODE._replace(part=name)
    return None


def _segments(
    captions: Sequence[Caption | Fault], ordered: bool, drop: Callable[[int, Fault], None]
) -> tuple[Segment, ...]:
    """The captions that can be used, in time order, equal times in file order."""
    kept: list[tuple[int, Segment]] = []
    for index, caption in enumerate(captions):
        found = _segment(caption)
        if isinstance(found, Fault):
            drop(index, found)
        else:
            kept.append((index, found))
    kept = _all_timed_or_none(kept, drop)
    if not ordered:
        kept.sort(key=_span)
        return tuple(segment for _, segment in kept)
    return _in_order(kept, drop)


def _segment(caption: Caption | Fault) -> Segment | Fault:
    if isinstance(caption, Fault):
        return caption
    text, start, end = caption
    if not isinstance(text, str) or not (text := text.strip()):
        return _BLANK
    if not text.isascii() and _SURROGATES.search(text):
        return _NO_UNICODE
    # Almost all captions take this way: one chain of comparisons, which NaN and infinity fail.
    if type(start) in _NUMBERS and type(end) in _NUMBERS and 0 <= start <= end <= LATEST:  # type: ignore[operator]
        return Segment(text, float(start), float(end))  # type: ignore[arg-type]
    if start is None and end is None:
        return Segment(text)
    return _time_fault(start, end)


_NUMBERS = (float, int)


def _time_fault(start: object, end: object) -> Segment | Fault:
    for part, value in (("start", start), ("end", end)):
        if value is None:
            return _HALF
        if isinstance(value, bool) or not isinstance(value, int | float):
            problem = f"the time {value!r} is not a number of seconds from 0 on"
            return Fault("time that is no number", problem, "give seconds from the start of the video", part)
        if not math.isfinite(value) or value < 0:
            problem = f"the time {value!r} is not a number of seconds from 0 on"
            reason = "negative time" if value < 0 and math.isfinite(value) else "time that is no number"
            return Fault(reason, problem, "give seconds from the start of the video", part)
        if value > LATEST:
            problem = f"the time {value:g} s is later than {LATEST // 3600} hours"
            remedy = "give seconds, not milliseconds or frames"
            return Fault(f"time beyond {LATEST // 3600} hours", problem, remedy, part)
    problem = f"the segment ends at {end:g} s, before its start at {start:g} s"
    return Fault("end before start", problem, "correct the times", "end")


def _all_timed_or_none(
    kept: list[tuple[int, Segment]], drop: Callable[[int, Fault], None]
) -> list[tuple[int, Segment]]:
    """Without the untimed segments of a narration that has timed ones."""
    untimed = [index for index, segment in kept if segment.start is None]
    if not untimed or len(untimed) == len(kept):
        return kept
    for index in untimed:
        drop(index, _SOME)
    return [(index, segment) for index, segment in kept if segment.start is not None]


def _span(item: tuple[int, Segment]) -> tuple[float, float]:
    segment = item[1]
    return (segment.start or 0.0, segment.end or 0.0)


def _in_order(kept: list[tuple[int, Segment]], drop: Callable[[int, Fault], None]) -> tuple[Segment, ...]:
    """Without the segments that start before one that stands ahead of them."""
    ordered: list[Segment] = []
    previous = 0.0
    for index, segment in kept:
        start = segment.start or 0.0
        if start < previous:
            problem = f"the segment starts at {start:g} s, before the previous one at {previous:g} s"
            drop(index, Fault("out of order", problem, "sort the segments by start", "start"))
        else:
            ordered.append(segment)
            previous = start
    return tuple(ordered)
