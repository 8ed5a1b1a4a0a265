"""EgoPER (Lee et al., CVPR 2024) in its published layout: five recipes, cooked rightly and with errors made on purpose.

    annotation.json    {recipe: {"action2idx", "actiontype2idx", "segments": [{"video_id", "labels"}]}}
    RECIPE/{training,validation,test}.txt    one video id a line

`labels` holds lists of equal length: "time_stamp", "action", "action_type" and "error_description". An action's text
is its name in `action2idx`, which says what the recipe asks for, also where the person did it in another way or let it
slip. Action 0 is background. An addition, which the recipe does not ask for, and the correction of an error are no
steps of the recipe and set aside. The 2025 release writes the folders of recipes with a capital.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, RootModel, model_validator

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
_KINDS = {0: "normal", 1: "slip", 2: "correction", 3: "addition", 4: "modification"}
"""Action types by number as google/howtodiv reads them, for files without `actiontype2idx`."""
_STEPS = ("normal", "slip", "modification")
_NO_STEPS = ("correction", "addition")
_CORRECTED = {("quesadilla", 6): "Fold tortilla in half"}
"""Names that google/howtodiv puts right: the published one belongs to an error."""


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


class _Recipes(RootModel[dict[str, _Recipe]]):
    pass


class _Action(NamedTuple):
    """An action that a person did, and whether it is a step of the recipe."""

    step: Step
    of_the_recipe: bool


def read_egoper(folder: Path) -> list[Procedure]:
    """The recordings of `folder`/annotation.json, ordered by video id; the split is empty for those in no list.

    Steps are ordered by (start, end, file order), with times in seconds. A recipe's lists may be absent. Raises
    InputError when annotation.json is missing or of another layout, for an action without a name, for a recording that
    occurs twice, and when a listed recording is not annotated or is in two lists.
    """
    recipes = _read(folder)
    videos: dict[str, tuple[str, tuple[Step, ...]]] = {}
    for recipe, index, recording in _recordings(recipes):
        if recording.video_id in videos:
            problem = f"recording {recording.video_id!r} occurs twice"
            raise InputError.at(folder / ANNOTATIONS, problem, _REMEDY, field=f"{recipe}.segments[{index}].video_id")
        actions = _actions(folder, recipe, recipes[recipe], index)
        steps = in_time_order(action.step for action in actions if action.of_the_recipe)
        videos[recording.video_id] = recipe, steps
    splits = splits_of(_listed(folder, recipes), videos, _REMEDY)
    return [
        Procedure("egoper", video, f"make {videos[video][0]}", videos[video][1], splits.get(video, ""))
        for video in sorted(videos)
    ]


def additions_and_corrections(folder: Path) -> dict[str, tuple[str, ...]]:
    """Video id to what the person did beside the recipe's steps, in file order. Raises InputError."""
    recipes = _read(folder)
    found = {
        recording.video_id: tuple(
            action.step.text for action in _actions(folder, recipe, recipes[recipe], index) if not action.of_the_recipe
        )
        for recipe, index, recording in _recordings(recipes)
    }
    return {video: found[video] for video in sorted(found) if found[video]}


def _read(folder: Path) -> dict[str, _Recipe]:
    return read_published_json(folder / ANNOTATIONS, _Recipes, _REMEDY, of="egoper").root


def _recordings(recipes: dict[str, _Recipe]) -> Iterator[tuple[str, int, _Recording]]:
    for recipe in sorted(recipes):
        for index, recording in enumerate(recipes[recipe].segments):
            yield recipe, index, recording


def _actions(folder: Path, name: str, recipe: _Recipe, index: int) -> list[_Action]:
    """What is done in one recording, in file order, background left out."""
    # Sorted, so that it depends on no order of keys which of two names for one number is taken.
    names = {number: text for text, number in sorted(recipe.action2idx.items(), reverse=True)}
    names |= {number: text for (of, number), text in _CORRECTED.items() if of == name}
    kinds = {number: _kind(text) for text, number in sorted(recipe.actiontype2idx.items())} or _KINDS
    labels = recipe.segments[index].labels
    actions = []
    for position, (span, action, number, description) in enumerate(
        zip(labels.time_stamp, labels.action, labels.action_type, labels.error_description, strict=True)
    ):
        kind = kinds.get(number)
        place = f"{name}.segments[{index}].labels"
        if action == _BACKGROUND or kind == "background":
            continue
        if kind not in (*_STEPS, *_NO_STEPS):
            problem = f"action type {number} is unknown"
            raise InputError.at(folder / ANNOTATIONS, problem, _REMEDY, field=f"{place}.action_type[{position}]")
        if kind in _STEPS and action not in names:
            problem = f"action {action} has no name in action2idx"
            raise InputError.at(folder / ANNOTATIONS, problem, _REMEDY, field=f"{place}.action[{position}]")
        text = names[action] if kind in _STEPS else description or kind
        actions.append(_Action(Step(text, *span), kind in _STEPS))
    return actions


def _kind(name: str) -> str:
    """The kind that an entry of `actiontype2idx` stands for, such as Error_Slip."""
    return name.lower().removeprefix("error_")


def _listed(folder: Path, recipes: dict[str, _Recipe]) -> Iterator[SplitEntry]:
    """The recordings in the lists of splits that are there."""
    for recipe in sorted(recipes):
        for name, split in _LISTS.items():
            path = next(
                (
                    path
                    for path in (folder / case / f"{name}.txt" for case in (recipe, recipe.title()))
                    if path.exists()
                ),
                None,
            )
            for number, line in enumerate(read_lines(path, _REMEDY) if path else [], start=1):
                if video := line.strip():
                    yield SplitEntry(video, split, path or folder, line=number)
