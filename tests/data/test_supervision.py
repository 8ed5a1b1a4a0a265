"""Cut points and weak supervision: pinned draws, decided once for each example, never annotated in secret."""

import itertools
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.data.supervision import (
    WeakCuts,
    cut_at,
    cut_points,
    cut_procedures,
    is_weak,
    limit_videos,
    mix_supervision,
    weakened,
)
from recipe.errors import InputError
from recipe.types import Example, Procedure, Step

percents = st.floats(0, 100)


def annotated(video_id: str, steps: int = 5, split: str = "train", source: str = "s") -> Procedure:
    done = tuple(Step(f"annotated {n}", 10.0 * n, 10.0 * n + 4) for n in range(steps))
    return Procedure(source, video_id, "goal", done, split)


def trace(video_id: str, *starts: float | None, source: str = "s") -> Procedure:
    return Procedure(source, video_id, "told", tuple(Step(f"seen {n}", start) for n, start in enumerate(starts)))


EXAMPLES = cut_procedures([annotated(f"v{n}") for n in range(400)]).examples
TRACES = [trace(f"v{n}", 0.0, 11.0, 26.0, 33.0, 45.0, 50.0) for n in range(400)]


@given(fewer=percents, more=percents, seed=st.integers(0, 5))
def test_what_is_weak_in_less_is_weak_in_more(fewer: float, more: float, seed: int) -> None:
    fewer, more = sorted((fewer, more))
    weak = [{e.example_id for e in EXAMPLES[:200] if is_weak(e.example_id, share, seed)} for share in (fewer, more)]
    assert weak[0] <= weak[1]


def test_the_share_is_that_which_is_asked_for() -> None:
    for percent in (25, 50, 75):
        weak = sum(is_weak(f"s/v{n}/1", percent) for n in range(6000))
        # Binomial(6000, 1/2): standard deviation 39; five of them on either side.
        assert abs(weak - 60 * percent) < 195
    assert [cut for cut in range(1, 9) if is_weak(f"s/v/{cut}", 50)] == [2, 5, 6]  # pinned for good


@given(order=st.permutations(range(40)), kept=st.integers(1, 40))
def test_an_example_is_what_it_is_whatever_else_is_there(order: list[int], kept: int) -> None:
    whole = {e.example_id: e for e in mix_supervision(EXAMPLES[:40], TRACES, 50).examples}
    some = mix_supervision([EXAMPLES[n] for n in order[:kept]], reversed(TRACES), 50).examples
    assert [e.example_id for e in some] == [EXAMPLES[n].example_id for n in order[:kept]]
    assert all(whole[e.example_id] == e for e in some)


@given(starts=st.lists(st.integers(0, 50), min_size=2, max_size=9).map(sorted), cut=st.integers(1, 4))
def test_a_trace_with_times_is_cut_at_the_time_of_the_example(starts: list[int], cut: int) -> None:
    example = cut_at(annotated("v"), cut)
    weak = weakened(example, trace("v", *map(float, starts)))
    before = [n for n, start in enumerate(starts) if start < 10 * cut]
    if not before or len(before) == len(starts):
        assert weak is None
    else:
        texts = tuple(f"seen {n}" for n in range(len(starts)))
        history, continuation = texts[: len(before)], texts[len(before) :]
        changed = {"history": history, "continuation": continuation, "cut": len(before), "supervision": "weak"}
        assert weak == replace(example, **changed)


@pytest.mark.parametrize(
    ("cut", "of", "length", "expected"),
    [(1, 2, 5, 3), (1, 5, 2, 1), (4, 5, 2, 1), (2, 4, 8, 4), (1, 9, 9, 1), (3, 4, 3, 2)],
)
@pytest.mark.parametrize("timed", ["example", "trace", "neither"])
def test_without_times_the_share_of_steps_decides(cut: int, of: int, length: int, expected: int, timed: str) -> None:
    example = cut_at(annotated("v", of), cut)
    if timed != "example":
        example = replace(example, until=None)
    starts: list[float | None] = [float(n) for n in range(length)]
    if timed != "trace":
        starts[-1] = None
    weak = weakened(example, trace("v", *starts))
    assert weak is not None
    assert len(weak.history) == weak.cut == expected
    assert len(weak.history) + len(weak.continuation) == length
    assert (weak.example_id, weak.until, weak.goal) == (example.example_id, example.until, "goal")


@given(cut=st.integers(1, 8), of=st.integers(2, 9), length=st.integers(2, 12))
def test_both_sides_of_a_share_hold_a_step_and_it_is_the_nearest(cut: int, of: int, length: int) -> None:
    cut = min(cut, of - 1)
    example = replace(cut_at(annotated("v", of), cut), until=None)
    weak = weakened(example, trace("v", *[None] * length))
    assert weak is not None
    error = abs(weak.cut / length - cut / of)
    assert all(error <= abs(other / length - cut / of) + 1e-12 for other in range(1, length))


