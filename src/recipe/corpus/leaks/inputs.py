"""What a corpus must not hold, read from the files that say it: test examples, procedures, narrations, lists of ids."""

import json
import re
from pathlib import Path
from typing import NamedTuple

from recipe.artifacts import JsonObject, not_a_file, read_jsonl, text_field
from recipe.data.examples import read_examples
from recipe.data.narrations import read_narrations
from recipe.errors import InputError

_FIRST_LINE = 1 << 20
"""Bytes looked at to tell what a file holds; a published corpus can be one line of gigabytes."""
_BETWEEN = re.compile(r"[\s,;]")


class Excluded(NamedTuple):
    """Ids of videos, and texts in the order of their file."""

    video_ids: frozenset[str]
    texts: tuple[str, ...]


def read_excluded(path: Path, split: str = "") -> Excluded:
    """The videos of a file and what is written or said of them: steps of examples and procedures, or captions.

    `split` keeps the examples and procedures of one split, the empty string all; files without splits are read
    whole. A `.txt` file is a list of video ids, one a line. Raises InputError for a file that is none of these.
    """
    if path.is_dir():
        return _narrations(path)
    if not path.is_file():
        raise not_a_file(path)
    if path.suffix == ".txt":
        return Excluded(frozenset(_ids(path)), ())
    fields = _fields(path)
    if "continuation" in fields:
        return _examples(path, split)
    if "steps" in fields:
        return _procedures(path, split)
    return _narrations(path)


def _fields(path: Path) -> frozenset[str]:
    """The fields of the object in the file's first line; none where it begins with something else."""
    with path.open("rb") as stream:
        line = stream.readline(_FIRST_LINE)
    try:
        row = json.loads(line)
    except ValueError:
        return frozenset()
    return frozenset(row) if isinstance(row, dict) else frozenset()


def _examples(path: Path, split: str) -> Excluded:
    examples = read_examples(path, split)
    ids = (example.video_id for example in examples)
    texts = (step for example in examples for step in (*example.history, *example.continuation))
    return Excluded(frozenset(filter(None, ids)), tuple(dict.fromkeys(texts)))


def _procedures(path: Path, split: str) -> Excluded:
    """Asks for ids and steps only: a video with an empty goal is to be kept out like any other."""
    ids: set[str] = set()
    texts: dict[str, None] = {}
    for line, row in read_jsonl(path):
        if split in ("", row.get("split")):
            ids.add(text_field(path, line, row, "video_id"))
            texts.update(dict.fromkeys(_steps(path, line, row)))
    if not ids:
        raise InputError.at(path, f"no procedure is in split {split!r}", "name a split of the file, or none")
    return Excluded(frozenset(ids), tuple(texts))


def _steps(path: Path, line: int, row: JsonObject) -> list[str]:
    steps = row.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        problem, remedy = "the field is missing or no list of objects", "give the steps as objects with 'text'"
        raise InputError.at(path, problem, remedy, line=line, field="steps")
    return [text_field(path, line, step, "text") for step in steps]


def _narrations(path: Path) -> Excluded:
    ids: set[str] = set()
    texts: dict[str, None] = {}
    for narration in read_narrations(path, "keep-first"):
        ids.add(narration.video_id)
        texts.update((segment.text, None) for segment in narration.segments)
    return Excluded(frozenset(ids), tuple(texts))


def _ids(path: Path) -> set[str]:
    ids: set[str] = set()
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError.at(path, "the text is not UTF-8", "convert the file to UTF-8") from None
    for number, line in enumerate(lines, start=1):
        if _BETWEEN.search(line.strip()):
            raise InputError.at(path, f"{line.strip()!r} is no video id", "give one video id a line", line=number)
        ids.add(line.strip())
    ids.discard("")
    if not ids:
        raise InputError.at(path, "the file is empty", "give one video id a line")
    return ids
