"""EgoProceL (Bansal et al., ECCV 2022) in its published layout: 16 tasks seen from the head, of six collections.

    annotations/CMU-MMAC/RECIPE/RECORDING/S07_Brownie_7150991-1431.csv
    annotations/EGTEA_Gaze+/RECIPE/OP01-R03-BaconAndEggs.csv
    annotations/EPIC-Tents/01.tent.090617.gopro.egoprocel.ann.csv
    annotations/MECCANO/0003.csv
    annotations/pc_assembly/Head_5.csv
    annotations/pc_disassembly/Head_6.csv

Each file is named like its video and holds start, end and key-step, in seconds and without a header. The name of a
key-step follows its number: "3 add water", in EGTEA Gaze+ "3. add water". CMU-MMAC was filmed by five cameras that
are annotated one by one; only the one on the head is read, since the others show the same performance.
There is no published split: see `_split_of`.
"""

import csv
import hashlib
import math
import re
from pathlib import Path, PurePosixPath

from recipe.data.coin import goal_of_class
from recipe.data.layout import in_time_order, read_lines
from recipe.errors import InputError
from recipe.types import Procedure, Step

HELD_OUT = 0.2
"""Share of the persons whose videos are read as test."""

COLLECTIONS = ("CMU-MMAC", "EGTEA_Gaze+", "EPIC-Tents", "MECCANO", "pc_assembly", "pc_disassembly")

_GOALS = {
    "EPIC-Tents": "set up a tent",
    "MECCANO": "assemble a toy motorbike",
    "pc_assembly": "assemble a desktop computer",
    "pc_disassembly": "disassemble a desktop computer",
}
# The number of the camera on the head, as the names of CMU-MMAC's files have it.
_ON_THE_HEAD = "_7150991-"
_SUFFIX = ".egoprocel.ann"
# The person at the beginning of a name: S07, OP01, 01, 0003 or Head_5.
_PERSON = re.compile(r"(?:Head_)?[A-Za-z]*\d+")
_NUMBER = re.compile(r"\d+[.:)]?[\s_]+")
_REMEDY = "use the folder annotations as published at sid2697.github.io/egoprocel"


def read_egoprocel(folder: Path) -> list[Procedure]:
    """The procedures of the collections that are in `folder`/annotations, ordered by video id.

    A video id is the path of its annotations without the endings, such as MECCANO/0003. Steps are ordered by (start,
    end, file order). Raises InputError where no collection is there, and with file and line for a row of another
    layout.
    """
    root = folder / "annotations"
    # By video id.
    files: dict[str, Path] = {}
    for collection in COLLECTIONS:
        for path in (root / collection).rglob("*.csv"):
            if collection != "CMU-MMAC" or _ON_THE_HEAD in path.name:
                files[path.relative_to(root).with_suffix("").as_posix().removesuffix(_SUFFIX)] = path
    if not files:
        raise InputError.at(root, f"none of {', '.join(COLLECTIONS)} holds annotations", _REMEDY)
    procedures = []
    for video in sorted(files):
        collection, *inner = PurePosixPath(video).parts
        goal = _GOALS.get(collection) or f"make {goal_of_class(inner[0])}"
        try:
            rows = list(csv.reader(read_lines(files[video], _REMEDY)))
        except csv.Error as error:
            raise InputError.at(files[video], f"no table of three columns ({error})", _REMEDY) from None
        steps = []
        for line, row in enumerate(rows, start=1):
            if not row:
                continue
            try:
                first, last, label = row
                start, end = float(first), float(last)
            except ValueError:
                problem = f"{','.join(row)!r} is not start,end,key-step"
                raise InputError.at(files[video], problem, _REMEDY, line=line) from None
            if not 0 <= start <= end < math.inf:
                raise InputError.at(files[video], f"{first},{last} is no time span", _REMEDY, line=line)
            text = _NUMBER.sub("", label.strip(), count=1).replace("_", " ").strip()
            # CrossTask's files have three columns as well, of numbers alone.
            if not any(letter.isalpha() for letter in text):
                problem = f"{label!r} holds no key-step's name"
                raise InputError.at(files[video], problem, f"{_REMEDY}, not CrossTask's", line=line)
            steps.append(Step(text, start, end))
        procedures.append(Procedure("egoprocel", video, goal, in_time_order(steps), _split_of(video)))
    return procedures


def _split_of(video_id: str) -> str:
    """train or test, by a hash of the collection and of the person in it: one person's videos are never in both."""
    path = PurePosixPath(video_id)
    person = _PERSON.match(path.name)
    key = f"{path.parts[0]}/{person[0] if person else path.name}"
    # 64 bits of the hash over 2**64: uniform in [0, 1).
    draw = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) / 2**64
    return "test" if draw < HELD_OUT else "train"
