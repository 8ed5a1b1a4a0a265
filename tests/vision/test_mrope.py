"""Positions of a clip's tokens: by hand, and against transformers where that is right."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from recipe.errors import InputError  # noqa: E402
from recipe.models.vision import Patches, mrope_positions  # noqa: E402

VIDEO = 7
MODEL: Any = SimpleNamespace(
    config=SimpleNamespace(
        video_token_id=VIDEO, vision_config=SimpleNamespace(spatial_merge_size=2, tokens_per_second=2)
    )
)


def clip(time: int, high: int, wide: int, seconds: float = 1.0) -> Patches:
    return Patches(torch.zeros(0), (time, 2 * high, 2 * wide), seconds)


def row(*tokens: int) -> Any:
    return torch.tensor([tokens])


def test_a_clip_by_hand() -> None:
    tokens = row(1, 2, *[VIDEO] * 6, 3, 4)
    found = mrope_positions(MODEL, tokens, torch.ones_like(tokens), [clip(3, 1, 2)])
    assert found[:, 0].tolist() == [
        [0, 1, 2, 2, 4, 4, 6, 6, 7, 8],
        [0, 1, 2, 2, 2, 2, 2, 2, 7, 8],
        [0, 1, 2, 3, 2, 3, 2, 3, 7, 8],
    ]


@pytest.mark.parametrize(("seconds", "times"), [(0.25, [0, 0, 1, 1]), (0.75, [0, 1, 3, 4]), (2.0, [0, 4, 8, 12])])
def test_time_is_rounded_down_after_it_has_run(seconds: float, times: list[int]) -> None:
    tokens = row(*[VIDEO] * 4, 3)
    found = mrope_positions(MODEL, tokens, torch.ones_like(tokens), [clip(4, 1, 1, seconds)])
    assert found[0, 0].tolist() == [*times, times[-1] + 1]


def test_rows_are_padded_on_either_side_and_need_no_clip() -> None:
    tokens = torch.tensor([[0, 0, 1, VIDEO, VIDEO, 2], [1, 2, 3, 4, 0, 0], [0, 1, 2, 3, 4, 5]])
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1]])
    found = mrope_positions(MODEL, tokens, mask, [clip(1, 1, 2), None, None])
    assert found[2].tolist() == [[0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 0, 0], [0, 0, 1, 2, 3, 4]]
    assert torch.equal(found[0, 1:], found[2, 1:])


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 5), st.integers(0, 4), st.integers(1, 4), st.integers(0, 3))
def test_transformers_agrees_while_time_is_no_longer_than_a_side(
    time: int, high: int, wide: int, before: int, after: int, padding: int
) -> None:
    tokens = torch.tensor([[0] * padding + [1] * before + [VIDEO] * (time * high * wide) + [2] * after])
    mask = torch.tensor([[0] * padding + [1] * (tokens.shape[1] - padding)])
    shown = clip(time, high, wide)
    stock = transformers.Qwen2_5_VLModel
    self = SimpleNamespace(
        config=MODEL.config, get_vision_position_ids=lambda *a, **k: stock.get_vision_position_ids(None, *a, **k)
    )
    expected, _ = stock.get_rope_index(
        self,
        tokens,
        mm_token_type_ids=2 * (tokens == VIDEO).int(),
        video_grid_thw=torch.tensor([shown.grid]),
        second_per_grid_ts=torch.tensor([1.0]),
        attention_mask=mask,
    )
    found = mrope_positions(MODEL, tokens, mask, [shown])
    assert torch.equal(found[..., : tokens.shape[1] - after], expected[..., : tokens.shape[1] - after])
    assert torch.equal(found, expected) == (2 * (time - 1) < max(high, wide))
    assert found[0, 0, -after:].tolist() == [int(found[..., :-after].max()) + 1 + n for n in range(after)]


@pytest.mark.parametrize("held", [0, 3, 5])
def test_each_token_of_a_clip_has_its_place(held: int) -> None:
    tokens = row(1, *[VIDEO] * held, 2)
    with pytest.raises(InputError, match=f"holds {held} video tokens and its clip 4; write one"):
        mrope_positions(MODEL, tokens, torch.ones_like(tokens), [clip(1, 2, 2)])
    if held:
        with pytest.raises(InputError, match=f"holds {held} video tokens and its clip 0"):
            mrope_positions(MODEL, tokens, torch.ones_like(tokens), [None])
