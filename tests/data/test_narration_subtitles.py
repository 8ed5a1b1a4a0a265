"""Subtitle files as they are: every line of times is a cue or a fault with its line, and no word is lost or doubled."""

import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from tests.data.narration_forms import clock

from recipe.data.narrations import ReadingOptions, ReadingReport, read_narrations
from recipe.errors import InputError
from recipe.types import Segment


def read(path: Path, report: ReadingReport | None = None, **options: Any) -> list[Segment]:
    """The segments of a file of one video."""
    (narration,) = read_narrations(path, options=ReadingOptions(**options), report=report)
    return list(narration.segments)


def said(path: Path, report: ReadingReport | None = None, **options: Any) -> list[str]:
    return [segment.text for segment in read(path, report, **options)]


CLOCKS = [
    "{h:02}:{m:02}:{s:02},{ms:03}",
    "{h:02}:{m:02}:{s:02}.{ms:03}",
    "{m:02}:{s:02},{ms:03}",
    "{m:02}:{s:02}.{ms:03}",
    "{h}:{m:02}:{s:02}.{cs:02}",
    "{h:02}:{m:02}:{s:02},{ds}",
    "{h:02}:{m:02}:{s:02}:{ms:03}",
    "{h:02}: {m:02}: {s:02}, {ms:03}",
    "{h:02}：{m:02}：{s:02}，{ms:03}",
]
WHOLE_CLOCKS = ["{h:02}:{m:02}:{s:02}", "{m:02}:{s:02}"]
ARROWS = [" --> ", "-->", " -> ", " –> ", " —> ", " → ", " -- > ", " --&gt; ", " －－＞ ", " => ", "\t-->\t"]
BAD_TIMES: list[tuple[str, str]] = [
    ("-00:00:03,000 --> 00:00:04,000", "negative time"),
    ("00:00:03,000 --> -00:00:04,000", "negative time"),
    ("00:00:00.-004 --> 00:00:04.300", "negative time"),
    ("00:00:03;05 --> 00:00:04;10", "time in frames"),
    ("00:00:03:05 --> 00:00:04:10", "time in frames"),
    ("00:00:03;05 -> 00:00:04;10", "time in frames"),
    ("00:00:03,000 -->", "cue that cannot be read"),
    ("--> 00:00:04,000", "cue that cannot be read"),
    ("NaN:NaN:NaN,NaN --> NaN:NaN:NaN,NaN", "cue that cannot be read"),
    ("00:00:0l,000 --> 00:00:04,000", "cue that cannot be read"),
    ("00:75:03,000 --> 00:75:04,000", "cue that cannot be read"),
    ("00:00:03,000 --> 00:00:04,000 and no setting", "cue that cannot be read"),
    ("00:00:03,000 --> 00:00:04,000.000", "cue that cannot be read"),
    ("00:00:03,000", "cue that cannot be read"),
    ("00:00:04,000 --> 00:00:03,000", "end before start"),
]


@pytest.mark.parametrize("suffix", [".srt", ".vtt"])
@pytest.mark.parametrize("form", [*CLOCKS, *WHOLE_CLOCKS])
@pytest.mark.parametrize("arrow", ARROWS)
def test_times_that_mean_one_thing_are_read(tmp_path: Path, suffix: str, form: str, arrow: str) -> None:
    fraction = 0.0 if form in WHOLE_CLOCKS else 0.5
    cues = [f"{clock(k + fraction, form)}{arrow}{clock(k + 1, form)}\n{text}" for k, text in ((1, "dig"), (63, "sow"))]
    (tmp_path / f"v{suffix}").write_text("WEBVTT\n\n" * (suffix == ".vtt") + "\n\n".join(cues))
    assert read(tmp_path / f"v{suffix}") == [Segment("dig", 1 + fraction, 2.0), Segment("sow", 63 + fraction, 64.0)]


