"""Two systems' rows paired plan by plan: values by hand for every kind, what is left out, what is refused."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")
from tests.conftest import Recipe
from tests.evaluation.scored import judge_file, plain_file

from recipe.artifacts import read_json, to_json
from recipe.config import SamplingConfig
from recipe.data.examples import write_examples
from recipe.evaluation.judge.verdicts import Judgement, write_verdicts
from recipe.evaluation.scores import JudgeIdentity, Row, read_scores, rows_path, write_scores
from recipe.models.sampling import decoding_of, distinct_decodings
from recipe.types import Example, Grades, Unscored, Verdict

Compare = Callable[..., Any]
JUDGE = JudgeIdentity("J", "llm", "owner/J", "hash", {"temperature": "0"})
EXAMPLES = [
    Example(f"{source}{n}", source, f"v{n // 2}", "make tea", ("boil the water",), ("pour it",), 1)
    for source, count in (("coin", 8), ("niv", 4), ("kitchen", 4))
    for n in range(count)
]


@pytest.fixture
def compare(tmp_path: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> Compare:
    """What `recipe evaluate compare` prints of two systems, by their names, with further words."""
    monkeypatch.chdir(tmp_path)
    return lambda first, second, *words: recipe.json("evaluate", "compare", f"{first}.json", f"{second}.json", *words)


def means(values: dict[str, Any]) -> dict[str, float]:
    return {name: one["mean"] for name, one in values.items()}


KNOWN = ("--examples", "examples.jsonl")


def verdict(total: int) -> Verdict:
    return Verdict(*(total // 6 + (n < total % 6) for n in range(6)))


def system_file(
    path: Path, totals: dict[str, int], judge: JudgeIdentity = JUDGE, more: Sequence[Judgement] = ()
) -> Path:
    rows = [Judgement(name, verdict(total), judge=judge.name, steps=("pour it",)) for name, total in totals.items()]
    return judge_file(path, judge, [*rows, *more])


def pair_file(path: Path, pairs: Sequence[tuple[str, int, float | None]]) -> Path:
    """Pairs of the first sample of a prompt with others, and how different they are."""
    rows = [
        Row(name, {} if score is None else {"diversity": score}, unscored="" if score is not None else "mute",
            details={"second": other, "how": "json"})
        for name, other, score in pairs
    ]  # fmt: skip
    return plain_file(path, "diversity", {"judge": to_json(JUDGE), "samples": 10}, rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two systems of one judge; the first is 3 points of 30 better on all of coin but the last, and equal elsewhere."""
    write_examples(tmp_path / "examples.jsonl", EXAMPLES)
    base = {one.example_id: 12 + n % 5 for n, one in enumerate(EXAMPLES)}
    better = {name: total + 3 * name.startswith("coin") for name, total in base.items() if name != "coin7"}
    control = Judgement("coin0", verdict(30), control="reference", judge="J", steps=("pour it",))
    system_file(tmp_path / "rl.json", better, more=[Judgement("coin7", Unscored("refused"), judge="J"), control])
    system_file(tmp_path / "base.json", base, more=[Judgement("coin0", verdict(0), sample=1, judge="J"), control])
    return tmp_path


def test_judged_plans_by_dataset_and_macro(folder: Path, compare: Compare, recipe: Recipe) -> None:
    found = compare("rl", "base", *KNOWN, "--output", "c.json")
    assert found == read_json(folder / "c.json")
    code, out, _ = recipe("evaluate", "compare", "rl.json", "base.json", *KNOWN)
    assert code == 0
    for words in ("first: rl, second: base", "Plans left out: 1 only second, 1 unscored", "missing left out"):
        assert words in " ".join(out.split())
    assert [found[name] for name in ("measure", "first", "second", "clusters")] == ["judge", "rl", "base", "video"]
    assert (found["examples"], found["left_out"]) == (15, {"only first": 0, "only second": 1, "unscored": 1})
    assert [row["over"] for row in found["rows"]] == ["coin", "niv", "kitchen", "all datasets"]
    coin, niv, _, everything = found["rows"]
    difference = coin["result"]["difference"]
    assert (difference["mean"], difference["observations"], difference["clusters"]) == (pytest.approx(10), 7, 4)
    assert (coin["result"]["better"], niv["result"]["equal"]) == (1.0, 1.0)
    assert coin["result"]["p_value"] == 2 / 2**4
    assert coin["adjusted"] == 4 * coin["result"]["p_value"]
    assert everything["datasets"] == ["coin", "kitchen", "niv"]
    assert everything["result"]["difference"]["mean"] == pytest.approx(10 / 3)
    # Without examples each stands for itself.
    alone = compare("rl", "base", "--metric", "accuracy", "--metric", "clarity")
    assert [(row["metric"], row["over"]) for row in alone["rows"]] == [("accuracy", ""), ("clarity", "")]
    assert (alone["clusters"], alone["rows"][0]["result"]["difference"]["clusters"]) == ("example", 15)
    assert alone["rows"][1]["adjusted"] is not None


