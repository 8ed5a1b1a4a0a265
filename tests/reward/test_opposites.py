"""Opposites: the words that tell them, on written lists and by properties, and evidence that leaves them out."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import built_corpus

from recipe.config import RewardConfig
from recipe.explain.explain import as_row, explain
from recipe.explain.opposites import says_opposite
from recipe.explain.records import Links
from recipe.reward.verifier import Verifier
from recipe.types import Narration, Segment
from recipe_apps.serving.evidence import CorpusEvidence

LISTS = Path(__file__).parents[2] / "benchmarks"


def rows_of(name: str, parts: int) -> list[list[str]]:
    lines = (LISTS / name).read_text(encoding="utf-8").split("\n")
    rows = [line.split(" | ") for line in lines if line and not line.startswith("#")]
    assert {len(row) for row in rows} == {parts}
    return rows


def test_most_written_opposites_are_found_and_hardly_any_rewording_is_called_one() -> None:
    rows = rows_of("opposites.txt", 4)
    for step, opposite in ((0, 1), (1, 0)):
        assert sum(says_opposite(row[step], row[opposite]) for row in rows) >= 0.95 * len(rows)
    alike = [(row[0], row[2]) for row in rows] + [(row[1], row[3]) for row in rows]
    assert sum(says_opposite(step, again) for step, again in alike) <= 0.02 * len(alike)


def test_of_spoken_opposites_a_part_is_found_and_hardly_any_same_step_is_called_one() -> None:
    rows = rows_of("opposites_said.txt", 3)
    assert sum(says_opposite(step, opposite) for step, opposite, _ in rows) >= 0.3 * len(rows)
    assert sum(says_opposite(step, same) for step, _, same in rows) <= 0.02 * len(rows)


WORDS = [
    "turn", "turned", "on", "off", "the", "water", "it", "lid", "open", "close", "closing", "not", "don't", "never",
    "before", "after", "remove", "add", "put", "take", "out", "in", "and", ",", ".", "pull", "push", "screw", "left",
    "unscrew", "up", "down", "oven", "heat", "cool", "into", "to", "right", "unwrap", "wrap", "gently",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


@given(TEXTS)
def test_no_text_is_its_own_opposite(text: str) -> None:
    assert not says_opposite(text, text)
    assert not says_opposite(text, text.upper().replace("'", "’"))


@given(TEXTS)
def test_a_text_that_says_the_step_as_it_stands_is_no_opposite(text: str) -> None:
    step = "turn off the water"
    assert not says_opposite(step, f"{text} . {step}")


@pytest.mark.parametrize(
    ("step", "text", "opposite"),
    [
        ("close the valve", "opened the valve", True),
        ("close the valve", "opened the other valves and closed the valve", False),
        ("close the valve", "get close to the valve", False),
        ("close the valve", "open the window", False),
        ("wrap the gift", "now we're unwrapping the gift", True),
        ("unwrap the gift", "wrap it", True),
        ("turn the bolt to the left", "turning the bolt to the right", True),
        ("glue after sanding", "before sanding we glue", True),
        ("add salt", "don’t add any salt", True),
        ("do not stir", "stir it", True),
        ("stir", "if you don't stir it burns", False),
        ("", "", False),
        ("off", "on", False),
    ],
)
def test_sides_things_and_negations(step: str, text: str, opposite: bool) -> None:
    assert says_opposite(step, text) is opposite


def test_a_segment_that_says_the_opposite_is_marked(tmp_path: Path) -> None:
    texts = [["fill the glass", "turn on the water"], ["fill the glass", "turn the water off"], ["boil", "dance"]]
    narrations = [Narration(f"v{i}", tuple(map(Segment, own))) for i, own in enumerate(texts)]
    verifier = Verifier(built_corpus(tmp_path / "corpus", narrations, "hash:128"), RewardConfig(pool_size=3))
    explained = explain(verifier, goal="fill a glass", history=["fill the glass"], continuation=["turn off the water"])
    [step] = explained.plan_evidence
    marked = {ground.narration: ground.opposite for ground in step.grounds}
    assert marked[0] is True
    assert marked[1] is False
    grounds = as_row(explained, Links())["steps"][1]["grounds"]
    assert ("turn on the water", True) in {(own["text"], own["opposite"]) for own in grounds}


def test_the_page_quotes_no_opposite_and_takes_none_for_done(tmp_path: Path) -> None:
    texts = [["fill the glass", "turn on the water"]] * 5 + [["fill the glass", "turn the water off"]] * 2
    others = [[f"sing song {i}", f"dance around {i}"] for i in range(150)]
    narrations = [Narration(f"v{i}", tuple(map(Segment, own))) for i, own in enumerate(texts + others)]
    corpus = built_corpus(tmp_path / "corpus", narrations, "hash:128")
    evidence = CorpusEvidence(Verifier(corpus, RewardConfig(verifier="grounded", pool_size=7)))
    [[row]] = evidence.evidence([(("fill a glass", ("fill the glass",)), ("turn off the water",))])
    assert row["opposed_in"] == 5
    assert row["matched_in"] == 2
    assert row["state"] == "unsupported"
    assert {ground["text"] for ground in row["grounds"]} == {"turn the water off"}
    assert evidence.same(["turn on the water"], ["turn off the water"]) == [None]
    assert evidence.same(["turn the water off"], ["turn off the water"]) == [0]
