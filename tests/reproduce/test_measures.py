"""Accuracy by exact validity, by the proxy and by a judge behind an endpoint; diversity; models behind endpoints."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.models.endpoint_server import Reply, completion, serving
from tests.reproduce.conftest import CRITERIA, rows

from recipe.config import SamplingConfig
from recipe.data.examples import write_examples
from recipe.planning.planner import prediction_of
from recipe.planning.prediction_files import read_predictions, write_predictions
from recipe.progress import SILENT
from recipe.types import Example
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe_studies.experiments.stages import Sampling, sample
from recipe_studies.experiments.study import TRAIN, PlanSet
from recipe_studies.reproduce.data import PROMPTS
from recipe_studies.reproduce.measures import (
    CONTROLS,
    Scoring,
    measure_diversity,
    sampled_prompts,
    score,
    score_controls,
)
from recipe_studies.reproduce.study import FrontierModel, JudgeModel


@pytest.fixture
def examples(tmp_path: Path) -> list[Example]:
    drawn = draw_examples(load_world(), "test_cuts", 4)
    write_examples(tmp_path / PROMPTS, drawn)
    return drawn


def plans(tmp_path: Path, examples: list[Example], samples: int = 1) -> None:
    """The truth for even samples, nothing for odd ones."""
    texts = {
        one.example_id: "\n".join(f"{n}. {step}" for n, step in enumerate(one.continuation, 1)) for one in examples
    }
    rows = [
        prediction_of(one.example_id, sample, "" if sample % 2 else texts[one.example_id])
        for one in examples
        for sample in range(samples)
    ]
    write_predictions(tmp_path / "plans.jsonl", rows)


def test_truth_is_valid_and_nothing_is_not(tmp_path: Path, examples: list[Example]) -> None:
    plans(tmp_path, examples, samples=3)
    score(tmp_path, Scoring("plans.jsonl", "scores.jsonl", 2, True, None), SILENT)
    found = rows(tmp_path / "scores.jsonl")
    assert [row["accuracy"] for row in found] == [100.0, 0.0] * 4  # the third sample is not asked for


@pytest.mark.usefixtures("lettered")
def test_the_proxy_judges_benchmarks(tmp_path: Path, examples: list[Example]) -> None:
    plans(tmp_path, examples, samples=2)
    score(tmp_path, Scoring("plans.jsonl", "scores.jsonl", 2, False, None), SILENT)
    found = rows(tmp_path / "scores.jsonl")
    assert all(row["accuracy"] > 90 for row in found[::2])
    assert all(row["accuracy"] == 0 for row in found[1::2])
    measure_diversity(tmp_path, Scoring("plans.jsonl", "diversity.jsonl", 2, True, None), SILENT)
    assert {row["diversity"] for row in rows(tmp_path / "diversity.jsonl")} <= {0.0, 0.25}  # nothing is of no use


@pytest.mark.usefixtures("lettered")
def test_controls_are_judged_as_plans_are(tmp_path: Path, examples: list[Example]) -> None:
    """Labels of a goal come from training videos too; a goal without other videos has none."""
    first = examples[0]
    write_examples(tmp_path / TRAIN, [replace(first, example_id="more", video_id="another", split="train")])
    score_controls(tmp_path, None, SILENT)
    found = rows(tmp_path / CONTROLS)
    counts = Counter(row["control"] for row in found)
    assert counts["the goal alone"] == counts["history copied"] == 4
    assert first.example_id in {row["example_id"] for row in found if row["control"] == "two labels of the goal"}
    assert all(0 <= row["accuracy"] < 100 for row in found)
    assert {row["steps"] for row in found if row["control"] == "the goal alone"} == {1}


def test_a_judge_behind_an_endpoint_and_a_frontier_model_are_asked_once(
    tmp_path: Path, examples: list[Example]
) -> None:
    def answer(body: dict[str, Any], count: int) -> Reply:
        judged = "prediction" in json.dumps(body["messages"])
        return completion(json.dumps(dict.fromkeys(CRITERIA, 3)) if judged else "1. a step of its own")

    with serving(answer) as server:
        model = FrontierModel(model="frontier/one", endpoint=server.url, cache=tmp_path / "one")
        judge = JudgeModel(model="judge", endpoint=server.url, cache=tmp_path / "judge")
        for _ in range(2):
            plan_set = PlanSet("one", "plans/one.jsonl", view="perceived")
            sample(tmp_path, Sampling(model, True, (plan_set,), SamplingConfig(), 1, PROMPTS), SILENT)
        assert len(server.requests) == len(examples)
        asked = json.dumps([request["messages"] for request in server.requests])  # they come side by side
        assert all(example.goal in asked for example in examples)
        assert {one.steps for one in read_predictions(tmp_path / "plans/one.jsonl")} == {("a step of its own",)}
        score(tmp_path, Scoring("plans/one.jsonl", "scores.jsonl", 1, False, judge), SILENT)
        assert [row["accuracy"] for row in rows(tmp_path / "scores.jsonl")] == [60.0] * 4


def test_a_judge_of_diversity_reads_the_history_that_its_settings_name(tmp_path: Path, examples: list[Example]) -> None:
    told = [replace(one, told_history=("seen by Phi",)) for one in examples]
    write_examples(tmp_path / PROMPTS, told)
    plans(tmp_path, examples, samples=2)
    for history in ("annotated", "perceived"):
        judge = JudgeModel.model_validate(
            {"model": "m", "endpoint": "http://127.0.0.1:1/v1", "settings": {"history": history}}
        )
        prompts = sampled_prompts(tmp_path, Scoring("plans.jsonl", "diversity.jsonl", 2, True, judge))
        read = {prompt.example.history for prompt in prompts}
        assert read == ({("seen by Phi",)} if history == "perceived" else {one.history for one in examples})
