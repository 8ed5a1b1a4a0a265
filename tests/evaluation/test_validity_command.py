"""`recipe evaluate validity` with task graphs from the command line: scores, rows, what is wrong."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Recipe
from tests.evaluation.conftest import overall

from recipe.artifacts import to_json, write_jsonl
from recipe.evaluation.judge.verdicts import Judgement, write_verdicts
from recipe.evaluation.scores import Counts, Group, JudgeIdentity, Scores, read_scores, rows_path, write_scores
from recipe.types import Unscored, Verdict

TEA = {
    "goal": "Make tea",
    "steps": {"boil": "Boil the water", "warm": "Warm the pot", "steep": "Steep the tea", "pour": "Pour a cup"},
    "edges": [["boil", "steep"], ["warm", "steep"], ["steep", "pour"]],
}
TOAST = {
    "goal": "make toast",
    "steps": {"cut": "Cut a slice", "toast": "Toast the slice", "butter": "Spread butter"},
    "edges": [["cut", "toast"], ["toast", "butter"]],
}


class Files:
    """A folder with graphs, examples and predictions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.graphs, self.examples, self.plans = (folder / name for name in ("g.json", "test.jsonl", "plans.jsonl"))
        self.graphs.write_text(json.dumps([TEA, TOAST]))
        rows = [
            ("t1", "make  TEA", ["Boil the water"], ["Warm the pot", "Steep the tea", "Pour a cup"], ""),
            ("t2", "Make tea", ["Warm the pot"], ["Boil the water", "Steep the tea", "Pour a cup"], ""),
            ("b1", "Make toast", ["Cut a slice"], ["Toast the slice", "Spread butter"], "other"),
        ]
        names = ("example_id", "goal", "history", "continuation", "split")
        write_jsonl(self.examples, (dict(zip(names, row, strict=True)) | {"video_id": row[0]} for row in rows))

    def planned(self, **steps: list[str]) -> None:
        write_jsonl(self.plans, ({"example_id": name, "steps": said} for name, said in steps.items()))

    def arguments(self, *more: object) -> tuple[object, ...]:
        asked = ("--examples", self.examples, "--graphs", self.graphs, "--encoder", "hash:256", "--threshold", 0.5)
        return ("evaluate", "validity", self.plans, *asked, *more)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


FULL = ["Warm the pot", "Steep the tea", "Pour a cup"]
NOTHING = (Group("", "all", {}, Counts(0)),)


def test_scores_and_rows_are_written(recipe: Recipe, files: Files) -> None:
    files.planned(t1=FULL, t2=["steep the tea", "boil the water", "paint a fence", "Steep the tea"], b1=[])
    output = files.folder / "validity.json"
    code, out, _ = recipe(*files.arguments("--output", output, "--system", "mine"))
    assert (code, "threshold: 0.5" in out) == (0, True)
    scores = read_scores(output)
    assert (scores.system, scores.identity["graphs"]) == ("mine", "g")
    assert (scores.overall.counts.plans, scores.overall.counts.empty) == (3, 1)
    assert scores.settings["threshold"] == "0.5"
    assert scores.extras["by_goal"]["Make toast"] == 0
    assert scores.overall.values["perfect"].mean == pytest.approx(1 / 3)
    rows = [json.loads(line) for line in rows_path(output).read_text().splitlines()]
    assert [row["example_id"] for row in rows] == ["t1", "t2", "b1"]
    assert rows[0]["details"]["statuses"] == ["valid"] * 3
    assert rows[0]["details"]["nodes"] == ["warm", "steep", "pour"]
    assert rows[1]["details"]["statuses"] == ["out-of-order", "valid", "alien", "repeat"]
    assert rows[1]["details"]["nodes"] == ["steep", "boil", None, "steep"]
    assert rows[1]["details"]["missing_steps"] == ["Pour a cup"]
    assert rows[1]["metrics"]["score"] < 1


def test_goals_without_a_graph_are_an_error_or_counted(recipe: Recipe, files: Files) -> None:
    files.graphs.write_text(json.dumps(TEA))
    files.planned(t1=FULL, b1=["Toast the slice"], t2=[])
    code, out, err = recipe(*files.arguments())
    assert (code, out) == (1, "")
    assert "no task graph of goal 'Make toast'; did you mean 'Make tea'? 1 of 3 examples have such a goal" in err
    assert err.count("--skip-goals leaves them out") == 1
    printed = recipe.json(*files.arguments("--skip-goals"))
    assert overall(printed)["counts"]["plans"] == 2
    assert printed["extras"]["left_out"] == {"goals without a graph": 1, "examples of these": 1}
    files.graphs.write_text(json.dumps([TEA, TOAST]))
    assert recipe.json(*files.arguments("--split", "other"))["extras"]["left_out"] == {"other splits": 2}
    files.graphs.write_text(json.dumps(TEA))
    code, _, err = recipe(*files.arguments("--skip-goals", "--split", "other"))
    assert (code, "no task graph" in err) == (1, True)


