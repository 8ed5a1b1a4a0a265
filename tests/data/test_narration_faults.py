"""What cannot be used: one policy for all forms, one clear sentence for each cause, every loss counted."""

import errno
import gzip
import json
import os
import pickle
import zipfile
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import raises_input
from tests.data.narration_forms import FORMS

from recipe.artifacts import write_jsonl
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


def test_what_a_folder_or_a_file_has_twice_or_not_at_all_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for name in (b"\xff.jsonl", b"\xfe.jsonl"):
        (folder / os.fsdecode(name)).write_text('{"video_id": "v", "sentences": ["stir"]}\n')
    assert len(list(read_narrations(folder, "keep-first"))) == 1
    assert len(list(read_narrations(folder, every_track=True))) == 2
    with pytest.raises(InputError, match=r"line 1, field 'video_id'.*'v'"):
        list(read_narrations(folder))
    twice = tmp_path / "twice.jsonl"
    twice.write_text('{"video_id": "v", "sentences": ["stir"]}\n' * 2)
    for every_track in (False, True):
        with pytest.raises(InputError, match=r"twice\.jsonl, line 2, field 'video_id'.*twice\.jsonl, line 1"):
            list(read_narrations(twice, every_track=every_track))
    (folder / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"gone\.jsonl"):
        list(read_narrations(folder, "keep-first"))


PLACES = {
    "jsonl": "line 1, field 'segments[1].{part}'",
    "pickle of scored lists": "field 'v.{part}[",
    "json": "field 'v.{part}[",
    "htm-align": "field 'v[1]",
    "parquet, a row a segment": "field 'row 2, {part}'",
    "csv folder": "field '{part}'",
    "whisperx": "field 'segments[1].{part}'",
}
"""Where a form has its second caption."""


@pytest.mark.parametrize("form", PLACES)
def test_a_bad_caption_is_refused_or_left_out(tmp_path: Path, form: str) -> None:
    for number, (start, end, text, reason, part) in enumerate(BAD[:2] if "pickle" in form else BAD):  # takes a process
        spoken = (Segment("good", 0.0, 1.0), Segment(text, start, end), Segment("also good", 0.0, 2.0))
        told = [Narration("v", spoken if form != "jsonl" else (spoken[0], spoken[1], replace(spoken[2], start=2.0)))]
        (folder := tmp_path / str(number)).mkdir()
        path = FORMS[form].write(folder, told)
        with pytest.raises(InputError) as caught:
            read(path)
        assert str(caught.value).startswith(str(path))
        assert PLACES[form].format(part=part) in str(caught.value)
        report = ReadingReport()
        (narration,) = read(path, report, bad="skip")
        assert [segment.text for segment in narration.segments] == ["good", "also good"]
        assert report.skipped_captions == {reason: 1}
        assert f"1 caption skipped: {reason}" in report.lines()


def test_a_narration_of_which_nothing_is_left_is_left_out(tmp_path: Path) -> None:
    FORMS["csv folder"].write(tmp_path, [Narration("v", (Segment(" ", 0, 1), Segment("x", 5, 3)))])
    with pytest.raises(InputError, match=r"1 caption skipped: .*; 1 narration skipped"):
        read(tmp_path, bad="skip")
    (tmp_path / "w.jsonl").write_text('{"video_id": "w", "sentences": ["x"]}\n')
    report = ReadingReport()
    assert [n.video_id for n in read(tmp_path, report, bad="skip")] == ["w"]
    assert (report.narrations, report.segments) == (1, 1)
    assert report.skipped_narrations == {"no usable caption": 1}


def as_json(path: Path, *rows: tuple[Any, Any, Any]) -> Path:
    """Captions as (start, end, text), in parallel lists."""
    path.write_text(json.dumps({"v": dict(zip(("start", "end", "text"), zip(*rows, strict=True), strict=True))}))
    return path


def test_a_day_is_the_latest_time(tmp_path: Path) -> None:
    path = as_json(tmp_path / "v.json", (86_400, 86_400.0, "x"))
    assert read(path)[0].segments == (Segment("x", 86_400.0, 86_400.0),)
    with pytest.raises(InputError, match=r"24 hours.*milliseconds"):
        read(as_json(path, (0, 90_000, "x")))


