"""What is kept out of a corpus: the videos of files, their texts, and the ids that corpora have for them."""

import json
import re
from codecs import BOM_UTF8
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from recipe.artifacts import not_a_file, read_text
from recipe.corpus.leaks import ExcludedVideo, Exclusions, videos_of
from recipe.data.examples import read_examples
from recipe.data.narrations import ReadingOptions, read_narrations
from recipe.data.procedures import StepRows, made_id
from recipe.errors import InputError
from recipe.rows import Stripped
from recipe.tables import cells_of, opened, read_rows

# Bytes that are read to tell what a file holds; a published corpus can be one line of gigabytes.
_FIRST_LINE = 1 << 20
_BETWEEN = re.compile(r"[\s,;]")
_WITH_MARKS = ReadingOptions(marks="keep")


def read_exclusions(paths: Sequence[Path], split: str = "", ids: Path | None = None) -> Exclusions:
    """What files of examples, procedures or narrations hold, and `.txt` lists of video ids, one a line.

    `split` keeps the examples and procedures of one split, the empty string all. `ids` is a table of the ids that
    corpora have for these videos. Raises InputError, also where none of that table is of an excluded video.
    """
    videos = [video for path in paths for video in read_excluded(path, split)]
    id_map = {} if ids is None else read_id_map(ids)
    if ids is not None and not id_map.keys() & {video.video_id for video in videos}:
        remedy = "give the ids of the excluded videos first, and those of a corpus second"
        raise InputError.at(ids, "no row is of an excluded video", remedy)
    return Exclusions.of(videos, id_map)


def read_excluded(path: Path, split: str = "") -> list[ExcludedVideo]:
    """The videos of a file and what is written or said of them: steps of examples and procedures, or captions.

    `split` keeps the examples and procedures of one split, the empty string all; files without splits are read
    whole. A `.txt` file is a list of video ids, one a line. Raises InputError for a file that is none of these.
    """
    if path.is_dir():
        return _narrations(path)
    if not path.is_file():
        raise not_a_file(path)
    if path.suffix == ".txt":
        lines = read_text(path).split("\n")
        for number, entry in enumerate(map(str.strip, lines), start=1):
            if _BETWEEN.search(entry):
                raise InputError.at(path, f"{entry!r} is no video id", "give one video id a line", line=number)
        ids = [entry for entry in dict.fromkeys(map(str.strip, lines)) if entry]
        if not ids:
            raise InputError.at(path, "the file is empty", "give one video id a line")
        return [ExcludedVideo(path.name, video, ()) for video in ids]
    with opened(path) as stream:
        head = stream.read(_FIRST_LINE).removeprefix(BOM_UTF8).lstrip()
    row = None
    with suppress(ValueError, RecursionError):
        row = json.loads(head.partition(b"\n")[0])
    videos: list[ExcludedVideo] = []
    if isinstance(row, dict) and "data" not in row:
        of_examples = "history" in row
    elif head.startswith(b"PAR1"):
        of_examples = False
        with suppress(pa.ArrowException, OSError):
            of_examples = "goal" in pq.read_schema(path).names
    else:  # a list, an object over several lines, or the first row of a table
        goals = rb'[\[{].*"goal"\s*:' if head[:1] in (b"[", b"{") else rb"(sep=.\s+)?[^\r\n]*\bgoal\b"
        of_examples = re.match(goals, head, re.DOTALL | re.IGNORECASE) is not None
    if of_examples:
        return videos_of(read_examples(path, split, questions=True), path.name)
    if isinstance(row, dict) and "steps" in row:
        for line, procedure in read_rows(path, _Annotated, unknown="ignore"):
            goal = procedure.goal.strip() if isinstance(procedure.goal, str) else ""
            if not procedure.video_id and not goal:
                problem = "the field is missing, and the steps have no goal"
                raise InputError.at(path, problem, "give the id of the video", line=line, field="video_id")
            if split in ("", procedure.split):
                named = isinstance(procedure.source, str) and procedure.source
                source = procedure.source if named else path.name
                steps = tuple(step.text for step in procedure.steps)
                videos.append(ExcludedVideo(source, procedure.video_id or made_id(goal, steps), steps))
        if not videos:
            raise InputError.at(path, f"no procedure is in split {split!r}", "name a split of the file, or none")
        return videos
    return _narrations(path)


@dataclass(frozen=True, kw_only=True)
class _Annotated:
    """What is needed of a procedure: a video with an empty goal is kept out like any other."""

    source: Any = None
    video_id: Stripped = ""
    goal: Any = None
    split: Any = None
    steps: StepRows


def _narrations(path: Path) -> list[ExcludedVideo]:
    # With their marks, as corpora on record were compared, so that the identity of exclusions stays what it was.
    narrations = read_narrations(path, "keep-first", _WITH_MARKS, every_track=True)
    return [
        ExcludedVideo(
            path.name,
            narration.video_id,
            tuple(own.text for own in narration.segments),
        )
        for narration in narrations
    ]


def read_id_map(path: Path) -> dict[str, tuple[str, ...]]:
    """The ids that corpora have for the videos of a benchmark: a CSV table of a benchmark's id and a corpus's id.

    The first two fields of a row count, and a video may have several rows. Raises InputError for a file that is no
    such table, with the line.
    """
    ids: dict[str, tuple[str, ...]] = {}
    with opened(path) as stream:
        for line, fields in cells_of(path, stream):
            if len(fields) < 2 or not all(fields[:2]):
                remedy = "give the benchmark's id, a comma and the corpus's id"
                raise InputError.at(path, "the row lacks one of the two ids", remedy, line=line)
            ids[fields[0]] = (*ids.get(fields[0], ()), fields[1])
    return ids
