"""Ids in names of files: the forms that yt-dlp and youtube-dl write, what is unclear, and ids inside other names."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.data.video_ids import VideoIds, VideoName, is_metadata, video_name

CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
IDS = st.text(CHARACTERS, min_size=11, max_size=11)
TITLES = st.text(st.sampled_from("abzABZ019-_ .,[]()!'\u00e9\u8336"), max_size=30)
LANGUAGES = (
    "en", "en-orig", "en-US", "pt_BR", "pt-BR", "zh-Hans", "es-419", "en-j3PyPqV_e1s", "en-uYU-mmqFLq8", "a-en",
)  # fmt: skip
MARKS = ("", ".sdh", ".hi", ".cc", ".forced", ".whisper")
SUFFIXES = ("vtt", "srt", "json3", "json", "ttml", "srv3")


def plain(video: str) -> bool:
    """Whether an id reads as words and numbers, so that it may as well be the end of a title."""
    return all(re.fullmatch("[A-Z]?[a-z]*|[A-Z]*|[0-9]*", part) for part in re.split("[-_]+", video))


@given(IDS, TITLES, st.sampled_from(("", *LANGUAGES)), st.sampled_from(MARKS), st.sampled_from(SUFFIXES), st.data())
def test_an_id_is_read_in_every_form(
    video: str, title: str, language: str, mark: str, suffix: str, data: st.DataObject
) -> None:
    form = data.draw(st.sampled_from(["{id}", "{title} [{id}]", "{title}-{id}"]))
    tag = f".{language}" if language else ""
    if mark == ".hi" and not tag:
        mark = ""  # Hindi, where no language comes first
    read = video_name(f"{form.format(id=video, title=title)}{tag}{mark}.{suffix}")
    if form.startswith("{title}-") and plain(video):
        assert video in (read.id, read.other)
    else:
        assert read.id == video
    assert read.marks == ((mark[1:],) if mark else ())
    assert read.language.replace("_", "-") == language.replace("_", "-")


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("-_a1b2c3D4-.vtt", VideoName("-_a1b2c3D4-")),
        ("Tea--_a1b2c3D4-.de.vtt", VideoName("-_a1b2c3D4-", "de")),
        ("a1B2c3D4e5F.large-v3.EN.json", VideoName("a1B2c3D4e5F", "en", ("large-v3",))),
        ("a1B2c3D4e5F.m4a.vtt", VideoName("a1B2c3D4e5F", "", ("m4a",))),
        ("a1B2c3D4e5F.hi.vtt", VideoName("a1B2c3D4e5F", "hi")),
        ("peel-an-apple.vtt", VideoName("peel-an-apple")),
        ("how-to-mend-an-axe.vtt", VideoName("how-to-mend-an-axe", other="mend-an-axe")),
        ("Cut [Illustrated].en.vtt", VideoName("Illustrated", "en", other="Cut [Illustrated]")),
        ("Tea.en-a1B2c3D4e5F.vtt", VideoName("Tea", "en-a1B2c3D4e5F", other="a1B2c3D4e5F")),
        ("a1B2c3D4e5F - Tea.vtt", VideoName("a1B2c3D4e5F - Tea", other="a1B2c3D4e5F")),
        ("a1B2c3D4e5F-g6H7i8J9k0L.vtt", VideoName("g6H7i8J9k0L", other="a1B2c3D4e5F")),
        ("repot_0101.en.vtt", VideoName("repot_0101", "en")),
        ("Make.pie.vtt", VideoName("Make.pie", other="Make")),
        ("Make.pie.en.vtt", VideoName("Make.pie", "en", other="Make")),
        ("Make.en.vtt", VideoName("Make", "en")),
        ("Make.is-it.so.good.vtt", VideoName("Make.is-it.so.good")),
        ("Make.en-good.vtt", VideoName("Make.en-good", other="Make")),
        ("Make.sr-Latn-RS.vtt", VideoName("Make", "sr-Latn-RS")),
        ("Make.fil.vtt", VideoName("Make", "fil")),
        ("a1B2c3D4e5F.xyz.vtt", VideoName("a1B2c3D4e5F", "xyz")),  # after an id any tag is a language
        ("vtt", VideoName("vtt")),
        (".vtt", VideoName(".vtt")),
    ],
)
def test_names_that_are_special(name: str, read: VideoName) -> None:
    assert video_name(name) == read


def test_better_tracks_come_first() -> None:
    ordered = ["en", "en.sdh", "en-GB", "en-j3PyPqV_e1s", "en-orig", "en-fr", "de-en-j3PyPqV_e1s", "en.forced"]
    ranks = [video_name(f"a1B2c3D4e5F.{track}.vtt").rank("en") for track in ordered]
    assert ranks == sorted(ranks)
    assert video_name("a1B2c3D4e5F.en.whisper.json").rank("en") > video_name("a1B2c3D4e5F.en-GB.vtt").rank("en")


@pytest.mark.parametrize(
    ("tag", "asked", "speaks"),
    [
        ("en", "en", True),
        ("en-orig", "en", True),
        ("en_US", "EN", True),
        ("en-US", "en-US", True),
        ("a-en", "en", True),
        ("en", "en-US", False),
        ("en-GB", "en-US", False),
        ("eng", "en", False),
        ("de", "en", False),
        ("de-en", "en", False),
    ],
)
def test_a_language_takes_its_regions_and_no_other(tag: str, asked: str, speaks: bool) -> None:
    assert video_name(f"a1B2c3D4e5F.{tag}.vtt").speaks(asked) is speaks


def test_metadata_is_told_by_name() -> None:
    names = ("T [a1B2c3D4e5F].info.json", "a1B2c3D4e5F.live_chat.json", "a1B2c3D4e5F.en.json", "info.json")
    assert [is_metadata(name) for name in names] == [True, True, False, False]


@given(IDS, TITLES, TITLES, st.sampled_from(("", *LANGUAGES)))
def test_a_youtube_id_is_found_wherever_it_stands(video: str, before: str, after: str, language: str) -> None:
    ids = VideoIds([video, "1_7", "tea"])
    name = f"{before}{video}{after}{language and f'.{language}'}"
    assert ids.may_be(name) is not None
    assert ids.inside(f"folder/{name}.vtt", path=True) is not None
    assert VideoIds([name]).may_be(video) == name


OTHER_IDS = st.from_regex(r"[a-z]{1,6}_?[0-9]{1,4}|[0-9]{1,2}_[0-9]{1,3}|[a-z]{2,8}|[0-9]{4,8}", fullmatch=True)


@given(OTHER_IDS, st.text("abz AZ", max_size=8), st.sampled_from(("", *LANGUAGES)), st.sampled_from(MARKS))
def test_ids_of_other_kinds_are_found_in_every_form(video: str, title: str, language: str, mark: str) -> None:
    ending = f"{language and f'.{language}'}{mark}.vtt"
    for form in (video, f"{title} [{video}]", f"A {title}-{video}"):
        assert VideoIds([video]).may_be(video_name(form + ending).id) == video


@pytest.mark.parametrize(
    ("video", "name", "found"),
    [
        ("1_7", "1_70", False),
        ("1_7", "11_7", False),
        ("1_7", "kitchen-1_7-left", True),
        ("1_7", "1_7_360p", True),
        ("v1", "v10", False),
        ("v1", "nav1", False),
        ("tea", "make tea well", False),
        ("tea", "steady", False),
        ("tea", "make-tea", True),
        ("tea", "Cups [tea]", True),
        ("tea", "tea.large", True),
        ("2019", "Tea 2019 again", False),
        ("1_7", "ab-1_7-cdeF", False),  # an id of YouTube
        ("tea_03", "Xy9a-tea_03", True),
        ("repot_0003", "niv repot_0003 cut", True),
        ("repot_0003", "repot_00031", False),
    ],
)
def test_short_ids_and_words_are_found_as_wholes_only(video: str, name: str, found: bool) -> None:
    assert (VideoIds([video]).may_be(name) is not None) is found


def test_paths_tell_long_ids_only() -> None:
    ids = VideoIds(["v1", "MECCANO/0101", "changing_tire_0101"])
    found = [ids.inside(path, path=True) for path in ("v1/a.vtt", "x/MECCANO/0101.vtt", "changing_tire_0101/en.vtt")]
    assert found == [None, "MECCANO/0101", "changing_tire_0101"]


def test_addresses_are_names_of_videos() -> None:
    listed = VideoIds(["https://youtu.be/a1B2c3D4e5F", "g6H7i8J9k0L"])
    assert listed.find("a1B2c3D4e5F") == "https://youtu.be/a1B2c3D4e5F"
    assert listed.find("https://www.youtube.com/watch?v=g6H7i8J9k0L&t=3") == "g6H7i8J9k0L"
    assert listed.find("https://www.youtube.com/watch?v=g6H7i8J9k0M") is None
    assert VideoIds(["", "x"]).may_be("a") is None
