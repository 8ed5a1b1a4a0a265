"""Test videos stay out of a corpus whatever their files are called, and what could not be checked is not clean."""

import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import built_corpus
from tests.corpus.test_corpus_cli import run

from recipe import build_corpus as build_from_files
from recipe.corpus.build import narration_source
from recipe.corpus.excluded import read_exclusions
from recipe.corpus.leaks import Checked, Exclusions, leakage
from recipe.corpus.store import Corpus
from recipe.data.narrations import ReadingOptions
from recipe.data.procedures import write_procedures
from recipe.errors import InputError
from recipe.types import Narration, Procedure, Segment, Step

CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
TEST, OTHER = "a1B2c3D4e5F", "g6H7i8J9k0L"
LONG = "now pour the warm milk slowly into the large mixing bowl"
CUE = "WEBVTT\n\n00:01.000 --> 00:02.000\nboil the water\n"


def narrations(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CUE)
    return folder


def kept(folder: Path, ids: list[str], **options: Any) -> list[str]:
    """The ids of the narrations of a folder that are left without the videos `ids`."""
    found, _ = narration_source([folder], ReadingOptions(**options), exclusions=Exclusions(ids, ()))
    return [narration.video_id for narration in found]


IDS = st.one_of(
    st.text(CHARACTERS, min_size=11, max_size=11),
    st.from_regex(r"[a-z]{3,8}_[0-9]{3,4}|[0-9]{1,2}_[0-9]{1,3}|[a-z]{2,10}|[0-9]{6,9}", fullmatch=True),
)
FORMS = ("{id}", "A {title}-{id}", "{title} [{id}]")
TAGS = ("", ".en", ".en-orig", ".pt_BR", ".pt-BR", ".en.sdh", ".en-j3PyPqV_e1s", ".en.forced", ".zh-Hans", ".whisper")


@pytest.mark.thorough
@settings(deadline=None)
@given(IDS, st.text("azAZ09-_ .,[]()!\u00e9", max_size=20), st.sampled_from(FORMS), st.sampled_from(TAGS))
def test_an_excluded_video_never_enters_or_the_build_stops(video: str, title: str, form: str, tag: str) -> None:
    name = f"{form.format(id=video, title=title)}{tag}.vtt"
    if name.startswith("."):
        return  # hidden files are not read
    with tempfile.TemporaryDirectory() as made:
        folder = narrations(Path(made), name, "n1O2p3Q4r5S.en.vtt")
        try:
            left, stopped = kept(folder, [video]), ""
        except InputError as error:
            left, stopped = [], str(error)
    assert left == ["n1O2p3Q4r5S"] or (repr(video) in stopped and name in stopped)


