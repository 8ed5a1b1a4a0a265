"""COIN in its official layout: one COIN.json of 11,827 videos of 180 tasks (coin-dataset/annotations).

COIN has no goal text but a class name, such as `ReplaceCDDriveWithSSD`, and no validation split.
"""

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from recipe.data.layout import Published, Span, in_time_order, read_published_json
from recipe.rows import Text
from recipe.types import Procedure, Step

# Before a word's capital, and behind an acronym that a word follows ("CDDrive").
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SPLITS = {"training": "train", "testing": "test"}
_REMEDY = "use COIN.json as published by coin-dataset/annotations"


class _Segment(Published):
    label: Text
    segment: Span


class _Video(Published):
    task: Annotated[Text, Field(alias="class")]
    subset: Literal["training", "testing"]
    annotation: tuple[_Segment, ...]


class _Coin(Published):
    database: dict[str, _Video]


def read_coin(folder: Path) -> list[Procedure]:
    """The procedures of `folder`/COIN.json, ordered by video id.

    Steps are ordered by (start, end, file order), with times in seconds. Raises InputError when the file is
    missing or of another layout.
    """
    database = read_published_json(folder / "COIN.json", _Coin, _REMEDY, of="coin").database
    procedures = []
    for video_id in sorted(database):
        video = database[video_id]
        steps = in_time_order(Step(item.label, *item.segment) for item in video.annotation)
        procedures.append(Procedure("coin", video_id, goal_of_class(video.task), steps, _SPLITS[video.subset]))
    return procedures


def goal_of_class(name: str) -> str:
    """The words of a CamelCase class name; acronyms keep their capitals, all else is lower case.

    >>> goal_of_class("ReplaceCDDriveWithSSD")
    'replace CD drive with SSD'
    >>> goal_of_class("LubricateALock")
    'lubricate a lock'
    """
    words = _WORD_START.sub(" ", name).split()
    return " ".join(word if word.isupper() and len(word) > 1 else word.lower() for word in words)
