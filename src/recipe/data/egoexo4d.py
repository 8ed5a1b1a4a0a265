"""Ego-Exo4D's key-steps (Grauman et al., CVPR 2024) in their published layout.

    annotations/keystep_train.json    {"annotations": {take: {...}}, "taxonomy": {...}, "vocabulary": {...}}
    annotations/keystep_val.json      the same

`egoexo --parts annotations` fetches both. The test set's annotations are kept by the publisher, so what is held out
here is the validation set, read as test. A take's goal is its scenario. A step's text is `step_name`, its entry in
the vocabulary, not `step_description`, which annotators wrote freely for each instance. The taxonomy is a tree
in which steps are leaves: a segment labelled by an inner node is a heading over steps, and set aside.
"""

from pathlib import Path

from pydantic import Field, model_validator

from recipe.data.layout import Published, forward, in_time_order, read_published_json
from recipe.errors import InputError
from recipe.rows import Seconds, Text
from recipe.types import Procedure, Step

_FILES = {"annotations/keystep_train.json": "train", "annotations/keystep_val.json": "test"}
_REMEDY = "use the files that `egoexo --parts annotations --benchmarks keystep` fetches"


class _Segment(Published):
    step_id: int
    step_name: Text
    start_time: Seconds
    end_time: Seconds

    @model_validator(mode="after")
    def _forward(self) -> "_Segment":
        forward((self.start_time, self.end_time))
        return self


class _Take(Published):
    take_name: Text
    scenario: Text
    segments: tuple[_Segment, ...]


class _Node(Published):
    is_leafnode: bool


class _Keysteps(Published):
    annotations: dict[str, _Take]
    taxonomy: dict[str, dict[str, _Node]] = Field(default_factory=dict)

    def heads(self, take: _Take, segment: _Segment) -> bool:
        """Whether a segment names an inner node of its scenario's tree."""
        # Keys of JSON are texts, and ids of segments numbers.
        node = self.taxonomy.get(take.scenario, {}).get(str(segment.step_id))
        return node is not None and not node.is_leafnode


def read_egoexo4d(folder: Path) -> list[Procedure]:
    """The takes of both files of `folder`, ordered by take name, which is the video id; the first file may be absent.

    Steps are ordered by (start, end, file order), with times in seconds. Raises InputError when keystep_val.json is
    missing or a file is of another layout, and for a take that occurs twice.
    """
    procedures: dict[str, Procedure] = {}
    for name, keysteps in _read(folder).items():
        for uid, take in keysteps.annotations.items():
            # A take in both files would be trained on and tested.
            if take.take_name in procedures:
                problem = f"take {take.take_name!r} occurs twice"
                raise InputError.at(folder / name, problem, _REMEDY, field=f"annotations.{uid}.take_name")
            steps = in_time_order(
                Step(segment.step_name, segment.start_time, segment.end_time)
                for segment in take.segments
                if not keysteps.heads(take, segment)
            )
            procedures[take.take_name] = Procedure("egoexo4d", take.take_name, take.scenario, steps, _FILES[name])
    return [procedures[name] for name in sorted(procedures)]


def headings(folder: Path) -> dict[str, tuple[str, ...]]:
    """Take name to the labels of its segments that are headings over steps, in file order. Raises InputError."""
    labels = {
        take.take_name: tuple(segment.step_name for segment in take.segments if keysteps.heads(take, segment))
        for keysteps in _read(folder).values()
        for take in keysteps.annotations.values()
    }
    return {name: labels[name] for name in sorted(labels) if labels[name]}


def _read(folder: Path) -> dict[str, _Keysteps]:
    """File name to its content, of the files that are there."""
    return {
        name: read_published_json(folder / name, _Keysteps, _REMEDY, of="egoexo4d")
        for name, split in _FILES.items()
        if split == "test" or (folder / name).exists()
    }
