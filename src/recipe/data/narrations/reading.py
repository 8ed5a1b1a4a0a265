"""Reading narrations: paths to files, files to drafts by format, drafts to narrations, each video once."""

import importlib
import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Protocol, cast

from recipe.data.narrations.drafts import DEFAULTS, Draft, Duplicates, FormatName, ReadingOptions, ReadingReport, clean
from recipe.data.narrations.files import HEAD, Opened, opened_files
from recipe.errors import InputError
from recipe.types import Narration

# The ids of the videos read so far, on disk, so that memory does not grow with a corpus.


class SeenVideos:
    """Where each video was read first: a private temporary database that vanishes with the object.

    SQLite keeps it within its page cache (16 MiB) and the temporary folder, which takes about 100 bytes a video.
    """

    def __init__(self) -> None:
        # Narrations may be consumed on another thread than the one that asked for them.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA cache_size = -16384")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE seen (video TEXT PRIMARY KEY, place TEXT) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def __enter__(self) -> "SeenVideos":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._database.close()

    def add(self, video_id: str, place: str) -> bool:
        """Take note of a video; False where it was there before."""
        row = (video_id, place)
        return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", row).rowcount == 1

    def place(self, video_id: str) -> str:
        """Where a video that was added was read first."""
        (found,) = self._database.execute("SELECT place FROM seen WHERE video = ?", (video_id,)).fetchone()
        return str(found)


# Which layout a file has, told from its name and its first bytes, and the module that reads it.


FORMATS: dict[FormatName, str] = {
    "jsonl": "json_lines.read_json_lines",
    "procedures": "json_lines.read_step_lists",
    "howtocaption": "howtocaption.read_howtocaption",
    "howto100m": "json_files.read_howto100m",
    "howto100m-csv": "tables.read_howto100m_csv",
    "htm-align": "json_files.read_htm_align",
    "htm-aa": "tables.read_htm_aa",
    "whisperx": "json_files.read_whisperx",
    "subtitles": "subtitles.read_subtitles",
    "parquet": "parquet.read_parquet",
}
"""Name to the module of this package and its function that reads the format."""

SUFFIXES: dict[FormatName, tuple[str, ...]] = {
    "jsonl": (".jsonl", ".ndjson"),
    "procedures": (".jsonl", ".ndjson"),
    "howtocaption": (".pkl", ".pickle"),
    "howto100m": (".json",),
    "howto100m-csv": (".csv",),
    "htm-align": (".json",),
    "htm-aa": (".csv",),
    "whisperx": (".json",),
    "subtitles": (".vtt", ".srt"),
    "parquet": (".parquet",),
}
"""Files in folders and archives that are read as a format; a file that is named itself may be called anything."""

A_FILE_A_VIDEO: tuple[FormatName, ...] = ("howto100m-csv", "whisperx", "subtitles")
"""Formats whose files hold one video each."""


class Read(Protocol):
    """The narrations of one file, as it has them, in its order; raises InputError where the file is damaged."""

    def __call__(self, file: Opened, options: ReadingOptions, report: ReadingReport, /) -> Iterator[Draft]: ...


def reader(name: FormatName) -> Read:
    """The function that reads a format."""
    module, function = FORMATS[name].split(".")
    return cast(Read, getattr(importlib.import_module(f"{__package__}.{module}"), function))


def suited(file: Opened, name: FormatName) -> bool:
    """True where a file in a folder is to be read as the format that was asked for."""
    return file.name.lower().endswith(SUFFIXES[name])


def detect(file: Opened, encoding: str) -> FormatName | None:
    """The format of a file, or None where it holds no narrations in a layout that is known."""
    head = file.stream.peek(HEAD)[:HEAD]
    if head[:4] == b"PAR1":
        return "parquet"
    suffix = file.name.lower()
    if suffix.endswith(SUFFIXES["howtocaption"]) or re.match(rb"\x80[\x02-\x05]", head):
        return "howtocaption"
    text = head.decode(encoding, "replace").lstrip("\ufeff \t\r\n")
    if _is_procedure(text):
        return "procedures"
    for name in ("jsonl", "subtitles"):
        if suffix.endswith(SUFFIXES[name]):
            return name
    for name, shape in _SHAPES.items():
        if shape.match(text):
            return name
    header = {field.strip(" \"'\r").lower() for field in text.partition("\n")[0].split(",")}
    for name, columns in _HEADERS.items():
        if columns <= header:
            return name
    # What is named as narrations and is JSON, or nothing, gets the sentence of the reader that knows most about it.
    return "jsonl" if not file.inside and text[:1] in ("", "{", "[") else None


def _is_procedure(text: str) -> bool:
    """True where the first line is an object with a goal and steps, and with nothing that narrations have."""
    try:
        row = json.loads(text.partition("\n")[0]) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return False
    return isinstance(row, dict) and row.keys() >= {"goal", "steps"} and not row.keys() & {"segments", "sentences"}


