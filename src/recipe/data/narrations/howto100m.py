"""HowTo100M `caption.json` and `raw_caption.json`, and the sentences of HTM in the same layout.

One JSON object: {video id: {"text": [...], "start": [...], "end": [...]}}, seconds. Streamed video by video.
"""

from collections.abc import Iterator

from recipe.data.narrations.drafts import Draft, Place
from recipe.data.narrations.files import Opened
from recipe.data.narrations.json_stream import members
from recipe.data.narrations.options import ReadingOptions
from recipe.data.narrations.parallel import drafts, from_mapping
from recipe.data.narrations.report import ReadingReport


def read(file: Opened, options: ReadingOptions, report: ReadingReport) -> Iterator[Draft]:
    """One draft a member. Raises InputError for a file that is not one JSON object."""
    source = options.source or ("sentencified-htm" if file.name.startswith("sentencified") else "howto100m")
    for video_id, value in members(file, options.encoding):
        place = Place(file.label, field=video_id)
        yield from drafts(place, video_id, from_mapping(video_id, value, source), options, report)
