"""Judges and people on the same plans, as `recipe evaluate agreement` compares them."""

import csv
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")
from tests.conftest import Recipe
from tests.evaluation.scored import judge_file

from recipe.artifacts import read_json, write_jsonl
from recipe.data.examples import write_examples
from recipe.errors import InputError
from recipe.evaluation.agreement import TOTAL, read_ratings
from recipe.evaluation.judge.verdicts import CRITERIA, Judgement
from recipe.evaluation.scores import JudgeIdentity, PlanId
from recipe.types import Example, Unscored, Verdict

EXAMPLES = [
    Example(f"e{n}", "coin", f"v{n // 2}", "make tea", ("boil the water",), ("pour it", "drink it"), 1)
    for n in range(12)
]
Agree = Callable[..., dict[str, Any]]


def row(n: int, level: int, **more: Any) -> Judgement:
    verdict = Verdict(level, level, level, level, level, min(5, level + 1))
    return Judgement(f"e{n}", verdict, steps=(f"pour it {n} times",), **more)


@pytest.fixture
def agree(tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> Agree:
    """The agreement of judges, whose verdicts are given by name, and of people, with further words."""
    monkeypatch.chdir(tmp_path)
    write_examples(tmp_path / "examples.jsonl", EXAMPLES)

    def ask(judges: dict[str, Sequence[Judgement]], *words: object) -> dict[str, Any]:
        files = [judge_file(Path(f"{name}.json"), JudgeIdentity(name, "llm"), own) for name, own in judges.items()]
        printed = recipe.json("evaluate", "agreement", *files, *words, "--output", "agreement.json")
        assert printed == read_json(Path("agreement.json"))
        return dict(printed)

    return ask


def test_a_judge_counts_with_the_mean_of_its_repeats(agree: Agree) -> None:
    """Not with plans that have no verdict, or one by rule, nor with controls unless they are asked for."""
    rows = [row(0, 2), row(0, 3, repeat=1), row(2, 0, how="rule"), row(3, 5, control="x")]
    rows.append(Judgement("e1", Unscored("refused")))
    plans = [{"example_id": f"e{n}"} for n in range(3)] + [{"example_id": "e3", "control": "x"}]
    write_jsonl(Path("ann.jsonl"), (plan | dict.fromkeys(CRITERIA, 2) for plan in plans))
    found = agree({"A": rows}, "--ratings", "ann.jsonl")
    pair = found["pairs"]["A | human: ann"]
    assert (found["plans"], pair["clarity"]["bias"]["mean"], pair[TOTAL]["bias"]["mean"]) == (1, 0.5, 16 - 12)
    assert agree({"A": rows}, "--ratings", "ann.jsonl", "--controls")["plans"] == 2


def test_agreement_by_hand(agree: Agree, recipe: Recipe) -> None:
    judges = {
        "A": [row(n, n % 4) for n in range(8)],
        "B": [row(n, min(5, n % 4 + (n == 3))) for n in range(10)],
        "C": [row(n, 3) for n in range(8)],
        "D": [row(n, 3) for n in range(8)],
    }
    found = agree({name: judges[name] for name in "AB"}, "--examples", "examples.jsonl")
    assert (found["plans"], found["raters"], [*found["alpha"]]) == (8, ["A", "B"], [*CRITERIA, TOTAL])
    clarity = found["alpha"]["clarity"]["alpha"]
    assert (clarity["observations"], clarity["clusters"]) == (8, 4)  # two plans a video
    assert 0.9 < clarity["mean"] < 1
    pair = found["pairs"]["A | B"]
    assert [pair["clarity"][name] for name in ("exact", "near")] == [7 / 8, 1]
    assert (pair["clarity"]["bias"]["mean"], pair[TOTAL]["bias"]["mean"]) == (-1 / 8, -6 / 8)
    same = agree({name: judges[name] for name in "CD"})
    assert same["alpha"]["clarity"]["alpha"] is None
    assert "every rating is 3" in same["alpha"]["clarity"]["reason"]
    assert same["pairs"]["C | D"]["clarity"]["spearman"] is None
    code, out, _ = recipe("evaluate", "agreement", "A.json", "C.json")
    assert (code, "A | C" in out) == (0, True)


def test_people_on_some_criteria(agree: Agree) -> None:
    rows = [
        {"example_id": "e0", "rater": "Ann", "clarity": 4, "comment": "as one says it"},
        {"example_id": "e1", "rater": "Ann"} | dict.fromkeys(CRITERIA, 2),
        {"example_id": "e1", "rater": "Bob", "clarity": 1},
        {"example_id": "e2", "rater": "Bob", "comment": "not rated yet"},
    ]
    write_jsonl(Path("people.jsonl"), rows)
    found = agree({"J": [row(n, 3) for n in range(3)]}, "--ratings", "people.jsonl")
    assert (found["plans"], found["raters"]) == (2, ["J", "human: Ann", "human: Bob"])
    pairs = found["pairs"]
    assert [pairs["J | human: Ann"][name]["units"] for name in ("clarity", TOTAL)] == [2, 1]
    assert pairs["J | human: Ann"][TOTAL]["bias"]["mean"] == 19 - 12
    assert (pairs["human: Ann | human: Bob"]["clarity"]["units"], TOTAL in pairs["human: Ann | human: Bob"]) == (
        1,
        False,
    )


def test_a_table_as_spreadsheets_write_it(tmp_path: Path) -> None:
    header = ["example_id", "Sample", *(name.replace("_", " ").title() for name in CRITERIA), "Comment"]
    cells = [["e1", "2.0", *"345012", "a; b"], ["e2", "", *[""] * 6, ""]]
    with (tmp_path / "ann.csv").open("w", encoding="utf-8-sig", newline="") as stream:
        csv.writer(stream, delimiter=";").writerows([header, *cells])
    expected = dict(zip(CRITERIA, (3, 4, 5, 0, 1, 2), strict=True)) | {TOTAL: 15}
    assert read_ratings(tmp_path / "ann.csv") == {"human: ann": {PlanId("e1", 2, ""): expected}}


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("example_id,clarity\na,9\n", r"line 2, field 'clarity'"),
        ("example_id,clarity\na,3\na,4\n", r"line 3: sample 0 of 'a' is rated twice"),
        ("example_id,clarty\na,3\n", r"line 2, field 'clarty': .*'clarity'"),
        ("example_id,smaple,clarity\na,1,3\n", r"line 2, field 'smaple': .*'sample'"),
        ("example_id,comment\na,fine\n", r"no row holds a rating"),
    ],
)
def test_a_table_that_cannot_be_used_is_one_sentence(tmp_path: Path, text: str, because: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(InputError, match=because) as raised:
        read_ratings(tmp_path / "r.csv")
    assert str(raised.value).startswith(f"{tmp_path / 'r.csv'}")


def test_judges_of_one_name_are_told_apart_by_their_files(agree: Agree, recipe: Recipe) -> None:
    for number in "123":
        Path(number).mkdir()
        judge_file(Path(number) / f"ours{number}.json", JudgeIdentity("J", "llm"), [row(n, n) for n in range(3)])
    found = recipe.json("evaluate", "agreement", *(f"{number}/ours{number}.json" for number in "123"))
    assert found["raters"] == ["J", "J (2/ours2.json)", "J (3/ours3.json)"]


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (("llama.json", "elsewhere.json"), "no plan was rated by two"),
        (("llama.json", "other.json"), "other.json: sample 0 of 'e1' is another plan"),
        (("llama.json", "alone.json"), "alone.rows.jsonl.*does not exist"),
        (("llama.json", "--ratings", "ann.csv", "--ratings", "more/ann.csv"), "'human: ann' also rates"),
        (("llama.json", "--ratings", "else.csv"), "line 2, field 'example_id': no judge's file holds"),
    ],
)
def test_what_the_command_refuses(words: tuple[str, ...], because: str, agree: Agree, recipe: Recipe) -> None:
    Path("more").mkdir()
    for name, text in (("ann", "e1,3"), ("more/ann", "e1,3"), ("else", "e99,2")):
        Path(f"{name}.csv").write_text(f"example_id,clarity\n{text}\n")
    rows = {"llama": row(1, 3), "elsewhere": row(2, 3), "other": Judgement("e1", row(1, 3).outcome, steps=("stir",))}
    for name, judged in (rows | {"alone": row(1, 3)}).items():
        judge_file(Path(f"{name}.json"), JudgeIdentity(name, "llm"), [judged])
    Path("alone.rows.jsonl").unlink()
    found = recipe("evaluate", "agreement", *words)
    assert (found.code, found.out) == (1, "")
    assert re.search(because, found.err), found.err
