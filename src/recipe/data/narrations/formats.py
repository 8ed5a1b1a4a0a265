"""The layouts that narrations are published in, in one table: what reads each, and what `auto` knows it by."""

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

JSON_LINES = (".jsonl", ".ndjson")
SUBTITLES = (
    ".vtt", ".srt", ".sbv", ".ass", ".ssa", ".lrc", ".ttml", ".dfxp", ".srv1", ".srv2", ".srv3", ".smi", ".scc",
)  # fmt: skip
_STRING = r'"(?:[^"\\]|\\.)*"'


class Format(NamedTuple):
    """A layout of narration files. One whose text is like no other's is detected by the end of its name alone."""

    reader: str
    """Module of this package and its function: (SourceFile, ReadingOptions, ReadingReport) -> drafts in file order."""
    suffixes: tuple[str, ...]
    """Files in folders and archives that have the format; a file named by the user may be called anything."""
    one_video: bool = False
    """Whether a file holds a single video."""
    begins: str = ""
    """How its text begins, as a regular expression; of several formats the first that matches counts."""
    columns: frozenset[str] = frozenset()
    """The columns that identify a table."""

    def open_reader(self) -> Callable[..., Iterator[Any]]:
        """The function that reads it; its module is imported here, since that of Parquet loads pyarrow."""
        module, function = self.reader.split(".")
        reader: Callable[..., Iterator[Any]] = getattr(import_module(f"{__package__}.{module}"), function)
        return reader


FORMATS: dict[str, Format] = {
    "jsonl": Format(
        "json_files.read_json_lines", JSON_LINES, begins=r'[\[{]\s*(\{\s*)?"(video_id"\s*:|sentences"\s*:\s*\[\s*")'
    ),
    "procedures": Format("json_files.read_step_lists", JSON_LINES),
    "howtocaption": Format("json_files.read_howtocaption", (".pkl", ".pickle")),
    "howto100m": Format(
        "json_files.read_howto100m",
        (".json",),
        begins=rf'\{{\s*({_STRING}\s*:\s*\{{\s*("(text|start|end)"|\}})|\}}\s*\Z)',
    ),
    "howto100m-csv": Format(
        "tables.read_howto100m_csv", (".csv",), one_video=True, columns=frozenset({"start", "end", "text"})
    ),
    "htm-align": Format("json_files.read_htm_align", (".json",), begins=rf"\{{\s*{_STRING}\s*:\s*\[\s*\["),
    "htm-aa": Format("tables.read_htm_aa", (".csv",), columns=frozenset({"vid", "timestamp", "text"})),
    "whisperx": Format("transcripts.read_transcript", (".json", ".json3"), one_video=True),
    "subtitles": Format("subtitles.read_subtitles", SUBTITLES, one_video=True),
    "parquet": Format("parquet.read_parquet", (".parquet",), begins="PAR1"),
}
"""By name. A new layout is a line here and its reader; `--format`, detection and folders follow."""
