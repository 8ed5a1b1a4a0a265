"""Narrations as the parallel lists `start`, `end` and `text`, the layout of HowTo100M and HowToCaption."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from recipe.data.narrations.drafts import Caption, Draft, Fault, Place, ReadingOptions, ReadingReport

_LAYOUT = "give 'start', 'end' and 'text' as lists of equal lengths"
_NO_SCORE = Fault(
    "no score",
    "the caption has no score, but a smallest score is asked for",
    "leave out the smallest score or give a file with scores",
    "text",
)
_NO_CAPTION = Fault("not a caption", "not a text or a pair of text and score", "correct the entry", "text")


class Lists(NamedTuple):
    """The lists of one video, unchecked."""

    start: object
    end: object
    text: object
    title: object = None
    source: str | None = None


def from_mapping(value: object, source: str) -> Lists | Fault:
    """The lists of a video that is given as an object."""
    if not isinstance(value, dict):
        return Fault("not a narration", "the video's entry is not an object", _LAYOUT)
    return Lists(value.get("start"), value.get("end"), value.get("text"), source=source)


def drafts(
    place: Place, video_id: object, lists: Lists | Fault, options: ReadingOptions, report: ReadingReport
) -> Iterator[Draft]:
    """The draft of one video; none where no caption reaches the smallest score that is asked for."""
    before = report.below_score
    captions, rows = (lists, ()) if isinstance(lists, Fault) else _captions(lists, options, report)
    if not captions and report.below_score > before:
        report.skipped_narrations["no caption reaches the smallest score"] += 1
        return
    title, source = (None, None) if isinstance(lists, Fault) else (lists.title, lists.source)
    yield Draft(place, video_id, captions, partial(_caption_place, place, rows), title, source)


def _caption_place(place: Place, rows: Sequence[int], index: int, part: str) -> Place:
    row = f"{part or 'text'}[{rows[index]}]"
    return place._replace(field=f"{place.field}.{row}" if place.field else row)


def _captions(
    lists: Lists, options: ReadingOptions, report: ReadingReport
) -> tuple[Sequence[Caption | Fault] | Fault, Sequence[int]]:
    """The captions, or why there are none, and the index in the lists that each comes from."""
    starts, ends, texts = lists.start, lists.end, lists.text
    if not (isinstance(starts, list | tuple) and isinstance(ends, list | tuple) and isinstance(texts, list | tuple)):
        return Fault("not a narration", "'start', 'end' or 'text' is missing or not a list", _LAYOUT), ()
    if not len(starts) == len(ends) == len(texts):
        problem = f"the lists differ in length: {len(starts)} 'start', {len(ends)} 'end', {len(texts)} 'text'"
        return Fault("lists of unequal length", problem, _LAYOUT), ()
    if all(type(text) is str for text in texts) and options.min_score is None:
        return list(map(Caption, texts, starts, ends)), range(len(texts))
    captions: list[Caption | Fault] = []
    rows: list[int] = []
    for row, (start, end, entry) in enumerate(zip(starts, ends, texts, strict=True)):
        chosen, below = _chosen(entry, options)
        report.below_score += below
        captions += [text if isinstance(text, Fault) else Caption(text, start, end) for text in chosen]
        rows += [row] * len(chosen)
    return captions, rows


def _chosen(entry: Any, options: ReadingOptions) -> tuple[list[object], int]:
    """The texts that one time span gives, `Fault`s among them, and how many captions scored too low."""
    entries = entry if isinstance(entry, list | tuple) else [entry]
    if not entries:
        return [Fault("no text for a time span", "the list of captions is empty", "give a caption", "text")], 0
    texts: list[object] = [text for item in entries if (text := _text(item, options.min_score)) is not None]
    below = len(entries) - len(texts)
    if options.captions == "first":
        texts = texts[:1]
    elif options.captions == "joined":
        usable = [text.strip() for text in texts if isinstance(text, str) and text.strip()]
        bad = [text for text in texts if not isinstance(text, str) or not text.strip()]
        texts = [". ".join(text.rstrip(".") for text in usable), *bad] if usable else bad
    return texts, below


def _text(item: Any, least: float | None) -> object:
    """The text of a caption, given alone or as (text, score); None where the score is too low."""
    if isinstance(item, str):
        return item if least is None else _NO_SCORE
    if not (isinstance(item, list | tuple) and len(item) == 2):
        return _NO_CAPTION
    text, score = item
    if isinstance(score, bool) or not isinstance(score, int | float) or score != score:
        return _NO_CAPTION
    return text if least is None or score >= least else None
