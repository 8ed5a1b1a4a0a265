"""Reading narrations: paths to files, files to drafts, drafts to narrations, each video once."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from recipe.data.narrations.cleaning import clean
from recipe.data.narrations.drafts import Draft
from recipe.data.narrations.files import Opened, opened_files
from recipe.data.narrations.formats import A_FILE_A_VIDEO, FORMATS, detect, reader, suited
from recipe.data.narrations.options import DEFAULTS, Duplicates, FormatName, ReadingOptions
from recipe.data.narrations.report import ReadingReport
from recipe.data.narrations.seen import SeenVideos
from recipe.errors import InputError
from recipe.types import Narration

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