@pytest.mark.parametrize("header", ["", "WEBVTT\n\n"])
@pytest.mark.parametrize(("times", "reason"), BAD_TIMES)
def test_a_bad_line_of_times_costs_its_cue_alone(tmp_path: Path, header: str, times: str, reason: str) -> None:
    cues = ["1\n00:00:01,000 --> 00:00:02,000\ndig", f"2\n{times}\nrake", "3\n00:00:05,000 --> 00:00:06,000\nsow"]
    path = tmp_path / "v.srt"
    path.write_text(header + "\n\n".join(cues) + "\n")
    with pytest.raises(InputError, match=rf"v\.srt, line {header.count(chr(10)) + 6}: "):
        read(path)
    report = ReadingReport()
    assert said(path, report, bad="skip") == ["dig", "sow"]
    assert report.skipped_captions == {reason: 1}


def numbered(*numbers: str) -> str:
    words = ("dig", "rake", "sow", "reap")
    rows = [f"{n}00:00:0{k},000 --> 00:00:0{k + 1},000\n{words[k]}\n" for k, n in enumerate(numbers)]
    return "\n".join(rows)


CUES = "1\n00:00:00,000 --> 00:00:01,000\n{}\n\n2\n00:00:01,000 --> 00:00:02,000\nrake\n"
LAID_OUT: list[tuple[str, str, list[str]]] = [
    ("an odd number", numbered("1\n", "2a\n", "3\n"), ["dig", "rake", "sow"]),
    ("a number in brackets", numbered("1\n", "[2]\n", "#3\n"), ["dig", "rake", "sow"]),
    ("a number in words", numbered("Cue 1\n", "Cue 2\n", "Cue 3\n"), ["dig", "rake", "sow"]),
    ("a number missing", numbered("1\n", "", "3\n"), ["dig", "rake", "sow"]),
    ("a first number missing", numbered("", "2\n", "3\n"), ["dig", "rake", "sow"]),
    ("no numbers", numbered("", "", ""), ["dig", "rake", "sow"]),
    ("numbers repeated", numbered("1\n", "1\n", "1\n"), ["dig", "rake", "sow"]),
    ("numbers from elsewhere", numbered("17\n", "4\n", "999\n"), ["dig", "rake", "sow"]),
    ("no blank lines", numbered("1\n", "2\n", "3\n").replace("\n\n", "\n"), ["dig", "rake", "sow"]),
    ("neither", numbered("", "", "").replace("\n\n", "\n"), ["dig", "rake", "sow"]),
    ("a blank line after each", numbered("1\n", "2\n", "3\n").replace("\n", "\n\n"), ["dig", "rake", "sow"]),
    ("carriage returns", numbered("1\n", "2\n", "3\n").replace("\n", "\r"), ["dig", "rake", "sow"]),
    ("two for each line", numbered("1\n", "2\n", "3\n").replace("\n", "\r\r\n"), ["dig", "rake", "sow"]),
    ("a mark before each", "\ufeff" + numbered("\ufeff1\n", "\ufeff2\n", "\ufeff3\n"), ["dig", "rake", "sow"]),
    ("appended", numbered("1\n").rstrip() + "\ufeff" + CUES.format("sow"), ["dig", "sow", "rake"]),
    ("nulls", numbered("1\n", "2\n", "3\n") + "\0\0", ["dig", "rake", "sow"]),
    ("invisible marks", numbered("1\n\u200e", "2\n\u202a", "3\n"), ["dig", "rake", "sow"]),
    ("a blank line in a cue", CUES.format("dig\n\nby hand"), ["dig by hand", "rake"]),
    ("two", CUES.format("dig\n\n\nby hand\n\nslowly"), ["dig by hand slowly", "rake"]),
    ("a number last", CUES.format("dig\n350"), ["dig 350", "rake"]),
    ("a number alone", CUES.format("dig\n\n350"), ["dig 350", "rake"]),
    ("settings", numbered("").replace("000\n", "000 X1:40 X2:600 line:-1 position:5%,start\n"), ["dig"]),
    ("in brackets", "[00:00.000 --> 00:01.000]  dig\n[00:01.000 --> 00:02.000]  rake\n", ["dig", "rake"]),
    ("arrows that are said", CUES.format("File --> Save\nthen 2:1 -> 3:1"), ["File --> Save then 2:1 -> 3:1", "rake"]),
    ("times that are said", CUES.format("from 3:30 - 4:00"), ["from 3:30 - 4:00", "rake"]),
    ("a note that is said", CUES.format("NOTE it"), ["NOTE it", "rake"]),
    ("markup", CUES.format("{\\an8}<i>dig</i><br>&amp; <c.x>rest</c> if 2 <3"), ["dig & rest if 2 <3", "rake"]),
]


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in LAID_OUT], ids=[row[0] for row in LAID_OUT])
def test_cues_are_told_apart_however_they_are_laid_out(tmp_path: Path, text: str, expected: list[str]) -> None:
    (tmp_path / "v.srt").write_bytes(text.encode())
    report = ReadingReport()
    assert said(tmp_path / "v.srt", report) == expected
    assert report.segments == len(expected)
    if not text.startswith("["):
        (tmp_path / "w.vtt").write_bytes(b"WEBVTT\n\n" + text.encode())
        if "-->" not in "".join(expected):  # WebVTT does not allow this in a text
            assert said(tmp_path / "w.vtt") == expected


