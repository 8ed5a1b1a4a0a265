"""A function of the user's own as reward: its values, its failures, its name in records, and where it can stand."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import built_corpus
from typer.testing import CliRunner

import recipe
from recipe.audit.measure import Extent
from recipe.cli import app
from recipe.config import PlanConfig, RewardConfig, load_config, parse_config
from recipe.corpus.store import Corpus
from recipe.data.procedures import write_procedures
from recipe.errors import ConfigError, FunctionFailed, InputError, ServiceUnavailable
from recipe.explain.explain import as_row, explain, in_words, parts
from recipe.explain.page import render_page
from recipe.explain.records import Links
from recipe.functions import load_function, name_of, pinned
from recipe.models.protocol import ReplayEngine
from recipe.planning.planner import Request
from recipe.planning.predictions import Prediction
from recipe.planning.rerank import rerank, reward_predictions
from recipe.prompting import PLAIN
from recipe.reward.scorer import PromptGroup, or_none, outcomes_of
from recipe.reward.verifier import Verifier
from recipe.types import Example, Narration, Plan, Procedure, Reward, Segment, Step

GOAL, HISTORY = "make tea", ["boil some water"]
SOURCE = '''
def reward(goal, history, plan):
    """Words of the plan that the goal has, too."""
    return sum(word in step for step in plan for word in goal.split()) / max(1, len(plan))


def fails_on_none(goal, history, plan):
    return 1 / len(plan)


class Weighed:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, goal, history, plan):
        return self.weight * len(plan)


twice = Weighed(2)
number = 3
'''


def words(goal: str, history: list[str], plan: list[str]) -> float:
    assert isinstance(history, list)
    assert isinstance(plan, list)
    return len(plan) + 0.1 * len(history) + (goal == GOAL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of ten narrations, and procedures to audit."""
    steps = ["boil the water", "warm the pot", "add the leaves", "pour the water", "wait a bit", "serve the tea"]
    path = tmp_path_factory.mktemp("own")
    told = [Narration(f"tea {n}", tuple(Segment(text) for text in steps)) for n in range(10)]
    built_corpus(path / "corpus", told)
    goals = {
        "make tea": steps,
        "fix a tyre": ["lift the car", "undo bolts", "take the wheel off", "fit the spare", "lower it"],
    }
    performed = [
        Procedure("home", f"{goal} {n}", goal, tuple(map(Step, own))) for goal, own in goals.items() for n in range(3)
    ]
    write_procedures(path / "tasks.jsonl", performed)
    return path


@pytest.fixture(scope="module")
def told(folder: Path) -> Verifier:
    return Verifier(Corpus.open(folder / "corpus"), words)


@given(st.text(max_size=8), st.lists(st.text(max_size=4), max_size=3), st.lists(st.text(max_size=4), max_size=5))
def test_the_reward_is_what_the_function_returns(
    told: Verifier, goal: str, history: list[str], plan: list[str]
) -> None:
    [[outcome]] = told.score_groups([PromptGroup(goal, tuple(history), [tuple(plan)])])
    assert isinstance(outcome, Reward)
    assert (outcome.total, outcome.steps, outcome.pool) == (words(goal, history, plan), len(plan), ())


@pytest.mark.parametrize("value", [1, True, np.float32(0.5), np.int64(3)])
def test_numbers_of_other_kinds_are_numbers(value: Any, corpus: Any) -> None:
    [reward] = Verifier(corpus, lambda *_: value).score(goal=GOAL, history=[], continuations=[[]])
    assert reward.total == float(value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "0.5", [1.0], 1j, 10**400])
def test_what_is_no_finite_number_is_a_failure_and_never_a_number(value: Any, corpus: Any) -> None:
    def broken(goal: str, history: list[str], plan: list[str]) -> Any:
        return value if len(plan) == 1 else 0.5

    verifier = Verifier(corpus, broken)
    groups = [PromptGroup(GOAL, tuple(HISTORY), [("pour",), ("pour", "stir")])]
    [[failure, kept]] = outcomes_of(verifier, groups)
    assert isinstance(failure, FunctionFailed)
    assert "broken" in str(failure)
    assert GOAL in str(failure)
    assert isinstance(kept, Reward)
    with pytest.raises(FunctionFailed, match="broken"):
        verifier.score(goal=GOAL, history=HISTORY, continuations=[["pour"]])


