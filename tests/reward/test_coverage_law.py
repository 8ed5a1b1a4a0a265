"""Coverage of tasks: the statistic where its answer is known, the law's algebra, the command and its page."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import Recipe, built_corpus

from recipe.audit.coverage import (
    CoverageLaw,
    known_laws,
    matches,
    ranked_mean,
    read_tasks,
    task_coverage,
)
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError, InputError
from recipe.reward.coverage import CoverageState, TaskPrompt
from recipe.types import Narration, Segment

TASKS = {
    "brew tea": ["boil the water", "warm the pot", "add the leaves", "pour water on leaves", "wait", "serve the tea"],
    "fix a tyre": ["lift the car", "undo the bolts", "take the wheel off", "fit the spare", "lower the car", "drive"],
    "bake bread": ["weigh flour", "mix the dough", "knead it well", "let it rise", "shape a loaf", "bake it hot"],
    "plant a tree": ["dig a hole", "loosen roots", "set in the sapling", "fill with soil", "tread down", "support it"],
    "wash a dog": ["brush its fur", "wet the coat", "lather shampoo", "rinse off foam", "towel dry", "give a treat"],
    "paint a wall": ["mask edges", "sand the plaster", "stir primer", "roll first layer", "let dry", "second layer"],
}
LAW = CoverageLaw(
    verifier="grounded",
    encoder="hash:256",
    relevance=0.7,
    zero=0.0,
    base=0.0,
    rise=0.2,
    scale=0.5,
    between=0.03,
    grid=(0.0, 1.0, 2.0),
    low=(-0.02, 0.15, 0.16),
    high=(0.02, 0.19, 0.22),
    one_video=0.3,
    growth=2.0,
    record={
        "cells": [
            {"source": "a", "match": 0.4, "gain": 0.1, "videos": 1},
            {"source": "b", "match": 0.2, "gain": 0.0, "videos": None},
        ],
        "tests": {"b": []},
    },
)


def told(tasks: dict[str, int], named: bool = False) -> list[Narration]:
    """So many narrations of each task, and chatter of like length; `named` ones say their goal first."""
    chatter = [Narration(f"chat {n}", tuple(Segment(f"zq{n}{i} xk{i}{n}") for i in range(6))) for n in range(60)]
    return chatter + [
        Narration(f"{goal} {n}", tuple(map(Segment, [goal] * named + [f"{step} number {n}" for step in TASKS[goal]])))
        for goal, count in tasks.items()
        for n in range(count)
    ]


def corpus_of(folder: Path, tasks: dict[str, int], named: bool = False) -> Corpus:
    return built_corpus(folder, told(tasks, named), "hash:256")


def prompts(videos: int = 3) -> list[TaskPrompt]:
    return [
        TaskPrompt(goal, tuple(steps[: 2 + n]), f"own {goal} {n}")
        for goal, steps in TASKS.items()
        for n in range(videos)
    ]


@pytest.fixture(scope="module")
def by_count(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, float]]:
    """Match of each task with k narrations of tea, and none of bread."""
    found = {}
    for count in (0, 1, 4):
        corpus = corpus_of(tmp_path_factory.mktemp("corpus") / str(count), {"brew tea": count, "fix a tyre": 2})
        values = matches(corpus, prompts(), corpus.encoder.encode)
        found[count] = {
            goal: float(np.mean([value for value, one in zip(values, prompts(), strict=True) if one.goal == goal]))
            for goal in TASKS
        }
    return found


def test_each_covering_narration_adds_and_adds_less(by_count: dict[int, dict[str, float]]) -> None:
    none, one, four = (by_count[count]["brew tea"] for count in (0, 1, 4))
    assert none < 0.1 < one < four
    assert (four - one) / 3 < one - none
    assert all(values["bake bread"] < 0.1 for values in by_count.values())
    assert all(values["fix a tyre"] > 0.2 for values in by_count.values())


def test_a_prompts_own_video_does_not_cover_it(tmp_path: Path) -> None:
    corpus = corpus_of(tmp_path / "c", {"brew tea": 1, "fix a tyre": 2})
    history = tuple(TASKS["brew tea"][:3])
    known, unknown = TaskPrompt("brew tea", history, "brew tea 0"), TaskPrompt("brew tea", history)
    passed_over, covered = matches(corpus, [known, unknown], corpus.encoder.encode)
    assert passed_over < 0.1 < 0.15 < covered
    # One task alone is enough, and the order of prompts changes nothing.
    assert matches(corpus, [unknown, known], corpus.encoder.encode) == [covered, passed_over]


def test_a_tiny_corpus_has_no_match(tmp_path: Path) -> None:
    corpus = built_corpus(tmp_path / "tiny", told({})[:5])
    with pytest.raises(ComputeError, match="5 narrations"):
        matches(corpus, prompts(), corpus.encoder.encode)


@given(st.lists(st.floats(0, 1), max_size=80))
def test_the_ranked_mean_ignores_order_and_rises_with_each_value(values: list[float]) -> None:
    found = ranked_mean(np.array(values))
    assert -1e-9 <= found <= max(values, default=0.0) + 1e-9
    assert found == pytest.approx(ranked_mean(np.array(values[::-1])))
    assert ranked_mean(np.array([*values, 1.0])) >= found - 1e-9
    assert ranked_mean(np.ones(50)) == pytest.approx(1.0)


@given(st.floats(-0.5, 3), st.floats(-0.5, 3))
def test_the_law_rises_and_inverts(first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert LAW.gain(low) <= LAW.gain(high)
    assert LAW.videos(low) <= LAW.videos(high)
    if low > 0:
        assert LAW.match_for(LAW.gain(low)) == pytest.approx(low, abs=1e-6)
        assert LAW.one_video * math.log1p(LAW.growth * LAW.videos(low)) == pytest.approx(low)
    interval = LAW.interval(low)
    assert interval.low is not None
    assert interval.high is not None
    # Never narrower than the spread between data sets.
    assert interval.high - interval.low >= 2 * 1.96 * LAW.between - 1e-9


def test_missing_videos_follow_from_the_law() -> None:
    # MEAN .8 needs gain .1, half of the rise: match .5 log 2, of which (exp(.5 log 2 / .3) - 1) / 2 videos are told.
    needed = (math.exp(0.5 * math.log(2) / 0.3) - 1) / 2
    assert LAW.missing(0.0, 0.8) == math.ceil(needed)
    assert LAW.missing(LAW.one_video * math.log(3), 0.8) == math.ceil(needed - 1)
    assert LAW.missing(3.0, 0.8) == 0
    assert LAW.missing(3.0, 0.95) is None


@settings(max_examples=200, deadline=None)
@given(
    match=st.floats(0.0, 4.0),
    between=st.floats(0.0, 0.4),
    target=st.floats(0.5, 1.0),
    state=st.sampled_from(get_args(CoverageState)),
    history=st.booleans(),
)
def test_a_task_gets_one_advice(
    match: float, between: float, target: float, state: CoverageState, history: bool
) -> None:
    prompts = [TaskPrompt("tea", ("a",) * history)]
    [task] = task_coverage(prompts, [match], [state], [None], replace(LAW, between=between), target)
    said = task.advice(target)
    given_advice = [verb for verb in ("leave out", "look at", "add", "train") if said.startswith(verb)]
    assert len(given_advice) == (state != "known" or history)
    assert ("leave out" in said) == (said == "leave out")  # never beside what else to do
    # Only what is known is predicted.
    assert (
        (task.gain is not None)
        == (task.mean is not None)
        == (task.videos is not None)
        == (state == "known" and history)
    )
    assert task.gain is not None or task.missing is None
    if given_advice == ["add"]:
        assert f" {task.missing} " in said
        assert task.covered is not True
    if task.covered and task.missing is not None:
        assert given_advice == ["train"]


def test_tasks_are_sorted_and_advised() -> None:
    chosen = [TaskPrompt(goal, ("a",)) for goal in ("Tea", "tea ", "bread", "tyre")]
    states: list[CoverageState] = ["partly", "known", "unknown", "known"]
    found = task_coverage(chosen, [0.4, 0.6, 0.0, 2.0], states, [0.3, None, 0.1, None], LAW, 0.8)
    assert [one.task for one in found] == ["bread", "Tea", "tyre"]
    bread, tea, tyre = found
    assert (tea.prompts, tea.match, tea.coverage, tyre.coverage) == (2, 0.5, 0.3, None)
    assert [one.state for one in found] == ["unknown", "known", "known"]
    assert (bread.advice(0.8), bread.missing) == ("leave out", None)
    assert (tyre.advice(0.8), tyre.missing) == ("train", 0)
    assert tea.mean == pytest.approx(0.7 + 0.2 * (1 - math.exp(-1)))
    unknown = task_coverage(chosen, [0.4, 0.6, 0.0, 2.0], ["known"] * 4, [None] * 4, None, 0.8)[0]
    assert (unknown.gain, unknown.mean, unknown.missing, unknown.covered, unknown.advice(0.8)) == (*[None] * 4, "")


def test_the_law_of_the_package_is_one_of_a_monotone_curve() -> None:
    for version, law in known_laws().items():
        assert version == law.verifier
        assert law.rise > 0 < law.scale
        assert len(law.grid) == len(law.low) == len(law.high)
        assert all(low <= high for low, high in zip(law.low, law.high, strict=True))
        assert law.record["cells"]


def test_examples_need_no_continuation_and_procedures_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    rows = [
        {"goal": "tea", "history": ["boil"]},
        {"goal": "tea", "history": []},
        {"goal": "b", "history": ["mix", "x"]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert [(one.goal, one.history) for one in read_tasks(path)] == [
        ("tea", ("boil",)),
        ("tea", ()),
        ("b", ("mix", "x")),
    ]
    steps = [{"text": text} for text in TASKS["brew tea"]]
    path.write_text(json.dumps({"source": "s", "video_id": "v", "goal": "tea", "steps": steps}))
    [one] = read_tasks(path)
    assert tuple(TASKS["brew tea"][: len(one.history)]) == one.history
    assert 2 <= len(one.history) <= 3
    path.write_text("\n")
    with pytest.raises(InputError, match=r"examples\.jsonl"):
        read_tasks(path)


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """Arguments on a corpus that tells two of three tasks."""
    corpus_of(tmp_path / "corpus", {"brew tea": 12, "fix a tyre": 4}, named=True)
    rows = [{"goal": one.goal, "history": list(one.history)} for one in prompts()]
    (tmp_path / "examples.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return ["reward", "coverage", "--corpus", str(tmp_path / "corpus"), "--tasks", str(tmp_path / "examples.jsonl")]


def test_the_command_names_uncovered_tasks(command: list[str], recipe: Recipe, tmp_path: Path) -> None:
    found = recipe.json(*command, "--target", "80", "--output", tmp_path / "out")
    assert [one["task"] for one in found["tasks"]][-2:] == ["fix a tyre", "brew tea"]
    assert found["leave_out"] == [one["task"] for one in found["tasks"] if one["state"] == "unknown"] != []
    assert found["tasks"][0]["missing"] is None
    assert found["tasks"][-1]["missing"] == 0
    assert found["tasks"][0]["coverage"] < found["tasks"][-1]["coverage"]
    assert json.loads((tmp_path / "out" / "coverage.json").read_text()) == found
    page = (tmp_path / "out" / "coverage.html").read_text()
    assert page.count("<svg") == 1
    assert "bake bread" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_a_verifier_without_a_law_is_not_predicted(command: list[str], recipe: Recipe) -> None:
    found = recipe.json(*command, "--verifier", "paper")
    assert any("paper" in sentence and "grounded" in sentence for sentence in found["cautions"])
    assert all(one["mean"] is one["missing"] is one["gain"] is None for one in found["tasks"])
    states = {one["task"]: one["state"] for one in found["tasks"]}
    assert states["brew tea"] == states["fix a tyre"] == "known" != states["bake bread"]
    assert found["leave_out"] == [task for task, state in states.items() if state == "unknown"]
    assert all(isinstance(one["match"], float) for one in found["tasks"])


def test_texts_of_a_task_and_names_of_folders_cannot_break_the_page(
    command: list[str], recipe: Recipe, tmp_path: Path
) -> None:
    (tmp_path / "corpus").rename(tmp_path / "<em>")
    (tmp_path / "examples.jsonl").write_text(json.dumps({"goal": "<script>x", "history": ["brew tea"]}))
    pages = set()
    for name in ("one", "two"):
        assert recipe(*command, "--corpus", tmp_path / "<em>", "--output", tmp_path / name).code == 0
        pages.add((tmp_path / name / "coverage.html").read_text())
    [page] = pages
    assert "&lt;script" in page
    assert "&lt;em" in page
    assert "<script" not in page
    assert "<em>" not in page
