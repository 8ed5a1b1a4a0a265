"""JSON lines: narrations in the project's own form, and procedures read as narrations.

Narrations have two layouts, one object a line. `segments` is a list of {"text", "start", "end"}, with times for all of
them or for none; `sentences` is a list of texts without times. `title`, `source` and `url` are optional, and fields
that are not named here are ignored. No time is ever invented.

Procedures are {"source", "video_id", "goal", "steps": [{"text", "start", "end"}]} (docs/data.md): each step becomes a
segment and the goal the title. Where a procedure lacks the time of any step, all its steps are read without times, in
their order.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from recipe.artifacts import JsonObject, json_line
from recipe.data.narrations.drafts import Caption, Draft, Fault, Place, ReadingOptions, ReadingReport, caption
from recipe.data.narrations.files import SourceFile, lines
from recipe.errors import InputError
from recipe.types import Narration

BAD_SOURCE = Fault("bad source", "not a string", "give 'source' as a string or leave it out", "source")


def read_json_lines(file: SourceFile, options: ReadingOptions, _report: ReadingReport) -> Iterator[Draft]:
    """One draft a line; blank lines are skipped. Raises InputError for a line that is not a JSON object."""
    for number, row in objects(file, options.encoding):
        place = Place(file.label, number)
        where = partial(_sentence_place, place) if "sentences" in row else partial(place.item, "segments")
        title, url = row.get("title"), row.get("url")
        yield Draft(place, row.get("video_id"), _captions(row), where, title, _source(row), ordered=True, url=url)


def objects(file: SourceFile, encoding: str) -> Iterator[tuple[int, JsonObject]]:
    """Line number and object of each line that is not blank. Raises InputError for any other line, and if all are."""
    rows = 0
    for number, line in enumerate(lines(file, encoding), start=1):
        if line.strip():
            rows += 1
            yield number, json_line(file.label, number, line)
    if not rows:
        raise InputError.at(file.label, "the file is empty", "give a file with one JSON object a line")


def to_row(narration: Narration) -> JsonObject:
    """A narration as an object that `read_narrations` takes; write many with `recipe.artifacts.write_jsonl`."""
    row: JsonObject = {"video_id": narration.video_id}
    for name in ("title", "source", "url"):
        if (value := getattr(narration, name)) is not None:
            row[name] = value
    if narration.segments[0].start is None:
        return row | {"sentences": [segment.text for segment in narration.segments]}
    segments = [{"start": segment.start, "end": segment.end, "text": segment.text} for segment in narration.segments]
    return row | {"segments": segments}


def _source(row: JsonObject) -> str | None:
    """The source that a row names, if it names one."""
    source = row.get("source")
    return source.strip() or None if isinstance(source, str) else None


def _sentence_place(place: Place, _index: int, _part: str) -> Place:
    return place._replace(field="sentences")


def _captions(row: JsonObject) -> Sequence[Caption | Fault] | Fault:
    if "segments" in row and "sentences" in row:
        problem = "'segments' and 'sentences' are both given"
        return Fault("segments and sentences", problem, "keep one of them", "sentences")
    if not isinstance(row.get("source"), str | None):
        return BAD_SOURCE
    if "sentences" in row:
        return _sentences(row["sentences"])
    items = row.get("segments")
    if not isinstance(items, list) or not items:
        problem = "the list is empty or not a list" if "segments" in row else "the narration has no segments"
        remedy = "give 'segments' as a non-empty list of objects, or 'sentences' as a list of texts"
        return Fault("no captions", problem, remedy, "segments")
    return [caption(item) for item in items]


def _sentences(items: object) -> Sequence[Caption | Fault] | Fault:
    if not isinstance(items, list) or not items:
        problem, remedy = "the list is empty or not a list", "give 'sentences' as a non-empty list of strings"
        return Fault("no captions", problem, remedy, "sentences")
    return [_sentence(item) for item in items]


def _sentence(item: object) -> Caption | Fault:
    if not isinstance(item, str) or not item.strip():
        return Fault("blank text", "an item is empty or not a string", "give non-empty strings")
    return Caption(item)


NO_STEPS = Fault("no captions", "the list is missing, empty or not a list", "give 'steps' as a list of steps", "steps")
BAD_GOAL = Fault("bad goal", "not a string", "give 'goal' as a string or leave it out", "goal")


def read_step_lists(file: SourceFile, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """One draft a line; blank lines are skipped. Raises InputError for a line that is not a JSON object."""
    for number, row in objects(file, options.encoding):
        place, goal = Place(file.label, number), row.get("goal")
        title = (goal.strip() or None) if isinstance(goal, str) else None
        captions = _step_captions(row)
        report.no_goal += title is None and not isinstance(captions, Fault)
        where = partial(place.item, "steps")
        url = row.get("url")
        yield Draft(place, row.get("video_id"), captions, where, title, _source(row), ordered=True, url=url, steps=True)


def _step_captions(row: JsonObject) -> Sequence[Caption | Fault] | Fault:
    if not isinstance(row.get("goal"), str | None):
        return BAD_GOAL
    if not isinstance(row.get("source"), str | None):
        return BAD_SOURCE
    steps = row.get("steps")
    if not isinstance(steps, list) or not steps:
        return NO_STEPS
    captions = [caption(step) for step in steps]
    timed = all(isinstance(item, Fault) or None not in (item.start, item.end) for item in captions)
    return captions if timed else [item if isinstance(item, Fault) else Caption(item.text) for item in captions]