def test_lines_out_of_order_are_refused_and_other_forms_sorted(tmp_path: Path) -> None:
    rows = [(5, 6, "b"), (4, 7, "a"), (6, 7, "c")]
    path = FORMS["jsonl"].write(tmp_path, [Narration("v", tuple(Segment(text, a, b) for a, b, text in rows))])
    report = ReadingReport()
    assert [s.text for s in read(path, report, bad="skip")[0].segments] == ["b", "c"]
    assert report.skipped_captions == {"out of order": 1}
    assert [s.text for s in read(as_json(tmp_path / "v.json", *rows))[0].segments] == ["a", "b", "c"]


def test_times_for_some_captions_only(tmp_path: Path) -> None:
    path, report = as_json(tmp_path / "v.json", (None, None, "a"), (4, 7, "b"), (1, None, "c")), ReadingReport()
    with pytest.raises(InputError, match=r"field 'v\.text\[2\]': .*'start' and 'end'"):
        read(path)
    assert read(path, report, bad="skip")[0].segments == (Segment("b", 4.0, 7.0),)
    assert report.skipped_captions == {"times for some captions only": 1, "only one of start and end": 1}


GOOD: dict[str, Any] = {"video_id": "v1", "segments": [{"text": "a", "start": 5, "end": 6}], "title": "tea"}
STEPS: dict[str, Any] = {
    "source": "mine",
    "video_id": "v1",
    "goal": "brew tea",
    "steps": [{"text": "boil", "start": 1, "end": 2.5}, {"text": "pour", "start": 2, "end": 4}],
}
NO_ID = {"segments": GOOD["segments"]}
SPOKEN = {"start": [1], "end": [2], "text": ["x"]}
BACK = [{"text": "a", "start": 3, "end": 4}, {"text": "b", "start": 2, "end": 4}]
LINES: list[tuple[dict[str, Any], str, str]] = [
    (NO_ID, "video_id", "no video id"),
    (GOOD | {"segments": []}, "segments", "no captions"),
    ({"video_id": "v2"}, "segments", "no captions"),
    (GOOD | {"segments": "a"}, "segments", "no captions"),
    (GOOD | {"sentences": ["a"]}, "sentences", "segments and sentences"),
    ({"video_id": "v2", "sentences": ["a", " "]}, "sentences", "blank text"),
    (GOOD | {"source": 3}, "source", "bad source"),
    (GOOD | {"segments": ["a"]}, "segments[0]", "not a caption"),
    (GOOD | {"segments": [{"start": 0, "end": 1}]}, "segments[0].text", "blank text"),
    (GOOD | {"segments": [{"text": "a", "start": 1}]}, "segments[0]", "only one of start and end"),
    (GOOD | {"segments": [{"text": "a", "start": True, "end": 2}]}, "segments[0].start", "time that is no number"),
    (GOOD | {"segments": BACK}, "segments[1].start", "out of order"),
    (GOOD | {"segments": [*BACK[:1], {"text": "b"}]}, "segments[1]", "times for some captions only"),
    (STEPS | {"steps": None}, "steps", "no captions"),
    (STEPS | {"steps": []}, "steps", "no captions"),
    (STEPS | {"goal": 3}, "goal", "bad goal"),
    (STEPS | {"source": 3}, "source", "bad source"),
    (STEPS | {"video_id": ""}, "video_id", "no video id"),
    (STEPS | {"steps": [3]}, "steps[0]", "not a caption"),
    (STEPS | {"steps": [{"text": " ", "start": 1, "end": 2}]}, "steps[0].text", "blank text"),
    (STEPS | {"steps": [{"text": "a", "start": 3, "end": 2}]}, "steps[0].end", "end before start"),
    (STEPS | {"steps": BACK}, "steps[1].start", "out of order"),
]
"""A line, the field that is named, and the reason that it is counted under."""


@pytest.mark.parametrize(("line", "field", "reason"), LINES)
def test_a_bad_line_is_named_or_counted(tmp_path: Path, line: dict[str, Any], field: str, reason: str) -> None:
    good = STEPS if "steps" in line else GOOD
    changed = line | {"video_id": "v2"} if line.get("video_id") else line
    write_jsonl(tmp_path / "n.jsonl", [good, changed, good | {"video_id": "v3"}])
    reader = read_narrations(tmp_path / "n.jsonl")
    assert next(reader).video_id == "v1"
    with raises_input(tmp_path / "n.jsonl", 2, field, "; "):
        next(reader)
    report = ReadingReport()
    found = [narration.video_id for narration in read(tmp_path / "n.jsonl", report, bad="skip")]
    assert [name for name in found if name != "v2"] == ["v1", "v3"]
    assert (report.skipped_captions + report.skipped_narrations)[reason] == 1
    assert report.no_goal == 0


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


