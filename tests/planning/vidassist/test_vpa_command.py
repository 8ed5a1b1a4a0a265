"""`recipe vpa plan` and `recipe vpa trace` from options to files: local models, an endpoint, bounds, kills."""

import json
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Recipe
from tests.evaluation.conftest import overall
from tests.models.endpoint_server import Reply, completion, serving

from recipe.data.examples import read_examples
from recipe.data.histories import History, write_histories
from recipe.planning.prediction_files import read_predictions
from recipe.planning.vidassist.trace import read_trace

WITHOUT_EVALUATION = 'vidassist.values=["generation", "mapping", "task_graph"]'


def answering(body: dict[str, Any], before: int) -> Reply:
    """A model that proposes by the length of what it was asked and the seed, and likes stirring."""
    text = body["messages"][-1]["content"]
    if "Proposed as the next action" in text:
        return completion('{"score": 9}' if "next action: stir" in text else "no opinion")
    words = ("boil the water", "stir it", "1. pour the tea\n2. drink", "add some mint", "cut the tape")
    return completion(words[(len(text) + body["seed"]) % len(words)])


def options(url: str, root: Path, output: Path, *more: object) -> list[object]:
    return [
        "vpa", "plan", "--root", root, "--endpoint", url, "--model", "m", "--recipe-model", "r", "--recipe-endpoint",
        url, "--encoder", "hash:256", "--output", output, *more,
    ]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _needs_endpoint() -> None:
    pytest.importorskip("openai")


def run_whole(recipe: Recipe, root: Path, output: Path, *more: object) -> tuple[dict[str, Any], int]:
    """The result of a run, and how many requests it took."""
    with serving(answering) as server:
        return recipe.json(*options(server.url, root, output, *more)), len(server.requests)


def test_an_endpoint_plans_and_tells_why(recipe: Recipe, crosstask: Path, tmp_path: Path) -> None:
    output = tmp_path / "plans.jsonl"
    result, requests = run_whole(recipe, crosstask, output)
    predictions = read_predictions(output)
    assert [one.example_id for one in predictions] == [
        f"crosstask/{video}/{cut}" for video in ("k1", "t1", "t2") for cut in range(3)
    ]
    known = {"boil water", "add mint", "pour tea", "stir", "cut tape", "press tape"}
    assert all(len(one.steps) == 4 and set(one.steps) <= known for one in predictions)
    assert all(one.text and len(one.text.splitlines()) == 4 for one in predictions)
    assert result["samples"] == len(predictions)
    assert result["values"] == ["generation", "mapping", "evaluation"]
    assert result["counts"]["untold"]["generation"] == result["counts"]["candidates"]
    assert 0 < result["counts"]["untold"]["evaluation"] < result["counts"]["candidates"]
    assert result["asked"]["calls_spent"] == requests
    for step in read_trace(tmp_path / "plans.trace.jsonl", "crosstask/t1/2"):
        [chosen] = [one for one in step.candidates if one.chosen]
        assert chosen.total == max(one.total or 0.0 for one in step.candidates)
        assert {one.source for candidate in step.candidates for one in candidate.proposals} == {"original", "recipe"}
        assert step.done[:2] == ("boil water", "add mint")
    manifest = json.loads((tmp_path / "plans.jsonl.manifest.json").read_text())
    assert manifest["settings"]["beam"] == 1
    assert "asked" not in manifest


@pytest.mark.thorough
def test_a_second_run_asks_nothing_and_writes_the_same(recipe: Recipe, crosstask: Path, tmp_path: Path) -> None:
    first, again, few = tmp_path / "a.jsonl", tmp_path / "b.jsonl", ("--beam", 2, "--limit", 4)
    _, requests = run_whole(recipe, crosstask, first, *few, "--cache", tmp_path / "cache")
    _, more = run_whole(recipe, crosstask, again, *few, "--cache", tmp_path / "cache")
    assert requests > 0
    assert more == 0
    assert first.read_bytes() == again.read_bytes()
    assert (tmp_path / "a.trace.jsonl").read_bytes() == (tmp_path / "b.trace.jsonl").read_bytes()


