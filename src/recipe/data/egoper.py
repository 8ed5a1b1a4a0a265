"""EgoPER (Lee et al., CVPR 2024) in its published layout: five recipes, cooked rightly and with errors made on purpose.

    annotation.json    {recipe: {"action2idx", "actiontype2idx", "segments": [{"video_id", "labels"}]}}
    RECIPE/{training,validation,test}.txt    one video id a line

`labels` holds lists of equal length: "time_stamp", "action", "action_type" and "error_description". An action's text
is its name in `action2idx`, which says what the recipe asks for, also where the person did it in another way or let it
slip. Action 0 is background. An addition, which the recipe does not ask for, and the correction of an error are no
steps of the recipe and set aside. The 2025 release writes the folders of recipes with a capital.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, model_validator

from recipe.data.layout import Published, Span, SplitEntry, in_time_order, read_lines, read_published_json, splits_of
from recipe.errors import InputError
from recipe.rows import Text
from recipe.types import Procedure, Step

ANNOTATIONS = "annotation.json"
RECIPES = ("coffee", "oatmeal", "pinwheels", "quesadilla", "tea")
"""The recipes that are published."""

_LISTS = {"training": "train", "validation": "val", "test": "test"}
_REMEDY = "use the files that the authors of github.com/robert80203/EgoPER_official send"
_BACKGROUND = 0
# Action types by number as google/howtodiv reads them, for files without `actiontype2idx`.
_KINDS = {0: "normal", 1: "slip", 2: "correction", 3: "addition", 4: "modification"}
_STEPS = ("normal", "slip", "modification")
_NO_STEPS = ("correction", "addition")
# Names that google/howtodiv puts right: the published one belongs to an error.
_CORRECTED = {("quesadilla", 6): "Fold tortilla in half"}


class _Labels(Published):
    time_stamp: tuple[Span, ...]
    action: tuple[int, ...]
    action_type: tuple[int, ...]
    error_description: tuple[str, ...]

    @model_validator(mode="after")
    def _equal(self) -> "_Labels":
        lengths = [len(self.time_stamp), len(self.action), len(self.action_type), len(self.error_description)]
        if len(set(lengths)) > 1:
            raise ValueError(f"the lists are of different lengths: {', '.join(map(str, lengths))}")
        return self


class _Recording(Published):
    video_id: Text
    labels: _Labels


class _Recipe(Published):
    action2idx: dict[Text, int]
    actiontype2idx: dict[Text, int] = Field(default_factory=dict)
    segments: tuple[_Recording, ...]


def read_egoper(folder: Path) -> list[Procedure]:
    """The recordings of `folder`/annotation.json, ordered by video id; the split is empty for those in no list.

    Steps are ordered by (start, end, file order), with times in seconds. A recipe's lists may be absent. Raises
    InputError when annotation.json is missing or of another layout, for an action without a name, for a recording that
    occurs twice, and when a listed recording is not annotated or is in two lists.
    """
    recordings = list(_recordings(folder))
    videos: dict[str, Procedure] = {}
    for recording in recordings:
        if recording.video_id in videos:
            problem = f"recording {recording.video_id!r} occurs twice"
            raise InputError.at(folder / ANNOTATIONS, problem, _REMEDY, field=f"{recording.field}.video_id")
        steps = in_time_order(recording.steps)
        videos[recording.video_id] = Procedure("egoper", recording.video_id, f"make {recording.recipe}", steps)
    listed: list[SplitEntry] = []
    for recipe in sorted({recording.recipe for recording in recordings}):
        for name, split in _LISTS.items():
            paths = [folder / case / f"{name}.txt" for case in (recipe, recipe.title())]
            path = next((path for path in paths if path.exists()), None)
            for number, line in enumerate(read_lines(path, _REMEDY) if path else [], start=1):
                if video := line.strip():
                    listed.append(SplitEntry(video, split, path or folder, line=number))
    splits = splits_of(listed, videos, _REMEDY)
    return [replace(videos[video], split=splits.get(video, "")) for video in sorted(videos)]


def additions_and_corrections(folder: Path) -> dict[str, tuple[str, ...]]:
    """Video id to what the person did besides the recipe's steps, in file order. Raises InputError."""
    asides = {recording.video_id: recording.asides for recording in _recordings(folder)}
    return {video: asides[video] for video in sorted(asides) if asides[video]}


class _Actions(NamedTuple):
    """What is done in one recording, in file order, background left out."""

    recipe: str
    video_id: str
    field: str
    """Where the recording stands in the file."""
    steps: tuple[Step, ...]
    asides: tuple[str, ...]
    """What the recipe does not ask for."""


def _recordings(folder: Path) -> Iterator[_Actions]:
    recipes = read_published_json(folder / ANNOTATIONS, dict[str, _Recipe], _REMEDY, of="egoper")
    for recipe in sorted(recipes):
        # Sorted, so that it depends on no order of keys which of two names for one number is taken.
        names = {number: text for text, number in sorted(recipes[recipe].action2idx.items(), reverse=True)}
        names |= {number: text for (of, number), text in _CORRECTED.items() if of == recipe}
        types = sorted(recipes[recipe].actiontype2idx.items())
        kinds = {number: text.lower().removeprefix("error_") for text, number in types} or _KINDS
        for index, recording in enumerate(recipes[recipe].segments):
            labels, field = recording.labels, f"{recipe}.segments[{index}]"
            steps, asides = list[Step](), list[str]()
            for position, (span, action, number, description) in enumerate(
                zip(labels.time_stamp, labels.action, labels.action_type, labels.error_description, strict=True)
            ):
                kind = kinds.get(number)
                if action == _BACKGROUND or kind == "background":
                    continue
                if kind not in (*_STEPS, *_NO_STEPS):
                    problem, place = f"action type {number} is unknown", f"{field}.labels.action_type[{position}]"
                    raise InputError.at(folder / ANNOTATIONS, problem, _REMEDY, field=place)
                if kind in _NO_STEPS:
                    asides.append(description or kind)
                    continue
                if action not in names:
                    problem, place = f"action {action} has no name in action2idx", f"{field}.labels.action[{position}]"
                    raise InputError.at(folder / ANNOTATIONS, problem, _REMEDY, field=place)
                steps.append(Step(names[action], *span))
            yield _Actions(recipe, recording.video_id, field, tuple(steps), tuple(asides))
