"""Which layout a file has, told from its name and its first bytes, and the module that reads it."""

import importlib
import json
import re
from collections.abc import Iterator
from typing import Protocol, cast

from recipe.data.narrations.drafts import Draft
from recipe.data.narrations.files import HEAD, Opened
from recipe.data.narrations.options import FormatName, ReadingOptions
from recipe.data.narrations.report import ReadingReport

FORMATS: dict[FormatName, str] = {
    "jsonl": "json_lines",
    "procedures": "step_lists",
    "howtocaption": "howtocaption",
    "howto100m": "howto100m",
    "howto100m-csv": "howto100m_csv",
    "htm-align": "htm_align",
    "htm-aa": "htm_aa",
    "whisperx": "whisperx",
    "subtitles": "subtitles",
    "parquet": "parquet",
}
"""Name to module; a module holds one function, `read`."""

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
    return cast(Read, importlib.import_module(f"{__package__}.{FORMATS[name]}").read)


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
