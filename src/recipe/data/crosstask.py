"""CrossTask in its published layout, with the split lists of Visual Planning for Assistance (VPA) next to it.

    crosstask_release/tasks_primary.txt            cards: id, name, page, number of steps, steps with commas
    crosstask_release/annotations/TASK_VIDEO.csv   step number (1-based), start, end; no header
    splits/{train,validation,test}.txt             one video id a line

The lists are those of facebookresearch/VLaMP, meta_data/crosstask. Video ids hold `_` themselves, so a file
name is split at its first one. Some files are not in time order and many hold overlapping segments: steps are
sorted by (start, end, file order), unless the order of the file is requested.
"""

import math
from pathlib import Path
from typing import Literal, NamedTuple

from recipe.data.layout import SplitEntry, in_time_order, read_lines, splits_of
from recipe.errors import InputError
from recipe.types import Procedure, Step

_LISTS = {"train": "train", "validation": "val", "test": "test"}
# Lines of a card: id, name, page, number of steps, steps.
_CARD_LINES = 5
_RELEASE = "use the folder crosstask_release as published"
_SPLITS = "use the lists of facebookresearch/VLaMP, meta_data/crosstask"


class TaskCard(NamedTuple):
    """A task's name and its steps, in the order of the card."""

    name: str
    steps: tuple[str, ...]


def read_crosstask(folder: Path, order: Literal["time", "file"] = "time") -> list[Procedure]:
    """The annotated videos of `folder`, ordered by video id; the split is empty for those in no VPA list.

    Raises InputError, with file and line, when a file is missing or of another layout, when an annotation
    refers to a task or a step that no card has, and when a listed video has no annotation or is in two lists.
    """
    release = folder / "crosstask_release"
    cards = read_cards(release / "tasks_primary.txt")
    files: dict[str, Path] = {}
    for path in sorted((release / "annotations").glob("*.csv")):
        _, separator, video = path.stem.partition("_")
        if not separator or not video:
            raise InputError.at(path, "the file name is not TASK_VIDEO.csv", _RELEASE)
        if video in files:
            raise InputError.at(path, f"the video is annotated in {files[video].name} too", _RELEASE)
        files[video] = path
    if not files:
        raise InputError.at(release / "annotations", "no annotation files were found", _RELEASE)
    listed = (
        SplitEntry(video, split, path, line=number)
        for path, split in ((folder / "splits" / f"{name}.txt", split) for name, split in _LISTS.items())
        for number, line in enumerate(read_lines(path, _SPLITS), start=1)
        if (video := line.strip())
    )
    splits = splits_of(listed, files, _SPLITS)
    procedures = []
    for video in sorted(files):
        card = cards.get(task := files[video].stem.partition("_")[0])
        if card is None:
            raise InputError.at(files[video], f"task {task!r} is not in tasks_primary.txt", _RELEASE)
        written = []
        for line, row in enumerate(read_lines(files[video], _RELEASE), start=1):
            if not row.strip():
                continue
            try:
                place, first, last = row.split(",")
                number, start, end = int(place), float(first), float(last)
            except ValueError:
                raise InputError.at(files[video], f"{row!r} is not step,start,end", _RELEASE, line=line) from None
            # One chain of comparisons, which NaN fails, too.
            if not 0 <= start <= end < math.inf:
                raise InputError.at(files[video], f"{row!r} holds no time span", _RELEASE, line=line)
            if not 1 <= number <= len(card.steps):
                problem = f"step {number} is not among the {len(card.steps)} steps of {card.name!r}"
                raise InputError.at(files[video], problem, _RELEASE, line=line)
            written.append(Step(card.steps[number - 1], start, end))
        steps = in_time_order(written) if order == "time" else tuple(written)
        procedures.append(Procedure("crosstask", video, card.name, steps, splits.get(video, "")))
    return procedures


def read_cards(path: Path) -> dict[str, TaskCard]:
    """Task id to card, of a file with five lines a card and blank lines between. Raises InputError."""
    lines = [(number, line) for number, line in enumerate(read_lines(path, _RELEASE), 1) if line.strip()]
    if not lines or len(lines) % _CARD_LINES:
        problem = f"{len(lines)} non-blank lines are not cards of {_CARD_LINES} lines"
        raise InputError.at(path, problem, _RELEASE)
    cards = {}
    for first in range(0, len(lines), _CARD_LINES):
        (_, task), (_, name), _, (_, count), (number, listed) = lines[first : first + _CARD_LINES]
        steps = tuple(step.strip() for step in listed.split(","))
        # A comma within a step would make two of it, and only the number that the card announces tells.
        if count.strip() != str(len(steps)) or not all(steps):
            problem = f"{len(steps)} steps are listed where the card announces {count.strip()}"
            raise InputError.at(path, problem, _RELEASE, line=number)
        cards[task.strip()] = TaskCard(name.strip(), steps)
    return cards
