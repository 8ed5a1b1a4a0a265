"""The reader of CrossTask on an invented release of its layout, and on the real one."""

from pathlib import Path

import pytest

from recipe.data.benchmarks import summarise
from recipe.data.crosstask import read_cards, read_crosstask
from recipe.errors import InputError
from recipe.types import Procedure, Step


def test_videos_come_by_id_with_steps_in_time_order(crosstask: Path) -> None:
    procedures = read_crosstask(crosstask)
    assert [p.video_id for p in procedures] == ["-kite", "_x-_y", "aside", "short"]
    assert [p.split for p in procedures] == ["test", "train", "", "train"]
    assert procedures[1] == Procedure(
        "crosstask",
        "_x-_y",
        "Brew Mint Tea",
        (
            Step("boil water", 3.0, 9.25),
            Step("pour tea", 20.5, 29.0),
            Step("add mint", 20.5, 30.0),
            Step("add mint", 40.0, 41.0),
        ),
        "train",
    )


def test_equal_times_keep_the_order_of_the_file(crosstask: Path) -> None:
    path = crosstask / "crosstask_release" / "annotations" / "77_-kite.csv"
    path.write_text("2,1.0,2.0\n1,1.0,2.0\n1,0.5,9.0\n")
    texts = [step.text for step in read_crosstask(crosstask)[0].steps]
    assert texts == ["cut tape", "press tape", "cut tape"]


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_a_line_ends_at_a_line_feed_alone(crosstask: Path, mark: str) -> None:
    path = crosstask / "crosstask_release" / "tasks_primary.txt"
    path.write_text(path.read_text().replace("cut tape", f"cut{mark}tape"))
    assert read_cards(path)["77"].steps == (f"cut{mark}tape", "press tape")


def test_cards(crosstask: Path) -> None:
    cards = read_cards(crosstask / "crosstask_release" / "tasks_primary.txt")
    assert cards["77"] == ("Patch a Kite", ("cut tape", "press tape"))
    assert list(cards) == ["501", "77"]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("crosstask_release/tasks_primary.txt", "501\nBrew\n", "2 non-blank lines are not cards"),
        ("crosstask_release/tasks_primary.txt", "", "0 non-blank lines"),
        ("crosstask_release/tasks_primary.txt", "1\nA\nu\n3\na,b\n", "line 5: 2 steps are listed where .* 3"),
        ("crosstask_release/annotations/77_-kite.csv", "1,0,1\n3,1,2\n", "line 2: step 3 is not among the 2"),
        ("crosstask_release/annotations/77_-kite.csv", "0,0,1\n", "line 1: step 0 is not among"),
        ("crosstask_release/annotations/77_-kite.csv", "1,0\n", "line 1: '1,0' is not step,start,end"),
        ("crosstask_release/annotations/77_-kite.csv", "one,0,1\n", "is not step,start,end"),
        ("crosstask_release/annotations/77_-kite.csv", "1,5,4\n", "'1,5,4' holds no time span"),
        ("crosstask_release/annotations/77_-kite.csv", "1,nan,4\n", "holds no time span"),
        ("crosstask_release/annotations/9_new.csv", "1,0,1\n", "task '9' is not in tasks_primary"),
        ("crosstask_release/annotations/kite.csv", "1,0,1\n", "the file name is not TASK_VIDEO.csv"),
        ("crosstask_release/annotations/501_-kite.csv", "1,0,1\n", "annotated in 501_-kite.csv too"),
        ("splits/test.txt", "-kite\n\ngone\n", "line 3: video 'gone' is not annotated"),
        ("splits/test.txt", "_x-_y\n", "line 1: video '_x-_y' is in split 'train' too"),
    ],
)
def test_another_layout_is_named(crosstask: Path, file: str, text: str, message: str) -> None:
    (crosstask / file).write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_crosstask(crosstask)
    assert str(crosstask) in str(caught.value)


@pytest.mark.parametrize(
    ("gone", "remedy"),
    [
        ("crosstask_release/tasks_primary.txt", "crosstask_release as published"),
        ("splits/validation.txt", "VLaMP"),
    ],
)
def test_a_missing_file_is_named_with_where_to_get_it(crosstask: Path, gone: str, remedy: str) -> None:
    (crosstask / gone).unlink()
    with pytest.raises(InputError, match="the file does not exist") as caught:
        read_crosstask(crosstask)
    assert str(crosstask / gone) in str(caught.value)
    assert remedy in str(caught.value)


def test_a_release_without_annotations_is_an_error(crosstask: Path) -> None:
    for path in (crosstask / "crosstask_release" / "annotations").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="no annotation files were found"):
        read_crosstask(crosstask)


@pytest.mark.real_data
def test_the_real_release(shared_data: Path) -> None:
    procedures = read_crosstask(shared_data / "crosstask")
    splits = {"train": 1_412, "val": 344, "test": 752, "": 2_750 - 2_508}
    assert summarise(procedures) == (2_750, 20_919, 18, 105, splits)
    cards = read_cards(shared_data / "crosstask" / "crosstask_release" / "tasks_primary.txt")
    assert len(cards) == 18
    assert sum(len(card.steps) for card in cards.values()) == 133
    related = read_cards(shared_data / "crosstask" / "crosstask_release" / "tasks_related.txt")
    assert (len(related), sum(len(card.steps) for card in related.values())) == (65, 571)
