"""What cannot be used: one policy for all forms, one clear sentence for each cause, every loss counted."""

import gzip
import json
import os
import pickle
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.data.narrations import ReadingOptions, ReadingReport, read_narrations
from recipe.errors import InputError
from recipe.types import Narration, Segment

BAD: list[tuple[Any, Any, Any, str, str]] = [
    (-1, 2, "x", "negative time", "start"),
    (0, -2.5, "x", "negative time", "end"),
    (float("nan"), 2, "x", "time that is no number", "start"),
    (0, float("inf"), "x", "time that is no number", "end"),
    (3, 2, "x", "end before start", "end"),
    (0, 86_401, "x", "time beyond 24 hours", "end"),
    (1_500_000, 1_600_000, "x", "time beyond 24 hours", "start"),
    (0, 1, " \n", "blank text", "text"),
]
"""start, end, text; the reason it is counted under and the part at fault."""


def read(path: Path, report: ReadingReport | None = None, **options: Any) -> list[Narration]:
    return list(read_narrations(path, options=ReadingOptions(**options), report=report))


def parallel(rows: list[tuple[Any, Any, Any]]) -> dict[str, list[Any]]:
    return dict(zip(("start", "end", "text"), map(list, zip(*rows, strict=True)), strict=True))


def as_pickle(path: Path, rows: list[tuple[Any, Any, Any]]) -> str:
    path.write_bytes(pickle.dumps({"v": parallel(rows)}))
    return "field 'v.{part}[1]'"


def as_json(path: Path, rows: list[tuple[Any, Any, Any]]) -> str:
    path.write_text(json.dumps({"v": parallel(rows)}))
    return "field 'v.{part}[1]'"


def as_lines(path: Path, rows: list[tuple[Any, Any, Any]]) -> str:
    items = [{"start": start, "end": end, "text": text} for start, end, text in rows]
    path.write_text(json.dumps({"video_id": "v", "segments": items}) + "\n")
    return "line 1, field 'segments[1].{part}'"


def as_csv(path: Path, rows: list[tuple[Any, Any, Any]]) -> str:
    path.write_text("start,end,text\n" + "".join(f'{start},{end},"{text}"\n' for start, end, text in rows))
    return "field '{part}'"


def as_parquet(path: Path, rows: list[tuple[Any, Any, Any]]) -> str:
    table = {name: [float(v) if name != "text" else v for v in values] for name, values in parallel(rows).items()}
    pq.write_table(pa.table({"video_id": ["v"] * len(rows), **table}), path)
    return "field 'row 2, {part}'"


WRITERS = {"pickle": as_pickle, "json": as_json, "jsonl": as_lines, "csv": as_csv, "parquet": as_parquet}


@pytest.mark.parametrize("form", WRITERS)
def test_a_bad_caption_is_refused_or_left_out(tmp_path: Path, form: str) -> None:
    path = tmp_path / f"v.{form}"
    for start, end, text, reason, part in BAD[:2] if form == "pickle" else BAD:  # a pickle takes a process
        where = WRITERS[form](path, [(0, 1, "good"), (start, end, text), (0, 2, "also good")])
        with pytest.raises(InputError) as caught:
            read(path)
        assert str(caught.value).startswith(str(path))
        assert where.format(part=part) in str(caught.value)
        report = ReadingReport()
        (narration,) = read(path, report, bad="skip")
        assert narration.segments == (Segment("good", 0.0, 1.0), Segment("also good", 0.0, 2.0))
        assert report.skipped_captions == {reason: 1}
        assert report.lines() == [f"1 caption skipped: {reason}"]


