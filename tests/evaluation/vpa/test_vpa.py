"""VPA without the command line: measures by brute force, chance by enumeration, floors by hand, free words mapped."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("scipy")
from recipe.errors import InputError
from recipe.evaluation.scores import Row
from recipe.evaluation.vpa.run import VpaMeasure, VpaTask, open_task
from recipe.planning.predictions import Prediction

from .conftest import write_release

HORIZONS = (1, 3, 4)


@pytest.fixture(scope="module")
def task(release_folder: Path) -> VpaTask:
    return open_task(release_folder)


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """First letters of words, as a bag."""
    rows = np.full((len(texts), 128), 1e-3, dtype=np.float32)
    for row, text in enumerate(texts):
        for word in text.lower().split():
            rows[row, ord(word[0]) % 128] += 1
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def unopened() -> Any:
    raise AssertionError("the encoder is not needed")


def measure(task: VpaTask, **options: Any) -> VpaMeasure:
    return VpaMeasure(task, options.pop("embed", lambda: embed), **options)


def rows_of(measured: VpaMeasure, plans: Sequence[Sequence[str] | None]) -> list[Row]:
    """The rows of a plan for each sample, None for none."""
    examples = [sample.example() for sample in measured.task.samples]
    told = [
        Prediction(one.example_id, tuple(plan)) for one, plan in zip(examples, plans, strict=True) if plan is not None
    ]
    return measured.rows(examples, told)


@cache
def figures(plan: tuple[str, ...], target: tuple[str, ...], horizon: int) -> tuple[float, float, float]:
    """Success, accuracy and IoU in percent, by their definitions."""
    plan, target = plan[:horizon], target[:horizon]
    right = sum(one == other for one, other in zip(plan, target, strict=False))
    shared, either = {*plan} & {*target}, {*plan} | {*target}
    return 100.0 * (plan == target), 100 * right / horizon, 100 * len(shared) / len(either)


def with_targets(task: VpaTask, targets: Sequence[tuple[str, ...]]) -> VpaTask:
    """The same task over samples of these targets, of its goals in turns."""
    known = [task.samples[0], task.samples[-1]]
    samples = [replace(known[n % 2], sample_id=f"s/{n}", target=one) for n, one in enumerate(targets)]
    return replace(task, samples=samples, cuts=[sample.example() for sample in samples])


def targets(task: VpaTask, data: st.DataObject, most: int) -> list[tuple[str, ...]]:
    """Four actions or more, of which the last may be the end of the video."""
    *actions, end = task.ids.names
    steps = st.lists(st.sampled_from(actions), min_size=3, max_size=5)
    drawn = st.builds(lambda own, last: (*own, last), steps, st.sampled_from([*actions, end]))
    return data.draw(st.lists(drawn, min_size=1, max_size=most))


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_measures_are_brute_force(task: VpaTask, data: st.DataObject) -> None:
    """Of each sample by itself: neither the others nor their order say anything. What is missing is wrong."""
    own = with_targets(task, targets(task, data, 8))
    plan = st.none() | st.lists(st.sampled_from(task.ids.names), max_size=6)
    plans = [data.draw(plan) for _ in own.samples]
    for sample, said, row in zip(own.samples, plans, rows_of(measure(own, embed=unopened), plans), strict=True):
        for horizon in HORIZONS:
            found = [row.metrics[f"{horizon}.{name}"] for name in ("success_rate", "accuracy", "iou")]
            assert found == pytest.approx(figures(tuple(said or ()), sample.target, horizon))
        assert row.details["flags"] == (["missing"] if said is None else [])


@settings(deadline=None, max_examples=15)
@given(data=st.data())
def test_chance_is_the_mean_over_every_plan(task: VpaTask, data: st.DataObject) -> None:
    own = with_targets(task, targets(task, data, 3))
    chance = {row.system: row.figures for row in own.references("") if row.group == "chance"}
    cards = task.ids.taxonomy
    for name, pools in (
        ("random, expected", [cards.actions for _ in own.samples]),
        ("random-goal, expected", [cards.cards[sample.goal] for sample in own.samples]),
    ):
        for key, value in chance[name].items():
            horizon, _, kind = key.partition(".")
            place = ("success_rate", "accuracy", "iou").index(kind)
            every = []
            for sample, pool in zip(own.samples, pools, strict=True):
                plans = itertools.product(pool, repeat=int(horizon))
                every.append(np.mean([figures(plan, sample.target, int(horizon))[place] for plan in plans]))
            assert value == pytest.approx(np.mean(every)), (name, key)


@pytest.mark.parametrize("name", ["random", "random-goal"])
def test_sampling_agrees_with_the_expectation(task: VpaTask, name: str) -> None:
    draws = 4_000
    rows = measure(task).baseline_rows(name, draws=draws)
    exact = next(row.figures for row in task.references("") if row.system == f"{name}, expected")
    for key, value in exact.items():
        found = np.mean([row.metrics[key] for row in rows])
        assert abs(found - value) < 5 * 50 / (draws * len(rows)) ** 0.5
    assert measure(task).baseline_rows(name, draws=3) == measure(task).baseline_rows(name, draws=3)
    assert measure(task).baseline_rows(name, seed=1, draws=3) != measure(task).baseline_rows(name, draws=3)
    if name == "random-goal":
        assert all({*row.details["predicted"]} <= {*task.ids.taxonomy.cards[row.details["goal"]]} for row in rows)


BOIL, MINT, POUR, STIR, CUT, PRESS = "boil water", "add mint", "pour tea", "stir", "cut tape", "press tape"
END = "<|eact|>"
TEA, KITE = "Brew Mint Tea", "Patch a Kite"


@pytest.mark.parametrize(
    ("floor", "goal", "history", "plan"),
    [
        # Trained on tea 12344 and 1234, and on kite 1212 and 123.
        ("unigram", KITE, (), (STIR,) * 4),
        ("goal-unigram", KITE, (), (CUT,) * 4),  # as often as press, and first in the release
        ("ranked", KITE, (), (STIR, CUT, PRESS, BOIL)),
        ("goal-ranked", TEA, (), (STIR, BOIL, MINT, POUR)),
        ("goal-ranked", KITE, (), (CUT, PRESS, STIR)),
        ("bigram", TEA, (BOIL,), (MINT, POUR, STIR, END)),
        ("goal-bigram", KITE, (CUT,), (PRESS, STIR, END, CUT)),  # stir, the end or cut: stir stands first
        ("goal-bigram", KITE, (STIR,), (END, CUT, PRESS, STIR)),
        ("goal-bigram", TEA, (), (BOIL, MINT, POUR, STIR)),
    ],
)
def test_floors_by_hand(
    release_folder: Path, floor: str, goal: str, history: tuple[str, ...], plan: tuple[str, ...]
) -> None:
    trained = open_task(release_folder, "train")
    sample = replace(trained.samples[0], goal=goal, history=history)
    [row] = measure(replace(trained, samples=[sample])).baseline_rows(floor)
    assert tuple(row.details["predicted"]) == plan


def test_floors_without_videos_of_the_goal_or_of_any(task: VpaTask) -> None:
    kites = [one for one in task.training if one.goal == KITE]
    tea = replace(task, samples=[sample for sample in task.samples if sample.goal == TEA], training=kites)
    for floor in ("unigram", "ranked", "bigram"):
        assert all(row.details["predicted"] for row in measure(tea).baseline_rows(floor))
        assert not any(row.details["predicted"] for row in measure(tea).baseline_rows(f"goal-{floor}"))
    with pytest.raises(InputError, match="'unigram'"):
        measure(replace(task, training=[])).baseline_rows("unigram")


def mapped(task: VpaTask, *steps: str, goal: str = TEA, **options: Any) -> dict[str, Any]:
    """What became of one plan."""
    own = replace(task, samples=[next(sample for sample in task.samples if sample.goal == goal)])
    [row] = rows_of(measure(own, **options), [steps])
    return row.details


def test_actions_are_themselves_and_need_no_encoder(task: VpaTask) -> None:
    plan = mapped(task, POUR, END, CUT, BOIL, STIR, embed=unopened)
    assert plan["predicted"] == [POUR, END, CUT, BOIL]
    assert plan["margins"] == plan["similarities"] == [None] * 4


def test_other_words_go_to_the_nearest_action_with_a_margin(task: VpaTask) -> None:
    plan = mapped(task, "bring water", POUR)
    assert plan["predicted"] == [BOIL, POUR]
    assert plan["similarities"][0] == pytest.approx(1.0, abs=1e-3)
    assert 0 < plan["margins"][0] <= 1
    assert plan["margins"][1] is None
    assert mapped(task, "cook till")["predicted"] == [CUT]
    within = mapped(task, "cook till", CUT, within_goal=True)
    assert {*within["predicted"]} <= {*task.ids.taxonomy.cards[TEA]}
    assert within["margins"][1] is not None  # an action of another card is mapped like any text


def test_what_became_of_the_plans_is_counted(task: VpaTask) -> None:
    own = replace(task, samples=task.samples[:4])
    measured = measure(own, low_margin=0.5)
    rows = rows_of(measured, [[BOIL], [], None, ["swirl", "bring water", STIR, STIR]])
    assert [row.details["flags"] for row in rows] == [[], [], ["missing"], []]
    assert rows[3].details["predicted"] == [STIR, BOIL, STIR, STIR]
    margins = [margin for margin in rows[3].details["margins"] if margin is not None]
    assert measured.extras(rows, 0)["remap"] == {
        "steps": 5.0,
        "steps_that_are_actions": 3.0,
        "missing_predictions": 1.0,
        "empty_plans": 1.0,
        "shorter_plans": 1.0,
        "mean_margin": pytest.approx(np.mean(margins)),
        "share_below_margin": np.mean(np.array(margins) < 0.5),
        "margin_asked_for": 0.5,
    }


def test_only_the_first_steps_are_read_however_many_and_long_there_are(task: VpaTask) -> None:
    plan = mapped(task, "swirl " * 2_000_000, *["bring water"] * 500)
    assert plan["predicted"] == [STIR, BOIL, BOIL, BOIL]
    assert (len(plan["steps"]), len(plan["steps"][0]) < 1_001) == (4, True)


def test_hidden_characters_are_no_step_and_other_languages_are_mapped_like_any_text(task: VpaTask) -> None:
    plan = mapped(task, "\x00\x07", "\u202e", "\u200b\u2066", "sti\x00r", "\ud800swirl", "чай налить")
    assert plan["steps"] == ["sti r", "swirl", "чай налить"]
    assert len(plan["predicted"]) == 3


def test_samples_of_the_published_rule(task: VpaTask) -> None:
    first, _, last = (sample for sample in task.samples if sample.video_id == "f")
    assert (first.sample_id, first.task, first.goal, first.until) == ("crosstask/f/0", "501", TEA, 0.0)
    assert (first.history, first.target) == ((), (BOIL, MINT, POUR, STIR, POUR, END))
    assert (last.sample_id, last.history, last.target) == ("crosstask/f/2", (BOIL, MINT), (POUR, STIR, POUR, END))
    assert last.continuation == (POUR, STIR, POUR)
    assert task.ids.taxonomy.actions == (BOIL, MINT, POUR, STIR, CUT, PRESS)
    assert task.ids.taxonomy.cards[KITE] == (CUT, PRESS, STIR)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=4))
def test_every_sample_is_a_cut_with_enough_to_plan(lengths: list[int]) -> None:
    with TemporaryDirectory() as folder:
        videos = {f"501_{n}": "2" * length for n, length in enumerate(lengths)}
        root = write_release(Path(folder), {"train": {}, "validation": {}, "test": videos})
        if max(lengths) < 3:
            with pytest.raises(InputError, match="long enough to plan 4 actions"):
                open_task(root)
            return
        samples = open_task(root).samples
    for sample in samples:
        assert len(sample.history) + len(sample.continuation) == lengths[int(sample.video_id)]
        assert sample.target == (*sample.continuation, END)
        assert len(sample.target) >= 4
    assert len(samples) == sum(length - cut >= 3 for length in lengths for cut in range(length))


def test_steps_stand_as_in_the_file(tmp_path: Path) -> None:
    root = write_release(tmp_path, {"train": {}, "validation": {}, "test": {"501_v": "123"}})
    (root / "crosstask/crosstask_release/annotations/501_v.csv").write_text("2,20,30\n1,0,5\n3,10,12\n")
    [sample] = open_task(root).samples
    assert sample.continuation == (MINT, BOIL, POUR)


@pytest.mark.real_data
def test_the_published_cut_is_calibrated(shared_data: Path) -> None:
    real = open_task(shared_data)
    assert (len(real.samples), len(real.training)) == (4_123, 1_412 + 344)
    assert len({sample.goal for sample in real.samples}) == 18
    cards = real.ids.taxonomy
    assert (len(cards.actions), sum(map(len, cards.cards.values()))) == (105, 133)
    assert real.calibration.calibrated
    # Without the end of a video as an action, the same row is further away.
    steps = [replace(one, target=one.continuation) for one in real.samples if len(one.continuation) >= 4]
    found = {row.system: row.figures for row in replace(real, samples=steps).references("")}
    published = found["Random w/ goal"]
    assert max(abs(found["random-goal, expected"][key] - value) for key, value in published.items()) > 0.3