HIGH, LOW = Verdict(5, 5, 5, 5, 5, 5), Verdict(1, 1, 1, 1, 1, 1)
ROWS = [Judgement(name, one, judge="Ann", how="human") for name, one in (("t1", HIGH), ("t2", LOW), ("b1", HIGH))]


@pytest.fixture
def agreed(recipe: Recipe, files: Files) -> Any:
    """Ask for the agreement with these verdicts; each judge's row, or the error."""
    files.planned(t1=FULL, t2=["Pour a cup"], b1=["Toast the slice", "Spread butter"])

    def ask(*rows: Judgement, name: str = "people.jsonl") -> Any:
        path = files.folder / name
        if rows:
            write_verdicts(path if path.suffix == ".jsonl" else rows_path(path), rows)
        code, out, err = recipe(*files.arguments("--verdicts", path, "--json"))
        return json.loads(out)["extras"]["agreement"] if code == 0 else err

    return ask


def test_agreement_with_judges_of_the_same_plans(agreed: Any, recipe: Recipe, files: Files) -> None:
    [found] = agreed(*ROWS)
    assert (found["judge"]["name"], found["judge"]["kind"], found["plans"]) == ("Ann", "human", 3)
    assert found["spearman"]["mean"] == pytest.approx(1)
    assert found["kendall"] == pytest.approx(1)
    assert "Ann: Spearman 1.00" in recipe(*files.arguments("--verdicts", files.folder / "people.jsonl")).out
    # No plan was shown under a control's name, and one without a verdict says nothing.
    others = [replace(ROWS[0], outcome=LOW, control="null"), replace(ROWS[1], outcome=Unscored("refused"), repeat=1)]
    assert agreed(*ROWS, *others) == [found]


def test_repeats_are_averaged_and_empty_plans_left_out(agreed: Any, files: Files) -> None:
    [once] = agreed(*ROWS)
    repeats = [replace(row, repeat=1) for row in ROWS]
    assert agreed(*ROWS, *repeats) == [once]
    [tied] = agreed(*ROWS, *(replace(row, outcome=LOW if row.outcome == HIGH else HIGH) for row in repeats))
    assert tied["spearman"] is None
    files.planned(t1=FULL, t2=["Pour a cup"], b1=[])
    assert agreed(*ROWS)[0]["plans"] == 2


def test_verdicts_by_rule_or_on_other_plans_are_no_agreement(agreed: Any) -> None:
    for rows in ([Judgement("elsewhere", HIGH)], [replace(row, how="rule") for row in ROWS]):
        assert "gave no verdict on any of these plans" in agreed(*rows)
    seen = replace(ROWS[0], steps=("something else",))
    assert "Ann judged another plan as sample 0 of 't1'" in agreed(seen, *ROWS[1:])


def test_verdicts_are_read_with_their_judge(agreed: Any, files: Files) -> None:
    scores = Scores("judge", "mine", {"judge": to_json(JudgeIdentity("some judge", "llm"))}, NOTHING)
    write_scores(files.folder / "judge.json", scores)
    [found] = agreed(*ROWS, name="judge.json")
    assert (found["judge"]["name"], found["judge"]["kind"]) == ("some judge", "llm")
    mixed = [replace(row, judge=name, how="proxy") for row in ROWS for name in ("", "Bob")]
    found = agreed(*ROWS, *(replace(row, how="json") if row.judge == "" else row for row in mixed))
    kinds = [("Ann", "human"), ("people", "llm"), ("Bob", "proxy")]
    assert [(one["judge"]["name"], one["judge"]["kind"]) for one in found] == kinds
    write_scores(files.folder / "judge.json", replace(scores, measure="validity", identity={"graphs": "world"}))
    assert "these are scores of 'validity'" in agreed(name="judge.json")


def test_a_threshold_of_another_encoder_comes_from_the_graphs(recipe: Recipe, files: Files) -> None:
    files.planned(t1=FULL)
    asked = ("evaluate", "validity", files.plans, "--examples", files.examples, "--encoder", "hash:256", "--graphs")
    assert 0 < float(recipe.json(*asked, files.graphs)["settings"]["threshold"]) < 1
    files.graphs.write_text(json.dumps(TEA))
    code, _, err = recipe(*asked, files.graphs, "--skip-goals")
    assert (code, "give --threshold" in err) == (1, True)
    files.graphs.write_text("[]")
    code, _, err = recipe(*asked, files.graphs)
    assert (code, "g.json: the list is empty" in err) == (1, True)
    code, _, err = recipe(*asked[:-1], "--threshold", 0.5)
    assert (code, "--threshold and --split-lines go with --graphs" in err) == (1, True)
