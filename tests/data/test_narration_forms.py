"""Narrations written in any published form read back as they were."""

import csv
import html
import io
import json
import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.artifacts import write_jsonl
from recipe.data.narrations import ReadingOptions, ReadingReport, read_narrations, to_row
from recipe.errors import InputError
from recipe.types import Narration, Segment

Narrations = Sequence[Narration]


def lists(narration: Narration, text: Callable[[str], Any] = str) -> dict[str, Any]:
    """Parallel lists, from the last start to the first: the published order is no order."""
    segments = sorted(narration.segments, key=lambda segment: (segment.start, segment.end), reverse=True)
    return {
        "start": [segment.start for segment in segments],
        "end": [segment.end for segment in segments],
        "text": [text(segment.text) for segment in segments],
    }


def table(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> str:
    stream = io.StringIO()
    csv.writer(stream).writerows([header, *rows])
    return stream.getvalue()


def clock(seconds: float, mark: str) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{mark}{thousandths:03d}"


def as_jsonl(folder: Path, narrations: Narrations) -> Path:
    write_jsonl(folder / "n.jsonl", map(to_row, narrations))
    return folder / "n.jsonl"


def as_pickle(text: Callable[[str], Any], packed: bool = False) -> Callable[[Path, Narrations], Path]:
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


def video_files(folder: Path, narrations: Narrations, suffix: str, text: Callable[[Narration], str]) -> Path:
    """A file a video, in a folder; the order in which they are read is that of their names."""
    (folder / "videos").mkdir()
    for narration in narrations:
        (folder / "videos" / (narration.video_id + suffix)).write_text(text(narration), encoding="utf-8")
    return folder / "videos"


def as_csv_folder(folder: Path, narrations: Narrations) -> Path:
    def text(narration: Narration) -> str:
        return table([(s.start, s.end, s.text) for s in narration.segments], ("start", "end", "text"))

    return video_files(folder, narrations, ".csv", text)


def as_csv_zip(folder: Path, narrations: Narrations) -> Path:
    with zipfile.ZipFile(folder / "howto100m_captions.zip", "w") as archive:
        for file in as_csv_folder(folder, narrations).iterdir():
            archive.write(file, f"captions/{file.name}")
    return folder / "howto100m_captions.zip"


def as_htm_align(folder: Path, narrations: Narrations) -> Path:
    rows = {n.video_id: [[k % 2, s.start, s.end, s.text] for k, s in enumerate(n.segments)] for n in narrations}
    (folder / "htm_align.json").write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    return folder / "htm_align.json"


def whisperx(narration: Narration) -> str:
    items = [{"start": s.start, "end": s.end, "text": " " + s.text, "words": [{}]} for s in narration.segments]
    return json.dumps({"segments": items, "word_segments": [{}]})


def as_whisperx_tar(folder: Path, narrations: Narrations) -> Path:
    with tarfile.open(folder / "video_FE_part1.tar.gz", "w:gz") as archive:
        for file in sorted(video_files(folder, narrations, ".json", whisperx).iterdir()):
            archive.add(file, f"video_FE_part1/{file.name}")
    return folder / "video_FE_part1.tar.gz"


def as_webvtt(folder: Path, narrations: Narrations) -> Path:
    def cue(segment: Segment) -> str:
        assert segment.start is not None
        assert segment.end is not None
        times = f"{clock(segment.start, '.')} --> {clock(segment.end, '.')} align:start position:0%"
        return f"{times}\n<c.yellow>{html.escape(segment.text)}</c>\n"

    def text(narration: Narration) -> str:
        return "\n".join(["WEBVTT\nKind: captions\n", "NOTE none\n", *map(cue, narration.segments)])

    return video_files(folder, narrations, ".en-US.vtt", text)


def as_srt(folder: Path, narrations: Narrations) -> Path:
    def text(narration: Narration) -> str:
        cues = [
            f"{number}\n{clock(s.start or 0, ',')} --> {clock(s.end or 0, ',')}\n<i>{s.text}</i>\n"
            for number, s in enumerate(narration.segments, start=1)
        ]
        return "\n".join(cues)

    return video_files(folder, narrations, ".srt", text)


def as_parquet_videos(folder: Path, narrations: Narrations) -> Path:
    rows = [{"video_id": n.video_id, "title": n.title, **lists(n)} for n in narrations]
    pq.write_table(pa.Table.from_pylist(rows), folder / "n.parquet")
    return folder / "n.parquet"


def as_parquet_nested(folder: Path, narrations: Narrations) -> Path:
    rows = [{"video_id": n.video_id, "segments": to_row(n)["segments"], "source": n.source} for n in narrations]
    pq.write_table(pa.Table.from_pylist(rows), folder / "n.parquet", row_group_size=2)
    return folder / "n.parquet"


def as_parquet_segments(folder: Path, narrations: Narrations) -> Path:
    rows = [
        {"video_id": n.video_id, "start": s.start, "end": s.end, "text": s.text} for n in narrations for s in n.segments
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "n.parquet", row_group_size=3)
    return folder / "n.parquet"


FORMS: dict[str, tuple[Callable[[Path, Narrations], Path], str | None]] = {
    "jsonl": (as_jsonl, None),
    "pickle of scored lists": (as_pickle(lambda text: [(text, 0.5)]), "howtocaption"),
    "zipped pickle": (as_pickle(lambda text: [(text, 0.5)], packed=True), "howtocaption"),
    "json": (as_json, "howto100m"),
    "zipped json": (as_zipped_json, "howto100m"),
    "htm-align": (as_htm_align, "htm-align"),
    "parquet, a row a video": (as_parquet_videos, None),
    "parquet, nested": (as_parquet_nested, None),
    "parquet, a row a segment": (as_parquet_segments, None),
    "csv folder": (as_csv_folder, "howto100m"),
    "csv zip": (as_csv_zip, "howto100m"),
    "whisperx": (as_whisperx_tar, "whisperx"),
}
"""Writer of each form that keeps all of a text, and the source that narrations without one get."""

SUBTITLES = {"webvtt": as_webvtt, "srt": as_srt}

ids = st.text("abcXYZ019_-", min_size=11, max_size=11).filter(lambda text: not text.startswith("."))
texts = st.text(st.characters(codec="utf-8"), min_size=1).map(str.strip).filter(bool)
words = st.text("abcABC019 ,.'!?é中", min_size=1, max_size=20).map(lambda t: " ".join(t.split())).filter(bool)
# Nobody takes minutes for a word: whole numbers that say so are milliseconds.
times = st.tuples(st.floats(0, 86_380), st.floats(0, 20)).map(lambda pair: [pair[0], pair[0] + pair[1]])
whole_times = st.tuples(st.integers(0, 86_400_000), st.integers(0, 86_400_000)).map(
    lambda pair: sorted(value / 1000 for value in pair)
)


WITH_MARKS = ReadingOptions(marks="keep")


def corpora(text: st.SearchStrategy[str], time: st.SearchStrategy[list[float]]) -> st.SearchStrategy[list[Narration]]:
    segment = st.builds(lambda text, span: Segment(text, *map(float, span)), text, time)
    ordered = st.lists(segment, min_size=1, max_size=5).map(
        lambda found: tuple(sorted(found, key=lambda s: (s.start, s.end)))
    )
    narration = st.builds(Narration, ids, ordered)
    # In file systems that ignore case, two files' names must differ in more.
    return st.lists(narration, min_size=1, max_size=4, unique_by=lambda n: n.video_id.lower()).map(
        lambda found: sorted(found, key=lambda n: n.video_id)
    )


def read_back(
    write: Callable[[Path, Narrations], Path], narrations: Narrations, options: ReadingOptions = WITH_MARKS
) -> list[Narration]:
    with TemporaryDirectory() as folder:
        path = write(Path(folder), narrations)
        report = ReadingReport()
        found = list(read_narrations(path, options=options, report=report))
        assert (report.narrations, report.segments) == (len(found), sum(len(n.segments) for n in found))
        assert report.lines() == []
        return found


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=8, deadline=None)
@given(narrations=corpora(texts, times))
def test_what_was_written_is_read_back(form: str, narrations: list[Narration]) -> None:
    write, source = FORMS[form]
    expected = [replace(narration, source=source) for narration in narrations]
    if form == "whisperx":  # as in subtitles, white space is one space
        expected = [
            replace(one, segments=tuple(replace(s, text=" ".join(s.text.split())) for s in one.segments))
            for one in expected
        ]
    assert read_back(write, narrations) == expected


