"""Several files of one video: languages are a question, the better track is read, and what is passed over is named."""

import re
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.config import parse_config
from recipe.data.narrations import ReadingOptions, ReadingReport, read_narrations
from recipe.errors import ConfigError, InputError

VIDEO = "a1B2c3D4e5F"


def write(folder: Path, *names: str) -> Path:
    """Subtitle files that say their own names."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(f"WEBVTT\n\n00:01.000 --> 00:02.000\n{name}\n")
    return folder


def said(path: Path, duplicates: Any = "error", report: ReadingReport | None = None, **options: Any) -> list[str]:
    narrations = read_narrations(path, duplicates, ReadingOptions(**options), report)
    return [segment.text for narration in narrations for segment in narration.segments]


@pytest.mark.parametrize("duplicates", ["error", "keep-first"])
@pytest.mark.parametrize("pack", ["folder", "zip", "tar.gz"])
def test_several_languages_are_a_question(tmp_path: Path, duplicates: str, pack: str) -> None:
    folder = write(tmp_path / "subs", f"{VIDEO}.de.vtt", f"Tea [{VIDEO}].en-orig.vtt", f"Tea-{VIDEO}.en.vtt")
    path = folder if pack == "folder" else tmp_path / f"subs.{pack}"
    if pack == "zip":
        with zipfile.ZipFile(path, "w") as zipped:
            for file in sorted(folder.iterdir()):
                zipped.write(file, f"subs/{file.name}")
    elif pack == "tar.gz":
        with tarfile.open(path, "w:gz") as tarred:
            tarred.add(folder, "subs")
    with pytest.raises(InputError) as caught:
        said(path, duplicates)
    assert all(fact in str(caught.value) for fact in (VIDEO, "de", "en", "en-orig", "--language"))
    assert said(path, duplicates, language="en") == [f"Tea-{VIDEO}.en.vtt"]
    assert said(path, duplicates, language="DE") == [f"{VIDEO}.de.vtt"]


def test_one_language_needs_no_choice_and_its_best_track_is_read(tmp_path: Path) -> None:
    tracks = ("en-orig", "en-US", "en.sdh", "en.forced", "en-j3PyPqV_e1s")
    folder = write(tmp_path / "subs", *(f"{VIDEO}.{track}.vtt" for track in tracks))
    report = ReadingReport()
    assert said(folder, report=report) == [f"{VIDEO}.en.sdh.vtt"]
    assert report.passed_over.total() == 4
    assert sorted(Path(one).name for names in report.passed_over_names.values() for one in names) == sorted(
        f"{VIDEO}.{track}.vtt" for track in tracks if track != "en.sdh"
    )
    assert said(folder, language="en-US") == [f"{VIDEO}.en-US.vtt"]


def test_regions_of_one_language_are_a_question_unless_the_language_itself_is_there(tmp_path: Path) -> None:
    folder = write(tmp_path / "subs", f"{VIDEO}.en-US.vtt", f"{VIDEO}.en_GB.vtt")
    for language in (None, "en"):
        with pytest.raises(InputError, match=r"en-GB, en-US"):
            said(folder, language=language)
    assert said(folder, language="en-gb") == [f"{VIDEO}.en_GB.vtt"]
    write(folder, f"{VIDEO}.en.vtt")
    assert said(folder) == [f"{VIDEO}.en.vtt"]


def test_a_file_without_a_language_is_read_where_no_other_is_right(tmp_path: Path) -> None:
    folder = write(tmp_path / "subs", f"{VIDEO}.vtt", f"{VIDEO}.de.vtt", "g6H7i8J9k0L.vtt", "M1n2O3p4Q5r.de.vtt")
    with pytest.raises(InputError, match=VIDEO):
        said(folder, "keep-first")
    assert said(folder, language="de") == ["M1n2O3p4Q5r.de.vtt", f"{VIDEO}.de.vtt", "g6H7i8J9k0L.vtt"]
    report = ReadingReport()
    assert said(folder, report=report, language="en") == [f"{VIDEO}.vtt", "g6H7i8J9k0L.vtt"]
    assert report.passed_over.total() == 2


def test_where_no_file_is_in_the_language_it_is_said(tmp_path: Path) -> None:
    folder = write(tmp_path / "subs", f"{VIDEO}.de.vtt")
    with pytest.raises(InputError, match=rf"{VIDEO}\.de\.vtt"):
        said(folder, language="en")


def test_two_files_of_one_track_are_a_repeated_video(tmp_path: Path) -> None:
    folder = write(tmp_path / "subs", f"{VIDEO}.en.vtt", f"{VIDEO}.en.srt")
    with pytest.raises(InputError, match="keep-first"):
        said(folder)
    assert said(folder, "keep-first") == [f"{VIDEO}.en.srt"]


def test_metadata_is_no_narration_and_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "subs", f"{VIDEO}.en.vtt")
    row = '{"video_id": "a", "title": "Tea", "sentences": ["boil"]}'
    for name in (f"{VIDEO}.info.json", f"{VIDEO}.live_chat.json"):
        (folder / name).write_text(row)
    (folder / f"{VIDEO}.nfo").write_text("<movie/>")
    report = ReadingReport()
    assert said(folder, report=report) == [f"{VIDEO}.en.vtt"]
    assert sorted(report.passed_over.values()) == [1, 2]
    assert all(name in " ".join(report.lines()) for name in ("info.json", "live_chat.json", "nfo"))


def test_names_that_may_mean_another_video_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "subs", "how-to-mend-an-axe.vtt", f"{VIDEO}.vtt")
    report = ReadingReport()
    said(folder, report=report)
    assert (report.unclear_ids, [Path(one).name for one in report.unclear_names]) == (1, ["how-to-mend-an-axe.vtt"])
    assert report.lines(read=False) == []  # it was read
    assert "how-to-mend-an-axe.vtt" in " ".join(report.lines(read=True))


def test_a_language_must_be_a_tag() -> None:
    assert parse_config({"language": "pt_BR"}, ReadingOptions, "reading").language == "pt-BR"
    for tag in ("", "English", "e n"):
        with pytest.raises(ConfigError, match="language"):
            parse_config({"language": tag}, ReadingOptions, "reading")


TRACKS = st.lists(st.sampled_from(["", "en", "en-orig", "en-US", "de", "de-en", "fr.forced"]), min_size=1, unique=True)


@pytest.mark.thorough
@given(TRACKS, st.sampled_from([None, "en", "de"]), st.randoms(use_true_random=False))
def test_the_order_of_the_names_never_chooses(tracks: list[str], language: str | None, random: Any) -> None:
    """Files in folders of random names: the same track is read, or the same question asked, in any order."""
    outcomes = set[object]()
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            for track in tracks:
                place = Path(folder, str(random.random()))
                name = f"{VIDEO}{track and f'.{track}'}.vtt"
                write(place, name)
            try:
                outcomes.add(tuple(said(Path(folder), language=language)))
            except InputError as error:
                message = re.sub(re.escape(folder) + r"[^:]*", "", str(error))
                outcomes.add(" ".join(sorted(re.findall(r"[\w.-]+", message))))
    assert len(outcomes) == 1