def test_an_error_of_the_function_is_of_its_plan_and_one_of_the_run_is_raised(corpus: Any) -> None:
    calls = []

    def divides(goal: str, history: list[str], plan: list[str]) -> float:
        calls.append(plan)
        return 1 / len(plan)

    plans = [("stir",), (), ("pour", "stir")]
    [[first, failure, last]] = outcomes_of(Verifier(corpus, divides), [PromptGroup(GOAL, (), [*plans])])
    assert [isinstance(one, Reward) for one in (first, failure, last)] == [True, False, True]
    assert "ZeroDivisionError" in str(failure)
    assert calls == [[*plan] for plan in plans]  # no plan is scored a second time because of another

    def away(goal: str, history: list[str], plan: list[str]) -> float:
        raise ServiceUnavailable("gone")

    with pytest.raises(ServiceUnavailable):
        outcomes_of(Verifier(corpus, away), [PromptGroup(GOAL, (), [("stir",)])])


def test_a_function_that_fails_on_every_plan_ends_the_run_and_names_the_prompt(corpus: Any) -> None:
    verifier = Verifier(corpus, lambda *_: None)
    [outcomes] = outcomes_of(verifier, [PromptGroup(GOAL, (), [(), ("a",)])])
    with pytest.raises(FunctionFailed):
        or_none(outcomes, earlier=False)
    assert or_none(outcomes, earlier=True) == [None, None]
    example = Example("kitchen/7", "kitchen", "7", GOAL, ("a",), ("b",), 1)
    with pytest.raises(FunctionFailed, match="kitchen/7"):
        reward_predictions(verifier, [example], [Prediction("kitchen/7", ("x",))])


def test_a_function_can_stand_wherever_a_verifier_can(corpus: Any) -> None:
    verifier = Verifier(corpus, words)
    [reward] = verifier.score(goal=GOAL, history=HISTORY, continuations=[["pour", "stir"]])
    assert reward.total == pytest.approx(3.1)
    assert corpus.encoder.calls == []
    [ranked] = rerank(verifier, [Request(GOAL, tuple(HISTORY))], [[Plan(("pour",)), Plan(("pour", "stir"))]])
    assert ranked.order == (1, 0)


def test_an_explanation_says_what_each_step_adds_and_shows_no_narrations(corpus: Any) -> None:
    explained = explain(Verifier(corpus, words), goal=GOAL, history=HISTORY, continuation=["pour", "stir"])
    assert [step.contribution for step in explained.plan_evidence] == pytest.approx([1.0, 1.0])
    assert explained.narrations == ()
    assert [name for name, *_ in parts(explained)] == ["reward"]
    assert "words" in in_words(explained)[0]
    row = as_row(explained, Links("none"))
    assert row["settings"]["verifier"] == name_of(words)
    assert "words" in render_page(explained, Links("none"), 3)


def test_a_name_is_read_and_its_hash_follows_the_source(own_module: Callable[[str, str], str]) -> None:
    name = f"{own_module('own_named', SOURCE)}:reward"
    assert load_function(name)(GOAL, [], ["drink the tea"]) == 1.0
    first = pinned(name)
    assert first.startswith(f"{name}@")
    assert pinned(first) == first
    assert name_of(load_function(name)) == first
    assert load_function(first) is load_function(name)
    assert load_function(f"{name[:-7]}:twice")(GOAL, [], ["a"]) == 2
    own_module("own_named", SOURCE + "\n# changed\n")
    assert pinned(name) != first
    with pytest.raises(InputError, match="own_named"):
        load_function(first)
    assert pinned("grounded") == "grounded"
    # A function from another file has the hash of that file.
    own_module("own_outer", "from own_named import reward\n")
    assert pinned("own_outer:reward").partition("@")[2] == pinned(name).partition("@")[2]


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("own_missing:reward", "own_missing"),
        ("own_bad:nothing", "nothing"),
        ("own_bad:number", "number"),
        ("own_raises:reward", "RuntimeError"),
        ("own_bad:reward@000000000000", "own_bad"),
        ("math:reward", "math"),
    ],
)
def test_a_name_of_no_function_is_an_error_that_names_it(
    name: str, fact: str, own_module: Callable[[str, str], str], corpus: Any
) -> None:
    own_module("own_bad", SOURCE)
    own_module("own_raises", "raise RuntimeError('no')\n")
    with pytest.raises(InputError, match=fact):
        Verifier(corpus, RewardConfig(verifier=name))


