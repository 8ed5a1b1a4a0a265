"""Transcripts as recognisers of speech write them: each is read with its times, or named; none is taken for another."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recipe.data.narrations import ReadingOptions, ReadingReport, read_narrations
from recipe.errors import InputError
from recipe.types import Segment

DIG, RAKE = Segment("Dig the bed.", 1.0, 2.5), Segment("Rake it.", 3.0, 4.25)
TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.json"))
"""Two phrases in each layout, with invented texts."""


def read(path: Path, report: ReadingReport | None = None, **options: Any) -> list[Segment]:
    (narration,) = read_narrations(path, options=ReadingOptions(**options), report=report)
    return list(narration.segments)


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 42


@pytest.mark.parametrize("layout", TRANSCRIPTS, ids=lambda file: file.stem)
def test_a_transcript_is_read_with_its_times_alone_and_in_a_folder(tmp_path: Path, layout: Path) -> None:
    path, content = tmp_path / "a1B2c3D4e5F.json", json.loads(layout.read_text())
    for text in (json.dumps(content), json.dumps(content, indent=1)):
        path.write_text(text)
        for given_path in (path, tmp_path):
            report = ReadingReport()
            (narration,) = read_narrations(given_path, report=report)
            assert narration.video_id == "a1B2c3D4e5F"
            assert list(narration.segments) == [DIG, RAKE]
            assert report.files == {"whisperx": 1}
            assert not report.passed_over
            assert not report.unread_times


def test_a_text_before_the_phrases_may_be_longer_than_what_a_format_is_told_from(tmp_path: Path) -> None:
    content = json.loads((TRANSCRIPTS[0].parent / "openai-verbose.json").read_text())
    (tmp_path / "v.json").write_text(json.dumps(content | {"text": "dig " * 30_000}))
    assert read(tmp_path) == [DIG, RAKE]


def test_google_leaves_out_a_start_of_zero(tmp_path: Path) -> None:
    words = [{"word": "dig", "endOffset": "0.400s"}, {"word": "it", "startOffset": "0.400s", "endOffset": "1s"}]
    result = {"results": [{"alternatives": [{"transcript": "dig it", "words": words}]}]}
    batch = {"response": {"results": {"gs://x": {"inlineResult": {"transcript": result}, "transcript": result}}}}
    for content in (result, batch):
        (tmp_path / "v.json").write_text(json.dumps(content))
        assert read(tmp_path / "v.json") == [Segment("dig it", 0.0, 1.0)]


def test_a_transcript_may_name_its_video(tmp_path: Path) -> None:
    snippets = [{"text": said.text, "start": said.start, "duration": said.end - said.start} for said in (DIG, RAKE)]
    whole = {"video_id": "a1B2c3D4e5F", "snippets": snippets}
    for content in (json.dumps(whole), json.dumps(dict(reversed(whole.items())), indent=1)):
        (tmp_path / "transcript.json").write_text(content)
        (narration,) = read_narrations(tmp_path)
        assert (narration.video_id, list(narration.segments)) == ("a1B2c3D4e5F", [DIG, RAKE])


@pytest.mark.parametrize("layout", [[], {}, "x"])
@pytest.mark.parametrize("name", ["segments", "chunks", "results", "items"])
def test_a_file_that_is_not_understood_is_named_and_never_the_own_form(tmp_path: Path, name: str, layout: Any) -> None:
    path = tmp_path / "a1B2c3D4e5F.json"
    path.write_text(json.dumps({"source": "x", name: layout, "status": "queued"}))
    with pytest.raises(InputError) as caught:
        read(path)
    assert "video_id" not in str(caught.value)
    assert "'status'" in str(caught.value)


def test_in_a_folder_such_a_file_is_counted_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"source": "x", "words": [{"id": 1}], "status": "queued"}))
    (tmp_path / "b.smi").write_text("<SAMI><BODY><SYNC Start=1000>dig</BODY></SAMI>")
    (tmp_path / "c.json").write_text(
        json.dumps({"videos": [{"segments": [{"text": "x"}]}, {"segments": [{"text": "y"}]}]})
    )
    with pytest.raises(InputError, match=r"a\.json"):
        read(tmp_path)
    shutil.copy(TRANSCRIPTS[0], tmp_path / "d.json")
    report = ReadingReport()
    assert read(tmp_path, report) == [DIG, RAKE]
    assert (report.files, report.passed_over.total()) == ({"whisperx": 1}, 3)
    assert all(any(name in line for line in report.lines()) for name in ("a.json", "b.smi", "c.json"))


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"vid_name": "x_1", "sub": [{"text": "dig", "start": 0, "end": 1}]}, "vid_name"),
        ({"audio_filepath": "a.wav", "duration": 3, "pred_text": "dig"}, "audio_filepath"),
        ({"path": "a.wav", "caption": "dig"}, "caption"),
    ],
)
def test_lines_of_another_project_are_named(tmp_path: Path, row: dict[str, Any], named: str) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(InputError, match=rf"line 1: .*{named}"):
        read(tmp_path / "x.jsonl")
    if named == "audio_filepath":
        (tmp_path / "y.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:02.500\nDig the bed.\n")
        report = ReadingReport()
        assert read(tmp_path, report) == [DIG]
        assert report.passed_over.total() == 1


def test_the_last_chunk_without_an_end_is_a_counted_moment(tmp_path: Path) -> None:
    chunks = [{"timestamp": [1.0, 2.5], "text": "Dig the bed."}, {"timestamp": [3.0, None], "text": "Rake it."}]
    (tmp_path / "v.json").write_text(json.dumps({"chunks": chunks}))
    report = ReadingReport()
    assert read(tmp_path / "v.json", report) == [DIG, Segment("Rake it.", 3.0, 3.0)]
    assert (report.moments, len(report.lines())) == (1, 1)
    (tmp_path / "v.json").write_text(json.dumps({"chunks": chunks[::-1]}))
    with pytest.raises(InputError, match=r"chunks\[0\]"):
        read(tmp_path / "v.json")


@pytest.mark.parametrize(
    "times",
    [
        {"start_frame": 3, "end_frame": 9},
        {"timestamp": "soon"},
        {"timecode": "x"},
        {"resultEndTime": "4.2s"},
        {"duration": 3},
        {"offset": 40},
    ],
)
def test_a_field_that_looks_like_a_time_and_is_not_read_is_counted(tmp_path: Path, times: dict[str, Any]) -> None:
    (tmp_path / "v.json").write_text(json.dumps({"segments": [{"text": "dig", **times}]}))
    (tmp_path / "w.jsonl").write_text(json.dumps({"video_id": "w", "segments": [{"text": "dig", **times}]}) + "\n")
    for path in (tmp_path / "v.json", tmp_path / "w.jsonl"):
        report = ReadingReport()
        assert read(path, report) == [Segment("dig")]
        assert report.unread_times.total() == 1
        assert any(name in line for line in report.lines() for name in times)


@pytest.mark.parametrize(
    "rows", [("t0", "t1", 100, 250), ("t0", "t1", "100", "250"), ("offset", "duration", 40, 90), ("ts", "end_ts", 1, 3)]
)
def test_numbers_of_an_open_unit_are_refused_with_the_field(tmp_path: Path, rows: tuple[str, str, Any, Any]) -> None:
    first, second, start, end = rows
    (tmp_path / "v.json").write_text(json.dumps({"segments": [{"text": "dig", first: start, second: end}]}))
    with pytest.raises(InputError, match=r"segments\[0\]\..*unit|segments\[0\]\..*milliseconds"):
        read(tmp_path / "v.json")


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(200, 900), st.integers(0, 9000)), min_size=1, max_size=30))
def test_the_unit_is_told_by_the_pace_of_the_words(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    """Speech of .2 to .9 s a word, in milliseconds or in seconds with a fraction."""
    at, milliseconds = 0, []
    for count, pace, pause in rows:
        start = at + pause
        at = start + count * pace
        milliseconds.append({"start": start, "end": at, "text": " ".join(["dig"] * count)})
    path = tmp_path_factory.mktemp("pace") / "v.json"
    path.write_text(json.dumps({"segments": milliseconds}))
    in_milliseconds = read(path)
    path.write_text(
        json.dumps(
            {"segments": [one | {"start": one["start"] / 1000, "end": one["end"] / 1000} for one in milliseconds]}
        )
    )
    assert read(path) == in_milliseconds
    assert in_milliseconds[-1].end == at / 1000


def test_whole_seconds_are_seconds_and_slow_ones_are_counted(tmp_path: Path) -> None:
    path, report = tmp_path / "v.jsonl", ReadingReport()
    path.write_text(json.dumps({"video_id": "v", "segments": [{"start": 2, "end": 9, "text": "dig"}]}) + "\n")
    assert read(path, report) == [Segment("dig", 2.0, 9.0)]
    assert not report.lines()
    # Own rows are in seconds, as documented: an hour of baking is an hour, and counted.
    path.write_text(json.dumps({"video_id": "v", "segments": [{"start": 0, "end": 3600, "text": "bake"}]}) + "\n")
    assert read(path, report)[0].end == 3600.0
    assert report.slow == 1


@given(st.integers(0, 86_399_999))
@example(262_143)  # 4 * 60 + 22.143 is a little more than 262.143
def test_a_time_is_the_same_in_every_form(tmp_path_factory: pytest.TempPathFactory, milliseconds: int) -> None:
    time, (hours, rest) = milliseconds / 1000, divmod(milliseconds, 3_600_000)
    minutes, left = rest // 60_000, rest % 60_000 / 1000
    times = [
        {"start": time, "end": time},
        {"start_ms": milliseconds, "end_ms": milliseconds},
        {"startMs": str(milliseconds), "durationMs": "0"},
        {"startTime": f"{time}s", "endTime": f"{time}s"},
        {
            name: {"seconds": str(milliseconds // 1000), "nanos": milliseconds % 1000 * 10**6}
            for name in ("start", "end")
        },
        {"offsetInTicks": time * 1e7, "durationInTicks": 0},
        {"offset": f"PT{hours}H{minutes}M{left}S", "duration": "PT0S"},
        {"begin": f"{hours:02}:{minutes:02}:{left:06.3f}", "end": f"{hours:02}:{minutes:02}:{left:06.3f}"},
    ]
    path = tmp_path_factory.mktemp("times") / "v.json"
    for one in times:
        path.write_text(json.dumps({"segments": [{"text": "dig", **one}]}))
        [segment] = read(path)
        assert (segment.start, segment.end) == (pytest.approx(time, abs=1e-5), pytest.approx(time, abs=1e-5)), one


@given(st.dictionaries(st.text(max_size=12), st.none() | st.integers() | st.floats() | st.text(max_size=5), max_size=5))
def test_any_object_has_times_or_none(tmp_path_factory: pytest.TempPathFactory, item: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("any") / "v.json"
    path.write_text(json.dumps({"segments": [{"text": "dig", **item}]}))
    with suppress(InputError):
        read(path, bad="skip")


KEYS = st.sampled_from([
    "segments", "chunks", "words", "items", "results", "alternatives", "nBest", "events", "segs", "tStartMs", "text",
    "word", "start", "end", "timestamp", "offsets", "from", "to", "duration", "offset", "t0", "t1", "startMs", "type",
    "speaker", "metadata", "transcriptCueRenderer", "sectionHeader", "snippet", "runs",
])  # fmt: skip
LEAVES = (
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats() | st.sampled_from(["dig", "1.5s", "00:01", ""])
)
ANY: st.SearchStrategy[Any] = st.deferred(
    lambda: LEAVES | st.lists(ANY, max_size=3) | st.dictionaries(KEYS, ANY, max_size=4)
)


@settings(max_examples=300)
@given(ANY, st.sampled_from(["error", "skip"]))
def test_any_json_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, value: Any, bad: str) -> None:
    path = tmp_path_factory.mktemp("any") / "v.json"
    path.write_text(json.dumps(value))
    with suppress(InputError):
        for segment in read(path, bad=bad, format="whisperx"):
            assert segment.text.strip()
            assert segment.start is None or 0 <= segment.start <= (segment.end or 0)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("dig", 0.0, 1.0, "A"), ("it", 1.0, 2.0, "A"), ("why", 2.0, 3.0, "B")], [("dig it", 2.0), ("why", 3.0)]),
        ([("dig", 0.0, 1.0, "A"), ("rake", 2.5, 3.0, "A")], [("dig", 1.0), ("rake", 3.0)]),
        ([("Dig", 0.0, 1.0, "A"), (".", None, None, "A"), ("Rake", 1.0, 2.0, "A")], [("Dig.", 1.0), ("Rake", 2.0)]),
        (
            [("\u6316", 0.0, 1.0, "A"), ("\u571f", 1.0, 2.0, "A"), ("\u3002", None, None, "A")],
            [("\u6316\u571f\u3002", 2.0)],
        ),
        ([("dig", k / 2, k / 2 + 0.5, "A") for k in range(41)], [(" ".join(["dig"] * 40), 20.0), ("dig", 20.5)]),
    ],
)
def test_words_are_joined_to_what_one_speaker_says_at_once(
    tmp_path: Path, rows: list[tuple[str, Any, Any, str]], expected: list[tuple[str, float]]
) -> None:
    listed = [{"word": word, "start": start, "end": end, "speaker": by} for word, start, end, by in rows]
    (tmp_path / "v.json").write_text(json.dumps({"words": listed}))
    assert [(segment.text, segment.end) for segment in read(tmp_path / "v.json")] == expected


def test_a_text_that_is_nested_too_deep_is_refused(tmp_path: Path) -> None:
    """Where Python reads JSON deeper than it calls functions, as from 3.12 on, as well as where it does not."""
    path = tmp_path / "v.json"
    path.write_text('{"segments": [' + '{"snippet": ' * 5_000 + '{"text": "stir"}' + "}" * 5_000 + "]}")
    with pytest.raises(InputError, match=r"v\.json: not valid JSON"):
        list(read_narrations(path))