def test_what_has_no_usable_trace_is_left_out_and_counted_never_annotated() -> None:
    videos = [annotated(name) for name in ("none", "short", "late", "good")] + [annotated("other", source="t")]
    examples = [cut_at(video, 1) for video in videos]
    traces = [trace("short", 0.0), trace("late", 30.0, 40.0), trace("good", 0.0, 40.0), trace("other", 0.0, 40.0)]
    mixture = mix_supervision(examples, traces, 100)
    assert [(e.video_id, e.supervision) for e in mixture.examples] == [("good", "weak")]
    assert mixture.no_trace == {"s": 2, "t": 1}
    assert mixture.one_sided == {"s": 1}


@pytest.mark.parametrize("cuts", get_args(WeakCuts))
def test_paired_mixtures_have_equally_many_examples_and_grow_by_the_hash(cuts: WeakCuts) -> None:
    # Every third video has no trace, every third one of two steps only.
    traces = [replace(t, steps=t.steps[: 2 + 4 * (n % 3 - 1)]) for n, t in enumerate(TRACES) if n % 3]
    held_out = cut_procedures([annotated(f"held {n}", split="test") for n in range(9)]).examples
    mixtures = [
        mix_supervision(EXAMPLES + held_out, traces, percent, cuts=cuts, paired=True)
        for percent in (0, 25, 50, 75, 100)
    ]
    ids = [[e.example_id for e in mixture.examples] for mixture in mixtures]
    assert all(found == ids[0] for found in ids)
    assert all(mixture[1:] == mixtures[0][1:] for mixture in mixtures)
    left_out = mixtures[0].no_trace + mixtures[0].one_sided + mixtures[0].no_cut
    assert len(ids[0]) + left_out.total() == len(EXAMPLES + held_out)
    assert len(held_out) < len(ids[0]) < len(EXAMPLES + held_out)
    weak = [{e.example_id for e in mixture.examples if e.supervision == "weak"} for mixture in mixtures]
    assert weak == [
        {e for e in ids[0] if not e.startswith("s/held") and is_weak(e, percent)} for percent in (0, 25, 50, 75, 100)
    ]
    assert all(fewer < more for fewer, more in pairwise(weak))


@given(
    steps=st.integers(2, 9), texts=st.text(max_size=3), count=st.integers(1, 8), seed=st.integers(0, 5),
    starts=st.lists(st.integers(0, 50), min_size=2, max_size=9).map(sorted),
)  # fmt: skip
def test_trace_cuts_take_nothing_from_the_annotation(
    steps: int, texts: str, count: int, seed: int, starts: list[int]
) -> None:
    video = annotated("v", steps)
    seen = trace("v", *map(float, starts))
    examples = cut_procedures([video], train=count, seed=seed).examples
    mixture = mix_supervision(examples, [seen], 100, seed, cuts="trace")
    drawn = cut_points("v", len(starts), len(examples), seed)
    assert sorted(e.cut for e in mixture.examples) == list(drawn)
    assert mixture.no_cut.total() == len(examples) - len(drawn)
    for example in mixture.examples:
        assert (*example.history, *example.continuation) == tuple(f"seen {n}" for n in range(len(starts)))
        assert (len(example.history), example.until) == (example.cut, float(starts[example.cut]))
    # Other annotated texts and times change nothing.
    renamed = [replace(e, history=(texts,) * e.cut, continuation=(texts,), until=None) for e in examples]
    assert mix_supervision(renamed, [seen], 100, seed, cuts="trace") == mixture


def test_a_number_of_cuts_is_above_zero_and_a_percentage_is_one() -> None:
    with pytest.raises(InputError, match="at least 1"):
        cut_points("v", 5, 0)
    for percent in (-1, 100.5, float("nan")):
        with pytest.raises(InputError, match="give a number from 0 to 100"):
            mix_supervision([], [], percent)


def test_timed_cuts_are_those_before_a_step_with_a_time() -> None:
    """Every choice of the times that a pseudo-trace of five steps has; a step at 0 has nothing before it."""
    examples = cut_procedures([annotated("v", 5)]).examples
    for starts in itertools.product((None, 0.0, 1.0), repeat=5):
        read = trace("v", *(None if one is None else one * n for n, one in enumerate(starts)))
        usable = {n for n in range(1, 5) if starts[n]}
        weak, plain = (mix_supervision(examples, [read], p, cuts="timed", paired=True) for p in (100, 0))
        assert {(one.cut, one.until) for one in weak.examples} == {(n, float(n)) for n in usable}
        assert [one.example_id for one in weak.examples] == [one.example_id for one in plain.examples]
        assert weak.no_cut["s"] == len(examples) - len(usable)


videos = st.text(min_size=1, max_size=12)
counts = st.one_of(st.integers(1, 8), st.just("all"))


