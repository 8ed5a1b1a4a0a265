"""NIV, narrated instruction videos (Alayrac et al., CVPR 2016), in the layout that planners use: 148 videos, 5 tasks.

    niv_train.json, niv_valid.json    {video: {"task", "steps": [{"action", "start", "end"}]}}

Both are of github.com/WenliangGuo/SCHEMA, dataset/niv. Planners are tested on what is held out there, so the second
file is read as test; it alone is enough for that. Steps are not always in time order.
"""

import re
from pathlib import Path

from pydantic import model_validator

from recipe.data.layout import Published, SplitEntry, forward, in_time_order, read_published_json, splits_of
from recipe.rows import Seconds, Text
from recipe.types import Procedure, Step

_FILES = {"niv_train.json": "train", "niv_valid.json": "test"}
_REMEDY = "use the files of github.com/WenliangGuo/SCHEMA, dataset/niv"
_CORRECTED = {"coffe": "coffee", "cofee": "coffee", "ressucitation": "resuscitation"}
_WORD = re.compile(r"\w+")


class _Step(Published):
    action: Text
    start: Seconds
    end: Seconds

    @model_validator(mode="after")
    def _forward(self) -> "_Step":
        forward((self.start, self.end))
        return self


class _Video(Published):
    task: Text
    steps: tuple[_Step, ...]


def read_niv(folder: Path) -> list[Procedure]:
    """The procedures of both files of `folder`, ordered by video id; the first file may be absent.

    Steps are ordered by (start, end, file order), with times in seconds; words that the source misspells are
    corrected in tasks and steps, never in ids. Raises InputError when niv_valid.json is missing or a file is of another
    layout, and for a video that is in both.
    """
    videos: dict[str, _Video] = {}
    listed: list[SplitEntry] = []
    for name, split in _FILES.items():
        if split == "train" and not (folder / name).exists():
            continue
        own = read_published_json(folder / name, dict[str, _Video], _REMEDY, of="niv")
        # A video that both files hold is refused below, by `splits_of`.
        videos |= own
        listed += [SplitEntry(video, split, folder / name, field=video) for video in own]
    splits = splits_of(listed, videos, _REMEDY)
    procedures = []
    for name in sorted(videos):
        video = videos[name]
        steps = in_time_order(Step(corrected(step.action), step.start, step.end) for step in video.steps)
        procedures.append(Procedure("niv", name, corrected(video.task), steps, splits[name]))
    return procedures


def corrected(text: str) -> str:
    """A task or an action in right spelling.

    >>> corrected("pour cofee")
    'pour coffee'
    """
    return _WORD.sub(lambda word: _CORRECTED.get(word[0], word[0]), text)