def test_webvtt_blocks_hold_no_speech_and_names_are_counted(tmp_path: Path) -> None:
    (tmp_path / "v.vtt").write_text(
        "WEBVTT - a title\nKind: captions\n\nSTYLE\n::cue { color: red }\n\nREGION\nid:a width:40%\n\nNOTE\nfor us\n\n"
        "the start\n00:01.000 --> 00:02.000 region:a\n<v Ann>dig\n\nNOTE for us too\n\nthe end\n"
        "00:03.000 --> 00:04.000\n<v.loud Bo>rake</v>\n"
    )
    report = ReadingReport()
    assert said(tmp_path / "v.vtt", report) == ["dig", "rake"]
    assert report.cue_names == 2


SEGMENT = "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:{},LOCAL:00:00:00.000\n\n{}"


def test_segments_of_a_stream_say_a_cue_once(tmp_path: Path) -> None:
    first = "00:01.000 --> 00:06.000\ndig\n\n00:06.000 --> 00:10.000\nrake\n\n"
    second = "00:06.000 --> 00:10.000\nrake\n\n00:11.000 --> 00:12.000\nsow\n"
    path, report = tmp_path / "v.vtt", ReadingReport()
    path.write_text(SEGMENT.format(900000, first) + SEGMENT.format(900000, second))
    assert said(path, report) == ["dig", "rake", "sow"]
    assert report.collapsed == 1
    assert len(read(path, rolling="keep")) == 4
    # A segment with a later clock, at the end of whose counter it begins again.
    path.write_text(SEGMENT.format(2**33 - 90000, first) + SEGMENT.format(90000, "00:09.000 --> 00:12.000\nsow\n"))
    assert read(path)[-1] == Segment("sow", 11.0, 14.0)
    # A cue that was cut where a segment ends.
    cut = "00:06.000 --> 00:10.000\nrake\n\n", "00:10.000 --> 00:11.500\nrake\n\n00:12.000 --> 00:13.000\nsow\n"
    path.write_text("".join(SEGMENT.format(0, part) for part in cut).replace("rake\n\nWEBVTT", "rakeWEBVTT"))
    assert read(path) == [Segment("rake", 6.0, 11.5), Segment("sow", 12.0, 13.0)]


def shown(*cues: tuple[float, float, str]) -> str:
    times = "{m:02}:{s:02}.{ms:03}"
    return "WEBVTT\n\n" + "\n".join(f"{clock(a, times)} --> {clock(b, times)}\n{text}\n" for a, b, text in cues)