@pytest.mark.parametrize("form", SUBTITLES)
@settings(max_examples=8, deadline=None)
@given(narrations=corpora(words, whole_times))
def test_subtitles_are_read_back(form: str, narrations: list[Narration]) -> None:
    found = read_back(SUBTITLES[form], narrations, ReadingOptions(rolling="keep", marks="keep"))
    assert found == [replace(narration, source="subtitles") for narration in narrations]


def as_htm_aa(folder: Path, narrations: Narrations) -> Path:
    """The rows of the videos in turns, so that no video's rows are together."""
    rows = [(k, n.video_id, int(s.start or 0), s.text) for n in narrations for k, s in enumerate(n.segments)]
    rows.sort(key=lambda row: row[0])
    (folder / "htm_aa_v1.csv").write_text(table([row[1:] for row in rows], ("vid", "timestamp", "text")))
    return folder / "htm_aa_v1.csv"


@settings(max_examples=8, deadline=None)
@given(narrations=corpora(texts, st.integers(0, 86_400).map(lambda time: [time, time])))
def test_moments_are_read_back(narrations: list[Narration]) -> None:
    assert read_back(as_htm_aa, narrations) == [replace(narration, source="htm-aa") for narration in narrations]


SPOKEN = [
    Narration(f"abcdefghij{k}", tuple(Segment(f"caption é {j}", j * 1.5, j * 1.5 + 2) for j in range(4)))
    for k in range(3)
]
WRITERS = {**{form: write for form, (write, _) in FORMS.items()}, **SUBTITLES, "htm-aa": as_htm_aa}
PIECES = [*(bytes([code]) for code in b'{}[",\\\n\r\0\xffRc'), b"NaN", b"1e999", b"-->", b"9" * 5000]


