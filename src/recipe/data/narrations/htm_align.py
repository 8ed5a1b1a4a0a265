"""HTM-Align: {video id: [[alignable, start, end, text], ...]}, 80 videos aligned by hand (Han et al., CVPR 2022).

A sentence is marked 1 where the video shows what it says; the others keep the times of the speech recogniser.
"""

from collections.abc import Iterator
from functools import partial

from recipe.data.narrations.drafts import Caption, Draft, Fault, Place
from recipe.data.narrations.files import Opened
from recipe.data.narrations.json_stream import members
from recipe.data.narrations.options import ReadingOptions
from recipe.data.narrations.report import ReadingReport

_NO_LIST = Fault("not a narration", "the video's entry is not a list", "give [[alignable, start, end, text], ...]")
_NO_ROW = Fault("not a caption", "not [alignable, start, end, text]", "correct the row")


def read(file: Opened, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """One draft a member. Raises InputError for a file that is not one JSON object."""
    for video_id, rows in members(file, options.encoding):
        place = Place(file.label, field=video_id)
        where = partial(_row, place)
        source = options.source or "htm-align"
        if not isinstance(rows, list):
            yield Draft(place, video_id, _NO_LIST, where)
            continue
        captions = [_caption(row) for row in rows]
        if options.alignable:
            # The others become None, so that places keep counting the file's rows.
            left_out = [isinstance(row, list) and bool(row) and not row[0] for row in rows]
            report.not_alignable += sum(left_out)
            kept = [index for index, out in enumerate(left_out) if not out]
            if not kept and rows:
                report.skipped_narrations["no sentence is alignable"] += 1
                continue
            captions, where = [captions[index] for index in kept], partial(_kept_row, place, kept)
        yield Draft(place, video_id, captions, where, source=source)


def _caption(row: object) -> Caption | Fault:
    if not isinstance(row, list) or len(row) != 4 or row[0] not in (0, 1):
        return _NO_ROW
    _, start, end, text = row
    return Caption(text, start, end)


def _row(place: Place, index: int, _part: str) -> Place:
    return place._replace(field=f"{place.field}[{index}]")


def _kept_row(place: Place, kept: list[int], index: int, part: str) -> Place:
    return _row(place, kept[index], part)
