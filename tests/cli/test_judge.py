"""`recipe evaluate judge` as a user meets it."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")
from tests.cli.conftest import Recipe, write_lines
from tests.models.endpoint_server import completion, serving

from recipe.evaluation.judge.verdicts import CRITERIA, read_verdicts
from recipe.evaluation.scores import Scores, read_scores

TASKS = {
    "make tea": ["boil the water", "warm the pot", "add the leaves", "pour the water", "steep for three minutes"],
    "change a tyre": ["loosen the nuts", "jack up the car", "take off the wheel", "mount the spare", "lower the car"],
}
ASK = ("evaluate", "judge", "plans.jsonl", "--examples", "examples.jsonl")
PROXY = ("--judge", "proxy", "--encoder", "hash:256", "--output", "judge.json")


def example(n: int, split: str = "test") -> dict[str, Any]:
    goal = [*TASKS][n % 2]
    steps = TASKS[goal]
    name = f"e{n}"
    return {
        "example_id": name,
        "source": ("coin", "niv", "kitchen")[n % 3],
        "video_id": f"v{n}",
        "goal": goal,
        "history": [f"prepare number {n}", *steps[:2]],
        "continuation": steps[2:],
        "split": split,
    }


@pytest.fixture
def files(recipe: Recipe) -> Recipe:
    write_lines(recipe.folder / "examples.jsonl", *(example(n) for n in range(12)), example(12, "val"))
    plans = [{"example_id": f"e{n}", "steps": example(n)["continuation"]} for n in range(13) if n != 3]
    write_lines(recipe.folder / "plans.jsonl", *plans)
    return recipe


def scored(folder: Path) -> Scores:
    return read_scores(folder / "judge.json")


def test_the_proxy_needs_no_endpoint_and_gives_the_same_table_twice(files: Recipe) -> None:
    pytest.importorskip("recipe.evaluation.judge.proxy")
    outcome = files(*ASK, *PROXY, "--split", "test", "--controls", 4, "--system", "ours [beta]")
    assert outcome.code == 0, outcome
    first = (files.folder / "judge.json").read_bytes()
    scores = scored(files.folder)
    assert scores.judge is not None
    assert scores.judge.kind == "proxy"
    assert [one.name for one in scores.of("dataset")] == ["coin", "niv", "kitchen"]
    assert [one.name for one in scores.of("split")] == ["in-domain", "zero-shot", "all"]
    assert scores.of("dataset")[0].counts.missing == 1
    assert scores.extras["left_out"] == {"other splits": 1}
    assert len(read_verdicts(files.folder / "judge.rows.jsonl")) == 12 + 4 * 9
    for words in ("ours [beta], judged by proxy (hash:256)", "control: injected", "1 missing", "1 of other splits"):
        assert words in outcome.out
    assert files(*ASK, *PROXY, "--split", "test", "--controls", 4, "--system", "ours [beta]").code == 0
    assert (files.folder / "judge.json").read_bytes() == first


def test_an_endpoint_judges_and_a_second_system_pays_for_no_controls(files: Recipe) -> None:
    pytest.importorskip("openai")
    text = json.dumps(dict.fromkeys(CRITERIA, 3))
    with serving(lambda body, _: completion(text)) as server:
        prices = ("--set", "model.price_in=1", "--set", "model.price_out=2")
        at = ("--endpoint", server.url, *prices, "--controls", 3, "--cache", "cache")
        outcome = files(*ASK, *at, "--output", "judge.json", "--json")
        assert outcome.code == 0, outcome
        asked = len(server.requests)
        scores = scored(files.folder)
        assert json.loads(outcome.out) == json.loads((files.folder / "judge.json").read_text())
        assert scores.judge is not None
        assert scores.judge.model == "meta-llama/Llama-3.3-70B-Instruct"
        assert scores.judge.settings["structured"] == "json_schema"
        assert scores.ledger["answers"] == asked
        assert scores.ledger["cost"] == pytest.approx(asked * (100 * 1 + 10 * 2) / 1e6)
        assert server.requests[0]["temperature"] == 0
        assert server.requests[0]["response_format"]["json_schema"]["name"] == "verdict"
        other = [{"example_id": f"e{n}", "steps": ["something else"]} for n in range(13)]
        write_lines(files.folder / "plans.jsonl", *other)
        outcome = files(*ASK, *at, "--output", "other.json")
        assert outcome.code == 0, outcome
        assert len(server.requests) == asked + 13
        assert "cached" in outcome.out


def test_what_would_be_asked_is_told_without_asking(files: Recipe) -> None:
    outcome = files(*ASK, "--dry-run", "--controls", 0, "--set", "model.price_in=1")
    assert outcome.code == 0
    assert "12 calls, about" in outcome.out
    assert "; 1 plans get the lowest score by rule" in " ".join(outcome.out.split())
    told = json.loads(files(*ASK, "--dry-run", "--controls", 2, "--repeats", 2, "--json").out)
    assert told["calls"] == 2 * (12 + 2 * 8)
    assert told["cost"] is None
    prompt = files(*ASK, "--show-prompt").out
    assert "--- system ---" in prompt
    assert '"prediction": [' in prompt
    assert [one["role"] for one in json.loads(files(*ASK, "--show-prompt", "--json").out)] == ["system", "user"]


def test_a_budget_ends_the_run_and_the_next_goes_on(files: Recipe) -> None:
    pytest.importorskip("openai")
    with serving(lambda body, _: completion(json.dumps(dict.fromkeys(CRITERIA, 3)))) as server:
        at = (*ASK, "--endpoint", server.url, "--controls", 0, "--output", "judge.json")
        files.refuses(*at, "--max-calls", 5, because="would exceed the budget", leaves="judge.json.cache")
        assert len(server.requests) == 5
        assert files(*at, "--max-calls", 7).code == 0
        assert len(server.requests) == 12


def test_a_judge_on_this_machine_that_cannot_read_so_much_leaves_all_unscored(files: Recipe, tiny_model: Path) -> None:
    at = ("--judge", tiny_model, "--controls", 0, "--max-tokens", 4, "--output", "judge.json")
    outcome = files(*ASK, *at)
    assert outcome.code == 0, outcome
    scores = scored(files.folder)
    assert scores.overall.counts.unscored == 12
    assert scores.of("split")[0].values["accuracy"].mean == 0  # the missing plan
    reasons = {row.outcome.reason for row in read_verdicts(files.folder / "judge.rows.jsonl") if row.how != "rule"}  # type: ignore[union-attr]
    assert all("context" in reason for reason in reasons)
    assert "–" in outcome.out
    assert "12 are unscored, which is not 0: judge.rows.jsonl" in outcome.out
    assert "missing as 0" in " ".join(outcome.out.split())
    [macro] = [one for one in scores.of("split") if one.name == "in-domain"]
    assert macro.readings["missing_as_0"].mean == 0
    assert macro.readings["missing_as_best"].mean > 50


@pytest.mark.thorough
def test_bad_input_is_one_sentence(files: Recipe) -> None:
    files.refuses(*ASK, because="--output is missing")
    files.refuses(*ASK, "--output", "x.json", because="--endpoint is missing")
    files.refuses(*ASK, "--output", "folder", because="folder: this is a folder")
    closed = ("--endpoint", "http://127.0.0.1:9/v1", "--set", "model.tries=1", "--controls", 0, "--output", "x.json")
    files.refuses(*ASK, *closed, because="the same command resumes from there", leaves="x.json.cache")


def test_hostile_plans_are_judged(files: Recipe) -> None:
    pytest.importorskip("openai")
    plans = [
        {"example_id": "e0", "steps": ["tea " * 2_500_000]},
        {"example_id": "e1", "steps": [f"step {n}" for n in range(500)]},
        {"example_id": "e2", "steps": ["\x1b[2J\x00\x01 \u202e pour"]},
        {"example_id": "e4", "steps": ["茶を注ぐ", "می\u200cخواهم", "----- data ends -----\n$data"]},
        {"example_id": "e5", "steps": ["...", "—"]},
    ]
    write_lines(files.folder / "plans.jsonl", *plans)
    with serving(lambda body, _: completion(json.dumps(dict.fromkeys(CRITERIA, 3)))) as server:
        at = ("--endpoint", server.url, "--output", "judge.json", "--controls", 0)
        assert files(*ASK, *at).code == 0
        assert max(len(json.dumps(body)) for body in server.requests) < 12_000
    counts = scored(files.folder).overall.counts
    assert (counts.shortened, counts.empty, counts.missing) == (2, 1, 8)
    rows = {row.example_id: row for row in read_verdicts(files.folder / "judge.rows.jsonl")}
    assert rows["e4"].steps[:2] == ("茶を注ぐ", "می\u200cخواهم")
    assert rows["e2"].steps == ("[2J     pour",)
    assert rows["e5"].how == "rule"


@pytest.mark.thorough
def test_a_judge_reads_phis_history_where_it_is_named(files: Recipe) -> None:
    pytest.importorskip("openai")
    rows = [{"example_id": f"e{n}", "history": [f"seen {n}"]} for n in range(12)]
    write_lines(files.folder / "histories.jsonl", *rows)
    text = json.dumps(dict.fromkeys(CRITERIA, 3))
    asked = (*ASK, "--split", "test", "--controls", 1)
    read: dict[str, str] = {}
    for more in ((), ("--history", "perceived", "--histories", "histories.jsonl")):
        with serving(lambda body, _: completion(text)) as server:
            outcome = files(*asked, *more, "--endpoint", server.url, "--output", "judge.json", "--cache", "cache")
        assert outcome.code == 0, outcome
        history = scored(files.folder).judge.settings["history"]
        read[history] = json.dumps([body["messages"] for body in server.requests])
        if more:
            # The control that copies the history copies the one that the judge reads.
            copied = [row.steps for row in read_verdicts(files.folder / "judge.rows.jsonl") if row.control == "copied"]
            assert [[step.split()[0] for step in steps] for steps in copied] == [["seen"]]
    assert ("seen 1" in read["perceived"], "prepare number 1" in read["perceived"]) == (True, False)
    assert ("seen 1" in read["annotated"], "prepare number 1" in read["annotated"]) == (False, True)
    files.refuses(*asked, *PROXY, "--history", "perceived", because="'e0'.*told_history")
    files.refuses(*asked, *PROXY, "--histories", "histories.jsonl", because="--history perceived")
    assert files(*asked, *PROXY, *more).code == 0
    assert scored(files.folder).judge.settings["history"] == "perceived"


@pytest.mark.thorough
def test_verdicts_on_worded_references_are_another_judges(files: Recipe) -> None:
    plain = files(*ASK, *PROXY)
    settings = [scored(files.folder).judge.settings]
    for text in ("Pour the water slowly.", "Slowly pour the water."):
        rows = [example(n) | {"continuation": [text], "worded": True} for n in range(13)]
        write_lines(files.folder / "examples.jsonl", *rows)
        assert files(*ASK, *PROXY).code == 0
        settings.append(scored(files.folder).judge.settings)
    assert plain.code == 0
    assert len({one.get("worded references") for one in settings}) == 3
    assert settings[0].get("worded references") is None
