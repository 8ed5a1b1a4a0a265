"""Verdicts as files: there and back, and every mistake of a hand-written one located."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.errors import InputError
from recipe.evaluation.judge.verdicts import CRITERIA, Judgement, read_verdicts, write_verdicts
from recipe.types import Unscored, Verdict

SCORES = "{" + ", ".join(f'"{name}": 3' for name in CRITERIA) + "}"
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
outcomes = st.builds(Verdict, **{name: st.integers(0, 5) for name in CRITERIA}) | st.builds(
    Unscored, texts.map(str.strip).filter(bool)
)


def test_verdicts_come_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("verdicts") / "v.jsonl"

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
        ('{"example_id": "a"}', "neither scores nor the reason"),
        (f'{{"example_id": "a", "scores": {SCORES}, "unscored": "x"}}', "neither scores nor the reason"),
        ('{"example_id": "a", "unscored": " "}', "field 'unscored'"),
        ('{"example_id": "a", "scores": {"clarity": 3}}', "the scores are not the six criteria"),
        (f'{{"example_id": "a", "scores": {SCORES.replace("3", "6", 1)}}}', "logical_progression is 6"),
        (f'{{"example_id": "a", "scores": {SCORES.replace("3", "2.5", 1)}}}', "logical_progression is 2.5"),
        (f'{{"example_id": "a", "scores": {SCORES.replace("3", "true", 1)}}}', "logical_progression is True"),
        (f'{{"example_id": "a", "scores": {SCORES}, "repeat": -1}}', "field 'repeat': -1 is not a whole number"),
        (f'{{"example_id": "a", "scores": {SCORES}, "judge": 1}}', "field 'judge'"),
        (f'{{"example_id": "a", "scores": {SCORES}, "steps": "x"}}', "field 'steps': no list of strings"),
        (f'{{"example_id": "a", "scores": {SCORES}, "rating": 1}}', "field 'rating'"),
        (f'{{"example_id": "a", "scores": {SCORES}}}\n{{"example_id": "a", "unscored": "x"}}', "line 2.* in line 1"),
    ],
)
def test_a_mistake_is_located(tmp_path: Path, row: str, message: str) -> None:
    file = tmp_path / "v.jsonl"
    file.write_text(row + "\n")
    with pytest.raises(InputError, match=message):
        read_verdicts(file)
