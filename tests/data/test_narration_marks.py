"""Non-speech marks in captions, and titles from a file."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.corpus.leaks import narration_source
from recipe.data.narrations import ReadingOptions, ReadingReport, read_narrations, read_titles
from recipe.data.narrations.drafts import without_marks
from recipe.errors import InputError


@pytest.mark.parametrize(
    ("caption", "said"),
    [
        ("[Music]", ""),
        ("[ __ ]", ""),
        ("[Music] [Applause]", ""),
        ("now [ __ ] stir", "now stir"),
        ("(applause)", ""),
        ("(soft piano music playing)", ""),
        ("*music*", ""),
        ("♪", ""),
        ("♪ stir it up, little darling ♪", ""),
        ("♫ stir it", "stir it"),
        (">> now stir", "now stir"),
        (">>> JOHN: now stir", "now stir"),
        ("MARY ANN: now stir", "now stir"),
        ("Narrator: now stir", "now stir"),
        ("Speaker 2: now stir", "now stir"),
        ("SPEAKER_02: now stir", "now stir"),
        ("[SPEAKER_02]: now stir", "now stir"),
        ("[SPEAKER_02] now stir [speaker 1]: it", "now stir it"),
        ("(Speaker A): now stir SPEAKER_01: it", "now stir it"),
        ("Speaker B: now stir", "now stir"),
        ("[Anna]: now stir", "now stir"),
        ("-(laughs) ...", ""),
        # What somebody says stays.
        ("add the flour (two cups) and stir", "add the flour (two cups) and stir"),
        ("take part [2] and glue it", "take part [2] and glue it"),
        ("TIP: stir slowly", "TIP: stir slowly"),
        ("STEP 1: stir", "STEP 1: stir"),
        ("YOU NEED: flour", "YOU NEED: flour"),
        ("FLOUR: TWO CUPS", "FLOUR: TWO CUPS"),
        ("remember: stir slowly", "remember: stir slowly"),
        ("Flour: two cups", "Flour: two cups"),
        ("bake at 3:30 and 2 * 3 * 4 times", "bake at 3:30 and 2 * 3 * 4 times"),
        ("if x > 3 stir", "if x > 3 stir"),
        ("two  spaces: stay", "two  spaces: stay"),
    ],
)
def test_marks_go_and_speech_stays(caption: str, said: str) -> None:
    assert without_marks(caption) == said


@given(st.text())
def test_cleaning_only_removes(text: str) -> None:
    said = without_marks(text)
    left = iter(text)
    assert all(character in left for character in "".join(said.split()))  # a subsequence, but for white space


@given(
    st.lists(
        st.sampled_from(["boil", "the", "water", "and", "stir", "it", "gently,", "2", "cups", "(two", "cups)", "Now!"]),
        min_size=1,
    )
)
def test_plain_speech_is_untouched(words: list[str]) -> None:
    assert without_marks(" ".join(words)) == " ".join(words)


SUBTITLES = """WEBVTT

00:00.000 --> 00:02.000
[Music]

00:02.000 --> 00:04.000
>> ANNA: boil the water

00:04.000 --> 00:06.000
stir it (laughs)

00:06.000 --> 00:08.000
serve
"""


@pytest.fixture
def subtitles(tmp_path: Path) -> Path:
    folder = tmp_path / "subtitles"
    folder.mkdir()
    (folder / "tea.en.vtt").write_text(SUBTITLES)
    (folder / "intro.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:02.000\n[Music]\n")
    return folder


def test_captions_with_marks_are_counted(subtitles: Path) -> None:
    report = ReadingReport()
    [tea] = read_narrations(subtitles, report=report)
    assert [(s.text, s.start) for s in tea.segments] == [("boil the water", 2.0), ("stir it", 4.0), ("serve", 6.0)]
    assert (report.only_marks, report.cut_marks, report.narrations, report.segments) == (2, 2, 1, 3)
    assert report.skipped_narrations == {"nothing but non-speech marks": 1}
    assert sum("non-speech" in line for line in report.lines()) == 3


def test_marks_can_be_kept(subtitles: Path) -> None:
    report = ReadingReport()
    keep = ReadingOptions(marks="keep")
    kept = list(read_narrations(subtitles, options=keep, report=report))
    assert [[s.text for s in one.segments] for one in kept] == [
        ["[Music]"],
        ["[Music]", ">> ANNA: boil the water", "stir it (laughs)", "serve"],
    ]
    assert (report.only_marks, report.cut_marks) == (0, 0)


def test_written_steps_hold_no_marks(tmp_path: Path) -> None:
    steps = [{"text": "[Music] box: open it"}, {"text": "(whistling kettle) lift it"}]
    (tmp_path / "steps.jsonl").write_text(json.dumps({"video_id": "a", "goal": "tea", "steps": steps}) + "\n")
    [narration] = read_narrations(tmp_path / "steps.jsonl")
    assert [segment.text for segment in narration.segments] == [step["text"] for step in steps]


@pytest.mark.parametrize(
    "text",
    [
        "tea\tMake  tea\nother\tOther\n",
        "video_id\ttitle\ntea\tMake tea\ntea\tAgain\nblank\t \n",
        'video_id,views,title\ntea,12,"Make tea"\n',
        '{"id": "tea", "title": "Make tea", "duration": 3}\n\n{"video_id": "b", "title": "B"}\n',
    ],
)
def test_titles_come_from_a_file(tmp_path: Path, subtitles: Path, text: str) -> None:
    (tmp_path / "titles").write_text(text)
    (subtitles / "more.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nstir\n")
    found = narration_source([subtitles], ReadingOptions(), titles=tmp_path / "titles")
    assert {one.video_id: one.title for one in found.narrations} == {"tea": "Make tea", "more": None}
    read = found.origin.report()
    assert (read["titled"], read["untitled"]) == (1, 1)
    assert any("title" in line for line in read["left_out"])


def test_titles_are_part_of_what_a_corpus_is_bound_to(tmp_path: Path, subtitles: Path) -> None:
    reading = []
    for text in ("tea\tMake tea\n", "tea\tBrew tea\n"):
        (tmp_path / "titles.tsv").write_text(text)
        reading.append(narration_source([subtitles], ReadingOptions(), titles=tmp_path / "titles.tsv").origin.reading)
    assert reading[0]["titles"] != reading[1]["titles"]
    assert "titles" not in narration_source([subtitles], ReadingOptions()).origin.reading


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "title"),
        ("tea\tMake tea\nno tab\n", "line 2: .*tab"),
        ("id,name\ntea,Make tea\n", "line 1: .*'video_id'"),
        ("video_id,title\ntea\n", "line 2"),
        ('{"id": "tea"}\n', "line 1, field 'title'"),
        ('{"title": "tea"}\n', "line 1, field 'video_id'"),
        ("{oops\n", "line 1"),
        ("tea\t \n", "no title"),
    ],
)
def test_a_file_of_titles_that_cannot_be_used_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "titles").write_text(text)
    with pytest.raises(InputError, match=problem):
        read_titles(tmp_path / "titles")
    with pytest.raises(InputError, match="does not exist"):
        read_titles(tmp_path / "absent")
