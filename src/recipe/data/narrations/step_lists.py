"""Procedures as narrations: what annotators wrote of a video in place of what was said in it (docs/data.md).

One object a line, {"source", "video_id", "goal", "steps": [{"text", "start", "end"}]}: each step is a segment and the
goal is the title. Where a procedure lacks the time of any step, all its steps are read without times, in their order.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from recipe.artifacts import JsonObject
from recipe.data.narrations.drafts import Caption, Draft, Fault, Place
from recipe.data.narrations.files import Opened
from recipe.data.narrations.json_lines import BAD_SOURCE, caption, objects, source_of
from recipe.data.narrations.options import ReadingOptions
from recipe.data.narrations.report import ReadingReport

_NO_STEPS = Fault("no captions", "the list is missing, empty or not a list", "give 'steps' as a list of steps", "steps")
_BAD_GOAL = Fault("bad goal", "not a string", "give 'goal' as a string or leave it out", "goal")


def read(file: Opened, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """One draft a line; blank lines are skipped. Raises InputError for a line that is not a JSON object."""
    for number, row in objects(file, options.encoding):
        place, goal = Place(file.label, number), row.get("goal")
        title = (goal.strip() or None) if isinstance(goal, str) else None
        captions = _captions(row)
        report.no_goal += title is None and not isinstance(captions, Fault)
        where = partial(_step_place, place)
        yield Draft(place, row.get("video_id"), captions, where, title, source_of(row), ordered=True)


def _captions(row: JsonObject) -> Sequence[Caption | Fault] | Fault:
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
