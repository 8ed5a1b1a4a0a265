"""Narrations written in any published form read back as they were, and damage to any form is one sentence."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.narration_forms import FORMS

from recipe.data.narrations import ReadingOptions, ReadingReport, read_narrations
from recipe.errors import InputError
from recipe.types import Narration, Segment

ids = st.text("abcXYZ019_-", min_size=11, max_size=11).filter(lambda text: not text.startswith("."))
texts = st.text(st.characters(codec="utf-8"), min_size=1).map(str.strip).filter(bool)
words = st.text("abcABC019 ,.'!?é中", min_size=1, max_size=20).map(lambda t: " ".join(t.split())).filter(bool)
# Nobody takes minutes for a word: whole numbers that say so are milliseconds.
times = st.tuples(st.floats(0, 86_380), st.floats(0, 20)).map(lambda pair: [pair[0], pair[0] + pair[1]])
whole_times = st.tuples(st.integers(0, 86_400_000), st.integers(0, 86_400_000)).map(
    lambda pair: sorted(value / 1000 for value in pair)
)
moments = st.integers(0, 86_400).map(lambda time: [time, time])
HELD: dict[str, tuple[st.SearchStrategy[str], st.SearchStrategy[list[float]]]] = {
    "exact": (texts, times),
    "spaced": (texts.map(lambda text: " ".join(text.split())), times),
    "cues": (words, whole_times),
    "moments": (texts, moments),
}
"""Texts and times that a kind of form can hold."""
AS_IT_IS = ReadingOptions(rolling="keep", marks="keep")


def corpora(kind: str) -> st.SearchStrategy[list[Narration]]:
    segment = st.builds(lambda text, span: Segment(text, *map(float, span)), *HELD[kind])
    ordered = st.lists(segment, min_size=1, max_size=5).map(
        lambda found: tuple(sorted(found, key=lambda s: (s.start, s.end)))
    )
    narration = st.builds(Narration, ids, ordered)
    # In file systems that ignore case, two files' names must differ in more.
    return st.lists(narration, min_size=1, max_size=4, unique_by=lambda n: n.video_id.lower()).map(
        lambda found: sorted(found, key=lambda n: n.video_id)
    )


@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=8)
@given(data=st.data())
def test_what_was_written_is_read_back(name: str, data: st.DataObject) -> None:
    form, report = FORMS[name], ReadingReport()
    narrations = data.draw(corpora(form.kind))
    with TemporaryDirectory() as folder:
        found = list(read_narrations(form.write(Path(folder), narrations), options=AS_IT_IS, report=report))
    assert found == [replace(one, source=form.source, title=form.title) for one in narrations]
    assert (report.narrations, report.segments) == (len(found), sum(len(n.segments) for n in found))
    assert report.lines() == []


@settings(max_examples=3)
@given(narrations=corpora("spaced"))
def test_all_forms_at_once_hold_each_video_once(narrations: list[Narration]) -> None:
    with TemporaryDirectory() as root:
        paths = []
        forms = [form for form in FORMS.values() if form.kind != "cues"]  # one of which names its language
        for number, form in enumerate(forms):
            (Path(root) / str(number)).mkdir()
            paths.append(form.write(Path(root) / str(number), narrations))
        report = ReadingReport()
        assert list(read_narrations(paths, "keep-first", AS_IT_IS, report)) == narrations
        assert report.duplicates == (len(forms) - 1) * len(narrations)


SPOKEN = [
    Narration(f"abcdefghij{k}", tuple(Segment(f"caption é {j}", j * 1.5, j * 1.5 + 2) for j in range(4)))
    for k in range(3)
]
PIECES = [*(bytes([code]) for code in b'{}[",\\\n\r\0\xffRc'), b"NaN", b"1e999", b"-->", b"9" * 5000]


@pytest.mark.thorough
@pytest.mark.parametrize("name", FORMS)
@settings(max_examples=8)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused_in_one_sentence(name: str, data: st.DataObject) -> None:
    """Bytes are changed, put in and cut out at any place; nothing but an InputError may come of it."""
    refusals: list[str] = []
    with TemporaryDirectory() as folder:
        path = FORMS[name].write(Path(folder), SPOKEN)
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


@pytest.mark.real_data
@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.kind != "moments"])
def test_real_narrations_survive_every_form(shared_data: Path, name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    found = list(read_narrations(shared_data / "narrations" / "narrations_timed.jsonl"))
    real = [replace(one, title=None, source=None) for one in found][:: 5 if form.kind == "cues" else 1]
    again = {one.video_id: one for one in read_narrations(form.write(tmp_path, real))}
    assert len(again) == len(real)
    for one in real:
        segments = one.segments
        if name not in ("jsonl", "procedures"):  # in which the file is in order
            segments = tuple(sorted(segments, key=lambda s: (s.start, s.end)))
        if form.kind in ("spaced", "cues"):
            segments = tuple(replace(segment, text=" ".join(segment.text.split())) for segment in segments)
        if form.kind == "cues":
            segments = tuple(replace(s, start=round(s.start or 0, 3), end=round(s.end or 0, 3)) for s in segments)
        assert again[one.video_id] == replace(one, segments=segments, source=form.source, title=form.title)
