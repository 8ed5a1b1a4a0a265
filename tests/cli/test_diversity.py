"""`recipe evaluate diversity` as a user meets it: the proxy, an endpoint on its good and bad days, bad files."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Recipe, write_lines
from tests.models.endpoint_server import Reply, completion, serving

from recipe.artifacts import read_jsonl
from recipe.evaluation.scores import Scores, read_scores

pytest.importorskip("scipy")
pytest.importorskip("openai")

GOALS = ("brew a pot of tea", "make pancakes", "fix a flat bicycle tire")
EXAMPLES = [
    {
        "example_id": f"e{number}",
        "source": "s",
        "video_id": f"v{number}",
        "goal": goal,
        "history": ["begin with it"],
        "continuation": ["end it"],
    }
    for number, goal in enumerate(GOALS)
]
PLANS = [["steep the tea", "pour the tea"], ["pour the tea", "steep the tea"], ["1. Steep the tea!", "pour the tea"]]
PREDICTIONS = [
    {"example_id": example["example_id"], "sample": sample, "steps": steps}
    for example in EXAMPLES
    for sample, steps in enumerate(PLANS)
]
COMMAND = ("evaluate", "diversity", "plans.jsonl", "--examples", "examples.jsonl", "--samples", 3)
PROXY = (*COMMAND, "--judge", "proxy", "--encoder", "hash:256", "--output", "d.json")


@pytest.fixture
def ready(recipe: Recipe) -> Recipe:
    write_lines(recipe.folder / "examples.jsonl", *EXAMPLES)
    write_lines(recipe.folder / "plans.jsonl", *PREDICTIONS)
    return recipe


def scores(folder: Path, name: str = "d.json") -> Scores:
    return read_scores(folder / name)


def test_the_proxy_writes_scores_and_pairs(ready: Recipe) -> None:
    ended = ready(*PROXY)
    assert ended.code == 0, ended.err
    assert "proxy (hash:256)" in ended.out
    found = scores(ready.folder)
    assert (found.system, found.overall.counts.plans) == ("plans", 3)
    assert [found.extras[name] for name in ("samples", "pairs", "unscored_pairs")] == [3, 9, 0]
    assert found.judge is not None
    assert found.judge.kind == "proxy"
    assert found.settings == {"prompts": "100", "samples": "3", "order_check": "0.1", "seed": "0"}
    rows = [row for _, row in read_jsonl(ready.folder / "d.rows.jsonl")]
    assert [(row["sample"], row["details"]["second"]) for row in rows[:3]] == [(0, 1), (0, 2), (1, 2)]
    assert [row["details"]["how"] for row in rows[:3]] == ["proxy", "rule", "proxy"]
    assert sum(found.extras["levels"].values()) == 9
    for name, lines in (("plans.jsonl", PREDICTIONS), ("examples.jsonl", EXAMPLES)):
        write_lines(ready.folder / name, *lines[::-1])
    again = json.loads(ready(*PROXY, "--json").out)
    assert again == json.loads((ready.folder / "d.json").read_text())
    assert again["extras"]["levels"] == found.extras["levels"]


def test_an_endpoint_is_asked_once_a_question_and_a_second_run_is_free(ready: Recipe) -> None:
    def answer(body: dict[str, Any], before: int) -> Reply:
        return completion('{"score": 0.75}')

    with serving(answer) as server:
        at = ("--judge", "acme/Judge", "--endpoint", server.url, "--output", "d.json")
        command = (*COMMAND, *at, "--order-check", 1)
        for _ in range(2):
            ended = ready(*command)
            assert ended.code == 0, ended.err
            assert len(server.requests) == 6  # one pair of different plans for each of three prompts, both ways
    found = scores(ready.folder)
    assert found.overall.values["diversity"].mean == pytest.approx(2 / 3 * 0.75)
    assert [found.extras[name] for name in ("order_pairs", "order_disagreements")] == [6, 0]
    assert found.judge is not None
    assert found.judge.name == "Judge"
    assert found.ledger["cached"] == 6


def test_what_a_failing_endpoint_answered_is_not_asked_again(ready: Recipe) -> None:
    broken = True

    def answer(body: dict[str, Any], before: int) -> Reply:
        return Reply(status=401, body="{}") if broken and before >= 2 else completion('{"score": 0.5}')

    with serving(answer) as server:
        command = (*COMMAND, "--judge", "j", "--endpoint", server.url, "--order-check", 0, "--output", "d.json")
        ended = ready(*command, "--concurrency", 1)
        assert ended.code == 1
        assert ended.err.count("error:") == 1
        assert not (ready.folder / "d.json").exists()
        broken = False
        assert ready(*command).code == 0
        assert scores(ready.folder).ledger["cached"] == 2
        assert scores(ready.folder).ledger["answers"] == 1


def test_chosen_prompts_are_written_to_plan_for(ready: Recipe) -> None:
    chosen = ("evaluate", "diversity", "--examples", "examples.jsonl", "--prompts", 2, "--chosen", "chosen.jsonl")
    ended = ready(*chosen, "--json")
    assert json.loads(ended.out) == {"prompts": 2, "chosen": "chosen.jsonl"}
    ids = [row["example_id"] for _, row in read_jsonl(ready.folder / "chosen.jsonl")]
    assert ready(*PROXY, "--prompts", 2).code == 0
    rows = [row["example_id"] for _, row in read_jsonl(ready.folder / "d.rows.jsonl")]
    assert sorted(set(rows)) == sorted(ids)


def test_a_dry_run_asks_nothing(ready: Recipe) -> None:
    ended = ready(*COMMAND, "--dry-run", "--order-check", 1, "--json")
    found = json.loads(ended.out)
    assert (found["prompts"], found["calls"]) == (3, 6)
    assert found["prompt_tokens"] > 100


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--samples", 4), "fewer than 4 samples"),
        (("--order-check", 2), "less than or equal to 1"),
        (("--output", "."), "folder"),
        (("--encoder", "hash:0"), "not a positive number"),
    ],
)
def test_what_does_not_fit_is_told_in_a_sentence(ready: Recipe, change: tuple[Any, ...], said: str) -> None:
    ended = ready(*PROXY, *change)
    assert ended.code in (1, 2)
    assert said in " ".join(ended.err.split())
    assert "Traceback" not in ended.err


def test_missing_parts_are_told(ready: Recipe) -> None:
    assert "--chosen" in ready("evaluate", "diversity", "--examples", "examples.jsonl").err
    assert "--judge is missing" in ready(*COMMAND, "--output", "d.json").err
    assert (
        "--endpoint is missing"
        in ready(*COMMAND, "--output", "d.json", "--judge", "meta-llama/Llama-3.3-70B-Instruct").err
    )
    assert "--output is missing" in ready(*COMMAND, "--judge", "proxy").err


def test_fewer_samples_are_taken_as_they_are_when_asked(ready: Recipe) -> None:
    write_lines(ready.folder / "plans.jsonl", *PREDICTIONS[:5])
    assert "2 of 3 prompts have fewer than 3 samples" in ready(*PROXY).err
    ended = ready(*PROXY, "--fewer")
    assert ended.code == 0
    assert "1 of prompts without two samples" in ended.out
    assert scores(ready.folder).overall.counts.plans == 2
    assert scores(ready.folder).extras["left_out"] == {
        "prompts with fewer samples": 1,
        "prompts without two samples": 1,
    }


def test_the_judge_reads_phis_history_where_it_is_named(ready: Recipe) -> None:
    rows = [{"example_id": one["example_id"], "history": ["seen by Phi"]} for one in EXAMPLES]
    write_lines(ready.folder / "histories.jsonl", *rows)
    told = ("--history", "perceived", "--histories", "histories.jsonl")
    with serving(lambda body, _: completion('{"score": 1}')) as server:
        ended = ready(*COMMAND, *told, "--judge", "m", "--endpoint", server.url, "--output", "d.json")
        assert ended.code == 0, ended.err
        texts = [json.dumps(body["messages"]) for body in server.requests]
    assert texts
    assert all("seen by Phi" in text and "begin with it" not in text for text in texts)
    assert scores(ready.folder).judge.settings["history"] == "perceived"
    ready.refuses(*PROXY, "--history", "perceived", because="'e0'.*told_history", leaves="d.json.cache")
