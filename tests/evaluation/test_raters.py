"""Judges, their repeats and people on the same plans; the command that compares them and writes sheets."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
from tests.evaluation.conftest import Recipe
from tests.evaluation.scored import judge_scores

from recipe.data.examples import write_examples
from recipe.errors import InputError
from recipe.evaluation.judge.verdicts import CRITERIA, Judgement, read_verdicts, write_verdicts
from recipe.evaluation.people.agreement import MEASURES, TOTAL, agreement, human_raters, judge_rater, spread_of
from recipe.evaluation.people.ratings import PlanId, Rating, human_verdicts, item_code
from recipe.evaluation.scores import JudgeIdentity, read_scores, rows_path, write_scores
from recipe.types import Example, Unscored, Verdict

EXAMPLES = [
    Example(f"e{n}", "coin", f"v{n // 2}", "make tea", ("boil the water",), ("pour it", "drink it"), 1)
    for n in range(12)
]


def verdict(level: int) -> Verdict:
    return Verdict(level, level, level, level, level, min(5, level + 1))


def row(n: int, level: int, **more: Any) -> Judgement:
    return Judgement(f"e{n}", verdict(level), steps=(f"pour it {n} times",), **more)


def test_a_judge_counts_with_the_mean_of_its_repeats() -> None:
    rows = [
        row(0, 2),
        row(0, 3, repeat=1),
        Judgement("e1", Unscored("refused")),
        row(2, 0, how="rule"),
        row(3, 5, control="x"),
    ]
    found = judge_rater("J", rows)
    assert found.plans == {PlanId("e0", 0, ""): dict.fromkeys(CRITERIA[:5], 2.5) | {CRITERIA[5]: 3.5, TOTAL: 16.0}}
    assert PlanId("e3", 0, "x") in judge_rater("J", rows, controls=True).plans


def test_agreement_by_hand() -> None:
    ours = judge_rater("A", [row(n, n % 4) for n in range(8)])
    theirs = judge_rater("B", [row(n, min(5, n % 4 + (n == 3))) for n in range(10)])
    found = agreement([ours, theirs], {"e0": "v", "e1": "v"})
    assert (found.plans, found.raters) == (8, ("A", "B"))
    assert list(found.alpha) == list(MEASURES)
    clarity = found.alpha["clarity"].alpha
    assert clarity is not None
    assert (clarity.observations, clarity.clusters) == (8, 7)
    assert 0.9 < clarity.mean < 1
    pair = found.pairs["A | B"]["clarity"]
    assert (pair.exact, pair.near, pair.bias.mean) == (7 / 8, 1, -1 / 8)
    assert found.pairs["A | B"][TOTAL].bias.mean == -6 / 8


def test_a_rater_without_variation_has_no_alpha() -> None:
    both = [judge_rater(name, [row(n, 3) for n in range(4)]) for name in "AB"]
    found = agreement(both, {})
    assert found.alpha["clarity"].alpha is None
    assert "every rating is 3" in found.alpha["clarity"].reason
    assert found.pairs["A | B"]["clarity"].spearman is None


def test_people_by_item_by_example_and_on_some_criteria() -> None:
    judged = [row(n, 3) for n in range(3)]
    ratings = [
        Rating("Ann", {"clarity": 4}, item=item_code(judged[0])),
        Rating("Ann", dict.fromkeys(CRITERIA, 2), example_id="e1"),
        Rating("Bob", {"clarity": 1}, example_id="e1"),
    ]
    ann, bob = human_raters(ratings, judged)
    assert (ann.name, bob.name) == ("human: Ann", "human: Bob")
    assert ann.plans[PlanId("e0", 0, "")] == {"clarity": 4.0}
    assert ann.plans[PlanId("e1", 0, "")][TOTAL] == 12.0
    found = agreement([judge_rater("J", judged), ann, bob], {})
    assert (found.plans, found.pairs["human: Ann | human: Bob"]["clarity"].units) == (2, 1)
    assert TOTAL not in found.pairs["human: Ann | human: Bob"]
    with pytest.raises(InputError, match=r"1 ratings .*: e9"):
        human_raters([Rating("Ann", {"clarity": 4}, example_id="e9")], judged)


def test_no_common_plan_is_refused() -> None:
    with pytest.raises(InputError, match="no plan was rated by two"):
        agreement([judge_rater("A", [row(0, 3)]), judge_rater("B", [row(1, 3)])], {})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with two judges' scores of one system."""
    monkeypatch.chdir(tmp_path)
    write_examples(tmp_path / "examples.jsonl", EXAMPLES)
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 6, size=12)
    for name, slack in (("llama", 0), ("proxy", 1)):
        rows = [
            row(n, int(np.clip(level + slack * rng.integers(-1, 2), 0, 5)), repeat=repeat, judge=name)
            for n, level in enumerate(levels)
            for repeat in range(1 + slack)
        ]
        rows.append(Judgement("e0", verdict(5), control="reference", judge=name, steps=("pour it", "drink it")))
        write_scores(tmp_path / f"{name}.json", judge_scores("ours", JudgeIdentity(name, "llm"), EXAMPLES, rows))
        write_verdicts(rows_path(tmp_path / f"{name}.json"), rows)
    return tmp_path


