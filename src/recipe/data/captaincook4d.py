"""CaptainCook4D in its published layout: 384 recordings of 24 recipes, many with errors made on purpose.

    annotation_json/complete_step_annotations.json    {recording: {"activity_name", "steps": [{"description", ...}]}}
    data_splits/*_data_split_{combined,normal}.json   {"train": [recording, ...], "val": [...], "test": [...]}
    task_graphs/RECIPE.json                           {"steps": {node: description}, "edges": [[before, after], ...]}

All are of github.com/CaptainCook4D/annotations. Steps are listed in no order of time, overlap, and may be repeated or
of no length; a step that the person left out stands among them with -1 for both times. Task graphs are read by
`recipe.data.task_graphs`.
"""

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from recipe.data.layout import Published, SplitEntry, in_time_order, read_published_json, splits_of
from recipe.errors import InputError
from recipe.rows import Text
from recipe.types import SPLITS, Procedure, Step

ANNOTATIONS = "annotation_json/complete_step_annotations.json"
# The other lists are by person, environment or recipe, or leave recordings with errors out.
SPLIT_LIST = "data_splits/recordings_data_split_combined.json"
_REMEDY = "use the files of github.com/CaptainCook4D/annotations"
_PREFIX = re.compile(r"([A-Za-z]+(?: [A-Za-z]+){0,2})\s*-\s*(?=\S)")

# -1 in both times of a step that was left out.
_Moment = Annotated[float, Field(ge=-1)]


class _Step(Published):
    description: Text
    start_time: _Moment
    end_time: _Moment

    @property
    def performed(self) -> bool:
        return (self.start_time, self.end_time) != (-1, -1)

    @model_validator(mode="after")
    def _span_or_none(self) -> "_Step":
        if self.performed and not 0 <= self.start_time <= self.end_time:
            raise ValueError(f"{self.start_time:g} to {self.end_time:g} is no time span")
        return self


class _Recording(Published):
    activity_name: Text
    steps: tuple[_Step, ...]


class _Lists(Published):
    train: tuple[Text, ...]
    val: tuple[Text, ...]
    test: tuple[Text, ...]


def read_captaincook4d(folder: Path) -> list[Procedure]:
    """The performed steps of each recording of `folder`, ordered by recording; the split is empty for unlisted ones.

    Steps are ordered by (start, end, file order), with times in seconds; a repeated step stays. Raises InputError when
    a file is missing or of another layout, and when a listed recording is not annotated or is in two lists.
    """
    recordings = _read(folder)
    path = folder / SPLIT_LIST
    lists = read_published_json(path, _Lists, _REMEDY, of="captaincook4d")
    listed = [
        SplitEntry(name, split, path, field=f"{split}[{index}]")
        for split in SPLITS
        for index, name in enumerate(getattr(lists, split))
    ]
    if not listed:
        raise InputError.at(path, "no recording is listed", _REMEDY)
    splits = splits_of(listed, recordings, _REMEDY)
    procedures = []
    for name in sorted(recordings):
        performed = [step for step in recordings[name].steps if step.performed]
        steps = in_time_order(Step(instruction(step.description), step.start_time, step.end_time) for step in performed)
        goal, split = recordings[name].activity_name, splits.get(name, "")
        procedures.append(Procedure("captaincook4d", name, goal, steps, split))
    return procedures


def missing_steps(folder: Path) -> dict[str, tuple[str, ...]]:
    """Recording to the steps of its recipe that were not performed, in file order. Raises InputError."""
    recordings = _read(folder)
    missing = {
        name: tuple(instruction(step.description) for step in recordings[name].steps if not step.performed)
        for name in sorted(recordings)
    }
    return {name: steps for name, steps in missing.items() if steps}


def activity_names(folder: Path) -> list[str]:
    """The recipes of the annotated recordings, sorted. Raises InputError."""
    return sorted({recording.activity_name for recording in _read(folder).values()})


def instruction(description: str) -> str:
    """A step's description without the verb put before it with a hyphen.

    The words before the first hyphen, up to three, are dropped where the rest says them again, and are joined to the
    rest where it does not.

    >>> instruction("Rinse -Rinse the rice"), instruction("stir-gently stir it")
    ('Rinse the rice', 'gently stir it')
    >>> instruction("Add-2 cups of water"), instruction("Rinse the rice")
    ('Add 2 cups of water', 'Rinse the rice')
    """
    prefix = _PREFIX.match(description)
    if prefix is None:
        return description
    verb, text = prefix[1], description[prefix.end() :]
    return text if re.search(rf"\b{verb}\b", text, re.IGNORECASE) else f"{verb} {text}"


def _read(folder: Path) -> dict[str, _Recording]:
    return read_published_json(folder / ANNOTATIONS, dict[str, _Recording], _REMEDY, of="captaincook4d")
