"""Judges and people on the same plans, and the command that compares them."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
from tests.conftest import Recipe
from tests.evaluation.scored import judge_scores

from recipe.data.examples import write_examples
from recipe.errors import InputError
from recipe.evaluation.agreement import MEASURES, TOTAL, agreement_of, judge_rater, read_ratings
from recipe.evaluation.judge.verdicts import CRITERIA, Judgement, write_verdicts
from recipe.evaluation.scoreboard.sources import ReportSources
from recipe.evaluation.scores import JudgeIdentity, PlanId, rows_path, write_scores
from recipe.types import Example, Unscored, Verdict

EXAMPLES = [
    Example(f"e{n}", "coin", f"v{n // 2}", "make tea", ("boil the water",), ("pour it", "drink it"), 1)
    for n in range(12)
]


def verdict(level: int) -> Verdict:
    return Verdict(level, level, level, level, level, min(5, level + 1))


def row(n: int, level: int, **more: Any) -> Judgement:
    return Judgement(f"e{n}", verdict(level), steps=(f"pour it {n} times",), **more)


def compared(*raters: Any, names: str = "AB", examples: Any = ()) -> Any:
    board = ReportSources((), {example.example_id: example for example in examples})
    return agreement_of(dict(zip(names, raters, strict=True)), board)


def test_a_judge_counts_with_the_mean_of_its_repeats() -> None:
    rows = [
        row(0, 2),
        row(0, 3, repeat=1),
        Judgement("e1", Unscored("refused")),
        row(2, 0, how="rule"),
        row(3, 5, control="x"),
    ]
    found = judge_rater(rows)
    assert found == {PlanId("e0", 0, ""): dict.fromkeys(CRITERIA[:5], 2.5) | {CRITERIA[5]: 3.5, TOTAL: 16.0}}
    assert PlanId("e3", 0, "x") in judge_rater(rows, controls=True)


def test_agreement_by_hand() -> None:
    ours = judge_rater([row(n, n % 4) for n in range(8)])
    theirs = judge_rater([row(n, min(5, n % 4 + (n == 3))) for n in range(10)])
    found = compared(ours, theirs, examples=EXAMPLES)
    assert (found.plans, found.raters) == (8, ("A", "B"))
    assert list(found.alpha) == list(MEASURES)
    clarity = found.alpha["clarity"].alpha
    assert (clarity.observations, clarity.clusters) == (8, 4)  # two plans a video
    assert 0.9 < clarity.mean < 1
    pair = found.pairs["A | B"]["clarity"]
    assert (pair.exact, pair.near, pair.bias.mean) == (7 / 8, 1, -1 / 8)
    assert found.pairs["A | B"][TOTAL].bias.mean == -6 / 8


def test_a_rater_without_variation_has_no_alpha() -> None:
    found = compared(*(judge_rater([row(n, 3) for n in range(4)]) for _ in "AB"))
    assert found.alpha["clarity"].alpha is None
    assert "every rating is 3" in found.alpha["clarity"].reason
    assert found.pairs["A | B"]["clarity"].spearman is None


def test_people_on_some_criteria(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    rows = [
        {"example_id": "e0", "rater": "Ann", "clarity": 4, "comment": "as one says it"},
        {"example_id": "e1", "rater": "Ann"} | dict.fromkeys(CRITERIA, 2),
        {"example_id": "e1", "rater": "Bob", "clarity": 1},
        {"example_id": "e2", "rater": "Bob", "comment": "not rated yet"},
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    people = read_ratings(path)
    assert list(people) == ["human: Ann", "human: Bob"]
    assert people["human: Ann"][PlanId("e0", 0, "")] == {"clarity": 4.0}
    assert people["human: Ann"][PlanId("e1", 0, "")][TOTAL] == 12.0
    found = compared(judge_rater([row(n, 3) for n in range(3)]), *people.values(), names="JAB")
    assert (found.plans, found.pairs["A | B"]["clarity"].units) == (2, 1)
    assert TOTAL not in found.pairs["A | B"]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_as_spreadsheets_write_it(tmp_path: Path, separator: str) -> None:
    header = ["example_id", "Sample", *(name.replace("_", " ").title() for name in CRITERIA), "Comment"]
    cells = [["e1", "2.0", *"345012", f"a{separator} b"], ["e2", "", *[""] * 6, ""]]
    with (tmp_path / "ann.csv").open("w", encoding="utf-8-sig", newline="") as stream:
        csv.writer(stream, delimiter=separator).writerows([header, *cells])
    expected = dict(zip(CRITERIA, (3, 4, 5, 0, 1, 2), strict=True)) | {TOTAL: 15}
    assert read_ratings(tmp_path / "ann.csv") == {"human: ann": {PlanId("e1", 2, ""): expected}}


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("example_id,clarity\na,9\n", r"line 2, field 'clarity'"),
        ("example_id,clarity\na,good\n", r"line 2, field 'clarity'"),
        ("example_id,clarity\n,3\n", r"line 2, field 'example_id'"),
        ("example_id,clarity\na,3\na,4\n", r"line 3: sample 0 of 'a' is rated twice"),
        ("example_id,clarty\na,3\n", r"line 2, field 'clarty': .*'clarity'"),
        ("example_id,smaple,clarity\na,1,3\n", r"line 2, field 'smaple': .*'sample'"),
        ("example_id,clarity,Clarity\na,1,3\n", r"line 1, field 'clarity'"),
        ("example_id,clarity\na,3,4\n", r"line 2: the row has 3 cells"),
        ('example_id,clarity\na,"3\n', r"not valid CSV"),
        ("example_id,comment\na,fine\n", r"no row holds a rating"),
        ("", r"empty"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_sentence(tmp_path: Path, text: str, because: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(InputError, match=because) as raised:
        read_ratings(tmp_path / "r.csv")
    assert str(raised.value).startswith(f"{tmp_path / 'r.csv'}")
    assert "\n" not in str(raised.value)


def test_judges_of_one_name_are_told_apart_by_their_files(folder: Path, recipe: Recipe) -> None:
    for name in "123":
        (folder / name).mkdir()
        for file in ("llama.json", "llama.rows.jsonl"):
            (folder / name / file).write_bytes(
                (folder / file).read_bytes().replace(b'"ours"', f'"ours{name}"'.encode())
            )
    found = recipe.json("evaluate", "agreement", *(f"{name}/llama.json" for name in "123"))
    assert found["raters"] == ["llama", "llama (2/llama.json)", "llama (3/llama.json)"]


def test_no_common_plan_is_refused() -> None:
    with pytest.raises(InputError, match="no plan was rated by two"):
        compared(judge_rater([row(0, 3)]), judge_rater([row(1, 3)]))


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


def test_two_judges_and_a_person(folder: Path, recipe: Recipe) -> None:
    (folder / "ann.csv").write_text("example_id;clarity\n" + "".join(f"e{n};{n % 6}\n" for n in range(12)))
    asked = ("--ratings", "ann.csv", "--examples", "examples.jsonl")
    files = ("evaluate", "agreement", "llama.json", "proxy.json", *asked)
    found = recipe.json(*files, "--output", "agreement.json")
    assert found == json.loads((folder / "agreement.json").read_text())
    assert (found["raters"], found["plans"]) == (["llama", "proxy", "human: ann"], 12)
    assert found["alpha"]["total"]["alpha"]["clusters"] == 6  # videos
    assert list(found["pairs"]) == ["llama | proxy", "llama | human: ann", "proxy | human: ann"]
    shown = recipe(*files)
    assert shown.code == 0
    assert "llama | proxy" in shown.out
    assert recipe.json(*files, "--controls")["plans"] == 13


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (("llama.json",), "no plan was rated by two"),
        (("llama.json", "none.json"), "does not exist"),
        (("llama.json", "other.json"), "other.json: sample 0 of 'e0' is another plan"),
        (("llama.json", "alone.json"), "alone.rows.jsonl.*does not exist"),
        (
            ("llama.json", "--ratings", "ann.csv", "--ratings", "more/ann.csv"),
            "'human: ann' also rates",
        ),
        (("llama.json", "--ratings", "bad.csv"), "line 2, field 'clarity'"),
        (
            ("llama.json", "--ratings", "else.csv"),
            "line 2, field 'example_id': no judge's file holds",
        ),
    ],
)
def test_what_the_command_refuses(words: tuple[str, ...], because: str, folder: Path, recipe: Recipe) -> None:
    (folder / "more").mkdir()
    for name in ("ann.csv", "more/ann.csv"):
        (folder / name).write_text("example_id,clarity\ne1,3\n")
    (folder / "bad.csv").write_text("example_id,clarity\ne1,9\n")
    (folder / "else.csv").write_text("example_id,clarity\ne99,2\n")
    scores = (folder / "llama.json").read_text().replace('"llama"', '"other"')
    for name in ("alone.json", "other.json"):
        (folder / name).write_text(scores)
    rows = (folder / "llama.rows.jsonl").read_text().replace('"llama"', '"other"').replace("pour it", "stir it")
    (folder / "other.rows.jsonl").write_text(rows)
    found = recipe("evaluate", "agreement", *words)
    assert (found.code, found.out) == (1, "")
    assert re.search(because, found.err), found.err
