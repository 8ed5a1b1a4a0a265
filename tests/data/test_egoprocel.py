"""The reader of EgoProceL on invented files of its layout."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from recipe.data.egoprocel import COLLECTIONS, HELD_OUT, read_egoprocel, split_of
from recipe.errors import InputError
from recipe.types import Step


def test_each_collection_has_its_layout_and_its_goals(egoprocel: Path) -> None:
    assert [(video.video_id, video.goal) for video in read_egoprocel(egoprocel)] == [
        ("CMU-MMAC/Brownie/S07_Brownie_Video/S07_Brownie_7150991-1431", "make brownie"),
        ("EGTEA_Gaze+/BaconAndEggs/OP01-R03-BaconAndEggs", "make bacon and eggs"),
        ("EPIC-Tents/01.tent.090617.gopro", "set up a tent"),
        ("MECCANO/0008", "assemble a toy motorbike"),
        ("pc_assembly/Head_5", "assemble a desktop computer"),
        ("pc_disassembly/Head_6", "disassemble a desktop computer"),
    ]


def test_key_steps_lose_their_numbers_and_stand_in_time_order(egoprocel: Path) -> None:
    steps = {video.video_id.partition("/")[0]: video.steps for video in read_egoprocel(egoprocel)}
    assert steps["CMU-MMAC"] == (Step("break egg", 0.5, 2.5), Step("mix eggs", 2.5, 9.0))
    assert steps["EGTEA_Gaze+"] == (Step("take pan", 0, 4), Step("fry bacon, eggs", 4, 9), Step("serve", 9, 9))
    assert steps["EPIC-Tents"] == (Step("unfold tent", 1, 2), Step("insert pole", 2, 7.25))
    assert steps["MECCANO"] == (Step("take bolt", 10, 20), Step("place wheel", 12, 30), Step("take bolt", 30, 31))


def test_what_is_there_of_the_six_is_read(egoprocel: Path) -> None:
    for name in ("CMU-MMAC", "MECCANO", "pc_assembly"):
        shutil.rmtree(egoprocel / "annotations" / name)
    assert len(read_egoprocel(egoprocel)) == 3
    shutil.rmtree(egoprocel / "annotations")
    with pytest.raises(InputError, match=r"annotations: .*CMU-MMAC, .*, pc_disassembly"):
        read_egoprocel(egoprocel)


def test_a_person_is_trained_on_or_held_out() -> None:
    for person in range(40):
        ids = [f"CMU-MMAC/{dish}/S{person:02}_{dish}_Video/S{person:02}_{dish}_7150991-1" for dish in ("Eggs", "Pizza")]
        assert len({split_of(name) for name in ids}) == 1
    assert split_of("EGTEA_Gaze+/Pizza/OP01-R01-Pizza") == split_of("EGTEA_Gaze+/PastaSalad/OP01-R07-PastaSalad")


def test_about_every_fifth_person_is_held_out() -> None:
    drawn = Counter(split_of(f"{name}/{person:04}") for name in COLLECTIONS for person in range(1000))
    assert set(drawn) == {"train", "test"}
    # Binomial(6000, 0.2): standard deviation 31; five of them on either side.
    assert abs(drawn["test"] - 6000 * HELD_OUT) < 155


def test_the_split_is_pinned(egoprocel: Path) -> None:
    assert {video.video_id.partition("/")[0]: video.split for video in read_egoprocel(egoprocel)} == {
        "CMU-MMAC": "train",
        "EGTEA_Gaze+": "train",
        "EPIC-Tents": "train",
        "MECCANO": "test",
        "pc_assembly": "train",
        "pc_disassembly": "train",
    }


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("1,2", "'1,2' is not start,end,key-step"),
        ("start,end,name", "'start,end,name' is not start,end,key-step"),
        ("1,2,3 fix fan,4", "'1,2,3 fix fan,4' is not start,end,key-step"),
        ("3,2,1 fix fan", "3,2 is no time span"),
        ("-1,2,1 fix fan", "-1,2 is no time span"),
        ("nan,2,1 fix fan", "nan,2 is no time span"),
        ("1,inf,1 fix fan", "1,inf is no time span"),
        ("1,2,", "'' holds no key-step's name"),
        ("2,33.54,39.94", "'39.94' holds no key-step's name; .* not CrossTask's"),
    ],
)
def test_another_layout_is_named_by_its_line(egoprocel: Path, row: str, problem: str) -> None:
    path = egoprocel / "annotations" / "pc_assembly" / "Head_5.csv"
    path.write_text(f"0,1,1 fix fan\n{row}\n")
    with pytest.raises(InputError, match=f"Head_5.csv, line 2: {problem}"):
        read_egoprocel(egoprocel)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00 1", b'"' + b"x" * 200_000])
def test_what_is_no_table_is_named(egoprocel: Path, content: bytes) -> None:
    path = egoprocel / "annotations" / "MECCANO" / "0008.csv"
    path.write_bytes(content)
    # Python's limit of a field is one for the process; readers of other tables raise it.
    problems = r"0008\.csv(: the text is not UTF-8|: no table of three columns|, line 1: 'x+' is not start)"
    with pytest.raises(InputError, match=problems):
        read_egoprocel(egoprocel)