def test_systems_that_were_sampled_otherwise_are_marked(folder: Path, compare: Compare, recipe: Recipe) -> None:
    pytest.importorskip("jinja2")
    plain = decoding_of(SamplingConfig())
    narrow = decoding_of(SamplingConfig(), extra_body={"top_p": 0.8})
    for cards, named in (((plain, plain), None), ((plain, narrow), "top_p"), ((plain, None), "not known")):
        for name, card in zip(("rl", "base"), cards, strict=True):
            file = folder / f"{name}.json"
            sampled = distinct_decodings([card])
            extras = {"how": {}, "repeats": 1, "repeat_deviation": None, "left_out": {}}
            write_scores(file, replace(read_scores(file), decoding=sampled, extras=extras))
        notes = compare("rl", "base", *KNOWN)["notes"]
        assert [(named in note, "top_k" in note) for note in notes] == ([] if named is None else [(True, False)])
        words = ("rl.json", "base.json", "--output", "page.html", "--markdown", "page.md")
        assert recipe("report", *words).code == 0
        table = (folder / "page.md").read_text().partition("How plans were sampled")[2]
        rows = re.findall(r"(?m)^\| *(?:rl|base) .*", table)[:2]
        assert ["not known" in row for row in rows] == [False, cards[1] is None]


def test_what_is_missing_is_read_as_0_and_within_bounds(folder: Path, compare: Compare) -> None:
    coin, niv, _, everything = compare("rl", "base", *KNOWN)["rows"]
    total = 12 + 7 % 5  # of the base on coin7, which the other's judge refused
    left_out, base = 10, 100 * total / 30
    read = means(coin["readings"])
    assert read == {
        "lowest": pytest.approx((7 * left_out - base) / 8),
        "missing_as_0": pytest.approx((7 * left_out - base) / 8),
        "missing_left_out": pytest.approx(left_out),
        "highest": pytest.approx((7 * left_out + 100 - base) / 8),
    }
    assert coin["readings"]["missing_left_out"] == coin["result"]["difference"]
    assert niv["readings"] == {}
    assert everything["readings"]["missing_as_0"]["mean"] == pytest.approx(read["missing_as_0"] / 3)
    same = means(compare("base", "rl", *KNOWN)["rows"][0]["readings"])
    assert (same["highest"], same["lowest"]) == pytest.approx((-read["lowest"], -read["highest"]))


def test_a_criterion_of_another_scale_has_no_bounds(tmp_path: Path, compare: Compare) -> None:
    judge = replace(JUDGE, settings={"rubric": "tea", "scale": "0 to 10"})
    for name, score in (("a", 9), ("b", 8)):
        rows = [Judgement(f"e{n}", Grades({"clarity": score}, 10.0 * score), judge="J") for n in range(3)]
        judge_file(tmp_path / f"{name}.json", judge, [*rows, Judgement("e3", Unscored("refused"), judge="J")])
    clarity, accuracy = compare("a", "b", "--metric", "clarity", "--metric", "accuracy")["rows"]
    assert (clarity["result"]["difference"]["mean"], clarity["readings"]) == (1, {})
    assert sorted(means(accuracy["readings"]).values()) == [-17.5, 7.5, 10, 32.5]


def test_samples_of_an_example_are_averaged_first(tmp_path: Path, compare: Compare) -> None:
    for name, totals in (("a", (30, 0, 15)), ("b", (15, 15, 0))):
        rows = [Judgement("coin0", verdict(total), sample=n, judge="J") for n, total in enumerate(totals[:2])]
        system_file(tmp_path / f"{name}.json", {"coin1": totals[2]}, more=rows)
    found = compare("a", "b")["rows"][0]["result"]
    assert (found["first"], found["second"], found["difference"]["observations"]) == (50, 25, 2)
    assert (found["better"], found["equal"]) == (0.5, 0.5)


