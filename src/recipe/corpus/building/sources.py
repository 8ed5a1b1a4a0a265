"""Narration files as a build takes them: a stream, and an origin that tells how it was read and what was dropped."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

from recipe.artifacts import JsonObject
from recipe.corpus.building.inputs import Origin
from recipe.corpus.leaks.guard import Exclusions
from recipe.corpus.leaks.report import ExclusionReport
from recipe.data.narrations import Duplicates, ReadingOptions, ReadingReport, read_narrations
from recipe.types import Narration


class Source(NamedTuple):
    """Narrations yet to be read, and where they come from."""

    narrations: Iterator[Narration]
    origin: Origin


def narration_source(
    files: Sequence[Path],
    options: ReadingOptions,
    duplicates: Duplicates = "error",
    exclusions: Exclusions | None = None,
) -> Source:
    """The narrations of `files`, in their order and without `exclusions`; nothing is read before the first."""
    report, excluded = ReadingReport(), ExclusionReport()
    narrations = read_narrations(files, duplicates, options, report)
    if exclusions is not None:
        narrations = exclusions.filter(narrations, excluded)

    def read() -> JsonObject:
        return {
            **_plain(report),
            "excluded": None if exclusions is None else excluded.as_dict(),
            "left_out": [*report.lines(), *_excluded(excluded)],
        }

    reading = {**options.model_dump(), "duplicates": duplicates}
    identity = None if exclusions is None else exclusions.identity
    return Source(narrations, Origin(tuple(files), reading, identity, read))


def _plain(report: ReadingReport) -> JsonObject:
    """A report's counts as JSON values."""
    values = {field.name: getattr(report, field.name) for field in fields(report)}
    return {name: dict(value) if isinstance(value, Counter) else value for name, value in values.items()}


def _excluded(report: ExclusionReport) -> Iterator[str]:
    for count, what in (
        (report.narrations_by_id, "narrations of excluded videos"),
        (report.narrations_by_text, "narrations that are excluded videos under another id"),
        (report.captions_by_text, "captions that are near-copies of excluded texts, in these and other narrations"),
    ):
        if count:
            yield f"{what}: {count:,}"