AGREEMENT, RATINGS = ("evaluate", "agreement"), ("evaluate", "ratings")


def rated(folder: Path, grade: Callable[[int, str], dict[str, int]]) -> None:
    """Fill in the sheet as Ann, who grades a plan by its number and text."""
    with (folder / "sheet.csv").open(encoding="utf-8-sig", newline="") as stream:
        table = list(csv.DictReader(stream))
    with (folder / "ann.csv").open("w", encoding="utf-8", newline="") as stream:
        filled = csv.DictWriter(stream, table[0])
        filled.writeheader()
        filled.writerows(one | grade(n, one["plan"]) for n, one in enumerate(table))


def test_two_judges_and_repeats(folder: Path, recipe: Recipe) -> None:
    files = (*AGREEMENT, "llama.json", "proxy.json", "--examples", "examples.jsonl")
    found = recipe.json(*files, "--output", "agreement.json")
    assert found == json.loads((folder / "agreement.json").read_text())
    between = found["between"]
    assert (between["raters"], between["plans"]) == (["llama", "proxy"], 12)
    assert between["alpha"]["total"]["alpha"]["clusters"] == 6  # videos
    assert list(found["repeats"]) == ["proxy"]
    shown = recipe(*files)
    assert shown.code == 0
    assert "llama | proxy" in shown.out
    assert "repeats of proxy" in shown.out
    assert recipe.json(*files, "--controls")["between"]["plans"] == 13
    alone = recipe.json(*AGREEMENT, "proxy.json")
    assert (alone["between"], list(alone["repeats"])) == (None, ["proxy"])


def test_a_sheet_is_written_filled_and_compared(folder: Path, recipe: Recipe) -> None:
    made = recipe(*AGREEMENT, "--template", "llama.json", "--examples", "examples.jsonl", "--output", "sheet.csv")
    assert (made.code, "12 plans to rate" in made.out) == (0, True)
    rated(folder, lambda n, _: {"clarity": n % 6})
    found = recipe.json(*AGREEMENT, "llama.json", "--ratings", "ann.csv")["between"]
    assert found["raters"] == ["llama", "human: ann"]
    assert found["alpha"]["clarity"]["alpha"]["observations"] == 12
    assert found["alpha"]["total"]["alpha"] is None


@pytest.mark.parametrize(
    ("words", "because"),
    [
        ((), "nothing to compare"),
        (("llama.json",), "one judge without repeats"),
        (("llama.json", "none.json"), "does not exist"),
        (("llama.json", "other.json"), "other.json: sample 0 of 'e0' is another plan"),
        (("llama.json", "alone.json"), "alone.rows.jsonl.*does not exist"),
        (("--template", "llama.json", "--examples", "examples.jsonl"), "--output sheet.csv"),
        (("--template", "llama.json", "--output", "s.csv"), "give --examples"),
        (("llama.json", "--ratings", "ann.csv", "--ratings", "more/ann.csv"), "'ann' also rates in a file before"),
        (("llama.json", "--ratings", "bad.csv"), "line 2, field 'clarity'"),
    ],
)
def test_what_the_command_refuses(words: tuple[str, ...], because: str, folder: Path, recipe: Recipe) -> None:
    (folder / "more").mkdir()
    for name in ("ann.csv", "more/ann.csv"):
        (folder / name).write_text("example_id,clarity\ne1,3\n")
    (folder / "bad.csv").write_text("example_id,clarity\ne1,9\n")
    scores = (folder / "llama.json").read_text().replace('"llama"', '"other"')
    for name in ("alone.json", "other.json"):
        (folder / name).write_text(scores)
    rows = (folder / "llama.rows.jsonl").read_text().replace('"llama"', '"other"').replace("pour it", "stir it")
    (folder / "other.rows.jsonl").write_text(rows)
    found = recipe(*AGREEMENT, *words)
    assert (found.code, found.out) == (1, "")
    assert re.search(because, found.err), found.err
    assert not (folder / "s.csv").exists()


