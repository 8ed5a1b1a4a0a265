"""The study of task graphs: its plans are spoilt as they say, its AUC is right, and it separates on the real graphs."""

import importlib
import random
from pathlib import Path
from types import ModuleType

import pytest

from recipe.errors import ComputeError
from recipe.world.graph import TaskGraph
from recipe.world.load import load_world
from recipe.world.validity import score_key

WORLD = load_world()


@pytest.fixture
def plans() -> ModuleType:
    return importlib.import_module("graph_validity")


@pytest.fixture
def study(plans: ModuleType) -> ModuleType:
    pytest.importorskip("sentence_transformers")
    return plans


def brute_force(valid: list[float], spoiled: list[float]) -> float:
    wins = sum((a > b) + 0.5 * (a == b) for a in valid for b in spoiled)
    return wins / (len(valid) * len(spoiled))


def test_the_auc_counts_pairs_and_its_interval_draws_goals(plans: ModuleType) -> None:
    rng = random.Random(0)
    valid = [rng.randint(2, 6) / 6 for _ in range(20)]
    spoiled = [rng.randint(0, 4) / 6 for _ in range(15)]
    clusters = [f"g{n % 12}" for n in range(20)], [f"g{n % 12}" for n in range(15)]
    found = plans.separation(valid, spoiled, clusters)
    assert found.mean == pytest.approx(brute_force(valid, spoiled))
    assert found.low < found.mean < found.high
    assert found.clusters == 12
    assert plans.separation([1.0, 1.0], [0.0], (["a", "b"], ["a"])).mean == 1.0
    assert plans.separation(valid, spoiled, (["g"] * 20, ["g"] * 15)).low is None
    with pytest.raises(ComputeError, match="no valid or no spoilt plan"):
        plans.separation([], [1.0], ([], ["a"]))


@pytest.mark.parametrize("goal", sorted(WORLD.goals))
def test_spoilt_plans_are_wrong_as_they_say(plans: ModuleType, goal: str) -> None:
    rng = random.Random(goal)
    graph = TaskGraph(goal, "", WORLD.graph(goal).after)
    order = graph.draw(rng)
    cut = rng.randint(0, len(order) - 2)
    found = plans.spoilt(graph, order[cut:], {step: step for step in graph.after}, ("x",) * len(order), rng)
    scores = {kind: score_key(graph, order[:cut], plan) for kind, plan in found.items()}
    assert not any(score.perfect for score in scores.values())
    for kind in ("swapped", "shuffled"):
        assert kind not in scores or (scores[kind].order < 1 and scores[kind].coverage == scores[kind].clean == 1)
    assert scores["dropped"].coverage < 1
    assert scores["repeated"].repeated > 0
    assert scores["alien"].alien > 0
    assert scores["offgoal"].score == 0


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("lower", "add 1/2 tsp of the salt (fine) to a bowl"),
        ("bare", "add 1/2 tsp of salt (fine) to bowl"),
        ("no_amounts", "add salt to bowl"),
        ("short", "add salt"),
    ],
)
def test_steps_are_reworded_by_rule(plans: ModuleType, kind: str, expected: str) -> None:
    assert plans.reworded("Add 1/2 tsp of the salt (fine) to a bowl.", kind, random.Random(0)) == expected
    assert "salt" in plans.reworded("Add the salt", "spoken", random.Random(0))
    assert plans.reworded("10 g", kind, random.Random(0))


@pytest.mark.real_data
def test_validity_separates_valid_from_spoilt_plans_on_the_real_graphs(study: ModuleType, shared_data: Path) -> None:
    found = study.open_study(shared_data / "captaincook4d", every=8)
    for cut in (False, True):
        measured = study.spoilt_plans(found, cut)
        assert measured["valid"]["drawn"] == 1.0
        for kind, auc in measured["auc_against_drawn"].items():
            assert auc["mean"] > 0.97, kind
        for kind, auc in measured["auc"].items():
            assert auc["mean"] > 0.85, kind
    natural = study.natural_errors(found)
    assert natural["order error or missing step"]["auc"]["mean"] > 0.9
    recorded = study.recorded(found)
    assert recorded["normal"]["valid"]["mean"] > 0.7 > 0.4 > recorded["with errors"]["valid"]["mean"]


@pytest.mark.thorough
@pytest.mark.real_data
def test_a_single_reference_cannot_tell_a_valid_order_from_a_swap(study: ModuleType, shared_data: Path) -> None:
    found = study.references(study.open_study(shared_data / "captaincook4d", every=8))
    auc = found["auc of another valid order against swapped"]
    assert auc["validity"]["mean"] > 0.97
    assert auc["step F1"]["mean"] == 0.5
    assert auc["step F1 in order"]["mean"] < 0.7
    assert auc["proxy judge"]["mean"] < 0.7
    assert found["means"]["another valid order"]["validity"]["mean"] == 1.0
    assert found["means"]["another valid order"]["step F1 in order"]["mean"] < 0.95
