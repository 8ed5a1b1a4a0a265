"""`recipe evaluate judge` by a rubric of one's own and by a function of one's own, and what reads its files."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("scipy")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
from tests.cli.conftest import Recipe, write_lines
from tests.cli.test_judge import example
from tests.models.endpoint_server import completion, serving

from recipe.evaluation.judge.rubric import read_rubric
from recipe.evaluation.judge.verdicts import CRITERIA, read_verdicts
from recipe.evaluation.scores import Scores, read_scores
from recipe.functions import pinned
from recipe.types import Grades, Unscored

LAB = """
name = "lab"
lowest = 1
highest = 10
[criteria]
safety = "nobody is hurt."
cost = "little is bought."
[[rules]]
name = "knife"
text = "The plan uses a knife."
caps = {safety = 3}
"""
SOURCE = """
def shorter(goal, history, plan, reference):
    share = min(1, len(plan) / max(1, len(reference)))
    return {"safety": 1 + 9 * share, "cost": 10 - 9 * share}


def six(goal, history, plan, reference):
    return dict.fromkeys(NAMES, 5.0 if plan == reference else 1)


def some(goal, history, plan, reference):
    if plan[0] == reference[0]:
        return {"safety": 1, "cost": float("nan")}
    return {"safety": 5, "cost": 5}
"""
STEADY = """
def judge(goal, history, plan, reference):
    assert (goal, history, reference) in [(one["goal"], one["history"], one["continuation"]) for one in ASKED]
    assert isinstance(plan, list)
    return {"safety": 2.5, "cost": len(plan)}

