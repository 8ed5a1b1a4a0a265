"""Non-speech marks in captions, titles from a file, and those of HowTo100M from the release's two tables."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.corpus.build import narration_source
from recipe.data.narrations import ReadingOptions, ReadingReport, read_narrations, read_titles
from recipe.errors import InputError


def said(folder: Path, *captions: str, report: ReadingReport | None = None) -> list[str]:
    """What is read of captions, one a second."""
    segments = [{"start": n, "end": n + 1.5, "text": text} for n, text in enumerate(captions)]
    (folder / "v.jsonl").write_text(json.dumps({"video_id": "v", "segments": segments}) + "\n")
    (narration,) = read_narrations(folder / "v.jsonl", report=report)
    return [segment.text for segment in narration.segments]


@pytest.mark.parametrize(
    ("caption", "speech"),
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
        ("Unknown Speaker: now stir", "now stir"),
        ("spk_0: now stir", "now stir"),
        ("[spk_1] now stir", "now stir"),
        ("- Speaker 3: now stir", "now stir"),
        ("Sprecher 1: now stir", "now stir"),
        ("Locuteur 2 : now stir", "now stir"),
        ("\u8bf4\u8bdd\u4eba1\uff1a\u6405\u62cc", "\u6405\u62cc"),
        ("\u30b9\u30d4\u30fc\u30ab\u30fc 2: \u6df7\u305c\u308b", "\u6df7\u305c\u308b"),
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
def test_marks_go_and_speech_stays(tmp_path: Path, caption: str, speech: str) -> None:
    assert said(tmp_path, caption, "then wait") == [*filter(None, [speech]), "then wait"]


SPEECH = [
    "now sand the board",
    "wipe off the dust",
    "varnish it and wait",
    "add butter and flour",
    "put it in the oven",
]
NAMES = [
    "Maria Keller", "Tom", "Dr. Keller", "Maria Keller (Guest)", "[Maria]", "- Tom", "O'Neil", "Jean-Luc",
    "Ana da Silva", "maria keller", "\u738b\u660e", "\u041c\u0430\u0440\u0438\u044f", "MARIA KELLER", "Speaker 2",
    "Chef Tom", "Tom & Ann",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_before_each_caption_is_no_speech(tmp_path: Path, name: str) -> None:
    report = ReadingReport()
    captions = [f"{name}: {SPEECH[0]}", f"{name}: {SPEECH[1]}", f"Ben: {SPEECH[2]}", f"{name}\uff1a{SPEECH[3]}"]
    assert said(tmp_path, *captions, report=report) == SPEECH[:4]
    assert report.speakers.total() + report.cut_marks == 4
    assert report.lines()


@pytest.mark.parametrize("name", ["Maria Keller", "Dr. Keller", "Maria Keller (Guest)", "- Ana da Silva"])
def test_a_name_that_returns_among_other_captions_is_no_speech(tmp_path: Path, name: str) -> None:
    report = ReadingReport()
    captions = [f"{name}: {SPEECH[0]}", *SPEECH, f"{name}: {SPEECH[1]}", *SPEECH]
    assert said(tmp_path, *captions, report=report) == [SPEECH[0], *SPEECH, SPEECH[1], *SPEECH]
    assert report.speakers.total() == 2
    (line,) = report.lines()
    assert name.split(" (")[0].removeprefix("- ") in line


def test_short_names_that_take_turns_are_no_speech(tmp_path: Path) -> None:
    turns = [f"Tom: {SPEECH[0]}", SPEECH[1], f"Ann: {SPEECH[2]}", SPEECH[3], f"Tom: {SPEECH[1]}", f"Ann: {SPEECH[4]}"]
    assert said(tmp_path, *turns, *SPEECH) == [turn.rpartition(": ")[2] for turn in turns] + SPEECH
    half = [f"Tom: {SPEECH[0]}", SPEECH[1], f"Tom: {SPEECH[2]}", SPEECH[3]]
    assert said(tmp_path, *half) == SPEECH[:4]
    # A name that comes once, or twice alone, may be anything.
    once = [f"Tom: {SPEECH[0]}", *SPEECH]
    assert said(tmp_path, *once) == once


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all examples of a property."""
    return tmp_path_factory.mktemp("marks")


LABELS = [
    "Step 1", "Note", "Tip", "Remember", "Next", "Warning", "TIP", "Pro tip", "Ingredients", "Question", "Answer",
    "Day 2", "First", "Butter", "Baking soda", "Now", "\u6ce8\u610f", "\u00c9tape 2", "Achtung", "And then I said",
]  # fmt: skip


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("other", ["Tip", "Step 2", "Flour"])
def test_words_of_speech_that_return_before_a_colon_stay(tmp_path: Path, label: str, other: str) -> None:
    about = ["so we need butter and flour", "and some baking soda with the pro tip I said"]
    captions = [f"{label}: {SPEECH[0]}", *about, f"{label}: {SPEECH[1]}", f"{other}: {SPEECH[2]}", *SPEECH]
    captions += [f"{other}: {SPEECH[3]}", f"{label}: {SPEECH[4]}"]
    report = ReadingReport()
    assert said(tmp_path, *captions, report=report) == captions
    assert not report.lines()


@given(st.lists(st.sampled_from(["Tip", "Step 3", "Remember", "Next", "Note"]), min_size=1, max_size=8))
def test_labels_alone_are_never_names(folder: Path, labels: list[str]) -> None:
    captions = [f"{label}: stir it" for label in labels]
    assert said(folder, *captions) == captions


@given(
    st.lists(st.sampled_from(["Maria Keller", "Tom", "Wu Li", "Ana"]), min_size=3, max_size=12),
    st.lists(st.sampled_from(SPEECH), min_size=12, max_size=12),
)
def test_names_of_a_meeting_come_off_all_captions(folder: Path, names: list[str], speech: list[str]) -> None:
    pairs = [*zip(names, speech, strict=False)]
    found = said(folder, *(f"{name}: {text}" for name, text in pairs))
    if 2 * len(set(names)) <= len(names):
        assert found == [text for _, text in pairs]
    assert all(one in (text, f"{name}: {text}") for one, (name, text) in zip(found, pairs, strict=True))


@given(st.text().filter(str.strip))
def test_cleaning_only_removes(folder: Path, text: str) -> None:
    *found, last = said(folder, text, "then wait")
    left = iter(text)
    assert all(character in left for character in "".join("".join(found).split()))  # a subsequence, but for white space
    assert last == "then wait"


@given(
    st.lists(
        st.sampled_from(["boil", "the", "water", "and", "stir", "it", "gently,", "2", "cups", "(two", "cups)", "Now!"]),
        min_size=1,
    )
)
def test_plain_speech_is_untouched(folder: Path, words: list[str]) -> None:
    assert said(folder, " ".join(words)) == [" ".join(words)]


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
    stream, origin = narration_source([subtitles], ReadingOptions(), titles=tmp_path / "titles")
    assert {one.video_id: one.title for one in stream} == {"tea": "Make tea", "more": None}
    read = origin.report()
    assert (read["titled"], read["untitled"]) == (1, 1)
    assert any("title" in line for line in read["notes"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "title"),
        ("tea\tMake tea\nno tab\n", "line 2: .*tab"),
        ("id,name\ntea,Make tea\n", "title"),
        ("video_id,title\ntea\n", "line 2"),
        ('{"id": "tea"}\n', "title"),
        ('{"title": "tea"}\n', "line 1: .*video"),
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