def test_checked_plans_cluster_by_goal(tmp_path: Path, compare: Compare) -> None:
    for name, level in (("a", 0.8), ("b", 0.5)):
        rows = [Row(f"e{n}", {"score": level, "perfect": n / 4}, cluster=f"g{n % 2}") for n in range(4)]
        plain_file(tmp_path / f"{name}.json", "validity", {"graphs": "graphs"}, rows)
    found = compare("a", "b")
    [row] = found["rows"]
    assert (row["metric"], found["clusters"], row["result"]["difference"]["clusters"]) == ("score", "goal", 2)
    assert row["result"]["difference"]["mean"] == pytest.approx(0.3)
    assert compare("a", "b", "--metric", "perfect")["rows"][0]["result"]["equal"] == 1


def test_diversity_by_prompt(tmp_path: Path, compare: Compare) -> None:
    for name, scores in (("a", (1.0, 0.5, None)), ("b", (0.0, 0.0, 0.5))):
        pairs = [("e", 1 + n, score) for n, score in enumerate(scores)]
        pair_file(tmp_path / f"{name}.json", [*pairs, ("f", 1, 0.25)])
    [row] = compare("a", "b")["rows"]
    assert row["result"]["first"] == pytest.approx((0.75 + 0.25) / 2)
    assert row["result"]["second"] == pytest.approx((0.5 / 3 + 0.25) / 2)
    write_examples(tmp_path / "e", [Example(name, "s", name, "make tea", (), ("pour it",), 0) for name in "ef"])
    known = compare("a", "b", "--examples", "e")
    assert (known["clusters"], known["rows"][0]["result"]["difference"]["clusters"]) == ("goal", 1)
    for name in ("a", "b"):
        pair_file(tmp_path / f"{name}.json", [("e", n, None if n == 2 and name == "a" else 0.5) for n in (1, 2)])
    read = means(compare("a", "b")["rows"][0]["readings"])
    assert read == {"lowest": -0.25, "missing_as_0": -0.25, "missing_left_out": 0, "highest": 0.25}


@pytest.mark.parametrize(
    ("words", "because"),
    [
        (("rl.json", "rl.json"), "already holds judge scores"),
        (("rl.json", "other.json"), r"rl.json \(J; .*settings\)"),
        (("rl.json", "third.json"), r"\(J and K; they differ in name\)"),
        (("rl.json", "valid.json"), "judge and validity"),
        (("valid.json", "world.json"), "field 'identity.graphs': graphs is 'world', and 'mine' in valid.json"),
        (("valid.json", "strict.json"), "threshold is '0.9', and '0.6'"),
        (("rl.json", "base.json", "--metric", "beauty"), "'beauty'; known are accuracy"),
        (("rl.json", "bare.json"), "bare.rows.jsonl: the file does not exist"),
        (("rl.json", "alone.json"), "no plan of both"),
    ],
)
def test_what_the_command_refuses(
    words: tuple[str, ...], because: str, folder: Path, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    system_file(folder / "other.json", {"coin0": 3}, JudgeIdentity("J", "llm", "owner/J", "hash", {"temperature": "1"}))
    system_file(folder / "third.json", {"coin0": 3}, JudgeIdentity("K", "llm", "owner/J", "hash", {"temperature": "0"}))
    system_file(folder / "alone.json", {"niv0": 3})
    write_verdicts(rows_path(folder / "alone.json"), [Judgement("kitchen1", Unscored("refused"), judge="J")])
    system_file(folder / "bare.json", {"coin0": 3})
    rows_path(folder / "bare.json").unlink()
    row = Row("coin0", {"score": 1.0}, cluster="g")
    for name, graphs, threshold in (("valid", "mine", "0.6"), ("world", "world", "0.6"), ("strict", "mine", "0.9")):
        plain_file(folder / f"{name}.json", "validity", {"graphs": graphs, "threshold": threshold}, [row])
    code, out, err = recipe("evaluate", "compare", *words, "--output", "c.json")
    assert (code, out) == (1, "")
    assert re.search(because, err), err
    assert not (folder / "c.json").exists()