@pytest.mark.parametrize("name", ["grouned", "mine:", ":reward", "mine:reward@12", "a b:c", "C:/x/y:z", ""])
def test_settings_take_names_of_rewards_and_functions_only(name: str) -> None:
    for kind in (RewardConfig, PlanConfig):
        with pytest.raises(ConfigError, match="verifier"):
            parse_config({"verifier": name}, kind, "here")


def run(*arguments: object) -> Any:
    result = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    return json.loads(result.stdout) if result.exit_code == 0 else result


def test_the_commands_take_a_function(own_module: Callable[[str, str], str], folder: Path, tmp_path: Path) -> None:
    name = f"{own_module('own_command', SOURCE)}:reward"
    asked = ("reward", "score", "--corpus", folder / "corpus", "--goal", GOAL, "--history", "boil")
    scored = run(*asked, "--continuation", "drink the tea", "--continuation", "lift it", "--verifier", name)
    assert [reward["total"] for reward in scored[0]["rewards"]] == [1.0, 0.0]
    # What was not aligned has no figure: 0.000 would look measured.
    for command in ("score", "explain"):
        words = (*asked[:1], command, *asked[2:], "--continuation", "drink the tea", "--verifier", name)
        shown = CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False).stdout
        assert ("1.000" in shown, "0.000" in shown, "0/0" in shown) == (True, False, False), shown
    (tmp_path / "mine.toml").write_text(f'verifier = "{name}"\n')
    assert load_config(tmp_path / "mine.toml", RewardConfig).is_function
    assert run(*asked, "--continuation", "drink the tea", "--config", "mine.toml")[0]["rewards"][0]["total"] == 1.0
    explained = run("reward", "explain", "--corpus", folder / "corpus", "--goal", GOAL, "--history", "boil",
                    "--continuation", "drink the tea", "--verifier", name)  # fmt: skip
    assert explained["settings"]["verifier"] == pinned(name)
    audited = run("reward", "audit", "--corpus", folder / "corpus", "--procedures", folder / "tasks.jsonl",
                  "--skip-attack", "--verifier", name, "--verifier", f"short={name[:-7]}:twice", "--verifier", "paper",
                  "--output", tmp_path / "audit")  # fmt: skip
    assert [reward["name"] for reward in audited["rewards"]][:3] == [name, "short", "paper"]
    assert audited["settings"]["verifiers"][name]["verifier"] == pinned(name)
    assert (tmp_path / "audit" / "audit.html").is_file()


def test_the_commands_name_the_line_of_a_prompt_that_fails(own_module: Callable[[str, str], str], folder: Path) -> None:
    name = f"{own_module('own_line', SOURCE)}:fails_on_none"
    rows = [{"goal": GOAL, "history": ["a"], "continuations": [plan]} for plan in (["b"], [])]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    failed = run("reward", "score", "--corpus", folder / "corpus", "--input", "rows.jsonl", "--verifier", name)
    assert failed.exit_code == 1
    assert isinstance(failed.exception, FunctionFailed)
    assert "line 2" in str(failed.exception)
    assert "fails_on_none" in str(failed.exception)


def test_a_prompt_that_the_function_fails_on_is_unscored_in_the_audit(folder: Path) -> None:
    def picky(goal: str, history: list[str], plan: list[str]) -> float:
        if "tyre" in goal:
            raise KeyError("tyre")
        return float(len(plan))

    corpus = Corpus.open(folder / "corpus")
    audit = recipe.audit_rewards(
        corpus,
        folder / "tasks.jsonl",
        verifiers={"mine": picky, "theirs": "paper", "set": RewardConfig(gate="off")},
        extent=Extent(attacked=0),
    )
    mine, *others = audit.rewards[:3]
    assert [reward.name for reward in audit.rewards[:3]] == ["mine", "theirs", "set"]
    assert all(reason.startswith("home/fix a tyre") and "picky" in reason for reason in mine.unscored)
    assert mine.unscored
    assert not others[0].unscored


def test_plans_of_one_call_are_ranked_by_a_function() -> None:
    engine = ReplayEngine.record([PLAIN.chat(GOAL, ())], [["1. a", "1. a\n2. b"]])
    plans = recipe.plan(engine, goal=GOAL, count=2, scorer=words)
    assert [plan.steps for plan in plans] == [("a", "b"), ("a",)]