"""
ASK = ("evaluate", "judge", "plans.jsonl", "--examples", "examples.jsonl", "--split", "test", "--controls", 3)


@pytest.fixture
def files(recipe: Recipe, own_module: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.chdir(recipe.folder)
    own_module("own_judge", SOURCE.replace("NAMES", repr([*CRITERIA])))
    write_lines(recipe.folder / "examples.jsonl", *(example(n) for n in range(12)))
    plans = [{"example_id": f"e{n}", "steps": example(n)["continuation"][n % 2 :]} for n in range(12)]
    write_lines(recipe.folder / "plans.jsonl", *plans)
    (recipe.folder / "lab.toml").write_text(LAB)
    return recipe


def scored(file: str) -> Scores:
    return read_scores(Path(file))


def test_a_rubric_is_asked_for_recorded_and_compared_with_itself_only(files: Recipe) -> None:
    pytest.importorskip("openai")
    answers = {"safety": 9, "cost": 4, "knife": True} | dict.fromkeys(CRITERIA, 3)
    with serving(lambda body, _: completion(json.dumps(answers))) as server:
        at = ("--endpoint", server.url)
        assert files(*ASK, *at, "--rubric", "lab.toml", "--output", "lab.json").code == 0
        assert files(*ASK, *at, "--output", "papers.json").code == 0
        assert files(*ASK, *at, "--rubric", "lab.toml", "--output", "again.json", "--system", "again").code == 0
        Path("lab.toml").write_text(LAB.replace("little is bought", "nothing is bought"))
        assert files(*ASK, *at, "--rubric", "lab.toml", "--output", "changed.json").code == 0
    lab, papers, changed = (scored(f"{name}.json") for name in ("lab", "papers", "changed"))
    assert lab.judge is not None
    assert papers.judge is not None
    assert changed.judge is not None
    assert (lab.judge.settings["rubric"], lab.judge.settings["scale"]) == ("lab", "1 to 10")
    assert len({lab.judge.prompt, papers.judge.prompt, changed.judge.prompt}) == 3
    values = {name: value.mean for name, value in lab.overall.values.items()}
    assert values == pytest.approx({"accuracy": 100 * (2 + 3) / 18, "safety": 3, "cost": 4})
    row = json.loads(Path("lab.rows.jsonl").read_text().partition("\n")[0])
    assert (row["scores"], row["rules"]) == ({"safety": 3.0, "cost": 4.0}, ["knife"])
    compare = ("evaluate", "compare", "lab.json")
    assert files(*compare, "again.json", "--examples", "examples.jsonl").code == 0
    for other in ("papers.json", "changed.json"):
        outcome = files(*compare, other, "--examples", "examples.jsonl")
        assert (outcome.code, other in outcome.err) == (1, True)
    assert files("report", "lab.json", "papers.json", "--examples", "examples.jsonl", "--output", "page.html").code == 0
    assert "safety" in Path("page.html").read_text()
    outcome = files("evaluate", "agreement", "lab.json", "papers.json", "--examples", "examples.jsonl")
    assert (outcome.code, "lab" in outcome.err) == (1, True)


def test_a_function_judges_by_a_rubric_or_by_the_six_criteria(files: Recipe) -> None:
    outcome = files(*ASK, "--judge", "own_judge:shorter", "--rubric", "lab.toml", "--output", "mine.json")
    assert outcome.code == 0, outcome
    mine = scored("mine.json")
    assert mine.judge is not None
    assert (mine.judge.kind, mine.judge.name) == ("function", "own_judge:shorter")
    assert mine.judge.model == pinned("own_judge:shorter")
    assert mine.judge.prompt == read_rubric(Path("lab.toml")).prompt
    values = {name: value.mean for name, value in mine.overall.values.items()}
    assert values["accuracy"] == pytest.approx(50.0)
    assert values["safety"] + values["cost"] == pytest.approx(11.0)
    outcome = files(*ASK, "--judge", "own_judge:six", "--output", "six.json")
    assert outcome.code == 0, outcome
    assert {group.name: group.values["accuracy"].mean for group in scored("six.json").of("control")}["reference"] == 100
    page = files("report", "mine.json", "six.json", "--examples", "examples.jsonl", "--output", "page.html")
    assert page.code == 0, page
    assert files("evaluate", "compare", "six.json", "mine.json", "--examples", "examples.jsonl").code == 1
    outcome = files(*ASK, "--judge", "proxy", "--encoder", "hash:64", "--output", "proxy.json")
    assert outcome.code == 0, outcome
    outcome = files("evaluate", "agreement", "six.json", "proxy.json", "--examples", "examples.jsonl")
    assert outcome.code == 0, outcome


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (("--judge", "own_judge:nothing"), "nothing"),
        (("--judge", "own_nowhere:judge"), "own_nowhere"),
        (("--judge", "own_judge:six", "--rubric", "lab.toml"), "safety"),
        (("--judge", "proxy", "--rubric", "lab.toml"), "lab.toml"),
        (("--judge", "own_judge:six", "--rubric", "absent.toml"), "absent.toml"),
        (("--judge", "own_judge:six", "--dry-run"), "own_judge:six"),
    ],
)
def test_what_cannot_judge_is_refused_and_writes_nothing(arguments: tuple[str, ...], fact: str, files: Recipe) -> None:
    outcome = files(*ASK, *arguments, "--output", "new.json")
    assert (outcome.code, fact in outcome.err) == (1, True), outcome
    assert not Path("new.json").exists()


def test_a_plan_that_the_function_fails_on_is_unscored(files: Recipe) -> None:
    outcome = files(*ASK, "--judge", "own_judge:some", "--rubric", "lab.toml", "--output", "some.json")
    assert outcome.code == 0, outcome
    counts = scored("some.json").overall.counts
    assert (counts.unscored, counts.plans) == (6, 6)
    reasons = [
        row.outcome.reason for row in read_verdicts(Path("some.rows.jsonl")) if isinstance(row.outcome, Unscored)
    ]
    assert reasons
    assert all("own_judge:some" in reason and "cost" in reason for reason in reasons)


@pytest.mark.parametrize(
    "value",
    [
        None,
        3,
        {"safety": 5},
        {"safety": 5, "cost": 11},
        {"safety": 5, "cost": "5"},
        {"safety": 0, "cost": 5},
        {"safety": 5, "cost": 10**400},
    ],
)
def test_what_is_no_score_for_each_criterion_is_never_a_number(
    value: object, files: Recipe, own_module: Callable[[str, str], str]
) -> None:
    own_module("own_value", f"def judge(*_):\n    return {value!r}\n")
    outcome = files(*ASK, "--judge", "own_value:judge", "--rubric", "lab.toml", "--output", "v.json")
    assert (outcome.code, "own_value:judge" in outcome.err) == (1, True), outcome
    assert not Path("v.json").exists()


def test_a_function_is_given_lists_and_a_plan_that_says_nothing_gets_the_lowest(
    files: Recipe, own_module: Callable[[str, str], str]
) -> None:
    own_module("own_steady", f"{STEADY}ASKED = {[example(n) for n in range(12)]!r}\n")
    plans = [{"example_id": f"e{n}", "steps": example(n)["continuation"] if n else ["..."]} for n in range(12)]
    write_lines(Path("plans.jsonl"), *plans)
    outcome = files(*ASK, "--judge", "own_steady:judge", "--rubric", "lab.toml", "--output", "s.json")
    assert outcome.code == 0, outcome
    rows = {row.example_id: row for row in read_verdicts(Path("s.rows.jsonl")) if not row.control}
    ruled = rows.pop("e0")
    assert (ruled.outcome, ruled.how) == (read_rubric(Path("lab.toml")).nothing, "rule")
    for row in rows.values():
        cost = float(len(row.steps))
        grades = Grades({"safety": 2.5, "cost": cost}, pytest.approx(100 * (1.5 + cost - 1) / 18))  # type: ignore[arg-type]
        assert (row.outcome, row.how) == (grades, "function")
