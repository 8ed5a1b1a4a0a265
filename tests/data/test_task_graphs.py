"""Reading task graphs: yours, CaptainCook4D's, and what is none."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import raises_input
from tests.world.lists import orders

from recipe.data.task_graphs import GoalGraph, count_task_graphs, goal_key, read_task_graphs
from recipe.errors import InputError

TEA = {
    "goal": "Make tea",
    "steps": {"boil": "Boil the water", "steep": ["Steep the tea", "Let it steep"], "sugar": "Add sugar"},
    "edges": [["boil", "steep"]],
    "after": {"sugar": ["steep"]},
    "optional": ["sugar"],
}
COOK = {
    "steps": {"0": "START", "1": "Boil-Boil 1 cup of water", "2": "Add-2 leaves", "3": "END"},
    "edges": [[0, 1], [0, 2], [1, 3], [2, 3]],
}


def written(folder: Path, value: object, name: str = "graph.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(value))
    return path


def only(path: Path) -> GoalGraph:
    [found] = read_task_graphs(path)
    return found


def test_a_graph_of_your_own(tmp_path: Path) -> None:
    found = only(written(tmp_path, TEA))
    assert found.graph.goal == "Make tea"
    assert found.graph.after == {"boil": (), "steep": ("boil",), "sugar": ("steep",)}
    assert found.graph.optional == {"sugar"}
    assert found.wordings["steep"] == ("Steep the tea", "Let it steep")
    assert set(orders(found.graph)) == {("boil", "steep"), ("boil", "steep", "sugar")}


def test_an_edge_said_twice_is_one_dependency(tmp_path: Path) -> None:
    graph = TEA | {"edges": [["boil", "steep"], ["boil", "steep"]], "after": {"steep": ["boil"], "sugar": ["steep"]}}
    assert only(written(tmp_path, graph)).graph.after["steep"] == ("boil",)


def test_a_graph_without_edges_leaves_every_order_open(tmp_path: Path) -> None:
    found = only(written(tmp_path, {"goal": "tidy up", "steps": {"a": "Fold", "b": "Sweep"}}))
    assert set(orders(found.graph)) == {("a", "b"), ("b", "a")}


def test_the_layout_of_captaincook4d_loses_its_ends_and_its_verbs(tmp_path: Path) -> None:
    found = only(written(tmp_path, COOK, "minttea.json"))
    assert found.graph.goal == "minttea"
    assert found.graph.after == {"1": (), "2": ()}
    assert found.wordings == {"1": ("Boil 1 cup of water",), "2": ("Add 2 leaves",)}


def test_goals_have_the_names_of_the_annotations_beside_them(tmp_path: Path) -> None:
    annotations = tmp_path / "annotation_json" / "complete_step_annotations.json"
    annotations.parent.mkdir(parents=True)
    annotations.write_text(json.dumps({"9_1": {"activity_name": "Mint Tea", "steps": []}}))
    (tmp_path / "task_graphs").mkdir()
    path = written(tmp_path / "task_graphs", COOK, "minttea.json")
    for given_path in (tmp_path, tmp_path / "task_graphs", path):
        assert only(given_path).graph.goal == "Mint Tea"
    assert count_task_graphs(tmp_path) == 1
    assert count_task_graphs(tmp_path / "elsewhere") == 0


def test_a_folder_and_a_list_hold_many_and_goals_are_found_however_written(tmp_path: Path) -> None:
    written(tmp_path, [TEA, TEA | {"goal": "Make coffee"}], "drinks.json")
    written(tmp_path, TEA | {"goal": "泡茶"}, "more.json")
    graphs = read_task_graphs(tmp_path)
    assert len(graphs) == 3
    for name in ("make TEA", " make  tea", "MakeTea", "make-tea"):
        assert graphs.of(name).graph.goal == "Make tea"
    assert graphs.of("泡 茶").graph.goal == "泡茶"
    assert graphs.find("make soup") is None
    with pytest.raises(InputError, match=r"'make teas'.*'Make tea'"):
        graphs.of("make teas")


@given(st.text())
def test_any_text_has_a_key(goal: str) -> None:
    assert goal_key(goal) == goal_key(f"  {goal.upper()}  ") or goal.upper().casefold() != goal.casefold()
    assert goal_key(goal) or not goal.split()


BAD: dict[str, tuple[object, str | None, list[str]]] = {
    "circle": (TEA | {"edges": [["boil", "steep"], ["steep", "boil"]]}, "edges", ["'boil'", "'steep'"]),
    "itself": (TEA | {"edges": [["boil", "boil"]]}, "edges", ["'boil' -> 'boil'"]),
    "unknown in an edge": (TEA | {"edges": [["boil", "milk"]]}, "edges[0]", ["'milk'"]),
    "unknown waits": (TEA | {"after": {"milk": ["boil"]}}, "after.milk", ["'milk'"]),
    "unknown optional": (TEA | {"optional": ["milk"]}, "optional[0]", ["'milk'"]),
    "no steps": (TEA | {"steps": {}, "edges": [], "after": {}, "optional": []}, "steps", []),
    "ends only": ({"steps": {"0": "START", "1": "END"}, "edges": [[0, 1]]}, "steps", []),
    "no field steps": ({"goal": "tea"}, "steps", ["missing"]),
    "misspelt": (TEA | {"edge": []}, "edge", ["unknown"]),
    "empty wording": (TEA | {"steps": {"boil": " "}}, "steps.boil[0]", []),
    "no wording": (TEA | {"steps": {"boil": []}}, "steps.boil", []),
    "three in an edge": (TEA | {"edges": [["boil", "steep", "sugar"]]}, "edges[0]", []),
    "empty goal": (TEA | {"goal": ""}, "goal", []),
    "number": (3, None, []),
    "empty list": ([], None, []),
    "list of numbers": ([TEA, 3], "[1]", []),
    "list without goals": ([COOK], "[0].goal", ["missing"]),
    "twice": ([TEA, TEA | {"goal": "MAKE tea"}], "[1].goal", ["'MAKE tea'", "graph.json"]),
    "start does not lead there": (COOK | {"edges": [[0, 1], [1, 3], [2, 3]]}, "edges", ["START", "2"]),
    "leads to no end": (COOK | {"edges": [[0, 1], [0, 2], [1, 3]]}, "edges", ["END", "2"]),
    "before the start": (COOK | {"edges": [[1, 0], [0, 2], [1, 3], [2, 3]]}, "edges[0]", ["START"]),
    "after the end": (COOK | {"edges": [[0, 1], [3, 2], [1, 3]]}, "edges[1]", ["END"]),
    "optional start": (COOK | {"optional": [0]}, "optional[0]", ["START"]),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_graph_is_told_in_one_sentence(tmp_path: Path, kind: str) -> None:
    value, field, facts = BAD[kind]
    path = written(tmp_path, value)
    with raises_input(path, None, field, *facts):
        read_task_graphs(path)


def test_paths_that_hold_nothing(tmp_path: Path) -> None:
    with raises_input(tmp_path):
        read_task_graphs(tmp_path)
    with raises_input(tmp_path / "none.json"):
        read_task_graphs(tmp_path / "none.json")
    (tmp_path / "broken.json").write_text("{")
    with raises_input(tmp_path / "broken.json"):
        read_task_graphs(tmp_path)


@pytest.mark.real_data
def test_the_real_graphs(shared_data: Path) -> None:
    graphs = read_task_graphs(shared_data / "captaincook4d")
    assert len(graphs) == 24
    assert sum(len(one.graph.after) for one in graphs) == 358
    assert sum(len(earlier) for one in graphs for earlier in one.graph.after.values()) == 372
    assert graphs.of("Sauted Mushrooms").graph.goal == "Sauted Mushrooms"
    assert not any(one.graph.optional for one in graphs)