@pytest.mark.thorough
def test_a_killed_run_goes_on_where_it_stood(recipe: Recipe, crosstask: Path, tmp_path: Path) -> None:
    whole, output, few = tmp_path / "whole.jsonl", tmp_path / "plans.jsonl", ("--limit", "3")
    _, requests = run_whole(recipe, crosstask, whole, *few)

    with serving(answering) as server:
        arguments = [str(one) for one in options(server.url, crosstask, output, "--concurrency", 2, *few)]
        process = subprocess.Popen([sys.executable, "-m", "recipe", *arguments], stderr=subprocess.DEVNULL)
        server.held_from = requests // 2
        server.until(lambda: len(server.requests) >= requests // 2)
        process.send_signal(signal.SIGKILL)
        process.wait()
        server.held_from = math.inf
        assert not output.exists()
        before = len(server.requests)
        assert recipe(*arguments)[0] == 0
        # What was under way when it was killed may be asked again.
        assert len(server.requests) - requests <= 4
        assert before < len(server.requests)
    assert output.read_bytes() == whole.read_bytes()


def test_the_goals_card_bounds_the_actions(recipe: Recipe, crosstask: Path, tmp_path: Path) -> None:
    run_whole(recipe, crosstask, tmp_path / "p.jsonl", "--card")
    kites = [one for one in read_predictions(tmp_path / "p.jsonl") if "/k1/" in one.example_id]
    assert all(set(one.steps) <= {"cut tape", "press tape"} for one in kites)


def test_examples_and_actions_of_ones_own(recipe: Recipe, tmp_path: Path) -> None:
    examples, actions = tmp_path / "e.jsonl", tmp_path / "actions.txt"
    rows = (
        {"example_id": f"e{n}", "goal": "make tea", "history": ["boil water"] * n, "continuation": ["stir"]}
        for n in (0, 1, 2, 3)
    )
    examples.write_text("".join(json.dumps(row) + "\n" for row in rows))
    actions.write_text("boil water\nstir\n\npour tea\n")
    more = ("--examples", examples, "--actions", actions, "--limit", "2", "--horizon", "2")
    with serving(answering) as server:
        arguments = options(server.url, tmp_path, tmp_path / "p.jsonl", *more)
        del arguments[2:4]
        code, _, err = recipe(*arguments)
    assert code == 0, err
    assert [(one.example_id, len(one.steps)) for one in read_predictions(tmp_path / "p.jsonl")] == [
        ("e0", 2),
        ("e2", 2),
    ]


@pytest.mark.thorough
def test_histories_of_phi_take_the_place_of_annotated_ones(recipe: Recipe, crosstask: Path, tmp_path: Path) -> None:
    assert recipe("vpa", "examples", "--root", crosstask, "--output", tmp_path / "e.jsonl")[0] == 0
    told = [History(one.example_id, ("Seen by Phi",), one.until) for one in read_examples(tmp_path / "e.jsonl")]
    write_histories(tmp_path / "h.jsonl", told)
    changes = ("--set", "vidassist.proposers=original", "--set", WITHOUT_EVALUATION)
    more = ("--histories", tmp_path / "h.jsonl", "--ablations", *changes)
    with serving(answering) as server:
        rows = recipe.json(*options(server.url, crosstask, tmp_path / "p.jsonl", *more))
    assert "oracle history" in [row["name"] for row in rows]
    [first, *_] = read_trace(tmp_path / "p.trace.jsonl", "crosstask/t1/1")
    assert first.done == ("Seen by Phi",)
    [first, *_] = read_trace(tmp_path / "p.oracle-history.trace.jsonl", "crosstask/t1/1")
    assert first.done == ("boil water",)


@pytest.mark.thorough
def test_a_model_on_this_machine_plans(recipe: Recipe, crosstask: Path, tmp_path: Path, reading_model: Path) -> None:
    arguments: list[object] = [
        "vpa", "plan", "--root", crosstask, "--model", reading_model, "--recipe-model", reading_model, "--encoder",
        "hash:64", "--set", "vidassist.max_tokens=150", "--horizon", 2, "--limit", 3, "--cache",
        tmp_path / "cache",
    ]  # fmt: skip
    first = recipe.json(*arguments, "--output", tmp_path / "a.jsonl")
    assert first["asked"]["calls_spent"] > 0
    assert first["counts"]["untold"]["generation"] == 0
    again = recipe.json(*arguments, "--output", tmp_path / "b.jsonl", "--set", "vidassist.batch_size=5")
    assert again["asked"]["calls_spent"] == 0
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_an_endpoint_that_refuses_a_chat_leaves_a_short_plan(recipe: Recipe, crosstask: Path, tmp_path: Path) -> None:
    def refusing(body: dict[str, Any], before: int) -> Reply:
        if "Patch a Kite" in body["messages"][-1]["content"]:
            return Reply(400, json.dumps({"error": {"message": "this chat is too long"}}))
        return answering(body, before)

    with serving(refusing) as server:
        assert recipe.json(*options(server.url, crosstask, tmp_path / "p.jsonl"))["counts"]["short"] == 3
    plans = {one.example_id: one.steps for one in read_predictions(tmp_path / "p.jsonl")}
    assert plans["crosstask/k1/0"] == ()
    assert len(plans["crosstask/t1/0"]) == 4


def test_a_trace_is_shown(recipe: Recipe, crosstask: Path, tmp_path: Path) -> None:
    def hostile(body: dict[str, Any], before: int) -> Reply:
        reply = answering(body, before)
        return reply if "Proposed" in body["messages"][-1]["content"] else completion("stir [red]\x1b[2Kit")

    with serving(hostile) as server:
        assert recipe(*options(server.url, crosstask, tmp_path / "p.jsonl"))[0] == 0
    file = tmp_path / "p.trace.jsonl"
    code, out, _ = recipe("vpa", "trace", file, "--example", "crosstask/t1/1")
    assert code == 0
    assert out.startswith("Brew Mint Tea. Done: boil water.")
    for part in ("→ stir", "original: stir", "[red]", "none", "0.90", "4. stir"):
        assert part in out
    assert "\x1b" not in out
    code, out, _ = recipe("vpa", "trace", file, "--example", "crosstask/t1/1", "--json")
    assert [step["step"] for step in json.loads(out)] == [1, 2, 3, 4]
    code, _, err = recipe("vpa", "trace", file, "--example", "nobody")
    assert code == 1
    assert "no action of example 'nobody'" in err
    file.write_text('{"example_id": "x", "step": "one"}\n')
    code, _, err = recipe("vpa", "trace", file, "--example", "x")
    assert code == 1
    assert "line 1" in err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 1, "give --root"),
        (["--examples", "e.jsonl"], 1, "give --root"),
        (["--root", "nowhere"], 1, "nowhere"),
        (["--root", "ROOT", "--set", "vidassist.proposers=both"], 1, "--recipe-model"),
        (["--root", "ROOT", "--recipe-endpoint", "http://x/v1"], 1, "--recipe-endpoint goes with"),
        (["--root", "ROOT", "--set", 'vidassist.values=["mappng"]'], 1, "vidassist.values"),
        (["--root", "ROOT", "--set", 'vidassist.values=["task_graph"]'], 1, "no value"),
        (["--root", "ROOT", "--few-shot", "9"], 1, "lower --few-shot"),
        (["--root", "ROOT", "--beam", "0"], 2, "--beam"),
    ],
)
def test_what_does_not_go_together_is_said(
    recipe: Recipe, crosstask: Path, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    given = [str(crosstask) if one == "ROOT" else one for one in arguments]
    unused = ["--endpoint", "http://127.0.0.1:9/v1", "--model", "m", "--encoder", "hash:64"]
    got, _, err = recipe("vpa", "plan", *unused, "--output", tmp_path / "p.jsonl", *given)
    assert got == code
    assert said in err


@pytest.mark.thorough
def test_ablations_are_scored_in_one_table(recipe: Recipe, crosstask: Path, tmp_path: Path) -> None:
    output = tmp_path / "p.jsonl"
    with serving(answering) as server:
        more = ("--ablations", "--few-shot", 1, "--set", "vidassist.agent_samples=2", "--limit", 2)
        arguments = options(server.url, crosstask, output, *more)
        rows = recipe.json(*arguments)
        asked = [json.dumps(body, sort_keys=True) for body in server.requests]
        assert recipe(*arguments)[1].count("without ") == 4
        assert len(server.requests) == len(asked)
    assert len(asked) == len(set(asked))
    assert [row["name"] for row in rows] == [
        "random-goal, expected", "as given", "original alone", "recipe alone", "without generation", "without mapping",
        "without evaluation", "without task_graph", "beam 2", "beam 4", "agent baseline", "llm baseline",
    ]  # fmt: skip
    assert all(0 <= value <= 100 for row in rows for value in row["figures"].values())
    assert (tmp_path / "p.beam-2.trace.jsonl").exists()
    assert len({(tmp_path / f"p{part}.jsonl").read_text() for part in ("", ".original-alone", ".llm-baseline")}) == 3
    alone = tmp_path / "alone.jsonl"
    run_whole(recipe, crosstask, alone, "--few-shot", 1, "--limit", 2)
    assert alone.read_bytes() == output.read_bytes()


def test_ablations_are_scored_as_predictions_are(recipe: Recipe, crosstask: Path, tmp_path: Path) -> None:
    output = tmp_path / "p.jsonl"
    with serving(answering) as server:
        [_, given] = recipe.json(*options(server.url, crosstask, output, "--ablations", "--method", "llm"))
    scores = recipe.json("evaluate", "vpa", "--root", crosstask, "--predictions", output)
    for key in ("4.accuracy", "3.iou"):
        assert given["figures"][key] == pytest.approx(overall(scores)["values"][key]["mean"])