@pytest.mark.thorough
@pytest.mark.parametrize("form", WRITERS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_in_one_sentence(form: str, data: st.DataObject) -> None:
    """Bytes are changed, put in and cut out at any place; nothing but an InputError may come of it."""
    refusals: list[str] = []
    with TemporaryDirectory() as folder:
        path = WRITERS[form](Path(folder), SPOKEN)
        file = data.draw(st.sampled_from(sorted(path.rglob("*")) if path.is_dir() else [path]))
        content = bytearray(file.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            # An archive's length changes with the time of day, and what is drawn must not.
            at, length = data.draw(st.integers(0, 5000)) % (len(content) + 1), data.draw(st.sampled_from([0, 0, 1, 40]))
            content[at : at + length] = data.draw(st.binary(max_size=2) | st.sampled_from(PIECES))
        file.write_bytes(content)
        for bad in ("error", "skip"):
            try:
                for narration in read_narrations(path, options=ReadingOptions.model_validate({"bad": bad})):
                    starts = [segment.start or 0 for segment in narration.segments]
                    assert starts == sorted(starts)
            except InputError as error:
                refusals.append(str(error))
    assert all("; " in refusal and "\n" not in refusal for refusal in refusals)


@settings(max_examples=3, deadline=None)
@given(narrations=corpora(texts, times))
def test_all_forms_at_once_hold_each_video_once(narrations: list[Narration]) -> None:
    with TemporaryDirectory() as root:
        paths = []
        for number, (write, _) in enumerate(FORMS.values()):
            (Path(root) / str(number)).mkdir()
            paths.append(write(Path(root) / str(number), narrations))
        report = ReadingReport()
        assert list(read_narrations(paths, "keep-first", WITH_MARKS, report)) == narrations
        assert report.duplicates == (len(FORMS) - 1) * len(narrations)


@pytest.fixture(scope="module")
def real(shared_data: Path) -> list[Narration]:
    found = read_narrations(shared_data / "narrations" / "narrations_timed.jsonl")
    return [replace(narration, title=None, source=None) for narration in found]


@pytest.mark.real_data
@pytest.mark.parametrize("form", FORMS)
def test_real_narrations_survive_every_form(real: list[Narration], form: str, tmp_path: Path) -> None:
    write, source = FORMS[form]
    found = list(read_narrations(write(tmp_path, real)))
    order = {narration.video_id: narration for narration in found}
    assert len(found) == len(real) == 643
    for narration in real:
        stable = tuple(sorted(narration.segments, key=lambda s: (s.start, s.end)))
        segments = narration.segments if form == "jsonl" else stable
        if form == "whisperx":  # as in subtitles, white space is one space
            segments = tuple(replace(segment, text=" ".join(segment.text.split())) for segment in segments)
        assert order[narration.video_id] == replace(narration, segments=segments, source=source)


@pytest.mark.real_data
@pytest.mark.parametrize("form", SUBTITLES)
def test_real_narrations_survive_as_subtitles(real: list[Narration], form: str, tmp_path: Path) -> None:
    some = real[::5]
    found = {n.video_id: n for n in read_narrations(SUBTITLES[form](tmp_path, some))}
    assert found.keys() == {narration.video_id for narration in some}
    for narration in some:
        expected = [Segment(" ".join(s.text.split()), round(s.start, 3), round(s.end, 3)) for s in narration.segments]
        assert found[narration.video_id].segments == tuple(sorted(expected, key=lambda s: (s.start, s.end)))
