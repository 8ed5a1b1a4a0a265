"""Steps are encoded once, and an encoder's failure is an error."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from recipe.errors import ComputeError, InputError
from recipe.reward.embeddings import LruCache, StepEmbeddings


class Letters:
    """One dimension: the text's length; a text of its own making fails."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str]) -> Any:
        self.asked += texts
        if "down" in texts:
            raise OSError("connection refused")
        if "nan" in texts:
            return np.full((len(texts), 1), np.nan, np.float32)
        return np.array([[len(text)] for text in texts if text != "lost"], np.float32)


def test_each_text_is_encoded_once_and_returned_in_order() -> None:
    encoder = Letters()
    embed = StepEmbeddings(encoder, capacity=10)
    assert embed.stacked(["abc", "a", "abc"]).ravel().tolist() == [3, 1, 3]
    assert embed.stacked(["ab", "abc"]).ravel().tolist() == [2, 3]
    assert encoder.asked == ["abc", "a", "ab"]


def test_more_texts_than_the_memory_holds_are_returned_all_the_same() -> None:
    embed = StepEmbeddings(Letters(), capacity=2)
    assert embed.stacked(["a", "bb", "ccc", "dddd"]).ravel().tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("text", ["down", "nan", "lost"])
def test_a_failing_encoder_is_an_error_and_leaves_nothing_behind(text: str) -> None:
    encoder = Letters()
    embed = StepEmbeddings(encoder, capacity=10)
    with pytest.raises(ComputeError, match="encoder"):
        embed.by_text(["fine", text])
    assert embed.by_text(["fine"])["fine"].item() == 4
    assert encoder.asked == ["fine", text, "fine"]


def test_a_blank_step_is_refused() -> None:
    with pytest.raises(InputError, match="step is empty"):
        StepEmbeddings(Letters(), capacity=10).by_text(["a", "\t"])


def test_the_memory_is_bounded_and_forgets_the_oldest() -> None:
    cache = LruCache[int, int](capacity=3)
    for key in range(10):
        cache.put(key, key)
        assert cache.get(0) == 0, "what is asked for is kept"
    assert [key for key in range(10) if cache.get(key) is not None] == [0, 8, 9]
