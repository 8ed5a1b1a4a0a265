"""What a reader hands on: a narration as its file has it, unchecked, with the place of every part.

A reader knows a file's layout and nothing about what makes a good caption; `cleaning` knows what a good caption is and
nothing about files. A part that has not the layout's shape travels as a `Fault`, so that one policy decides on all.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from recipe.errors import InputError


class Place(NamedTuple):
    """Where something stands; `file` is what messages call the file, a member of an archive included."""

    file: str
    line: int | None = None
    field: str | None = None

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}, line {self.line}"


class Fault(NamedTuple):
    """Why a caption or a narration cannot be used: the reason it is counted under, the problem and the remedy."""

    reason: str
    problem: str
    remedy: str
    part: str = ""
    """Name of the part that is at fault, such as `end`; empty for the whole."""

    def at(self, place: Place) -> InputError:
        """The error that tells it."""
        remedy = f"{self.remedy}, or have it left out (--bad skip)"
        return InputError.at(place.file, self.problem, remedy, line=place.line, field=place.field)


class Caption(NamedTuple):
    """A text and the seconds from which to which it is spoken or shown; None for a caption without times."""

    text: object
    start: object = None
    end: object = None


class Draft(NamedTuple):
    """A narration as its file has it."""

    place: Place
    video_id: object
    captions: Sequence[Caption | Fault] | Fault
    """The captions in file order, or why the narration as a whole cannot be used."""
    caption_place: Callable[[int, str], Place]
    """Where a part of the caption with this index stands."""
    title: object = None
    source: str | None = None
    ordered: bool = False
    """True where the layout promises captions sorted by start; others are sorted."""
