"""JSON lines: narrations in the project's own form, and procedures read as narrations."""

import json
from collections.abc import Iterator, Sequence
from functools import partial

from recipe.artifacts import JsonObject
from recipe.data.narrations.drafts import Caption, Draft, Fault, Place, ReadingOptions, ReadingReport
from recipe.data.narrations.files import Opened, lines
from recipe.errors import InputError
from recipe.types import Narration

# Narrations as JSON lines, the project's own form: what was said in each video, with the times that the source has.
#
# Two layouts are read, one object a line. `segments` is a list of {"text", "start", "end"}, with times for
# all of them or for none; `sentences` is a list of texts without times. `title` and `source` are optional,
# and fields that are not named here are ignored. No time is ever invented.


BAD_SOURCE = Fault("bad source", "not a string", "give 'source' as a string or leave it out", "source")


def read_json_lines(file: Opened, options: ReadingOptions, _report: ReadingReport) -> Iterator[Draft]:
    """One draft a line; blank lines are skipped. Raises InputError for a line that is not a JSON object."""
    for number, row in objects(file, options.encoding):
        yield _draft(Place(file.label, number), row)


def objects(file: Opened, encoding: str) -> Iterator[tuple[int, JsonObject]]:
    """Line number and object of each line that is not blank. Raises InputError for any other line, and if all are."""
    rows = 0
    for number, line in enumerate(lines(file, encoding), start=1):
        if line.strip():
            rows += 1
            yield number, _object(file.label, number, line)
    if not rows:
        raise InputError.at(file.label, "the file is empty", "give a file with one JSON object a line")


def to_row(narration: Narration) -> JsonObject:
    """A narration as an object that `read` takes; write many with `recipe.artifacts.write_jsonl`."""
    row: JsonObject = {"video_id": narration.video_id}
    for name in ("title", "source"):
        if (value := getattr(narration, name)) is not None:
            row[name] = value
    if narration.segments[0].start is None:
        return row | {"sentences": [segment.text for segment in narration.segments]}
    segments = [{"start": segment.start, "end": segment.end, "text": segment.text} for segment in narration.segments]
    return row | {"segments": segments}


def _object(label: str, number: int, line: str) -> JsonObject:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        problem = f"not valid JSON ({error.msg} at column {error.colno})"
        raise InputError.at(label, problem, "give one JSON object a line", line=number) from None
    except (ValueError, RecursionError) as error:
        raise InputError.at(label, f"not usable JSON ({error})", "give one JSON object a line", line=number) from None
    if not isinstance(value, dict):
        raise InputError.at(label, "not a JSON object", "give one JSON object a line", line=number)
    return value


def _draft(place: Place, row: JsonObject) -> Draft:
    return Draft(
        place=place,
        video_id=row.get("video_id"),
        captions=_captions(row),
        caption_place=partial(_caption_place, place, "sentences" in row),
        title=row.get("title"),
        source=source_of(row),
        ordered=True,
    )


def source_of(row: JsonObject) -> str | None:
    """The source that a row names, if it names one."""
    source = row.get("source")
    return source.strip() or None if isinstance(source, str) else None


def _caption_place(place: Place, sentences: bool, index: int, part: str) -> Place:
    if sentences:
        return place._replace(field="sentences")
    return place._replace(field=f"segments[{index}].{part}" if part else f"segments[{index}]")


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


def caption(item: object) -> Caption | Fault:
    """The caption of an object {"text", "start", "end"}."""
    if not isinstance(item, dict):
        return Fault("not a caption", "not an object", 'give {"text", "start", "end"}')
    return Caption(item.get("text"), item.get("start"), item.get("end"))


def _sentences(items: object) -> Sequence[Caption | Fault] | Fault:
    if not isinstance(items, list) or not items:
        problem, remedy = "the list is empty or not a list", "give 'sentences' as a non-empty list of strings"
        return Fault("no captions", problem, remedy, "sentences")
    return [_sentence(item) for item in items]


def _sentence(item: object) -> Caption | Fault:
    if not isinstance(item, str) or not item.strip():
        return Fault("blank text", "an item is empty or not a string", "give non-empty strings")
    return Caption(item)


# Procedures as narrations: what annotators wrote of a video in place of what was said in it (docs/data.md).
#
# One object a line, {"source", "video_id", "goal", "steps": [{"text", "start", "end"}]}: each step is a segment and the
# goal is the title. Where a procedure lacks the time of any step, all its steps are read without times, in their order.


_NO_STEPS = Fault("no captions", "the list is missing, empty or not a list", "give 'steps' as a list of steps", "steps")
_BAD_GOAL = Fault("bad goal", "not a string", "give 'goal' as a string or leave it out", "goal")


def read_step_lists(file: Opened, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """One draft a line; blank lines are skipped. Raises InputError for a line that is not a JSON object."""
    for number, row in objects(file, options.encoding):
        place, goal = Place(file.label, number), row.get("goal")
        title = (goal.strip() or None) if isinstance(goal, str) else None
        captions = _step_captions(row)
        report.no_goal += title is None and not isinstance(captions, Fault)
        where = partial(_step_place, place)
        yield Draft(place, row.get("video_id"), captions, where, title, source_of(row), ordered=True)


def _step_captions(row: JsonObject) -> Sequence[Caption | Fault] | Fault:
    if not isinstance(row.get("goal"), str | None):
        return _BAD_GOAL
    if not isinstance(row.get("source"), str | None):
        return BAD_SOURCE
    steps = row.get("steps")
    if not isinstance(steps, list) or not steps:
        return _NO_STEPS
    captions = [caption(step) for step in steps]
    timed = all(isinstance(item, Fault) or None not in (item.start, item.end) for item in captions)
    return captions if timed else [_untimed(item) for item in captions]


def _untimed(item: Caption | Fault) -> Caption | Fault:
    return item if isinstance(item, Fault) else Caption(item.text)


def _step_place(place: Place, index: int, part: str) -> Place:
    return place._replace(field=f"steps[{index}].{part}" if part else f"steps[{index}]")
