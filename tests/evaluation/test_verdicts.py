"""Verdicts as files, and the scores made from them: small tables, and rules for missing and repeated plans."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("scipy")
from tests.evaluation.scored import judge_scores

from recipe.errors import InputError
from recipe.evaluation.judge.verdicts import CRITERIA, Judgement, read_verdicts, write_verdicts
from recipe.evaluation.scores import READINGS, Group, JudgeIdentity, Scores
from recipe.stats import Interval
from recipe.types import Example, Unscored, Verdict

SCORES = "{" + ", ".join(f'"{name}": 3' for name in CRITERIA) + "}"
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
outcomes = st.builds(Verdict, **{name: st.integers(0, 5) for name in CRITERIA}) | st.builds(
    Unscored, texts.map(str.strip).filter(bool)
)


@pytest.mark.thorough
def test_verdicts_come_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("verdicts") / "v.jsonl"

    @settings(max_examples=40)
    @given(
        st.lists(
            st.builds(
                Judgement,
                example_id=st.sampled_from(["a", "b/ü"]),
                outcome=outcomes,
                sample=st.integers(0, 3),
                repeat=st.integers(0, 3),
                control=texts,
                judge=texts,
                how=st.sampled_from(["", "json", "rule"]),
                steps=st.lists(texts, max_size=3).map(tuple),
                flags=st.lists(texts, max_size=2).map(tuple),
                text=texts,
            ),
            min_size=1,
            unique_by=lambda one: (one.example_id, one.sample, one.repeat, one.control, one.judge),
        )
    )
    def there_and_back(judged: list[Judgement]) -> None:
        assert write_verdicts(file, judged) == len(judged)
        assert read_verdicts(file) == judged

    there_and_back()


def test_a_rating_of_a_person_needs_no_more_than_id_and_scores(tmp_path: Path) -> None:
    file = tmp_path / "v.jsonl"
    file.write_text(f'{{"example_id": "a", "scores": {SCORES}}}\n')
    assert read_verdicts(file) == [Judgement("a", Verdict(3, 3, 3, 3, 3, 3))]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (f'{{"scores": {SCORES}}}', "line 1, field 'example_id'"),
        ('{"example_id": "a"}', "not one of scores and unscored"),
        (f'{{"example_id": "a", "scores": {SCORES}, "unscored": "x"}}', "not one of scores and unscored"),
        ('{"example_id": "a", "unscored": " "}', "field 'unscored'"),
        ('{"example_id": "a", "scores": {"clarity": 3}}', "the scores are not the six criteria"),
        (f'{{"example_id": "a", "scores": {SCORES.replace("3", "6", 1)}}}', "logical_progression is 6"),
        (f'{{"example_id": "a", "scores": {SCORES.replace("3", "true", 1)}}}', "logical_progression is True"),
        (f'{{"example_id": "a", "scores": {SCORES}}}\n{{"example_id": "a", "unscored": "x"}}', "line 2.* in line 1"),
    ],
)
def test_a_mistake_is_located(tmp_path: Path, row: str, message: str) -> None:
    file = tmp_path / "v.jsonl"
    file.write_text(row + "\n")
    with pytest.raises(InputError, match=message):
        read_verdicts(file)


JUDGE = JudgeIdentity("a judge", "llm")
LOST = Unscored("the answer is empty")


def example(name: str, source: str = "coin", video: str = "") -> Example:
    return Example(name, source, video or name, "make tea", ("boil",), ("pour",), 1)


def verdict(score: int) -> Verdict:
    return Verdict(*(score for _ in CRITERIA))


def row(name: str, score: int | None, **more: object) -> Judgement:
    return replace(Judgement(name, LOST if score is None else verdict(score), how="json"), **more)  # type: ignore[arg-type]


def accuracy(group: Group) -> Interval:
    return group.values["accuracy"]


def scores(examples: list[Example], rows: list[Judgement], **more: int) -> Scores:
    return judge_scores("ours", JUDGE, examples, rows, **more)


def test_accuracy_is_the_total_over_30_in_percent() -> None:
    rows = [row("a", 0), Judgement("b", Verdict(5, 5, 5, 5, 1, 0))]
    found = scores([example("a"), example("b")], rows)
    [coin] = found.of("dataset")
    assert (coin.name, [one.name for one in found.of("split")]) == ("coin", ["in-domain"])
    assert accuracy(coin).mean == pytest.approx(100 * 21 / 60)
    assert coin.values["clarity"].mean == 0.5
    assert (accuracy(coin).observations, accuracy(coin).clusters) == (2, 2)
    assert list(coin.values) == ["accuracy", *CRITERIA]


def test_macro_accuracy_weighs_datasets_alike_and_splits_apart() -> None:
    examples = [example("a"), example("b"), example("c", "crosstask"), example("d", "niv"), example("e", "egoper")]
    rows = [row("a", 5), row("b", 3), row("c", 0), row("d", 1), row("e", 2)]
    found = scores(examples, rows)
    split = {one.name: round(accuracy(one).mean, 6) for one in found.of("split")}
    assert split == {"in-domain": 40.0, "zero-shot": 30.0}
    assert found.of("split")[0].datasets == ("coin", "crosstask")
    assert [one.name for one in found.of("dataset")] == ["coin", "crosstask", "niv", "egoper"]
    mixed = scores([*examples, example("f", "kitchen")], [*rows, row("f", 5)])
    assert [one.name for one in mixed.of("split")] == ["in-domain", "zero-shot", "all"]
    assert accuracy(mixed.of("split")[2]).mean == pytest.approx((80 + 0 + 20 + 40 + 100) / 5)
    assert mixed.of("dataset")[-1].name == "kitchen"


def means(readings: dict[str, Interval]) -> list[float]:
    assert list(readings) == [*READINGS][: len(readings)]
    return [pytest.approx(one.mean) for one in readings.values()]


def test_missing_verdicts_are_read_three_ways() -> None:
    examples = [example("a"), example("b"), example("c", source="niv"), example("d", source="my kitchen")]
    lost = [row("a", None, repeat=1), row("b", None), row("b", None, repeat=1), row("c", None)]
    rows = [row("a", 4), *lost, row("d", 5)]
    rows += [row("c", None, control="refusal"), row("c", 1, control="other-goal")]
    found = scores(examples, rows)
    coin, niv, kitchen = found.of("dataset")
    assert means(coin.readings) == [20, 80, 95]
    assert coin.readings["missing_left_out"] == accuracy(coin)
    assert [(one.counts.plans, one.counts.unscored) for one in (coin, niv, kitchen)] == [(1, 1), (0, 1), (1, 0)]
    assert (niv.values, niv.readings["missing_as_0"].mean, niv.readings["missing_as_best"].mean) == ({}, 0, 100)
    assert "missing_left_out" not in niv.readings
    assert kitchen.readings == {}
    macro = {one.name: one for one in found.of("split")}
    assert means(macro["in-domain"].readings) == [20, 80, 95]
    assert means(macro["all"].readings) == [40, 90, pytest.approx(295 / 3)]
    assert (macro["all"].datasets, "zero-shot" in macro) == (("coin", "my kitchen"), False)
    controls = {one.name: one.readings for one in found.of("control")}
    assert (controls["refusal"]["missing_as_0"].mean, controls["other-goal"]) == (0, {})
    assert "1 of 1" in found.findings[-1]
    assert all(not one.readings for one in scores(examples, rows[:1]).groups)


@pytest.mark.thorough
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 5) | st.none()), min_size=1))
@settings(max_examples=30)
def test_whatever_was_missing_the_accuracy_is_within_the_bounds(drawn: list[tuple[str, int | None]]) -> None:
    rows = [row(name, score, sample=n, repeat=n) for n, (name, score) in enumerate(drawn)]
    examples = [example(name) for name in "abcd"]
    [coin] = scores(examples, rows).of("dataset")
    assert (coin.readings == {}) == all(score is not None for _, score in drawn)
    for fill in range(6):
        filled = [replace(one, outcome=verdict(fill)) if one.outcome == LOST else one for one in rows]
        [whole] = scores(examples, filled).of("dataset")
        low, high = (coin.readings.get(name, coin.values.get("accuracy")) for name in (READINGS[0], READINGS[2]))
        assert low is not None
        assert high is not None
        assert low.mean - 1e-9 <= accuracy(whole).mean <= high.mean + 1e-9


def test_repeats_are_averaged_in_a_plan_first_and_samples_in_an_example() -> None:
    rows = [row("a", 5), row("a", 1, repeat=1), row("a", None, repeat=2), row("b", 0), row("b", 0, repeat=1)]
    found = scores([example("a"), example("b")], rows)
    assert accuracy(found.of("dataset")[0]).mean == pytest.approx(30)
    assert found.of("dataset")[0].counts.unscored == 0
    assert found.extras["repeats"] == 3
    assert found.extras["repeat_deviation"] == pytest.approx((80 / 2**0.5 + 0) / 2)
    samples = [row("a", 5), row("a", 1, sample=1), row("b", 0)]
    uneven = scores([example("a"), example("b")], samples).of("dataset")[0]
    assert accuracy(uneven).mean == pytest.approx(30)
    assert uneven.counts.plans == 3
    mixed = [row("a", 5), row("a", 1, repeat=1), row("a", 0, sample=1)]
    [both] = scores([example("a")], mixed).of("dataset")
    assert accuracy(both).mean == pytest.approx(30)
    assert scores([example("a")], [row("a", 5)]).extras["repeat_deviation"] is None


def test_examples_of_one_video_are_one_cluster_and_without_one_those_of_a_goal() -> None:
    rows = [row(name, score) for name, score in zip("abcd", (5, 5, 0, 0), strict=True)]
    by_video = [example("a", video="v"), example("b", video="v"), example("c", video="w"), example("d", video="w")]
    [coin] = scores(by_video, rows).of("dataset")
    assert (accuracy(coin).clusters, coin.counts.videos) == (2, 2)
    without = [replace(one, video_id="") for one in by_video]
    [coin] = scores(without, rows).of("dataset")
    assert (accuracy(coin).clusters, coin.counts.videos, accuracy(coin).low) == (1, 0, None)


def test_what_was_left_out_and_spent_is_counted() -> None:
    rows, left_out = [row("a", 0, how="rule"), row("b", 3)], {"other splits": 2, "further samples": 0}
    examples = [example("a"), example("b")]
    found = judge_scores("ours", JUDGE, examples, rows, left_out=left_out, ledger={"answers": 1.0})
    assert found.extras["how"] == {"json": 1, "rule": 1}
    assert found.extras["left_out"] == {"other splits": 2}
    assert found.ledger == {"answers": 1.0}


def controls(**given: int) -> list[Judgement]:
    return [
        row(f"e{n}", score, control=name.replace("_", "-"))
        for name, score in given.items()
        for n in range(8)
    ]  # fmt: skip


def test_the_controls_say_what_the_judge_does() -> None:
    examples = [example(f"e{n}") for n in range(8)]
    bad = controls(reference=5, verbose=5, shuffled=5, other_goal=5, injected=1, constant=0)
    told = scores(examples, [row("e0", 3), *bad]).findings
    assert sum("no sign that the judge" in one for one in told) == 3
    steered = controls(reference=5, other_goal=1, injected=4, constant=3)
    told = scores(examples, [row("e0", 3), *steered]).findings
    assert "The judge was steered: orders in a plan raise its score (injected minus other-goal: +60.0 points" in told[1]
    assert "The judge was deceived" in told[2]


def test_only_examples_with_both_controls_are_compared_and_one_video_says_nothing() -> None:
    rows = [row("a", 5, control="reference"), row("a", 1, control="other-goal"), row("b", 0, control="other-goal")]
    [told] = scores([example("a"), example("b")], rows).findings
    assert "+80.0 points, no interval: one cluster" in told
    lost = [row("a", None, control="reference"), row("a", 1, control="other-goal")]
    assert scores([example("a")], lost).findings == ()
