"""Samples of Visual Planning for Assistance: an invented release by hand, the counts on the real one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.errors import InputError
from recipe.evaluation.vpa.protocol import END, CrossTaskRelease, cut_samples, read_release
from recipe.types import Procedure, Step

WORDS = {"501": ("boil", "mint", "pour"), "77": ("cut", "pour")}
RELEASED = read_release(Path(__file__).parent / "benchmarks").cards
CARDS = {task: RELEASED[task]._replace(steps=steps) for task, steps in WORDS.items()}


def video(name: str, goal: str, *steps: str) -> Procedure:
    timed = tuple(Step(text, 2.0 * place, 2.0 * place + 1) for place, text in enumerate(steps, start=1))
    return Procedure("crosstask", name, goal, timed, "test")


TEA = video("v", "Brew Mint Tea", "boil", "mint", "mint", "pour")


def test_samples_of_the_published_rule() -> None:
    first, second = cut_samples([TEA], CARDS)
    assert (first.sample_id, first.task, first.goal, first.until) == ("crosstask/v/0", "501", "Brew Mint Tea", 2.0)
    assert (first.history, first.target) == ((), ("boil", "mint", "mint", "pour", END))
    assert (second.sample_id, second.history, second.target) == (
        "crosstask/v/1", ("boil",), ("mint", "mint", "pour", END),
    )  # fmt: skip
    assert second.continuation == ("mint", "mint", "pour")


@given(st.lists(st.integers(0, 7), min_size=1, max_size=4), st.integers(1, 5))
def test_every_sample_is_a_cut_with_enough_to_plan(lengths: list[int], width: int) -> None:
    videos = [video(f"v{n}", "Brew Mint Tea", *["mint"] * length) for n, length in enumerate(lengths)]
    try:
        samples = cut_samples(videos, CARDS, width)
    except InputError:
        samples = []
    for one in samples:
        length = lengths[int(one.video_id[1:])]
        assert len(one.history) + len(one.continuation) == length
        assert one.continuation
        assert one.target == (*one.continuation, END)
        assert len(one.target) >= width
    assert len(samples) == sum(length - cut >= max(1, width - 1) for length in lengths for cut in range(length))


def test_videos_that_are_too_short_are_refused() -> None:
    with pytest.raises(InputError, match="long enough to plan 6 actions"):
        cut_samples([TEA], CARDS, 6)


def test_a_string_of_two_cards_is_one_action() -> None:
    taxonomy = CrossTaskRelease([TEA], CARDS).taxonomy()
    assert taxonomy.actions == ("boil", "mint", "pour", "cut")
    assert taxonomy.cards["Patch a Kite"] == ("cut", "pour")


def test_an_empty_split_is_named(crosstask: Path) -> None:
    release = read_release(crosstask.parent)
    assert [one.video_id for one in release.split("train", "val")] == ["_x-_y", "short"]
    with pytest.raises(InputError, match="no video of CrossTask is in val"):
        release.split("val")


def test_steps_stand_as_in_the_file(crosstask: Path) -> None:
    [procedure] = [one for one in read_release(crosstask).procedures if one.video_id == "_x-_y"]
    assert [step.text for step in procedure.steps] == ["add mint", "boil water", "pour tea", "add mint"]


@pytest.mark.real_data
def test_the_real_release(shared_data: Path) -> None:
    release = read_release(shared_data)
    assert [len(release.split(name)) for name in ("train", "val", "test")] == [1_412, 344, 752]
    samples = cut_samples(release.split("test"), release.cards)
    assert len(samples) == 4_123
    assert all(one.until is not None for one in samples)
    taxonomy = release.taxonomy()
    assert len(taxonomy.actions) == 105
    assert sum(map(len, taxonomy.cards.values())) == 133
    assert len({one.goal for one in release.split("test")}) == 18