@given(video=videos, steps=st.integers(0, 30), count=counts, seed=st.integers(0, 9))
def test_cut_points_are_distinct_ascending_and_inside(video: str, steps: int, count: int, seed: int) -> None:
    points = cut_points(video, steps, count, seed)
    possible = max(steps - 1, 0)
    assert len(points) == (possible if count == "all" else min(count, possible))
    assert list(points) == sorted(set(points))
    assert all(1 <= point < steps for point in points)
    if count != "all":  # fewer are some of more
        assert {*points} <= {*cut_points(video, steps, count + 1, seed)}


@given(
    lengths=st.dictionaries(videos, st.tuples(st.integers(0, 12), st.sampled_from(["train", "test"]))), data=st.data()
)
def test_a_set_does_not_change_when_other_videos_come_or_go(
    lengths: dict[str, tuple[int, str]], data: st.DataObject
) -> None:
    everything = [annotated(video, steps, split) for video, (steps, split) in lengths.items()]
    some = data.draw(st.permutations(everything)) if everything else []
    some = some[: data.draw(st.integers(0, len(some)))]
    kept = {p.video_id for p in some}
    whole = [e for e in cut_procedures(everything).examples if e.video_id in kept]
    assert sorted(cut_procedures(some).examples, key=id_of) == sorted(whole, key=id_of)


def id_of(example: Example) -> str:
    return example.example_id


def test_each_cut_point_is_equally_likely() -> None:
    drawn = Counter(point for video in range(6000) for point in cut_points(str(video), 7, 2))
    assert sorted(drawn) == [1, 2, 3, 4, 5, 6]
    assert sum(drawn.values()) == 12000
    # Binomial(6000, 1/3): standard deviation 36.5; five of them on either side.
    assert all(abs(count - 2000) < 183 for count in drawn.values())


@pytest.mark.parametrize(
    ("video", "count", "seed", "points"),
    [
        ("LtRSn-ntcLY", 4, 0, (2, 3, 6, 8)),
        ("LtRSn-ntcLY", 1, 0, (3,)),
        ("LtRSn-ntcLY", 4, 7, (1, 2, 4, 7)),
        ("caf\u00e9", 3, 0, (2, 7, 11)),
    ],
)
def test_the_draw_is_pinned(video: str, count: int, seed: int, points: tuple[int, ...]) -> None:
    assert cut_points(video, 12, count, seed) == points


def test_an_example_is_the_procedure_cut_in_two() -> None:
    steps = (Step("boil", 0, 4), Step("boil", 1, 2), Step("pour", 2, 3))  # the first goes on when the last begins
    cut = cut_procedures([Procedure("coin", "-v_1", "brew tea", steps, "train")], train="all")
    assert cut.examples == [
        Example("coin/-v_1/1", "coin", "-v_1", "brew tea", ("boil",), ("boil", "pour"), 1, "train", until=1),
        Example("coin/-v_1/2", "coin", "-v_1", "brew tea", ("boil", "boil"), ("pour",), 2, "train", until=2),
    ]


def test_a_start_that_is_not_known_is_no_time() -> None:
    steps = (Step("boil", 0, 1), Step("steep"), Step("pour", 2, 3))
    made = cut_procedures([Procedure("s", "v", "g", steps, "train")], train="all").examples
    assert [example.until for example in made] == [None, 2]


def test_splits_decide_how_often_and_the_left_out_are_returned() -> None:
    given_ = [annotated(f"{split}{k}", k, split) for split in ("train", "val", "test", "") for k in (0, 1, 9)]
    cut = cut_procedures(given_, train=4, test=2)
    assert Counter(e.split for e in cut.examples) == {"train": 4, "val": 2, "test": 2}
    assert [p.video_id for p in cut.too_short] == ["train0", "train1", "val0", "val1", "test0", "test1"]
    assert [p.video_id for p in cut.no_split] == ["0", "1", "9"]


def test_a_video_twice_in_a_source_is_an_error_but_not_in_two() -> None:
    cut_procedures([annotated("v", 3, source="a"), annotated("v", 3, source="b")])
    with pytest.raises(InputError, match="'v' occurs twice in source 'a'"):
        cut_procedures([annotated("v", 3, source="a"), annotated("v", 4, source="a")])


def test_limit_keeps_that_many_of_each_source_and_split_in_order() -> None:
    groups = [(split, source) for split in ("train", "test") for source in "ab"]
    given_ = [annotated(f"v{i}{split}", 3, split, source) for i in range(9) for split, source in groups]
    kept = limit_videos(given_, 3)
    assert Counter((p.source, p.split) for p in kept) == {(s, t): 3 for s in "ab" for t in ("train", "test")}
    assert kept == [p for p in given_ if p in kept]
    assert {p.video_id for p in limit_videos(given_, 2)} < {p.video_id for p in kept}
    assert limit_videos(given_, 3, seed=1) != kept
    assert limit_videos(given_, 100) == given_