def test_people_are_a_judge_of_their_own(folder: Path, recipe: Recipe) -> None:
    names = "\t".join(CRITERIA)
    rows = ["\t".join([f"e{n}", *(str(n % 6) for _ in CRITERIA)]) for n in range(12)]
    (folder / "ann.csv").write_text(f"example_id\t{names}\n" + "\n".join(rows) + "\n")
    (folder / "bob.csv").write_text(f"example_id\t{names}\tcomment\n" + rows[1] + "\tfine\ne2\t3\t\t\t\t\t\t\n")
    words = ("ann.csv", "bob.csv", "--judge", "llama.json", "--examples", "examples.jsonl", "--output", "human.json")
    made = recipe(*RATINGS, *words)
    assert (made.code, "accuracy 50.0" in made.out, "left out: 1 incomplete ratings" in made.out) == (0, True, True)
    found = read_scores(folder / "human.json")
    assert (found.judge and (found.judge.name, found.judge.kind), found.system) == (
        ("human: ann, bob", "human"),
        "ours",
    )
    assert [found.extras[name] for name in ("repeats", "how", "left_out")] == [
        2, {"human": 13}, {"incomplete ratings": 1}
    ]  # fmt: skip
    assert found.overall.values["accuracy"].mean == pytest.approx(50)
    rows_read = read_verdicts(rows_path(folder / "human.json"))
    assert [row.text for row in rows_read if row.repeat] == ["bob: fine"]
    assert recipe.json(*AGREEMENT, "llama.json", "human.json")["between"]["plans"] == 12


def test_ratings_that_make_no_verdict_are_refused() -> None:
    full = dict.fromkeys(CRITERIA, 3)
    twice = [Rating("Ann", full, example_id="e0"), Rating("Ann", full, item=item_code(row(0, 3)))]
    with pytest.raises(InputError, match="rated sample 0 of 'e0' twice"):
        human_verdicts(twice, [row(0, 3)])
    with pytest.raises(InputError, match="none of 1 ratings"):
        human_verdicts([Rating("Ann", {"clarity": 3}, example_id="e0")], [row(0, 3)])


def test_a_sheet_of_two_systems_compares_them_blindly(folder: Path, recipe: Recipe) -> None:
    rows = [
        Judgement(f"e{n}", verdict(3), judge="llama", steps=(f"pour it {n} times" if n == 5 else f"stir it {n} times",))
        for n in range(12)
    ]
    identity = JudgeIdentity("llama", "llm")
    write_scores(folder / "other.json", judge_scores("theirs", identity, EXAMPLES, rows))
    write_verdicts(rows_path(folder / "other.json"), rows)
    both = ("--template", "llama.json", "--template", "other.json", "--examples", "examples.jsonl")
    assert "23 plans to rate" in recipe(*AGREEMENT, *both, "--output", "sheet.csv").out  # one plan is the same in both
    rated(folder, lambda _, plan: dict.fromkeys(CRITERIA, 5 if "pour it" in plan else 2))
    for name in ("llama", "other"):
        words = ("ann.csv", "--judge", f"{name}.json", "--examples", "examples.jsonl", "--output", f"human-{name}.json")
        assert "left out: 11 ratings of other plans" in recipe(*RATINGS, *words).out
    found = recipe.json("evaluate", "compare", "human-llama.json", "human-other.json")
    result = found["rows"][0]["result"]
    assert (result["first"], result["second"]) == (100, pytest.approx(100 * (11 * 12 + 30) / (12 * 30)))
    assert result["equal"] == pytest.approx(1 / 12)


def test_a_two_way_table_without_rest_has_none_and_a_missing_plan_is_left_out() -> None:
    """Verdicts = plan + rater: the components are the sample variances of both."""
    plans, raters = np.array([10.0, 40.0, 70.0, 20.0]), np.array([0.0, 5.0, 10.0])
    table = np.concatenate([plans[None] + raters[:, None], [[1.0], [np.nan], [2.0]]], axis=1)
    found = spread_of(["a", "b", "c"], table)
    assert found is not None
    assert found.variance is not None
    variances = {"plans": plans.var(ddof=1), "raters": raters.var(ddof=1), "rest": 0.0}
    assert found.variance == pytest.approx({name: one / sum(variances.values()) for name, one in variances.items()})
    assert found.plans == 4
    assert found.deviation == pytest.approx(5.0)
    assert found.means == {"a": 35.0, "b": 40.0, "c": 45.0}
    assert spread_of(["a", "b"], np.array([[1.0, np.nan], [2.0, 3.0]])) is None
    equal = spread_of(["a", "b"], np.ones((2, 3)))
    assert equal is not None
    assert equal.variance is None


def test_variance_components_are_those_that_drew_the_table() -> None:
    rng = np.random.default_rng(0)
    drawn = (rng.normal(0, sd, size) for sd, size in ((6, (1, 400)), (3, (400, 1)), (2, (400, 400))))
    found = spread_of([str(n) for n in range(400)], 50 + sum(drawn))  # type: ignore[arg-type]
    assert found is not None
    assert found.variance == pytest.approx({"plans": 36 / 49, "raters": 9 / 49, "rest": 4 / 49}, abs=0.05)
