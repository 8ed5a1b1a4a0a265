"""How narrations are read: the settings that decide which segments a corpus consists of."""

import codecs
from typing import Literal

from pydantic import field_validator

from recipe.config import Settings

Duplicates = Literal["error", "keep-first"]
"""What to do with a video id that was read before: refuse it, or keep the narration that came first."""

FormatName = Literal[
    "jsonl",
    "procedures",
    "howtocaption",
    "howto100m",
    "howto100m-csv",
    "htm-align",
    "htm-aa",
    "whisperx",
    "subtitles",
    "parquet",
]
"""The layouts that narration corpora are published in; see docs/readers.md."""


class ReadingOptions(Settings):
    """How narration files are read (docs/readers.md); part of a corpus' manifest, for it decides its segments."""

    format: Literal["auto"] | FormatName = "auto"
    """Layout of the files; `auto` tells it from each file's name and first bytes."""
    captions: Literal["each", "joined", "first"] = "each"
    """Several captions of one time span become a segment each, one joined segment, or the first one alone."""
    min_score: float | None = None
    """Captions with a lower score are left out; only for files whose captions carry scores."""
    alignable: bool = False
    """Of HTM-Align, read only the sentences that are marked as alignable with the video."""
    rolling: Literal["collapse", "keep"] = "collapse"
    """Subtitles that roll, where each cue repeats the line before it: say each line once, or keep all."""
    bad: Literal["error", "skip"] = "error"
    """A caption or narration that cannot be used: refuse the file, or leave out that caption and count it."""
    encoding: str = "utf-8"
    """Character encoding of text files."""
    source: str | None = None
    """Name of the corpus, recorded where the files name none; left out: the format's own name."""

    @field_validator("encoding")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            "".encode(name)
        except LookupError:
            raise ValueError("the encoding is unknown; examples are utf-8, latin-1 and utf-16") from None
        return codecs.lookup(name).name


DEFAULTS = ReadingOptions()
