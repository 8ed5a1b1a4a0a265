"""Agreement of validity and judges: ranks against SciPy's, whole goals drawn, the same plans or an error."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from recipe.artifacts import to_json
from recipe.errors import InputError
from recipe.evaluation.judge.verdicts import Judgement, write_verdicts
from recipe.evaluation.scores import Counts, Group, JudgeIdentity, Scores, rows_path, write_scores
from recipe.evaluation.validity.measure import ScoredPlan, score_predictions
from recipe.evaluation.validity.readings import WorldReader
from recipe.evaluation.validity.scores import agreement_with, read_judged
from recipe.planning.predictions import Prediction
from recipe.stats import kendall, spearman
from recipe.types import Example, Unscored, Verdict
from recipe.world.load import load_world

JUDGE = JudgeIdentity("some judge", "llm")
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


def scored() -> list[ScoredPlan]:
    """Three goals with a full, a half and an empty plan each."""
    world = load_world()
    examples, plans = [], []
    for number, goal in enumerate(list(world.goals)[:3]):
        order = [world.wordings[step][0] for step in world.graph(goal).draw(random.Random(number))]
        for n, count in enumerate((len(order), 3, 0)):
            examples.append(Example(f"e{number}{n}", "world", "v", goal, (order[0],), tuple(order[1:]), 1))
            plans.append(Prediction(f"e{number}{n}", tuple(order[1:count]) if count else ()))
    return score_predictions(WorldReader(world), examples, plans)


def verdict(total: int) -> Verdict:
    return Verdict(*(min(5, max(0, total - 5 * n)) for n in range(6)))


def judged(plans: list[ScoredPlan]) -> list[Judgement]:
    return [
        Judgement(plan.example_id, verdict(round(30 * plan.metrics()["score"])), how="json", steps=plan.texts)
        for plan in plans
    ]


def test_agreement_is_over_plans_that_were_shown() -> None:
    plans = scored()
    rows = judged(plans)
    rows += [Judgement("e00", verdict(0), control="null"), Judgement("e01", Unscored("refused"), repeat=1)]
    found = agreement_with(JUDGE, rows, plans)
    assert found.plans == 6
    assert found.spearman is not None
    assert found.spearman.mean == pytest.approx(1, abs=0.1)
    assert found.spearman.clusters == 3
    by_rule = [Judgement(row.example_id, row.outcome, how="rule") for row in rows]
    with pytest.raises(InputError, match="some judge gave no verdict"):
        agreement_with(JUDGE, by_rule, plans)


def test_repeats_are_averaged() -> None:
    plans = [plan for plan in scored() if plan.steps]
    once = agreement_with(JUDGE, judged(plans), plans)
    rows = judged(plans) + [Judgement(row.example_id, row.outcome, repeat=1) for row in judged(plans)]
    assert agreement_with(JUDGE, rows, plans) == once


def test_verdicts_on_another_plan_are_refused() -> None:
    plans = scored()
    rows = judged(plans)
    rows[0] = Judgement("e00", verdict(30), how="json", steps=("something else",))
    with pytest.raises(InputError, match="judged another plan as sample 0 of 'e00'"):
        agreement_with(JUDGE, rows, plans)


def test_verdicts_are_read_with_their_judge(tmp_path: Path) -> None:
    rows = judged(scored())
    path = tmp_path / "judge.json"
    nothing = (Group("", "all", {}, Counts(0)),)
    write_scores(path, Scores("judge", "mine", {"judge": to_json(JUDGE)}, nothing))
    write_verdicts(rows_path(path), rows)
    assert read_judged(path) == [(JUDGE, rows)]
    mixed = [Judgement("a", verdict(3), judge="Ann", how="human"), Judgement("a", verdict(4), judge="Bob", how="proxy")]
    write_verdicts(tmp_path / "people.jsonl", [*mixed, Judgement("b", verdict(3))])
    kinds = [(identity.name, identity.kind) for identity, _ in read_judged(tmp_path / "people.jsonl")]
    assert kinds == [("Ann", "human"), ("Bob", "proxy"), ("people", "llm")]
    write_scores(path, Scores("validity", "mine", {"graphs": "world"}, nothing))
    with pytest.raises(InputError, match="these are scores of 'validity'"):
        read_judged(path)
