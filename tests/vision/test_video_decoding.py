"""Decoding with clips against a plain forward pass of transformers: the contract that training relies on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.models.asking import forced_likelihood  # noqa: E402

from recipe.errors import InputError  # noqa: E402
from recipe.models.checkpoints import Checkpoint, load_checkpoint  # noqa: E402
from recipe.models.decoding import complete, steps  # noqa: E402
from recipe.models.vision import Patches, mrope_positions  # noqa: E402
from recipe.types import Frames  # noqa: E402


@pytest.fixture(scope="module")
def checkpoint(tiny_video_model: Path) -> Checkpoint:
    return load_checkpoint(str(tiny_video_model))


def clip(checkpoint: Checkpoint, seed: int, frames: int = 2, width: int = 56, height: int = 56) -> Patches:
    images = np.random.default_rng(seed).integers(0, 256, (frames, height, width, 3), dtype=np.uint8)
    assert checkpoint.video is not None
    return checkpoint.video(Frames(images, np.arange(frames) / 2, 2.0))


def prompt(checkpoint: Checkpoint, goal: str, shown: Patches | None) -> list[int]:
    """Text, the clip's tokens, text."""
    assert checkpoint.video is not None
    place = [checkpoint.model.config.video_token_id] * (checkpoint.video.tokens(shown) if shown else 0)
    first, last = checkpoint.tokenizer([f"Goal: {goal} Done: ", " Next:"])["input_ids"]
    return [*first, *place, *last]


@pytest.fixture(scope="module")
def asked(checkpoint: Checkpoint) -> tuple[list[list[int]], list[Patches | None]]:
    """Prompts of different lengths: clips of three sizes, one of them twice, and none."""
    wide, tall = clip(checkpoint, 0, 4, width=84), clip(checkpoint, 1, 2, height=84)
    shown = [wide, None, tall, wide, clip(checkpoint, 2, 3), None, wide]
    goals = ["tea", "dig a deep hole", "a cake for two", "tea", "", "x", "another"]
    return [prompt(checkpoint, goal, one) for goal, one in zip(goals, shown, strict=True)], shown


def likeliest(logits: Any, _rows: Any, _step: int) -> Any:
    return logits.argmax(-1)


def stock_inputs(checkpoint: Checkpoint, tokens: Sequence[int], shown: Patches | None) -> dict[str, Any]:
    """Everything that transformers asks for, of one unpadded row."""
    ids = torch.tensor([tokens])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if shown is None:
        return inputs
    return {
        **inputs,
        "pixel_values_videos": shown.pixels,
        "video_grid_thw": torch.tensor([shown.grid]),
        "second_per_grid_ts": torch.tensor([shown.seconds_per_grid]),
        "mm_token_type_ids": 2 * (ids == checkpoint.model.config.video_token_id).int(),
    }


def placed_alike(shown: Patches | None) -> bool:
    """True where transformers places the text after the clip as it should, see `mrope_positions`."""
    return shown is None or 2 * (shown.grid[0] - 1) < max(shown.grid[1:]) // 2


def forward_nats(checkpoint: Checkpoint, tokens: list[int], said: Sequence[int], shown: Patches | None) -> float:
    """Log-probability of `said` by one forward pass over prompt and completion, at its own positions where right."""
    inputs = stock_inputs(checkpoint, [*tokens, *said], shown)
    if not placed_alike(shown):
        inputs["position_ids"] = mrope_positions(
            checkpoint.model, inputs["input_ids"], inputs["attention_mask"], [shown]
        )
    with torch.no_grad():
        logits = checkpoint.model(**inputs).logits[0, len(tokens) - 1 : -1].double()
    return float(torch.log_softmax(logits, -1).gather(1, torch.tensor(said)[:, None]).sum())


def test_likelihoods_on_a_ragged_batch_are_those_of_the_forward_pass(checkpoint: Checkpoint, asked: Any) -> None:
    prompts, shown = asked
    said = [[40 + n + row for n in range(1 + row % 4)] for row in range(len(prompts))]
    found = forced_likelihood(checkpoint.model, prompts, said, shown)
    expected = [forward_nats(checkpoint, *row) for row in zip(prompts, said, shown, strict=True)]
    assert found == pytest.approx(expected, abs=1e-4)


