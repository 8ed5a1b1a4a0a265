"""Writers of every form of narrations that is read, with what a narration is after it was written and read."""

import csv
import html
import io
import json
import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from recipe.artifacts import write_jsonl
from recipe.data.narrations import to_row
from recipe.data.procedures import write_procedures
from recipe.types import Narration, Procedure, Segment, Step

Narrations = Sequence[Narration]
Writer = Callable[[Path, Narrations], Path]


def lists(narration: Narration, text: Callable[[str], Any] = str) -> dict[str, Any]:
    """Parallel lists, from the last start to the first: the published order is no order."""
    segments = sorted(narration.segments, key=lambda segment: (segment.start, segment.end), reverse=True)
    return {
        "start": [segment.start for segment in segments],
        "end": [segment.end for segment in segments],
        "text": [text(segment.text) for segment in segments],
    }


def table(rows: Sequence[Sequence[Any]], *header: str) -> str:
    stream = io.StringIO()
    csv.writer(stream).writerows([header, *rows])
    return stream.getvalue()


def clock(seconds: float, form: str = "{h:02}:{m:02}:{s:02},{ms:03}") -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    values = {"h": whole // 3600, "m": whole // 60 % 60, "s": whole % 60, "ms": thousandths}
    return form.format(**values, cs=thousandths // 10, ds=thousandths // 100)


def as_jsonl(folder: Path, narrations: Narrations) -> Path:
    write_jsonl(folder / "n.jsonl", map(to_row, narrations))
    return folder / "n.jsonl"


def as_procedures(folder: Path, narrations: Narrations) -> Path:
    told = ((n.video_id, tuple(Step(s.text, s.start, s.end) for s in n.segments)) for n in narrations)
    write_procedures(folder / "n.jsonl", [Procedure("mine", video, "brew tea", steps) for video, steps in told])
    return folder / "n.jsonl"


def as_pickle(text: Callable[[str], Any], packed: bool = False) -> Writer:
    def write(folder: Path, narrations: Narrations) -> Path:
        value: dict[str, Any] = {narration.video_id: lists(narration, text) for narration in narrations}
        if packed:
            value = {video: zlib.compress(json.dumps(entry).encode()) for video, entry in value.items()}
        (folder / "captions.pickle").write_bytes(pickle.dumps(value))
        return folder / "captions.pickle"

    return write


def as_json(folder: Path, narrations: Narrations) -> Path:
    path = folder / "raw_caption.json"
    path.write_text(json.dumps({narration.video_id: lists(narration) for narration in narrations}, indent=1))
    return path


def as_zipped_json(folder: Path, narrations: Narrations) -> Path:
    with zipfile.ZipFile(folder / "raw_caption.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(as_json(folder, narrations), "data/raw_caption.json")
        archive.writestr("__MACOSX/data/._raw_caption.json", b"\0\5\26\7")
    return folder / "raw_caption.zip"


def video_files(suffix: str, text: Callable[[Narration], str]) -> Writer:
    """A file a video, in a folder; the order in which they are read is that of their names."""

    def write(folder: Path, narrations: Narrations) -> Path:
        (folder / "videos").mkdir()
        for narration in narrations:
            (folder / "videos" / (narration.video_id + suffix)).write_text(text(narration), encoding="utf-8")
        return folder / "videos"

    return write


as_csv_folder = video_files(
    ".csv", lambda n: table([(s.start, s.end, s.text) for s in n.segments], "start", "end", "text")
)


def as_csv_zip(folder: Path, narrations: Narrations) -> Path:
    with zipfile.ZipFile(folder / "howto100m_captions.zip", "w") as archive:
        for file in as_csv_folder(folder, narrations).iterdir():
            archive.write(file, f"captions/{file.name}")
    return folder / "howto100m_captions.zip"


def as_htm_align(folder: Path, narrations: Narrations) -> Path:
    rows = {n.video_id: [[k % 2, s.start, s.end, s.text] for k, s in enumerate(n.segments)] for n in narrations}
    (folder / "htm_align.json").write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    return folder / "htm_align.json"


def as_htm_aa(folder: Path, narrations: Narrations) -> Path:
    """The rows of the videos in turns, so that no video's rows are together; times are moments."""
    rows = [(k, n.video_id, int(s.start or 0), s.text) for n in narrations for k, s in enumerate(n.segments)]
    rows.sort(key=lambda row: row[0])
    (folder / "htm_aa_v1.csv").write_text(table([row[1:] for row in rows], "vid", "timestamp", "text"))
    return folder / "htm_aa_v1.csv"


def whisperx(narration: Narration) -> str:
    items = [{"start": s.start, "end": s.end, "text": " " + s.text, "words": [{}]} for s in narration.segments]
    return json.dumps({"segments": items, "word_segments": [{}]})


def as_whisperx_tar(folder: Path, narrations: Narrations) -> Path:
    with tarfile.open(folder / "video_FE_part1.tar.gz", "w:gz") as archive:
        for file in sorted(video_files(".json", whisperx)(folder, narrations).iterdir()):
            archive.add(file, f"video_FE_part1/{file.name}")
    return folder / "video_FE_part1.tar.gz"


def webvtt(narration: Narration) -> str:
    def cue(segment: Segment) -> str:
        start, end = (clock(time or 0, "{h:02}:{m:02}:{s:02}.{ms:03}") for time in (segment.start, segment.end))
        return f"{start} --> {end} align:start position:0%\n<c.yellow>{html.escape(segment.text)}</c>\n"

    return "\n".join(["WEBVTT\nKind: captions\n", "NOTE none\n", *map(cue, narration.segments)])


def srt(narration: Narration) -> str:
    cues = enumerate(narration.segments, start=1)
    return "\n".join(f"{n}\n{clock(s.start or 0)} --> {clock(s.end or 0)}\n<i>{s.text}</i>\n" for n, s in cues)


def as_parquet(rows: Callable[[Narration], list[dict[str, Any]]], group: int = 2) -> Writer:
    def write(folder: Path, narrations: Narrations) -> Path:
        content = pa.Table.from_pylist([row for narration in narrations for row in rows(narration)])
        pq.write_table(content, folder / "n.parquet", row_group_size=group)
        return folder / "n.parquet"

    return write


class Form(NamedTuple):
    """A form that narrations are published in."""

    write: Writer
    source: str | None = None
    """The source that narrations without one get."""
    title: str | None = None
    kind: str = "exact"
    """`exact` keeps all of a text and a time, `spaced` makes white space one space, `cues` also keeps thousandths of
    seconds and plain characters only, `moments` whole seconds without ends."""


FORMS = {
    "jsonl": Form(as_jsonl),
    "procedures": Form(as_procedures, "mine", "brew tea"),
    "pickle of scored lists": Form(as_pickle(lambda text: [(text, 0.5)]), "howtocaption"),
    "zipped pickle": Form(as_pickle(lambda text: [(text, 0.5)], packed=True), "howtocaption"),
    "json": Form(as_json, "howto100m"),
    "zipped json": Form(as_zipped_json, "howto100m"),
    "htm-align": Form(as_htm_align, "htm-align"),
    "htm-aa": Form(as_htm_aa, "htm-aa", kind="moments"),
    "parquet, a row a video": Form(as_parquet(lambda n: [{"video_id": n.video_id, "title": n.title, **lists(n)}])),
    "parquet, nested": Form(as_parquet(lambda n: [to_row(n)])),
    "parquet, a row a segment": Form(
        as_parquet(
            lambda n: [{"video_id": n.video_id, "start": s.start, "end": s.end, "text": s.text} for s in n.segments], 3
        )
    ),
    "csv folder": Form(as_csv_folder, "howto100m"),
    "csv zip": Form(as_csv_zip, "howto100m"),
    "whisperx": Form(as_whisperx_tar, "whisperx", kind="spaced"),
    "webvtt": Form(video_files(".en-US.vtt", webvtt), "subtitles", kind="cues"),
    "srt": Form(video_files(".srt", srt), "subtitles", kind="cues"),
}