@pytest.mark.parametrize("form", WRITERS)
def test_a_narration_of_which_nothing_is_left_is_left_out(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    WRITERS[form](folder / f"v.{form}", [(0, 1, " "), (5, 3, "x")])
    with pytest.raises(InputError, match=r"1 caption skipped: .*; 1 narration skipped"):
        read(folder, bad="skip")
    (folder / "w.jsonl").write_text('{"video_id": "w", "sentences": ["x"]}\n')
    report = ReadingReport()
    assert [n.video_id for n in read(folder, report, bad="skip")] == ["w"]
    assert (report.narrations, report.segments) == (1, 1)
    assert report.skipped_narrations == {"no usable caption": 1}


def test_a_day_is_the_latest_time(tmp_path: Path) -> None:
    as_json(tmp_path / "v.json", [(86_400, 86_400.0, "x")])
    assert read(tmp_path / "v.json")[0].segments == (Segment("x", 86_400.0, 86_400.0),)
    as_json(tmp_path / "v.json", [(0, 90_000, "x")])
    with pytest.raises(InputError, match=r"24 hours.*milliseconds"):
        read(tmp_path / "v.json")


def test_lines_out_of_order_are_refused_and_other_forms_sorted(tmp_path: Path) -> None:
    rows = [(5, 6, "b"), (4, 7, "a"), (6, 7, "c")]
    as_lines(tmp_path / "v.jsonl", rows)
    report = ReadingReport()
    assert [s.text for s in read(tmp_path / "v.jsonl", report, bad="skip")[0].segments] == ["b", "c"]
    assert report.skipped_captions == {"out of order": 1}
    as_json(tmp_path / "v.json", rows)
    assert [s.text for s in read(tmp_path / "v.json")[0].segments] == ["a", "b", "c"]


def test_times_for_some_captions_only(tmp_path: Path) -> None:
    as_json(tmp_path / "v.json", [(None, None, "a"), (4, 7, "b"), (1, None, "c")])
    with pytest.raises(InputError, match=r"field 'v\.text\[2\]': .*'start' and 'end'"):
        read(tmp_path / "v.json")
    report = ReadingReport()
    assert read(tmp_path / "v.json", report, bad="skip")[0].segments == (Segment("b", 4.0, 7.0),)
    assert report.skipped_captions == {"times for some captions only": 1, "only one of start and end": 1}


ENTRIES: list[tuple[Any, str, str]] = [
    ({"start": [1], "end": [2]}, "'start', 'end' or 'text' is missing or not a list", "not a narration"),
    ({"start": [1], "end": [2, 3], "text": ["a"]}, "1 'start', 2 'end', 1 'text'", "lists of unequal length"),
    ({"start": [], "end": [], "text": []}, "the narration has no segments", "no captions"),
    ([1, 2], "not an object", "not a narration"),
    (None, "not an object", "not a narration"),
    (b"\0\1", "the zipped entry is damaged", "damaged zip"),
    (zlib.compress(b"{}" * 500)[:-8], "the zipped entry is cut off", "damaged zip"),
    (zlib.compress(b"[" * 100_000), "the zipped entry is not JSON", "damaged zip"),
    (zlib.compress(bytes((1 << 26) + 1)), "unpacks to more than 67,108,864 bytes", "zip too large"),
]


@pytest.mark.parametrize(("entry", "problem", "_reason"), ENTRIES)
def test_a_bad_entry_of_a_pickle_is_named(tmp_path: Path, entry: Any, problem: str, _reason: str) -> None:
    path = tmp_path / "captions.pickle"
    path.write_bytes(pickle.dumps({"v": entry, "w": {"start": [1], "end": [2], "text": ["x"]}}))
    with pytest.raises(InputError, match="field 'v': ") as caught:
        read(path)
    assert problem in str(caught.value)


def test_bad_entries_of_a_pickle_are_left_out_and_counted(tmp_path: Path) -> None:
    path, report = tmp_path / "captions.pickle", ReadingReport()
    entries = {f"v{number}": entry for number, (entry, _, _) in enumerate(ENTRIES)}
    path.write_bytes(pickle.dumps(entries | {"w": SPOKEN}))
    assert [n.video_id for n in read(path, report, bad="skip")] == ["w"]
    assert report.skipped_narrations == Counter(reason for _, _, reason in ENTRIES)


TEXTS: list[tuple[Any, str]] = [
    ([], "no text for a time span"),
    ([3], "not a caption"),
    ([("a", "b")], "not a caption"),
    ([("a", float("nan"))], "not a caption"),
    ([("a", 0.5, 1)], "not a caption"),
    ([("", 0.5)], "blank text"),
    ([None], "not a caption"),
    (["\ud800"], "text that is not Unicode"),
]


@pytest.mark.parametrize("captions", ["each", "joined", "first"])
def test_a_bad_entry_of_a_span_costs_one_caption(tmp_path: Path, captions: str) -> None:
    path, report = tmp_path / "captions.pickle", ReadingReport()
    spans = [["x"], *(text for text, _ in TEXTS)]
    times = list(range(1, len(spans) + 1))
    path.write_bytes(pickle.dumps({"v": {"start": times, "end": times, "text": spans}}))
    with pytest.raises(InputError, match=r"field 'v\.text\[1\]'"):
        read(path, captions=captions)
    assert [s.text for s in read(path, report, bad="skip", captions=captions)[0].segments] == ["x"]
    assert report.skipped_captions == Counter(reason for _, reason in TEXTS)


@pytest.mark.parametrize("key", [3, None, "", "\ud800", ("a",)])
def test_a_video_id_must_be_a_text(tmp_path: Path, key: Any) -> None:
    path = tmp_path / "captions.pickle"
    path.write_bytes(pickle.dumps({key: {"start": [1], "end": [2], "text": ["x"]}, "w": SPOKEN}))
    with pytest.raises(InputError, match="field 'video_id'"):
        read(path)
    assert [n.video_id for n in read(path, bad="skip")] == ["w"]


SPOKEN = {"start": [1], "end": [2], "text": ["x"]}


def test_mixed_encodings_are_named_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "caption.json"
    good = json.dumps({"v": {"start": [1], "end": [2], "text": ["crème"]}}, ensure_ascii=False, indent=0)
    mixed = good[:-1].encode() + b',"w": {"start": [1], "end": [2],\n"text": ["cr\xe8me"]}}'
    path.write_bytes(mixed)
    at = mixed.index(0xE8)
    line = mixed[:at].count(b"\n") + 1
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(caught.value) == (
        f"{path}, line {line}: the text is not UTF-8; convert the file to UTF-8 or give its encoding, "
        f"such as latin-1 (byte 0xe8 at position {at:,})."
    )
    path.write_bytes(good.encode("latin-1"))
    assert read(path, encoding="latin-1")[0].segments[0].text == "crème"
    path.write_bytes(good.encode("utf-16"))
    assert read(path, encoding="utf-16")[0].segments[0].text == "crème"


@settings(max_examples=15, deadline=None)
@given(text=st.text(max_size=40), data=st.data())
def test_the_place_of_a_stray_byte_does_not_depend_on_blocks(text: str, data: st.DataObject) -> None:
    whole = ("é" * 131_070 + "\n" * 3 + text).encode()
    at = data.draw(st.sampled_from([0, 262_140, 262_143, len(whole)]))
    with TemporaryDirectory() as folder:
        (Path(folder) / "n.vtt").write_bytes(whole[:at] + b"\xff" + whole[at:])
        with pytest.raises(InputError, match=rf"byte 0xff at position {at:,}\)"):
            read(Path(folder) / "n.vtt")


def test_a_character_cut_off_at_the_end_is_named(tmp_path: Path) -> None:
    (tmp_path / "v.vtt").write_bytes(b"WEBVTT\n\n00:01.000 --> 00:02.000\ncaf\xc3")
    with pytest.raises(InputError, match=r"line 4: .*0xc3 at position 35"):
        read(tmp_path / "v.vtt")


WHOLE = json.dumps({"v": SPOKEN, "ué": {"start": [1.5, 2], "end": [2.25, 3e2], "text": ['a "b" \\ ', "é\u2028"]}})


@pytest.mark.parametrize("cut", range(1, len(WHOLE), 3))
def test_truncated_json_is_said_to_be_incomplete(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "caption.json"
    path.write_text(WHOLE[:cut])
    with pytest.raises(InputError, match=rf"incomplete .*character {cut}\)"):
        read(path, format="howto100m")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"v": oops}', "Expecting value at character 6"),
        ('{"v" 1}', "':' is missing at character 5"),
        ('{"v": {} "w": {}}', "',' is missing at character 9"),
        ('{"v": {}} x', "more follows after the JSON object at character 10"),
        ('{"v": {}}{"w": {}}', "more follows after the JSON object at character 9"),
        ("{1: {}}", "a key is not a string"),
        ("[]", "'{' is missing at character 0"),
        ('{"v": ' + "[" * 100_000, "recursion"),
        ('{"v": {"start": [' + "9" * 5000 + "]}}", "digits"),
        ("", "the JSON object is incomplete"),
    ],
)
def test_json_that_is_none_is_told_where(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "caption.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read(path, format="howto100m", bad="skip")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=20,
)