OTHERS = [(20.0, 21.0, "rake"), (30.0, 31.0, "sow"), (40.0, 41.0, "reap"), (50.0, 51.0, "bind")]
DISPLAYS: dict[str, tuple[list[tuple[float, float, str]], list[Segment]]] = {
    "words are added": (
        [(1, 1.4, "dig"), (1.4, 1.8, "dig the"), (1.8, 2.5, "dig the bed")],
        [Segment("dig the bed", 1, 2.5)],
    ),
    "a second line grows": (
        [(1, 2, "dig it"), (2, 3, "dig it\nthen"), (3, 4, "dig it\nthen rest")],
        [Segment("dig it", 1, 2), Segment("then rest", 2, 4)],
    ),
    "lines roll": (
        [(1, 2, "dig"), (2, 3, "dig\nrest"), (3, 4, "rest\ndig on"), (4, 4.01, "dig on")],
        [Segment("dig", 1, 2), Segment("rest", 2, 3), Segment("dig on", 3, 4.01)],
    ),
    "words are highlighted": (
        [(1, 2, "<u>dig</u> it"), (2, 3, "dig it"), (3, 4, "dig <u>it</u>")],
        [Segment("dig it", 1, 4)],
    ),
    "letters appear": (
        [(k / 10, (k + 1) / 10, "dig the bed"[: k + 1].strip()) for k in range(11) if "dig the bed"[k] != " "],
        [Segment("dig the bed", 0, 1.1)],
    ),
    "shown twice": ([(1, 2, "dig"), (1, 2, "dig")], [Segment("dig", 1, 2)]),
    "said twice": ([(1, 2, "dig"), (2, 3, "dig")], [Segment("dig", 1, 2), Segment("dig", 2, 3)]),
    "said again": ([(1, 2, "dig"), (9, 10, "dig it")], [Segment("dig", 1, 2), Segment("dig it", 9, 10)]),
    "another word": ([(1, 2, "in"), (2, 3, "inside")], [Segment("in", 1, 2), Segment("inside", 2, 3)]),
}


@pytest.mark.parametrize("name", DISPLAYS)
def test_displays_that_repeat_words_say_them_once(tmp_path: Path, name: str) -> None:
    """Among cues that do not repeat anything, so that the file as a whole does not roll."""
    cues, expected = DISPLAYS[name]
    (tmp_path / "v.vtt").write_text(shown(*cues, *OTHERS))
    report = ReadingReport()
    assert read(tmp_path / "v.vtt", report) == [*expected, *(Segment(text, a, b) for a, b, text in OTHERS)]
    assert report.collapsed + report.segments == len(cues) + len(OTHERS)


# The layout in which YouTube delivers automatic captions, with other texts.
ROLLING = """WEBVTT
Kind: captions
Language: en

00:00:00.160 --> 00:00:03.429 align:start position:0%
 
peel<00:00:00.960><c> the</c><00:00:01.520><c> apple</c>

00:00:03.429 --> 00:00:03.439 align:start position:0%
peel the apple
 

00:00:03.439 --> 00:00:05.749 align:start position:0%
peel the apple
cut<00:00:03.760><c> it</c>

00:00:05.749 --> 00:00:05.759 align:start position:0%
cut it
 

00:00:05.759 --> 00:00:07.000 align:start position:0%
cut it
cut<00:00:06.000><c> it</c>

00:00:07.000 --> 00:00:07.010 align:start position:0%
cut it
 

00:00:30.000 --> 00:00:31.000 align:start position:0%
cut it
"""


def test_rolling_captions_say_each_line_once(tmp_path: Path) -> None:
    (tmp_path / "v.en.vtt").write_text(ROLLING)
    report = ReadingReport()
    assert read(tmp_path / "v.en.vtt", report) == [
        Segment("peel the apple", 0.16, 3.439),
        Segment("cut it", 3.439, 5.759),
        Segment("cut it", 5.759, 7.01),
        Segment("cut it", 30.0, 31.0),
    ]
    assert report.collapsed == 3
    assert said(tmp_path / "v.en.vtt", rolling="keep", bad="skip")[2] == "peel the apple cut it"


