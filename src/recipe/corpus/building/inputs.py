"""The files a corpus was read from, noted so that a build can tell that they are unchanged without reading them."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

from recipe.artifacts import JsonObject, file_sha256
from recipe.errors import InputError


class Origin(NamedTuple):
    """Where narrations are read from and how."""

    files: tuple[Path, ...]
    """Files and folders, in the order in which they are read."""
    reading: JsonObject
    """The settings they are read with."""
    exclusions: JsonObject | None = None
    """What identifies the videos and texts that are kept out."""
    report: Callable[[], JsonObject] = dict
    """What reading kept and dropped, asked for after the last narration."""


class InputRecord(TypedDict):
    """One file or folder; `stamp` changes with its size and times, `sha256` with its content."""

    path: str
    stamp: str
    sha256: str


def stamps(files: Sequence[Path]) -> list[str]:
    """Of each file or folder, what changes when it is written to; empty where there is none."""
    return [_stamp(path) for path in files]


def note_inputs(files: Sequence[Path], before: Sequence[str]) -> list[InputRecord]:
    """Records of the files that were read since the stamps `before`. Raises InputError for one that has changed."""
    for path, stamp in zip(files, before, strict=True):
        if _stamp(path) != stamp:
            raise InputError.at(path, "the file changed while it was read", "run the same command again")
    return [
        InputRecord(path=str(path.resolve()), stamp=stamp, sha256=_sha256(path))
        for path, stamp in zip(files, before, strict=True)
    ]


def unchanged(recorded: Sequence[InputRecord], files: Sequence[Path]) -> list[InputRecord] | None:
    """The records brought up to date where the files hold what they held, else None.

    Only a file that has moved or whose times have changed is read.
    """
    if len(recorded) != len(files):
        return None
    now = [_again(record, path) for record, path in zip(recorded, files, strict=True)]
    same = all(new["sha256"] == record["sha256"] for new, record in zip(now, recorded, strict=True))
    return now if same else None


def _again(record: InputRecord, path: Path) -> InputRecord:
    stamp, place = _stamp(path), str(path.resolve())
    if stamp and (place, stamp) == (record["path"], record["stamp"]):
        return record
    named_alike = path.name == Path(record["path"]).name  # a name may tell the format or the video
    return InputRecord(path=place, stamp=stamp, sha256=_sha256(path) if stamp and named_alike else "")


def _stamp(path: Path) -> str:
    digest = hashlib.sha256()
    found = False
    for file in _files(path):
        found, status = True, file.stat()
        digest.update(f"{file.relative_to(path)} {status.st_size} {status.st_mtime_ns}\n".encode(errors="replace"))
    return digest.hexdigest() if found else ""


def _sha256(path: Path) -> str:
    if path.is_file():
        return file_sha256(path)
    digest = hashlib.sha256()
    for file in _files(path):
        digest.update(f"{file.relative_to(path)} {file_sha256(file)}\n".encode(errors="replace"))
    return digest.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    yield from [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