BLOCK = 262_144
"""Characters of a large file that are read at once."""


@settings(max_examples=25, deadline=None)
@given(
    other=st.dictionaries(st.text(max_size=9), values, max_size=4),
    said=st.dictionaries(st.text(max_size=9).map(str.strip).filter(bool), st.text(max_size=30), min_size=1, max_size=4),
    indent=st.sampled_from([None, 1]),
    data=st.data(),
)
def test_a_value_may_be_cut_at_any_place_by_a_block(
    other: dict[str, Any], said: dict[str, str], indent: int | None, data: st.DataObject
) -> None:
    """Values of every kind: surrogate pairs, numbers that are none, and lists in lists."""
    whole = json.dumps(
        {video: {"start": [0], "end": [1], "text": [f"{text} x"], "more": other} for video, text in said.items()},
        indent=indent,
    )
    at = data.draw(st.integers(1, len(whole)))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "caption.json"
        path.write_text(" " * (BLOCK - at) + whole)
        found = {one.video_id: one.segments for one in read(path, format="howto100m", marks="keep")}
    assert found == {video: (Segment(f"{text} x".strip(), 0.0, 1.0),) for video, text in said.items()}


@pytest.mark.parametrize("name", ["n.jsonl", "n.pkl", "n.parquet", "n.vtt", "n.srt", "n"])
def test_an_empty_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=rf"^{tmp_path / name}: "):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("caption.json", b"{}", "the file holds no narrations"),
        ("n.csv", b"vid,timestamp,text\n", "the file holds no narrations"),
        ("n.csv", b"start,end,text\n", "the narration has no segments"),
        ("n.vtt", b"WEBVTT\n\n", "the narration has no segments"),
        ("n.vtt", b"hello\n", "the file is neither WebVTT nor SubRip"),
        ("n.csv", b"start,end,text\n1,2\n", "the row has 2 fields and the header 3"),
        ("n.csv", b'start,end,text\n1,2,"a\n', "not valid CSV"),
        ("n.csv", b"start,end,text\none,2,a\n", "the time 'one' is not a number"),
        ("n.csv", b"vid,timestamp,text\nv,1\n", "the row has 2 fields and the header 3"),
        ("n.csv", b"vid,timestamp,text\n,1,a\n", "the text is empty or not a string"),
        ("n.json", b'{"segments": [{]}', "not valid JSON"),
        ("n.json", b'{"segments": [{"text": "a"}, 3]}', "missing"),
        ("n.json", b'{"v": [[1, 2, 3]]}', "not [alignable, start, end, text]"),
        ("n.json", b'{"v": [[1, 2, 3, "x"]], "w": 3}', "the video's entry is not a list"),
        ("n.parquet", b"PAR1 and so on PAR1", "the Parquet file is damaged"),
        (
            "n.vtt",
            b"WEBVTT\n\n00:01.000 -->\nx\n\n00:03.000 --> 00:04.000\ny\n",
            "line 3: the line looks like the times",
        ),
        ("n.jsonl.gz", b"\x1f\x8b\x08\x00abc", "the compressed data cannot be read"),
        ("n.zip", b"PK\3\4abc", "the compressed data cannot be read"),
        ("n.tar.gz", b"\x1f\x8b\x08\x00abc", "the compressed data cannot be read"),
    ],
)
def test_one_clear_sentence_for_each_fault(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read(tmp_path / name)
    message = str(caught.value)
    assert problem in message
    assert "; " in message
    assert message.startswith(str(tmp_path / name))
    assert "\n" not in message


def test_parquet_with_other_columns_is_told_which_are_missing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"video_id": ["a"], "caption": ["x"]}), tmp_path / "n.parquet")
    with pytest.raises(InputError, match="no column 'text'"):
        read(tmp_path / "n.parquet")


