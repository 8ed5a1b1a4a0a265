"""Samples of Visual Planning for Assistance: an invented release by hand, the counts on the real one."""

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.data.crosstask import TaskCard
from recipe.errors import InputError
from recipe.evaluation.vpa.protocol import (
    END,
    HORIZONS,
    CrossTaskRelease,
    Protocol,
    Rule,
    Taxonomy,
    cut_samples,
    read_release,
)
from recipe.types import Procedure, Step

CARDS = {"501": TaskCard("Brew Mint Tea", ("boil", "mint", "pour")), "77": TaskCard("Patch a Kite", ("cut", "pour"))}


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
    assert second.horizons == HORIZONS


@pytest.mark.parametrize(
    ("protocol", "rule", "cuts"),
    [
        ("shared", "vlamp", {1: [0, 1], 3: [0, 1], 4: [0, 1]}),
        ("shared", "true-steps", {1: [0], 3: [0], 4: [0]}),
        ("shared", "observed", {}),
        ("separate", "vlamp", {1: [0, 1, 2, 3], 3: [0, 1, 2], 4: [0, 1]}),
        ("separate", "true-steps", {1: [0, 1, 2, 3], 3: [0, 1], 4: [0]}),
        ("separate", "observed", {1: [1, 2, 3], 3: [1], 4: []}),
    ],
)
def test_sample_sets_by_hand(protocol: Protocol, rule: Rule, cuts: dict[int, list[int]]) -> None:
    if not cuts:
        with pytest.raises(InputError, match="no video is long enough to plan 4 actions"):
            cut_samples([TEA], CARDS, protocol, rule)
        return
    samples = cut_samples([TEA], CARDS, protocol, rule)
    assert {T: [len(one.history) for one in samples if T in one.horizons] for T in HORIZONS} == cuts
    assert all((one.target[-1] == END) == (rule == "vlamp") for one in samples)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=4),
    st.sampled_from(get_args(Rule)),
    st.sampled_from([(1,), (2, 3)]),
)
def test_every_sample_is_a_cut_with_enough_to_plan(lengths: list[int], rule: Rule, horizons: tuple[int, ...]) -> None:
    videos = [video(f"v{n}", "Brew Mint Tea", *["mint"] * length) for n, length in enumerate(lengths)]
    for protocol in ("shared", "separate"):
        try:
            samples = cut_samples(videos, CARDS, protocol, rule, horizons)
        except InputError:
            samples = []
        for one in samples:
            length = lengths[int(one.video_id[1:])]
            assert len(one.history) + len(one.continuation) == length
            assert one.continuation
            assert one.history or rule != "observed"
            assert len(one.target) >= max(one.horizons)
            assert (one.horizons == horizons) or protocol == "separate"
        ends = rule == "vlamp"
        least = max(horizons) if protocol == "shared" else min(horizons)
        begin = rule == "observed"
        assert len(samples) == sum(
            length - cut >= max(1, least - ends) for length in lengths for cut in range(begin, length)
        )


def test_horizons_below_one_are_refused() -> None:
    with pytest.raises(InputError, match="below 1"):
        cut_samples([TEA], CARDS, horizons=(0,))
    with pytest.raises(InputError, match="horizon"):
        cut_samples([TEA], CARDS, horizons=())


def test_taxonomies_count_a_string_once_or_once_for_each_task() -> None:
    release = CrossTaskRelease([TEA], CARDS)
    texts, tasks = release.taxonomy(), release.taxonomy(by_task=True)
    assert texts.actions == texts.texts == tasks.texts == ("boil", "mint", "pour", "cut")
    assert tasks.actions == (
        "Brew Mint Tea: boil", "Brew Mint Tea: mint", "Brew Mint Tea: pour", "Patch a Kite: cut", "Patch a Kite: pour",
    )  # fmt: skip
    assert texts.card("Patch a Kite") == ("cut", "pour")
    assert tasks.card("Patch a Kite") == ("Patch a Kite: cut", "Patch a Kite: pour")
    assert tasks.action("boil", "Patch a Kite") == "Brew Mint Tea: boil"
    assert texts.action(END, "Patch a Kite") == tasks.action(END, "Patch a Kite") == END


def test_an_empty_split_is_named(crosstask: Path) -> None:
    release = read_release(crosstask.parent)
    assert [one.video_id for one in release.split("train", "val")] == ["_x-_y", "short"]
    with pytest.raises(InputError, match="no video of CrossTask is in val"):
        release.split("val")


def test_steps_stand_as_in_the_file_unless_time_is_asked_for(crosstask: Path) -> None:
    def steps(release: CrossTaskRelease) -> list[str]:
        [procedure] = [one for one in release.procedures if one.video_id == "_x-_y"]
        return [step.text for step in procedure.steps]

    assert steps(read_release(crosstask)) == ["add mint", "boil water", "pour tea", "add mint"]
    assert steps(read_release(crosstask, "time")) == ["boil water", "pour tea", "add mint", "add mint"]


@pytest.fixture(scope="module")
def release(shared_data: Path) -> CrossTaskRelease:
    return read_release(shared_data)


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("protocol", "rule", "counts"),
    [
        ("shared", "vlamp", (4_123, 4_123, 4_123)),
        ("separate", "vlamp", (5_606, 4_854, 4_123)),
        ("shared", "true-steps", (3_434, 3_434, 3_434)),
        ("separate", "true-steps", (5_606, 4_123, 3_434)),
        ("shared", "observed", (2_785, 2_785, 2_785)),
        ("separate", "observed", (4_854, 3_434, 2_785)),
    ],
)
def test_counts_on_the_real_release(
    release: CrossTaskRelease, protocol: Protocol, rule: Rule, counts: tuple[int, int, int]
) -> None:
    samples = cut_samples(release.split("test"), release.cards, protocol, rule)
    assert tuple(sum(T in one.horizons for one in samples) for T in HORIZONS) == counts
    assert all(one.until is not None for one in samples)


@pytest.mark.real_data
def test_the_real_release(release: CrossTaskRelease) -> None:
    assert [len(release.split(name)) for name in ("train", "val", "test")] == [1_412, 344, 752]
    assert [len(release.taxonomy(by_task).actions) for by_task in (False, True)] == [105, 133]
    taxonomy: Taxonomy = release.taxonomy()
    assert sum(map(len, taxonomy.cards.values())) / len(taxonomy.cards) == pytest.approx(7.39, abs=0.005)
    assert len({one.goal for one in release.split("test")}) == 18