def test_greedy_is_what_transformers_writes(checkpoint: Checkpoint, asked: Any) -> None:
    prompts, shown = asked
    with torch.no_grad():
        written = complete(checkpoint.model, prompts, likeliest, ends=[], longest=12, clips=shown)
    for tokens, one, found in zip(prompts, shown, written, strict=True):
        inputs = stock_inputs(checkpoint, tokens, one)
        if not placed_alike(one):
            continue
        output = checkpoint.model.generate(**inputs, max_new_tokens=12, do_sample=False, eos_token_id=None)
        assert found == output[0, len(tokens) :].tolist()


def test_pixels_and_their_times_are_read(checkpoint: Checkpoint, asked: Any) -> None:
    prompts, shown = asked
    blank = Patches(torch.zeros_like(shown[0].pixels), shown[0].grid, 1.0)
    slower = Patches(shown[0].pixels, shown[0].grid, 4.0)
    clips = [shown[0], blank, slower]
    seen, unseen, late = forced_likelihood(checkpoint.model, prompts[:1] * 3, [[40, 41, 42]] * 3, clips)
    assert abs(seen - unseen) > 1e-2
    assert abs(seen - late) > 1e-3


def test_a_text_prompt_is_read_as_by_the_model_without_clips(checkpoint: Checkpoint, asked: Any) -> None:
    prompts, _ = asked
    text = [prompts[1], prompts[5]]
    bare = forced_likelihood(checkpoint.model, text, [[40, 41], [42]])
    assert bare == pytest.approx(
        [forward_nats(checkpoint, text[0], [40, 41], None), forward_nats(checkpoint, text[1], [42], None)], abs=1e-4
    )


def test_a_streamed_completion_is_the_completion(checkpoint: Checkpoint, asked: Any) -> None:
    prompts, shown = asked
    with torch.no_grad():
        [whole] = complete(checkpoint.model, prompts[:1], likeliest, ends=[], longest=7, clips=shown[:1])
        made = list(steps(checkpoint.model, prompts[:1], likeliest, ends=[], longest=7, clips=shown[:1]))
        assert [token for _, tokens, _ in made for token in tokens] == whole
    assert [ended for _, _, ended in made] == [[False]] * 6 + [[True]]


def test_the_context_counts_tokens_and_not_positions(checkpoint: Checkpoint, asked: Any) -> None:
    prompts, shown = asked
    with torch.no_grad():
        [row] = complete(
            checkpoint.model, prompts[:1], likeliest, ends=[], longest=9, context=len(prompts[0]) + 5, clips=shown[:1]
        )
    assert len(row) == 5


@pytest.mark.parametrize(("change", "held"), [(1, 13), (-1, 11), (-12, 0)])
def test_video_tokens_must_be_those_of_the_clip(checkpoint: Checkpoint, asked: Any, change: int, held: int) -> None:
    prompts, shown = asked
    place = checkpoint.model.config.video_token_id
    first = prompts[0].index(place)
    tokens = [*prompts[0][:first], *[place] * (12 + change), *prompts[0][first + 12 :]]
    with pytest.raises(InputError, match=f"holds {held} video tokens and its clip 12"):
        complete(checkpoint.model, [tokens], likeliest, ends=[], longest=1, clips=shown[:1])


def test_video_tokens_without_a_clip_and_a_clip_without_a_tower_are_refused(
    checkpoint: Checkpoint, asked: Any, tiny_model: Path
) -> None:
    prompts, shown = asked
    with pytest.raises(InputError, match="holds 12 video tokens and its clip 0"):
        complete(checkpoint.model, prompts[:1], likeliest, ends=[], longest=1)
    blind = load_checkpoint(str(tiny_model)).model
    with pytest.raises(InputError, match="The model reads no video"):
        complete(blind, [[5, 6]], likeliest, ends=[], longest=1, clips=shown[:1])