def test_one_damaged_video_among_many_costs_that_video_only(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("start,end,text\n0,1,x\n")
    (tmp_path / "b.csv").write_bytes(b"start,end,text\n0,1,caf\xe9\n")
    (tmp_path / "c.json").write_text('{"segments": [{"text": "cut')
    (tmp_path / "d.vtt").write_text("WEBVTT\n\n")
    with pytest.raises(InputError, match=r"b\.csv, line 2: .*UTF-8"):
        read(tmp_path)
    report = ReadingReport()
    assert [n.video_id for n in read(tmp_path, report, bad="skip")] == ["a"]
    assert report.skipped_narrations == {"file that cannot be read": 2, "no captions": 1}


def test_pickles_and_parquet_are_not_read_from_archives(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "n.zip", "w") as archive:
        archive.writestr("captions.pickle", pickle.dumps({"v": SPOKEN}))
    with pytest.raises(InputError, match=r"n\.zip/captions\.pickle: .*archive"):
        read(tmp_path / "n.zip")


LONG = ["pickle", *(pytest.param(form, marks=pytest.mark.slow) for form in ("csv", "json", "jsonl", "parquet"))]


@pytest.mark.thorough
@pytest.mark.parametrize("form", LONG)
def test_a_very_long_narration(tmp_path: Path, form: str) -> None:
    count = 100_000
    WRITERS[form](tmp_path / f"v.{form}", [(k / 4, k / 4 + 0.5, f"caption {k}") for k in range(count)])
    (narration,) = read(tmp_path / f"v.{form}")
    assert len(narration.segments) == count
    assert narration.segments[-1] == Segment(f"caption {count - 1}", (count - 1) / 4, (count - 1) / 4 + 0.5)


@pytest.mark.parametrize("name", ["n.jsonl", "n.vtt", "n.whisperx.json", "caption.json"])
def test_text_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path, name: str) -> None:
    head = {"n.whisperx.json": '{"segments": [{"text": "', "caption.json": '{"v": {"text": ["'}.get(name, "")
    with gzip.open(tmp_path / f"{name}.gz", "wt") as stream:
        stream.write(head + "a" * (1 << 25))
    with pytest.raises(InputError, match="16,777,216 characters"):
        read(tmp_path / f"{name}.gz")


def test_a_folder_that_may_not_be_read_is_no_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "locked").mkdir()
    (tmp_path / "n.jsonl").write_text('{"video_id": "v", "sentences": ["x"]}\n')

    def scandir(path: Any) -> Any:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    listed = os.scandir
    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(PermissionError, match="locked"):
        read(tmp_path)


def test_names_in_archives_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "n.zip", "w") as archive:
        archive.writestr("\x1b[31m.vtt", "WEBVTT\n\n")
    with pytest.raises(InputError) as caught:
        read(tmp_path / "n.zip")
    assert str(caught.value).isprintable()
