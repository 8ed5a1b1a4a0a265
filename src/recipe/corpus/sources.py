"""Narration files as a build takes them: a stream, and an origin that tells how it was read and what was dropped."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from recipe.artifacts import JsonObject
from recipe.corpus.inputs import Origin
from recipe.data.narrations import Duplicates, ReadingOptions, ReadingReport, read_narrations
from recipe.types import Narration


class Source(NamedTuple):
    """Narrations yet to be read, and where they come from."""

    narrations: Iterator[Narration]
    origin: Origin


def narration_source(files: Sequence[Path], options: ReadingOptions, duplicates: Duplicates = "error") -> Source:
    """The narrations of `files`, in their order; nothing is read before the first is asked for."""
    report = ReadingReport()
    narrations = read_narrations(files, duplicates, options, report)
    reading = {**options.model_dump(), "duplicates": duplicates}

    def read() -> JsonObject:
        return {**_plain(report), "left_out": report.lines()}

    return Source(narrations, Origin(tuple(files), reading, report=read))


def _plain(report: Any) -> JsonObject:
    """A report's counts as JSON values."""
    values = {field.name: getattr(report, field.name) for field in fields(report)}
    return {name: dict(value) if isinstance(value, Counter) else value for name, value in values.items()}
