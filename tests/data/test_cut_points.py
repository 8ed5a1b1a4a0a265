"""Cut points: every property that the definition promises, and golden values that pin the draw for good."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.data.supervision import cut_at, cut_points, cut_procedures, limit_videos
from recipe.errors import InputError
from recipe.types import Example, Procedure, Step

videos = st.text(min_size=1, max_size=12)
counts = st.one_of(st.integers(1, 8), st.just("all"))


def procedure(video_id: str, steps: int, split: str = "train", source: str = "s") -> Procedure:
    return Procedure(source, video_id, "goal", tuple(Step(f"step {i}") for i in range(steps)), split)


@given(video=videos, steps=st.integers(0, 30), count=counts, seed=st.integers(0, 9))
def test_cut_points_are_distinct_ascending_and_inside(video: str, steps: int, count: int, seed: int) -> None:
    points = cut_points(video, steps, count, seed)
    possible = max(steps - 1, 0)
    assert len(points) == (possible if count == "all" else min(count, possible))
    assert list(points) == sorted(set(points))
    assert all(1 <= point < steps for point in points)


@given(video=videos, steps=st.integers(2, 30), count=st.integers(1, 8), seed=st.integers(0, 9))
def test_fewer_cut_points_are_a_subset_of_more(video: str, steps: int, count: int, seed: int) -> None:
    assert set(cut_points(video, steps, count, seed)) <= set(cut_points(video, steps, count + 1, seed))


@given(
    lengths=st.dictionaries(videos, st.tuples(st.integers(0, 12), st.sampled_from(["train", "test"]))),
    data=st.data(),
)
def test_a_set_does_not_change_when_other_videos_come_or_go(
    lengths: dict[str, tuple[int, str]], data: st.DataObject
) -> None:
    everything = [procedure(video, steps, split) for video, (steps, split) in lengths.items()]
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
    steps = (Step("boil", 0, 1), Step("boil", 1, 2), Step("pour", 2, 3))
    cut = cut_procedures([Procedure("coin", "-v_1", "brew tea", steps, "train")], train="all")
    assert cut.examples == [
        Example("coin/-v_1/1", "coin", "-v_1", "brew tea", ("boil",), ("boil", "pour"), 1, "train", until=1),
        Example("coin/-v_1/2", "coin", "-v_1", "brew tea", ("boil", "boil"), ("pour",), 2, "train", until=2),
    ]


@given(starts=st.lists(st.integers(0, 5), min_size=2, max_size=8).map(sorted), data=st.data())
def test_the_video_history_ends_where_the_first_step_to_be_planned_starts(
    starts: list[int], data: st.DataObject
) -> None:
    steps = tuple(Step(f"step {i}", start, start + 3) for i, start in enumerate(starts))
    cut = data.draw(st.integers(1, len(steps) - 1))
    until = cut_at(Procedure("s", "v", "goal", steps, "test"), cut).until
    assert until == starts[cut]
    assert max(starts[:cut]) <= until <= min(starts[cut:])


def test_a_start_that_is_not_known_is_no_time() -> None:
    steps = (Step("boil", 0, 1), Step("steep"), Step("pour", 2, 3))
    made = cut_procedures([Procedure("s", "v", "g", steps, "train")], train="all").examples
    assert [example.until for example in made] == [None, 2]


def test_splits_decide_how_often_and_the_left_out_are_returned() -> None:
    given_ = [procedure(f"{split}{k}", k, split) for split in ("train", "val", "test", "") for k in (0, 1, 9)]
    cut = cut_procedures(given_, train=4, test=2)
    assert Counter(e.split for e in cut.examples) == {"train": 4, "val": 2, "test": 2}
    assert [p.video_id for p in cut.too_short] == ["train0", "train1", "val0", "val1", "test0", "test1"]
    assert [p.video_id for p in cut.no_split] == ["0", "1", "9"]


def test_a_video_twice_in_a_source_is_an_error_but_not_in_two() -> None:
    cut_procedures([procedure("v", 3, source="a"), procedure("v", 3, source="b")])
    with pytest.raises(InputError, match="'v' occurs twice in source 'a'"):
        cut_procedures([procedure("v", 3, source="a"), procedure("v", 4, source="a")])


@pytest.mark.parametrize("count", [0, -1])
def test_a_count_below_one_is_an_error(count: int) -> None:
    with pytest.raises(InputError, match="at least 1"):
        cut_points("v", 5, count)


def test_limit_keeps_that_many_of_each_source_and_split_in_order() -> None:
    given_ = [procedure(f"v{i}", 3, split, source) for i in range(9) for split in ("train", "test") for source in "ab"]
    given_ = [Procedure(p.source, p.video_id + p.split, p.goal, p.steps, p.split) for p in given_]
    kept = limit_videos(given_, 3)
    assert Counter((p.source, p.split) for p in kept) == {(s, t): 3 for s in "ab" for t in ("train", "test")}
    assert kept == [p for p in given_ if p in kept]
    assert {p.video_id for p in limit_videos(given_, 2)} < {p.video_id for p in kept}
    assert limit_videos(given_, 3, seed=1) != kept
    assert limit_videos(given_, 100) == given_