def test_words_with_times_in_one_cue_cost_no_other(tmp_path: Path) -> None:
    cues = [
        (1, 2, "dig"),
        (2, 3, "dig"),
        (3, 4, "rake <00:03.500><c>it</c>"),
        (4, 5, "sow"),
        (5, 6, "sow"),
        (9, 10, "sow"),
    ]
    (tmp_path / "v.vtt").write_text(shown(*cues))
    assert said(tmp_path / "v.vtt") == ["dig", "dig", "rake it", "sow", "sow", "sow"]
    # Nor does the header of a segment, away from it.
    (tmp_path / "v.vtt").write_text(shown(*cues[:2]) + "\n" + shown(*cues[4:]))
    assert said(tmp_path / "v.vtt") == ["dig", "dig", "sow", "sow"]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Stir.", "Stir. Now pour it.", "Stir it", "No.", "no", "and then we pour", "pour"]),
            st.integers(100, 4000),
            st.sampled_from([0, 0, 20, 700]),
        ),
        min_size=2,
        max_size=12,
    )
)
def test_a_recognition_is_the_same_in_every_layout(rows: list[tuple[str, int, int]]) -> None:
    """Sentences that repeat were said again, with and without a pause."""
    at, cues = 0, []
    for text, lasts, pause in rows:
        cues.append((at + pause, at + pause + lasts, text))
        at += pause + lasts
    repeats = sum(one[2].startswith(two[2]) or two[2].startswith(one[2]) for one, two in pairwise(cues))
    assume(repeats <= max(len(cues) - 1, 2) / 2)  # else it is a display that rolls or grows
    assume(not any(b[2].startswith(a[2] + " ") and a[2][-1] not in "." for a, b in pairwise(cues)))
    seconds = [(a / 1000, b / 1000, text) for a, b, text in cues]
    srt = "\n".join(f"{n}\n{clock(a)} --> {clock(b)}\n{text}\n" for n, (a, b, text) in enumerate(seconds, start=1))
    whisper = {"text": "x", "segments": [{"start": a, "end": b, "text": f" {text}"} for a, b, text in seconds]}
    with TemporaryDirectory() as folder:
        for name, text in (("v.srt", srt), ("v.vtt", shown(*seconds)), ("v.json", json.dumps(whisper))):
            Path(folder, name).write_text(text)
        readings = [read(Path(folder, name)) for name in ("v.srt", "v.vtt", "v.json")]
    assert readings[0] == readings[1] == readings[2] == [Segment(text, a, b) for a, b, text in seconds]


# Other layouts than lines of times.

ASS = """[Script Info]
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname
Style: Default,Arial

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Dialogue: 0,0:00:01.00,0:00:02.50,Default,,0,0,0,,{\\an8\\k20}dig, deep,\\Nnow {\\p1}m 0 0 l 9 9{\\p0}
Dialogue: 1,0:00:01.00,0:00:02.50,Default,,0,0,0,,dig, deep,\\Nnow
Comment: 0,0:00:01.00,0:00:02.50,Default,,0,0,0,,for us
Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,rake
"""
TTML = """<?xml version="1.0" encoding="utf-8"?>
<tt xmlns="http://www.w3.org/ns/ttml" xmlns:ttp="http://www.w3.org/ns/ttml#parameter" ttp:frameRate="25"
 ttp:tickRate="1000"><head><metadata><title>for us</title></metadata></head><body><div begin="10s">
<p begin="00:00:01.000" end="00:00:02.500">dig,<br/>
   deep &amp; now</p><p begin="3000t" dur="1s">rake</p>
<p begin="00:00:05:05" end="6s">sow</p>
<p><span begin="7s" end="8s">reap</span> <span begin="8s" end="9s">bind</span></p></div></body></tt>
"""
SRV1 = """<?xml version="1.0" ?><transcript>
<text start="1" dur="1.5">dig, &amp;amp; now</text><text start="3">rake</text></transcript>"""
SRV2 = '<timedtext><text t="1000" d="1500">dig</text><text t="2500" d="9" append="1">\n</text></timedtext>'
SRV3 = """<?xml version="1.0" encoding="utf-8" ?><timedtext format="3"><head><ws id="0"/></head><body><w t="0" id="1"/>
<p t="1000" d="1500" w="1"><s ac="0">dig,</s><s t="300"> now</s></p><p t="2500" d="9" w="1" a="1">
</p><p t="3000" d="1000">rake</p></body></timedtext>
"""
JSON3 = {
    "wireMagic": "pb3",
    "events": [
        {"tStartMs": 0, "dDurationMs": 9000, "id": 1},
        {"tStartMs": 1000, "dDurationMs": 1500, "segs": [{"utf8": "dig,"}, {"utf8": " now", "tOffsetMs": 300}]},
        {"tStartMs": 2500, "dDurationMs": 9, "aAppend": 1, "segs": [{"utf8": "\n"}]},
        {"tStartMs": 3000, "dDurationMs": 1000, "segs": [{"utf8": "rake"}]},
    ],
}
DIG, RAKE = Segment("dig, now", 1.0, 2.5), Segment("rake", 3.0, 4.0)
LAYOUTS: list[tuple[str, str, list[Segment]]] = [
    ("v.ass", ASS, [Segment("dig, deep, now", 1.0, 2.5), RAKE]),
    ("v.en.ssa", ASS.replace("\n", "\r\n"), [Segment("dig, deep, now", 1.0, 2.5), RAKE]),
    (
        "v.ttml",
        TTML,
        [
            Segment("dig, deep & now", 11.0, 12.5),
            Segment("rake", 13.0, 14.0),
            Segment("sow", 15.2, 16.0),
            Segment("reap", 17.0, 18.0),
            Segment("bind", 18.0, 19.0),
        ],
    ),
    ("v.srv1", SRV1, [Segment("dig, & now", 1.0, 2.5), Segment("rake", 3.0, 3.0)]),
    ("v.srv2", SRV2, [Segment("dig", 1.0, 2.5)]),
    ("v.srv3", SRV3, [DIG, RAKE]),
    ("v.sbv", "0:00:01.000,0:00:02.500\ndig,[br]now\n\n0:00:03.000,0:00:04.000\nrake\n", [DIG, RAKE]),
    ("v.lrc", "[ti:The bed]\n[00:01.00]dig\n[00:03.5][00:09.50] rake\n[00:11.00]\n", [
        Segment("dig", 1.0, 1.0), Segment("rake", 3.5, 3.5), Segment("rake", 9.5, 9.5)]),
    ("v.en.json3", json.dumps(JSON3), [DIG, RAKE]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "expected"), LAYOUTS)