def test_bad_entries_of_a_pickle_are_named_or_counted(tmp_path: Path) -> None:
    path, report = tmp_path / "captions.pickle", ReadingReport()
    for entry, problem, _ in ENTRIES:
        path.write_bytes(pickle.dumps({"v": entry, "w": SPOKEN}))
        with raises_input(path, None, "v", problem):
            read(path)
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


def test_a_video_id_must_be_a_text(tmp_path: Path) -> None:
    path = tmp_path / "captions.pickle"
    keys = (3, None, "", "\ud800", ("a",))
    for key in keys:
        path.write_bytes(pickle.dumps({key: SPOKEN, "w": SPOKEN}))
        with raises_input(path, None, "video_id"):
            read(path)
    path.write_bytes(pickle.dumps({**dict.fromkeys(keys, SPOKEN), "w": SPOKEN}))
    assert [n.video_id for n in read(path, bad="skip")] == ["w"]


def test_mixed_encodings_are_named_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "caption.json"
    good = json.dumps({"v": {"start": [1], "end": [2], "text": ["crème"]}}, ensure_ascii=False, indent=0)
    mixed = good[:-1].encode() + b',"w": {"start": [1], "end": [2],\n"text": ["cr\xe8me"]}}'
    path.write_bytes(mixed)
    at = mixed.index(0xE8)
    line = mixed[:at].count(b"\n") + 1
    with raises_input(path, line, None, "UTF-8", "latin-1", f"byte 0xe8 at position {at:,}"):
        read(path)
    path.write_bytes(good.encode("latin-1"))
    assert read(path, encoding="latin-1")[0].segments[0].text == "crème"
    path.write_bytes(good.encode("utf-16"))
    assert read(path, encoding="utf-16")[0].segments[0].text == "crème"


@settings(max_examples=15)
@given(text=st.text(max_size=40), data=st.data())
def test_the_place_of_a_stray_byte_does_not_depend_on_blocks(text: str, data: st.DataObject) -> None:
    whole = ("é" * 131_070 + "\n" * 3 + text).encode()
    at = data.draw(st.sampled_from([0, 262_140, 262_143, len(whole)]))
    with TemporaryDirectory() as folder:
        (Path(folder) / "n.vtt").write_bytes(whole[:at] + b"\xff" + whole[at:])
        with pytest.raises(InputError, match=rf"byte 0xff at position {at:,}\)"):
            read(Path(folder) / "n.vtt")


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


@settings(max_examples=25)
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


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        *((name, b"", "") for name in ("n.jsonl", "n.pkl", "n.parquet", "n.vtt", "n.srt", "n")),
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
        ("v.vtt", b"WEBVTT\n\n00:01.000 --> 00:02.000\ncaf\xc3", "line 4: the text is not UTF-8"),
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
    with pytest.raises(InputError, match="; ") as caught:
        read(tmp_path / name)
    message = str(caught.value)
    assert problem in message
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


@pytest.mark.thorough
def test_a_very_long_narration(tmp_path: Path) -> None:
    count = 100_000
    told = tuple(Segment(f"caption {k}", k / 4, k / 4 + 0.5) for k in range(count))
    assert read(FORMS["zipped pickle"].write(tmp_path, [Narration("v", told)]))[0].segments == told


@pytest.mark.parametrize("name", ["n.jsonl", "n.vtt", "n.whisperx.json", "caption.json"])
def test_text_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path, name: str) -> None:
    head = {"n.whisperx.json": '{"segments": [{"text": "', "caption.json": '{"v": {"text": ["'}.get(name, "")
    with gzip.open(tmp_path / f"{name}.gz", "wt") as stream:
        stream.write(head + "a" * (1 << 25))
    with pytest.raises(InputError, match="16,777,216 characters"):
        read(tmp_path / f"{name}.gz")


def test_a_folder_that_cannot_be_read_is_no_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "n.jsonl").write_text('{"video_id": "v", "sentences": ["x"]}\n')
    monkeypatch.chdir(tmp_path)
    for _ in range(25):  # the path is longer than the system takes, even from the superuser
        Path("a" * 200).mkdir()
        monkeypatch.chdir("a" * 200)
    with pytest.raises(OSError, match="aaa") as caught:
        read(tmp_path)
    assert caught.value.errno == errno.ENAMETOOLONG


def test_names_in_archives_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "n.zip", "w") as archive:
        archive.writestr("\x1b[31m.vtt", "WEBVTT\n\n")
    with pytest.raises(InputError) as caught:
        read(tmp_path / "n.zip")
    assert str(caught.value).isprintable()
