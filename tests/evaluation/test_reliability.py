"""Alpha against a published example and its definition; rank correlations against SciPy's; whole clusters drawn."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

pytest.importorskip("scipy")
from scipy import stats as scipy_stats

from recipe import stats
from recipe.errors import ComputeError
from recipe.stats import Level, compare_raters, kendall, krippendorff_alpha, spearman

NAN = math.nan
FOUR_OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
    [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
]
"""Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), section C: five values, missing ratings."""
LEVELS: tuple[Level, ...] = ("nominal", "ordinal", "interval")

tables = (
    st.integers(2, 4)
    .flatmap(
        lambda raters: st.lists(
            st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0, NAN]), min_size=raters, max_size=raters),
            min_size=1,
            max_size=7,
        )
    )
    .map(lambda units: np.array(units).T)
)


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0, 2.0], [1.0])])
def test_ratings_that_are_no_pairs_are_no_comparison(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ComputeError):
        compare_raters(ours, theirs, [str(unit) for unit in ours])


@pytest.mark.parametrize(("level", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_the_published_example(level: Level, published: float) -> None:
    found = krippendorff_alpha(FOUR_OBSERVERS, level).alpha
    assert found is not None
    assert found.mean == pytest.approx(published, abs=5e-4)
    assert (found.observations, found.clusters) == (11, 11)  # the twelfth was rated once
    assert (found.low, found.reason) == (None, "few differ")  # raters differ on 3 units


def by_definition(table: NDArray[np.float64], level: Level) -> float | None:
    """1 - D_o / D_e over all pairs of ratings; None where it is not defined."""
    units = [[value for value in unit if not math.isnan(value)] for unit in table.T]
    units = [unit for unit in units if len(unit) > 1]
    ratings = sorted(itertools.chain(*units))

    def apart(one: float, other: float) -> float:
        if level == "nominal":
            return float(one != other)
        if level == "interval":
            return (one - other) ** 2
        low, high = min(one, other), max(one, other)
        between = sum(low <= value <= high for value in ratings)
        return (between - (ratings.count(low) + ratings.count(high)) / 2) ** 2

    found = sum(apart(*pair) / (len(unit) - 1) for unit in units for pair in itertools.permutations(unit, 2))
    expected = sum(apart(*pair) for pair in itertools.permutations(ratings, 2))
    return 1 - found * (len(ratings) - 1) / expected if expected else None


@settings(max_examples=25, deadline=None)
@given(tables, st.sampled_from(LEVELS))
def test_alpha_by_its_definition(table: NDArray[np.float64], level: Level) -> None:
    found, wanted = krippendorff_alpha(table, level), by_definition(table, level)
    assert (found.alpha is None) == (wanted is None) == bool(found.reason)
    if found.alpha is not None:
        assert found.alpha.mean == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("level", LEVELS)
def test_alphas_of_resamples_by_their_definition(level: Level) -> None:
    table = np.array(FOUR_OBSERVERS)[:, :11]
    values = np.unique(table[~np.isnan(table)])
    columns = stats._moments(table) if level == "interval" else stats._coincidences(table, values)
    for seed in range(20):
        drawn = np.random.default_rng(seed).integers(0, 11, size=11)
        [ours] = stats._alphas(columns[drawn].sum(axis=0)[None], level)
        assert ours == pytest.approx(by_definition(table[:, drawn], level))
    [same] = stats._alphas(columns[[0] * 11].sum(axis=0)[None], level)  # all ones
    assert math.isnan(same)


def test_units_of_one_video_are_drawn_together() -> None:
    table = np.array(FOUR_OBSERVERS)[:, :11]
    single = krippendorff_alpha(table, "ordinal").alpha
    tripled = krippendorff_alpha(np.repeat(table, 3, axis=1), "ordinal", [str(n // 3) for n in range(33)]).alpha
    assert single is not None
    assert tripled is not None
    assert (tripled.observations, tripled.clusters) == (33, 11)
    assert [tripled.low, tripled.high] == pytest.approx([single.low, single.high], abs=0.06)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ([[3, 3, 3], [3, 3, NAN]], "every rating is 3"),
        ([[3, NAN], [NAN, 4]], "no plan was rated twice"),
        ([[1, 2, 3]], "no plan was rated twice"),
        ([[3, 3, 5], [3, 3, NAN]], "every rating is 3"),
    ],
)
def test_agreement_that_is_not_defined_is_neither_zero_nor_one(table: list[list[float]], reason: str) -> None:
    found = krippendorff_alpha(table, "ordinal")
    assert found.alpha is None
    assert reason in found.reason


def test_hardly_any_variation_has_no_interval() -> None:
    found = krippendorff_alpha([[3] * 6, [3] * 5 + [4]], "ordinal").alpha  # a third of all draws hold no 4
    assert found is not None
    assert (found.low, found.high) == (None, None)
    for ratings, clusters, reason in (
        ([[3, 4, 5], [3, 5, 5]], "uuu", "one cluster"),
        ([[1, 2, 3], [2, 2, 4]], "uvw", "few clusters"),
    ):
        few = krippendorff_alpha(ratings, "ordinal", list(clusters)).alpha
        assert few is not None
        assert (few.low, few.reason) == (None, reason)


@pytest.mark.parametrize("table", [[1.0, 2.0], [[1.0, math.inf], [1.0, 2.0]]])
def test_what_is_no_table_of_ratings_is_an_error(table: list[list[float]]) -> None:
    with pytest.raises(ComputeError):
        krippendorff_alpha(table, "ordinal")
    with pytest.raises(ComputeError, match="clusters"):
        krippendorff_alpha([[1.0, 2.0], [1.0, 2.0]], "ordinal", ["u"])


def test_two_raters_by_hand() -> None:
    found = compare_raters([5, 3, 2, 0], [4, 3, 0, 0], list("uvwx"))
    assert (found.units, found.exact, found.near, found.bias.mean) == (4, 0.5, 0.75, 0.75)
    assert found.spearman == pytest.approx(scipy_stats.spearmanr([5, 3, 2, 0], [4, 3, 0, 0]).statistic)
    assert compare_raters([3, 3], [1, 2], ["u", "v"]).spearman is None


def test_the_interval_of_alpha_covers_its_value_in_large() -> None:
    rng = np.random.default_rng(0)

    def raters(units: int) -> NDArray[np.float64]:
        truth = rng.normal(size=units)
        return np.round(2 * (truth + 0.7 * rng.normal(size=(3, units))))

    large = raters(20_000)
    wanted = 1 - large.var(axis=0, ddof=1).mean() / large.var(ddof=1)  # alpha of interval data without gaps
    held = 0
    for _ in range(40):
        found = krippendorff_alpha(raters(40), "interval").alpha
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        held += found.low <= wanted <= found.high
    assert held >= 33


some_values = st.lists(st.integers(0, 5), min_size=2, max_size=12)


@settings(deadline=None, max_examples=25)
@given(some_values, st.randoms(use_true_random=False))
def test_ranks_are_scipys(values: list[int], rng: object) -> None:
    first = np.array(values, dtype=np.float64)
    second = np.array([rng.randint(0, 3) for _ in values], dtype=np.float64)  # type: ignore[attr-defined]
    found = spearman(first, second, ["one goal"] * len(values))
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        assert found is None
        assert kendall(first, second) is None
    else:
        assert found is not None
        assert found.mean == pytest.approx(scipy_stats.spearmanr(first, second).statistic)
        assert (found.low, found.high) == (None, None)
        assert kendall(first, second) == pytest.approx(scipy_stats.kendalltau(first, second).statistic)


@pytest.mark.thorough
def test_the_interval_is_that_of_repeated_ranking() -> None:
    """Against a plain loop that repeats plans and ranks them with SciPy."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 6, 40).astype(np.float64)
    second = first + rng.normal(0, 2, 40)
    goals = [f"g{n // 4}" for n in range(40)]
    found = spearman(first, second, goals)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.clusters == 10
    drawn = []
    for _ in range(1500):
        rows = [4 * goal + n for goal in rng.integers(0, 10, 10) for n in range(4)]
        drawn.append(scipy_stats.spearmanr(first[rows], second[rows]).statistic)
    low, high = np.quantile(drawn, [0.0086, 0.9914])
    assert found.low == pytest.approx(low, abs=0.08)
    assert found.high == pytest.approx(high, abs=0.05)
    assert found.low < found.mean < found.high