def test_other_layouts_are_read_alone_and_in_a_folder(
    tmp_path: Path, name: str, text: str, expected: list[Segment]
) -> None:
    (tmp_path / name).write_text(text)
    for path in (tmp_path / name, tmp_path):
        report = ReadingReport()
        assert read(path, report) == expected
        assert not report.passed_over
    if not name.endswith("json"):
        (tmp_path / name).rename(tmp_path / "v.srt")
        assert name.endswith("json3") or read(tmp_path / "v.srt") == expected  # named by mistake


BY_HAND = "1\n00:00:01,000 --> 00:00:02,000\ndig\n{}00:00:03,000 --> 00:00:04,000\nrake\n"
FAULTS = [
    ("v.srt", "made by hand\nwith care\n\n" + numbered("1\n", "2\n"), 1, "text outside a cue"),
    # Each may be text or a number.
    *(
        ("v.srt", BY_HAND.format(between), 3 + between.count("\n"), "line between two cues")
        for between in ("\nby hand\n", "\nby 2 hands\n", "7\n")
    ),
    ("v.ass", ASS.replace("0:00:03.00", "0:00:-3.00"), 13, "cue that cannot be read"),
    ("v.ass", ASS + "by hand\n", 14, "text outside a cue"),
    ("v.ttml", TTML.replace('ttp:frameRate="25"', ""), 6, "cue that cannot be read"),
    ("v.ttml", TTML.replace('begin="3000t" dur="1s"', 'begin="3000t"'), 5, "only one of start and end"),
    ("v.ttml", TTML.replace('begin="3000t" dur="1s"', ""), 5, "text outside a cue"),
    ("v.srv3", SRV3.replace('"3000"', '"x"'), 3, "cue that cannot be read"),
    ("v.lrc", "[00:01.00]dig\nrake\n", 2, "text outside a cue"),
]


@pytest.mark.parametrize(("name", "text", "line", "reason"), FAULTS)
def test_a_fault_has_its_line_and_costs_what_it_is_in(
    tmp_path: Path, name: str, text: str, line: int, reason: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=rf"{name}, line {line}: "):
        read(tmp_path / name)
    report = ReadingReport()
    kept = said(tmp_path / name, report, bad="skip")
    assert kept == ["dig", "rake"] or (kept and name != "v.srt")
    assert report.skipped_captions == {reason: 1}


