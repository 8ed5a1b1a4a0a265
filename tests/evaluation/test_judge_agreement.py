"""Agreement of validity and judges: ranks against SciPy's, and whole goals drawn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from recipe.stats import kendall, spearman

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
        assert found.mean == pytest.approx(stats.spearmanr(first, second).statistic)
        assert (found.low, found.high) == (None, None)
        assert kendall(first, second) == pytest.approx(stats.kendalltau(first, second).statistic)


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
        drawn.append(stats.spearmanr(first[rows], second[rows]).statistic)
    low, high = np.quantile(drawn, [0.0086, 0.9914])
    assert found.low == pytest.approx(low, abs=0.08)
    assert found.high == pytest.approx(high, abs=0.05)
    assert found.low < found.mean < found.high
