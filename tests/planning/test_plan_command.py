"""`recipe plan` and `recipe evaluate validity` from the command line, on a model of random weights."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Recipe, built_corpus
from tests.evaluation.conftest import overall

from recipe.config import ModelConfig, SamplingConfig
from recipe.data.examples import write_examples
from recipe.evaluation.scores import read_scores
from recipe.models.model import open_model
from recipe.models.protocol import Answer, ModelRequest
from recipe.models.sampling import decoding_of
from recipe.planning.planner import Request
from recipe.planning.prediction_files import read_predictions
from recipe.types import Example, Narration, Segment
from recipe.world.load import load_world


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    goals = list(load_world().goals)[:3]
    rows = [
        Example(f"e{n}", "world", "v", goal, ("w1 w2",), ("w3",), 1, "a" if n else "b") for n, goal in enumerate(goals)
    ]
    write_examples(tmp_path / "examples.jsonl", rows)
    return tmp_path / "examples.jsonl"


def test_a_goal_is_planned(recipe: Recipe, tiny_model: Path) -> None:
    asked = ("plan", "--model", tiny_model, "--goal", "w1", "--history", "w2", "--count", 2)
    asked += ("--set", "sampling.max_tokens=8")
    found = recipe.json(*asked)
    assert (found["goal"], found["history"]) == ("w1", ["w2"])
    assert [plan["sample"] for plan in found["plans"]] == [0, 1]
    assert "plan 2" in recipe(*asked).out


Asked = tuple[object, ...]


def replaying(model_folder: Path, cache: Path, *answers: Answer) -> Asked:
    """`recipe plan` for the goal `w1` of a model whose completions are these."""
    model = open_model(ModelConfig(model=str(model_folder), cache=cache, replay=True))
    assert model.store is not None
    for sample, answer in enumerate(answers):
        request = ModelRequest(Request("w1").chat(model.prompt), SamplingConfig(), sample)
        model.store.keep(model.key(request), answer._asdict())
    replayed = ("--set", "model.replay=true", "--set", f"model.cache={cache}")
    return ("plan", "--model", model_folder, "--goal", "w1", *replayed)


SAID = ("w1 w2", "w3 w4", "w5 w6", "w7 w8")
NARRATIONS = [Narration(f"video-{n}", tuple(Segment(text) for text in SAID[n:])) for n in range(3)]


@pytest.fixture
def lists(tmp_path: Path) -> tuple[Path, Path]:
    """A corpus, and a cache of the answers of a model, which need no model."""
    built_corpus(tmp_path / "corpus", NARRATIONS, "hash:32")
    return tmp_path / "corpus", tmp_path / "cache"


def test_plans_are_ranked_with_their_evidence(
    recipe: Recipe, tiny_model: Path, lists: tuple[Path, Path], tmp_path: Path
) -> None:
    corpus, cache = lists
    texts = ["1. w1 w2", "1. w5 w6\n2. w3 w4", "1. w1 w2\n2. w3 w4\n3. w5 w6", "w9"]
    asked = (*replaying(tiny_model, cache, *map(Answer, texts)), "--count", 4)
    answered = recipe.json(*asked, "--corpus", corpus)
    # The narrations are lists without times: what is left in the nearest one is said too.
    assert answered["copied"]
    assert tuple(answered["copied"]) in {own[n:] for own in (SAID, SAID[1:], SAID[2:]) for n in range(len(own))}
    timed = [replace(row, segments=tuple(replace(s, start=1.0, end=2.0) for s in row.segments)) for row in NARRATIONS]
    built_corpus(tmp_path / "timed", timed, "hash:32")
    assert "copied" not in recipe.json(*asked, "--corpus", tmp_path / "timed")
    plans = answered["plans"]
    assert [plan["reward"] for plan in plans] == sorted((plan["reward"] for plan in plans), reverse=True)
    assert sorted(plan["sample"] for plan in plans) == [0, 1, 2, 3]
    for plan in plans:
        assert len(plan["evidence"]) == len(plan["steps"])
        shown = [one for one in plan["evidence"] if one is not None]
        assert {one["text"] for one in shown} <= {*SAID}
        assert all(0 < one["similarity"] <= 1 and 0 < one["matched_in"] <= one["about"] for one in shown)
    paper = recipe.json(*asked, "--corpus", corpus, "--set", "plan.verifier=paper")["plans"]
    assert [plan["reward"] for plan in paper] != [plan["reward"] for plan in plans]
    code, out, _ = recipe(*asked, "--corpus", corpus)
    assert (code, "best narration video-" in out) == (0, True)


def test_a_file_is_planned_and_measured(recipe: Recipe, tiny_model: Path, examples: Path, tmp_path: Path) -> None:
    output = tmp_path / "predictions.jsonl"
    asked = ("plan", "--model", tiny_model, "--examples", examples, "--split", "a", "--output", output)
    assert recipe.json(*asked, "--count", 3, "--set", "sampling.max_tokens=8")["predictions"] == 6
    assert [one.sample for one in read_predictions(output)] == [0, 1, 2, 0, 1, 2]
    card = decoding_of(SamplingConfig(max_tokens=8))
    assert {one.decoding for one in read_predictions(output)} == {card}
    scores = tmp_path / "scores.json"
    measured = ("evaluate", "validity", output, "--examples", examples, "--split", "a", "--output", scores)
    printed = recipe.json(*measured)
    assert printed == json.loads(scores.read_text())
    assert read_scores(scores).decoding == (card,)
    assert overall(printed)["values"]["score"]["observations"] == 2
    code, out, _ = recipe(*measured)
    assert (code, "2 examples, 3 samples each" in out) == (0, True)
    assert overall(recipe.json("evaluate", "validity", output, "--examples", examples))["counts"]["missing"] == 1
    code, _, err = recipe("evaluate", "validity", output, "--examples", examples, "--missing", "refuse")
    assert (code, "1 of 3 examples have no prediction: e0; plan for them" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--goal", " "), "the goal is empty"),
        (("--goal", "x", "--output", "p.jsonl"), "--output goes with --examples"),
        (("--examples", "none.jsonl"), "--examples needs --output"),
        (("--examples", "none.jsonl", "--output", "p.jsonl", "--goal", "x"), "--examples goes without --goal"),
        (("--examples", "none.jsonl", "--output", "p.jsonl"), "none.jsonl: the file does not exist"),
        (("--goal", "x"), "there is no model in this folder"),
        (("--goal", "x", "--corpus", "none"), "none"),
        (("--goal", "x", "--set", "plan.verifier=grounded"), "--corpus"),
    ],
)
def test_wrong_usage_is_one_clear_sentence(
    recipe: Recipe, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    code, out, err = recipe("plan", "--model", tmp_path, *arguments)
    assert code == 1
    assert out == ""
    assert message in err


def test_answers_of_an_endpoint_say_how_they_ended(recipe: Recipe, examples: Path, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    from tests.models.endpoint_server import Reply, completion, serving

    goals = list(load_world().goals)[:3]
    replies = {
        goals[0]: completion("<think>1. no\n</think>1. rinse it\n2. simm", "length"),
        goals[1]: Reply(500, '{"error": {"message": "Context size has been exceeded."}}'),
        goals[2]: completion("<think>1. no\n", "length"),
    }

    def answer(body: dict[str, Any], before: int) -> Reply:
        return next(reply for goal, reply in replies.items() if f"Goal: {goal}\n" in body["messages"][-1]["content"])

    output = tmp_path / "plans.jsonl"
    with serving(answer) as server:
        asked = ("plan", "--endpoint", server.url, "--model", "m", "--set", "model.concurrency=1")
        found = recipe.json(*asked, "--examples", examples, "--output", output)
        [plan] = recipe.json(*asked, "--goal", goals[2])["plans"]
        code, shown, _ = recipe(*asked, "--goal", goals[0])
    assert (found["predictions"], found["without_steps"], found["cut"]) == (2, 1, 2)
    assert list(found["unanswered"]) == ["e1"]
    assert list(found["malformed"].values()) == [1]
    whole, open_ = read_predictions(output)
    assert (whole.example_id, whole.steps, whole.cut, whole.malformed) == ("e0", ("rinse it",), True, None)
    assert (open_.example_id, open_.steps, bool(open_.malformed)) == ("e2", (), True)
    assert (plan["steps"], plan["cut"], bool(plan["malformed"])) == ([], True, True)
    assert (code, shown.splitlines()[0]) == (0, "1. rinse it")


def test_a_plan_is_composed_step_by_step(recipe: Recipe, tiny_model: Path, lists: tuple[Path, Path]) -> None:
    corpus, cache = lists
    answers = [Answer(text, 3, 4, finish="stop") for text in ("1. w1 w2\n2. w8", "1. w9\n2. w3 w4")]
    asked = (*replaying(tiny_model, cache, *answers), "--corpus", corpus)
    search = ("--search", "recombine", "--width", 1, "--samples", 2)
    found = recipe.json(*asked, *search, "--count", 99)
    plans = [plan["steps"] for plan in found["plans"]]
    assert all(plan in plans for plan in (["w1 w2", "w8"], ["w9", "w3 w4"], ["w1 w2", "w3 w4"]))
    rewards = [plan["reward"] for plan in found["plans"]]
    assert rewards == sorted(rewards, reverse=True)
    assert [plan["steps"] for plan in recipe.json(*asked, *search)["plans"]] == plans[:1]
    cost = {"tokens_in": 6, "tokens_out": 8, "encodings": 4, "rewards": len(plans), "spent": 0}
    assert found["search"] == cost
    code, out, _ = recipe(*asked, *search, "--count", 2, "--budget", 3)
    assert (code, "the budget was spent for 1 of 1 prompts" in out) == (0, True)
    assert "tokens" in out


def test_equal_samples_are_one_plan(recipe: Recipe, tiny_model: Path, lists: tuple[Path, Path]) -> None:
    corpus, cache = lists
    texts = ("1. w3 w4", "1. w1 w2\n2. w9", "1. W3  W4", "w9 and no list", "")
    asked = (*replaying(tiny_model, cache, *(Answer(text, finish="stop") for text in texts)), "--count", 5)
    for more in ((), ("--corpus", corpus)):
        plans = recipe.json(*asked, *more)["plans"]
        assert {plan["sample"]: plan["samples"] for plan in plans} == {0: 2, 1: 1, 3: 1, 4: 1}
        assert "2 of 5 samples" in recipe(*asked, *more).out


def test_tokens_that_nobody_counted_are_not_shown(recipe: Recipe, tiny_model: Path, lists: tuple[Path, Path]) -> None:
    corpus, cache = lists
    uncounted = Answer("1. w1 w2\n2. w8", finish="stop")
    asked = (*replaying(tiny_model, cache, uncounted, uncounted), "--corpus", corpus)
    search = ("--search", "recombine", "--samples", 2)
    found = recipe.json(*asked, *search)["search"]
    assert (found["tokens_in"], found["tokens_out"]) == (None, None)
    assert "tokens" not in recipe(*asked, *search).out


def test_examples_are_composed(
    recipe: Recipe, tiny_model: Path, examples: Path, lists: tuple[Path, Path], tmp_path: Path
) -> None:
    output = tmp_path / "predictions.jsonl"
    asked = ("plan", "--model", tiny_model, "--examples", examples, "--output", output, "--corpus", lists[0])
    found = recipe.json(*asked, "--search", "recombine", "--samples", 3, "--set", "sampling.max_tokens=8")
    predictions = read_predictions(output)
    assert found["predictions"] == len(predictions) == 3
    for one in predictions:
        assert one.search is not None
        assert (one.search.search, one.search.samples, one.search.width) == ("recombine", 3, 4)
        assert one.reward is not None
        assert one.decoding == decoding_of(SamplingConfig(max_tokens=8))
    assert found["search"]["rewards"] == sum(one.search.rewards for one in predictions if one.search)
    before = output.read_bytes()
    recipe.json(*asked, "--search", "recombine", "--samples", 3, "--set", "sampling.max_tokens=8")
    assert output.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--search", "recombine"), "--search recombine goes with --corpus"),
        (("--width", 2), "--width goes with --search recombine"),
        (("--search", "none", "--samples", 2), "--samples goes with --search"),
    ],
)
def test_a_search_needs_its_settings(recipe: Recipe, arguments: tuple[Any, ...], message: str, tmp_path: Path) -> None:
    code, _, err = recipe("plan", "--model", tmp_path, "--goal", "x", *arguments)
    assert (code, message in err) == (1, True)