@pytest.mark.parametrize(
    ("name", "text", "layout"),
    [
        ("v.smi", "<SAMI><BODY><SYNC Start=1000>dig</BODY></SAMI>", "SAMI"),
        ("v.scc", "Scenarist_SCC V1.0\n\n00:00:01;00\t9420 9420\n", "SCC"),
        ("v.srt", "{10}{20}dig\n", "MicroDVD"),
        ("v.srt", "[INFORMATION]\n[TITLE]x\n", "SubViewer"),
        ("v.ttml", TTML.replace("<body>", '<body timeContainer="seq">'), "timeContainer"),
        ("v.ttml", TTML.replace("</p>", ""), "XML"),
        ("v.ttml", TTML.replace("?>", "?><!DOCTYPE tt [<!ENTITY a 'dig'>]>"), "document type"),
        ("v.json", json.dumps({"task": "transcribe", "text": "dig", "usage": {"seconds": 1}}), "'usage'"),
        ("v.srt", "\0".join("1\n00:00:01,000 --> 00:00:02,000\ndig\n") + "\0", "UTF-16"),
    ],
)
def test_what_is_not_read_is_named(tmp_path: Path, name: str, text: str, layout: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=layout):
        read(tmp_path / name)


def test_files_that_begin_like_others_are_no_subtitles(tmp_path: Path) -> None:
    (tmp_path / "pom.xml").write_text("<?xml version='1.0'?>\n<project/>")
    (tmp_path / "plan.txt").write_text("1\nfrom 3:30 - 4:00 we dig\n")
    (tmp_path / "build.json").write_text('{"encoder": {"name": "minilm"}, "events": []}')
    (tmp_path / "README").write_text("Cut at 00:00:03,000 -> 00:00:04,000 with any tool\n")
    (tmp_path / "v.srt").write_text(numbered("1\n"))
    report = ReadingReport()
    assert said(tmp_path, report) == ["dig"]
    assert report.passed_over.total() == 4


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
@pytest.mark.parametrize("name", ["v.srt", "v", "v.jsonl"])
def test_a_byte_order_mark_names_the_encoding(tmp_path: Path, encoding: str, name: str) -> None:
    text = (
        '{"video_id": "v", "sentences": ["dig é"]}\n' if name == "v.jsonl" else numbered("1\n").replace("dig", "dig é")
    )
    (tmp_path / name).write_bytes(text.encode(encoding))
    assert said(tmp_path / name) == ["dig é"]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [("d\xe9j\xe0", "latin-1"), ("d\xe9j\xe0 \u2019s", "cp1252"), ("d\xe9", "utf-16-le"), ("d\xe9", "utf-16-be")],
)
def test_the_encoding_that_a_message_proposes_is_right(tmp_path: Path, text: str, encoding: str) -> None:
    (tmp_path / "v.srt").write_bytes(numbered("1\n").replace("dig", text).encode(encoding))
    with pytest.raises(InputError, match=rf"such as {encoding} ") as caught:
        read(tmp_path / "v.srt")
    assert "line 3" in str(caught.value)
    assert said(tmp_path / "v.srt", encoding=encoding) == [text]


# Random mixtures of all forms.


class Spoken(NamedTuple):
    """The cues that show one caption, the words in it, and the faults that it has."""

    cues: list[str]
    words: list[str]
    bad: int = 0


def letters(number: int) -> str:
    return "".join(chr(97 + int(digit)) for digit in f"{number:03}")


TEXTS: list[Callable[[list[str]], str]] = [
    " ".join,
    "\n".join,
    "\n\n".join,
    "\n \n".join,
    lambda words: f"<i>{' '.join(words)}</i>",
    lambda words: f"{{\\an8}}{' '.join(words)}",
    lambda words: f"[SPEAKER_00]: {' '.join(words)}",
    lambda words: f"SPEAKER_01: {' '.join(words)}",
    lambda words: f"<v Ann>{' '.join(words)}",
    lambda words: f">> {' '.join(words)}",
    lambda words: f"&gt;&gt; {' '.join(words)}",
    lambda words: f"<font color='red'>{words[0]}</font> <b>{' '.join(words[1:])}</b>",
]
NUMBERS: list[Callable[[int], str]] = [
    lambda n: "",
    lambda n: f"{n}\n",
    lambda n: f"{n}a\n",
    lambda n: f"#{n}\n",
    lambda n: "1\n",
    lambda n: f"{n:04}.\n",
]