_STRING = r'"(?:[^"\\]|\\.)*"'
_SHAPES: dict[FormatName, re.Pattern[str]] = {
    "subtitles": re.compile(r"WEBVTT|\d+\s*\n\d+:\d+:\d+[,.]\d+\s*-->"),
    "whisperx": re.compile(r'\{\s*("text"\s*:\s*"|"language"\s*:|"(segments|word_segments)"\s*:\s*\[\s*(\{|\]\s*,))'),
    "howto100m": re.compile(rf'\{{\s*({_STRING}\s*:\s*\{{\s*("(text|start|end)"|\}})|\}}\s*\Z)'),
    "htm-align": re.compile(rf"\{{\s*{_STRING}\s*:\s*\[\s*\["),
    "jsonl": re.compile(r'\{\s*"(video_id|segments|sentences|title|source)"\s*:'),
}
"""How the text of a format begins; the first that fits."""

_HEADERS: dict[FormatName, set[str]] = {
    "htm-aa": {"vid", "timestamp", "text"},
    "howto100m-csv": {"start", "end", "text"},
}
"""The columns that tell a table's format."""


# Reading narrations: paths to files, files to drafts, drafts to narrations, each video once.


_PASSED_OVER = 100
"""Names of files that are kept in the report."""


def read_narrations(
    files: Path | Sequence[Path],
    duplicates: Duplicates = "error",
    options: ReadingOptions = DEFAULTS,
    report: ReadingReport | None = None,
) -> Iterator[Narration]:
    """The narrations of files, folders and archives, in the order given, read as a stream; counts go to `report`.

    Raises InputError, with file, line or field and remedy, for a path that is missing or holds no narrations, a file
    that is damaged or of no known format, a video id that was read before unless `duplicates` is `keep-first`, and,
    unless `options.bad` is `skip`, a narration or caption that cannot be used (docs/readers.md lists the reasons).
    """
    report = ReadingReport() if report is None else report
    paths = [files] if isinstance(files, Path) else files
    with SeenVideos() as seen:
        for path in paths:
            before = report.narrations + report.duplicates
            for draft in _drafts(path, options, report):
                narration = clean(draft, options, report)
                if narration is None:
                    continue
                if seen.add(narration.video_id, str(draft.place)):
                    report.narrations += 1
                    report.segments += len(narration.segments)
                    yield narration
                elif duplicates == "error":
                    raise _duplicate(draft, narration.video_id, seen.place(narration.video_id))
                else:
                    report.duplicates += 1
            if report.narrations + report.duplicates == before:
                raise _nothing(path, report)


def _drafts(path: Path, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    with closing(opened_files(path)) as files:
        for file in files:
            if name := _format(file, options, report):
                report.files[name] += 1
                if name in A_FILE_A_VIDEO and file.inside and options.bad == "skip":
                    yield from _video(name, file, options, report)
                else:
                    yield from reader(name)(file, options, report)


def _video(name: FormatName, file: Opened, options: ReadingOptions, report: ReadingReport) -> list[Draft]:
    """The draft of one video among many, or none where its file is damaged: one must not cost the others."""
    try:
        return list(reader(name)(file, options, report))
    except InputError:
        report.skipped_narrations["file that cannot be read"] += 1
        return []


def _format(file: Opened, options: ReadingOptions, report: ReadingReport) -> FormatName | None:
    """The format to read a file as; None for one among others that holds no narrations."""
    if options.format != "auto":
        name = options.format if not file.inside or suited(file, options.format) else None
    else:
        name = detect(file, options.encoding)
    if name is None and not file.inside:
        remedy = f"name the format it has: {', '.join(FORMATS)}"
        raise InputError.at(file.label, "the file is in no layout of narrations that is recognised", remedy)
    if name is None:
        report.passed_over += 1
        report.passed_over_names += [file.label] * (report.passed_over <= _PASSED_OVER)
    return name


def _duplicate(draft: Draft, video_id: str, first: str) -> InputError:
    return InputError.at(
        draft.place.file,
        f"video {video_id!r} was read before, from {first}",
        "remove one of them, or ask for duplicates keep-first, which keeps the earlier one",
        line=draft.place.line,
        field="video_id",
    )


def _nothing(path: Path, report: ReadingReport) -> InputError:
    if report.skipped_narrations or report.skipped_captions:
        why = f"no narration is left ({'; '.join(report.lines())})"
        return InputError.at(path, why, "give other files or settings")
    if path.is_dir():
        remedy = "give the path of a file, or of a folder with narrations; here is none in a layout that is recognised"
        return InputError.at(path, "this is a folder", remedy)
    return InputError.at(path, "the file holds no narrations", "check the path and the format")