@pytest.mark.parametrize(
    "name",
    [
        f"Tea and {TEST} and more [{OTHER}].en.vtt",
        f"{TEST}/{OTHER}.vtt",
        f"{TEST}/en.vtt",
        f"v_{TEST}.vtt",
        f"{TEST}x.vtt",
        f"{OTHER}.en-{TEST}.vtt",
        f"{TEST}-{OTHER}.vtt",
    ],
)
def test_an_excluded_id_inside_another_name_stops_the_build(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        kept(narrations(tmp_path / "in", name), [TEST])
    assert name in str(caught.value)
    assert TEST in str(caught.value)
    with pytest.raises(InputError, match=TEST):
        build_from_files(tmp_path / "in", tmp_path / "c", encoder="hash:8", exclude=ids_file(tmp_path, TEST))
    assert not (tmp_path / "c").exists()


def ids_file(folder: Path, *ids: str) -> Path:
    path = folder / "ids.txt"
    path.write_text("\n".join(ids))
    return path


@pytest.mark.parametrize("row", [{"video_id": f"clip{TEST}"}, {"video_id": "0"}])
def test_names_of_files_of_many_videos_count_too(tmp_path: Path, row: dict[str, str]) -> None:
    path = tmp_path / f"speech-{TEST}.jsonl"
    path.write_text(json.dumps(row | {"sentences": ["boil"]}))
    with pytest.raises(InputError, match=TEST):
        kept(path, [TEST])


def test_an_address_tells_the_video(tmp_path: Path) -> None:
    rows = [
        {"video_id": "0", "sentences": ["boil"], "url": f"https://www.youtube.com/watch?v={TEST}"},
        {"video_id": "1", "sentences": ["boil"], "url": f"https://www.youtube.com/watch?v={OTHER}"},
    ]
    (tmp_path / "n.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert kept(tmp_path / "n.jsonl", [TEST]) == ["1"]


def test_short_ids_stop_no_build_by_chance(tmp_path: Path) -> None:
    names = ("11_7.vtt", "1_70.vtt", "steady tea.vtt", f"Part 1_7 of tea [{OTHER}].vtt", "av1.vtt")
    assert len(kept(narrations(tmp_path, *names), ["1_7", "tea", "v1", "a"])) == len(names)


def test_the_captions_of_all_languages_are_excluded(tmp_path: Path) -> None:
    (tmp_path / f"{TEST}.de.vtt").write_text(CUE.replace("boil the water", "jetzt das Wasser kochen"))
    (tmp_path / f"{TEST}.en.vtt").write_text(CUE)
    exclusions = read_exclusions([tmp_path])
    assert exclusions.video_ids == {TEST}
    assert exclusions.texts == ("jetzt das Wasser kochen", "boil the water")


def corpus(folder: Path, *ids: str, text: str = "boil the water") -> Corpus:
    return built_corpus(folder, [Narration(video_id, (Segment(text),)) for video_id in ids], "hash:8")


def test_a_corpus_is_searched_by_the_same_rule(tmp_path: Path) -> None:
    """Ids as earlier versions took them from names, and others that hold an excluded one."""
    names = (f"Tea-{TEST}", f"{OTHER}.en.sdh", "Boil-ingredients", f"v_{TEST}", "n1O2p3Q4r5S", "tea 1_7 cut")
    listed = ids_file(tmp_path, TEST, OTHER, "ingredients", "1_7")
    report = leakage(corpus(tmp_path / "c", *names).folder, read_exclusions([listed]))
    assert report.videos == names[:3]
    assert report.unclear == ((f"v_{TEST}", TEST), ("tea 1_7 cut", "1_7"))
    assert report.clean is False
    clean = leakage(corpus(tmp_path / "d", "n1O2p3Q4r5S").folder, read_exclusions([ids_file(tmp_path, TEST)])).clean
    assert clean is True
    only = leakage(corpus(tmp_path / "e", f"x_{TEST}_y").folder, read_exclusions([ids_file(tmp_path, TEST)]))
    assert (only.videos, only.clean) == ((), False)


def own(source: str, *ids: str, text: str = "unscrew the nuts") -> list[Procedure]:
    return [Procedure(source, video_id, "change a tyre", (Step(text), Step("jack it up")), "test") for video_id in ids]


NIV = ("changing_tire_0101", "repot_0102", "cpr_0103")


@pytest.mark.parametrize("listed", ["procedures", "ids"])
def test_videos_that_cannot_be_found_leave_no_corpus_clean(tmp_path: Path, listed: str) -> None:
    path = tmp_path / "p.jsonl"
    write_procedures(path, own("niv", *NIV))
    if listed == "ids":
        path = ids_file(tmp_path, *NIV)
    for ids in ([TEST], [TEST, "kitchen-3"]):
        report = leakage(corpus(tmp_path / str(len(ids)), *ids).folder, read_exclusions([path]))
        assert report.checked == (Checked("niv" if listed == "procedures" else "ids.txt", 3, 0, 0, 3),)
        assert report.clean is None
        assert json.loads(json.dumps(report.as_dict()))["clean"] is None
        assert any("3 of 3" in value for _, value in report.rows())


def test_what_makes_a_video_findable(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    write_procedures(
        path, [*own("niv", *NIV), *own("captaincook4d", "1_7", text=LONG), *own("mine", "kitchen-1", OTHER)]
    )
    exclusions = read_exclusions([path])
    youtube = exclusions.checked_among([TEST])
    assert youtube == (("niv", 3, 0, 0, 3), ("captaincook4d", 1, 0, 1, 0), ("mine", 2, 1, 0, 1))
    assert exclusions.checked_among([TEST, "kitchen-2"])[2] == ("mine", 2, 2, 0, 0)
    assert exclusions.checked_among(["kitchen-2"])[2] == ("mine", 2, 1, 0, 1)
    assert exclusions.checked_among(["cpr_0103"])[0] == ("niv", 3, 3, 0, 0)  # its ids are those of the corpus
    (tmp_path / "map.csv").write_text(
        f"benchmark,corpus\ncpr_0103,{TEST}\nrepot_0102,{OTHER}\nrepot_0102,n1O2p3Q4r5S\n"
    )
    mapped = read_exclusions([path], ids=tmp_path / "map.csv")
    assert mapped.checked_among([TEST])[0] == ("niv", 3, 2, 0, 1)
    assert mapped.video_ids - exclusions.video_ids == {TEST, "n1O2p3Q4r5S"}
    assert mapped.identity != exclusions.identity


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("cpr_0103\n", "line 1"),
        ("a,b\n\ncpr_0103, \n", "line 3"),
        ('cpr_0103,"x\n', "CSV"),
        (f"{TEST},cpr_0103\n", "no row"),
        (None, "does not exist"),
    ],
)
def test_a_table_of_ids_that_cannot_be_used_is_one_sentence(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "map.csv").write_text(content)
    with pytest.raises(InputError, match=re.escape(message)):
        read_exclusions([ids_file(tmp_path, "cpr_0103")], ids=tmp_path / "map.csv")


def test_the_commands_say_what_cannot_be_checked_and_keep_mapped_videos_out(tmp_path: Path) -> None:
    path, table = tmp_path / "p.jsonl", tmp_path / "map.csv"
    write_procedures(path, own("niv", *NIV))
    folder = narrations(tmp_path / "in", f"{TEST}.en.vtt", f"{OTHER}.en.vtt")
    build = ("build", folder, "--output", tmp_path / "c", "--encoder", "hash:8", "--exclude", path)
    assert "3 of 3" in run(*build)
    info = ("info", tmp_path / "c", "--json")
    checked = json.loads(run(*info))["read"]["checked"]
    assert checked == [{"source": "niv", "videos": 3, "by_id": 0, "by_text": 0, "unchecked": 3}]
    assert json.loads(run(*info, "--against", path))["clean"] is None
    table.write_text("".join(f"{video_id},x1y2z3X4{number}Z\n" for number, video_id in enumerate(NIV, start=10)))
    assert json.loads(run(*info, "--against", path, "--ids", table))["clean"] is True
    table.write_text(table.read_text() + f"{NIV[0]},{TEST}\n")
    assert json.loads(run(*info, "--against", path, "--ids", table))["videos"] == [TEST]
    again = run(*build[:3], tmp_path / "d", *build[4:], "--ids", table, "--json")
    assert json.loads(again)["read"]["checked"][0]["unchecked"] == 0
    assert json.loads(again)["narrations"] == json.loads(again)["read"]["excluded"]["narrations_by_id"] == 1