@st.composite
def spoken(draw: st.DrawFn, at: int) -> Spoken:
    start, words = 10.0 * at + 5, [f"w{letters(10 * at + k)}" for k in range(draw(st.integers(2, 4)))]
    form, arrow = draw(st.sampled_from(CLOCKS)), draw(st.sampled_from(ARROWS))
    setting = draw(st.sampled_from(["", "", " align:start position:0%", " X1:1 X2:2"]))
    number = draw(st.sampled_from(NUMBERS))(at + 1)
    text = draw(st.sampled_from(TEXTS))

    def cue(begin: float, end: float, text: str) -> str:
        return f"{number}{clock(begin, form)}{arrow}{clock(end, form)}{setting}\n{text}\n"

    display = draw(st.sampled_from(["plain", "plain", "bad", "grows", "rolls", "twice", "word times", "empty line"]))
    if display == "bad":
        times, _ = draw(st.sampled_from(BAD_TIMES))
        return Spoken([f"{number}{times}\n{text(words)}\n"], words, 1)
    if display == "grows":
        sizes = range(1, len(words) + 1)
        return Spoken([cue(start + k, start + k + 1, " ".join(words[:k])) for k in sizes], words)
    if display == "rolls":
        rows = [words[:1], words[:2], words[1:]] if len(words) > 2 else [words[:1], words]
        return Spoken([cue(start + k, start + k + 1, "\n".join(row)) for k, row in enumerate(rows)], words)
    if display == "twice":
        return Spoken([cue(start, start + 2, text(words))] * 2, words)
    if display == "empty line":
        return Spoken([cue(start, start + 2, f"{text(words)}\n  \n")], words)
    return Spoken([cue(start, start + 2, text(words))], words)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, list[Spoken], bool]:
    """A file of random forms, its captions, and whether a blank line lies before every cue."""
    captions = [draw(spoken(at)) for at in range(draw(st.integers(1, 6)))]
    webvtt, apart, parts = draw(st.booleans()), True, []
    between = ["\n"] * 6 + ["\n\n", "", "\n\ufeff"]
    if webvtt:
        header = "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:900000,LOCAL:00:00:00.000\n\n"
        parts.append(draw(st.sampled_from(["WEBVTT\n\n", "\ufeffWEBVTT\nKind: captions\n\n", header])))
        between += ["\nNOTE for us\n\n", f"\n{header}", f"\n\ufeff{header}", "\nSTYLE\n::cue { color: red }\n\n"]
    for caption in captions:
        for cue in caption.cues:
            parts.append(cue)
            gap = draw(st.sampled_from(between))
            apart &= gap != ""
            parts.append(gap)
    return draw(st.sampled_from(["{}", "\ufeff{}"])).format("".join(parts)), captions, apart


@pytest.mark.thorough
@settings(max_examples=50)
@given(file=files(), end=st.sampled_from(["\n", "\r\n", "\r"]), suffix=st.sampled_from([".srt", ".vtt"]))
def test_no_word_is_lost_or_doubled_and_no_time_is_said(
    file: tuple[str, list[Spoken], bool], end: str, suffix: str
) -> None:
    text, captions, apart = file
    good = Counter(word for caption in captions if not caption.bad for word in caption.words)
    every = good + Counter(word for caption in captions if caption.bad for word in caption.words)
    bad = sum(caption.bad for caption in captions)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"v{suffix}"
        path.write_bytes(text.replace("\n", end).encode())
        try:
            segments, refused = read(path), None
        except InputError as error:
            segments, refused = [], error
        event("refused" if refused else "read")
        if refused is None:
            assert bad == 0
            assert Counter(word for segment in segments for word in segment.text.split()) == good
        else:
            assert bad or not apart
            number = re.search(r", line (\d+)", str(refused))
            assert number is not None
            assert text.split("\n")[int(number[1]) - 1].strip()
        report = ReadingReport()
        try:
            segments = read(path, report, bad="skip")
        except InputError:
            assert not good
            return
    kept = Counter(word for segment in segments for word in segment.text.split())
    assert not any(re.search(r"\d:\d|-->|→", segment.text) for segment in segments)
    skipped = sum(report.skipped_captions.values())
    if apart:
        assert kept == good
        assert skipped == bad
        assert report.segments + report.collapsed + skipped == sum(len(caption.cues) for caption in captions)
    else:  # a line above times may be text or a number: it is left out and counted, and the same caption twice differs
        assert kept <= Counter(re.findall(r"w[a-j]{3}", text))
        assert good <= kept <= every or report.skipped_captions["line between two cues"]
