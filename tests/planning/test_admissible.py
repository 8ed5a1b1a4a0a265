"""Mapping free-form steps to admissible actions: by hand on angles, and whatever the batch."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.errors import ComputeError, InputError
from recipe.planning.admissible import ActionMatch, AdmissibleActions


class Angles:
    """Embeds a text by the angle in degrees that it names, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        angles = np.radians([float(text) for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_an_action_is_itself_even_where_another_has_the_same_vector() -> None:
    actions = AdmissibleActions(Angles(), ["360", "0", "90"])
    assert actions.map(["0"]) == [ActionMatch("0", 1.0, 0.0)]
    assert actions.map(["360"]) == [ActionMatch("360", 1.0, 0.0)]
    assert actions.map(["90"])[0].margin == pytest.approx(1.0, abs=1e-6)


def test_ties_go_to_the_first_in_the_order_that_is_given() -> None:
    assert AdmissibleActions(Angles(), ["0", "90"]).map(["45"])[0] == ActionMatch("0", 0.707107, 0.0)
    assert AdmissibleActions(Angles(), ["90", "0"]).map(["45"])[0].action == "90"


def test_each_text_is_embedded_once() -> None:
    embed = Angles()
    actions = AdmissibleActions(embed, ["0", "90", "0"])
    assert actions.actions == ("0", "90")
    actions.map(["10", "80", "10", "0"])
    actions.map(["80", "20"])
    assert embed.asked == ["0", "90", "10", "80", "20"]


def test_no_actions_and_unusable_vectors_are_refused() -> None:
    with pytest.raises(InputError, match="no actions"):
        AdmissibleActions(Angles(), [])
    with pytest.raises(ComputeError, match="no usable vectors for 1 texts"):
        AdmissibleActions(lambda texts: np.full((len(texts), 2), np.nan, np.float32), ["a"])
    with pytest.raises(ComputeError, match="for 2 texts"):
        AdmissibleActions(lambda texts: np.ones((1, 2), np.float32), ["a", "b"])


vectors = {
    f"t{n}": row
    for n, row in enumerate(np.random.default_rng(0).normal(size=(40, 12)).astype(np.float32))  # few, and close
}
vectors = {name: row / np.linalg.norm(row) for name, row in vectors.items()}
names = st.lists(st.sampled_from(sorted(vectors)), min_size=1, max_size=40)


@settings(deadline=None)
@given(names, names, st.integers(1, 39))
def test_the_result_is_brute_force_and_depends_on_no_batch(actions: list[str], texts: list[str], cut: int) -> None:
    def embed(asked: Sequence[str]) -> np.ndarray:
        return np.stack([vectors[text] for text in asked])

    whole = AdmissibleActions(embed, actions).map(texts)
    parts = AdmissibleActions(embed, actions)
    assert parts.map(texts[:cut]) + parts.map(texts[cut:]) == whole
    for text, mapped in zip(texts, whole, strict=True):
        cosines = {action: float(vectors[text] @ vectors[action]) for action in dict.fromkeys(actions)}
        assert mapped.similarity == pytest.approx(max(cosines.values()), abs=1e-5)
        assert mapped.action == (text if text in cosines else max(cosines, key=lambda action: cosines[action]))
        rest = [value for action, value in cosines.items() if action != mapped.action]
        assert mapped.margin == pytest.approx(mapped.similarity - max(rest, default=0.0), abs=1e-5)
