from importlib.resources import files
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from recipe.artifacts import file_sha256, read_jsonl
from recipe.config import BaseModelConfig
from recipe.errors import ConfigError
from recipe.text import SYSTEM_PROMPT, planner_messages
from recipe.training.base import SPECIAL_TOKENS, Batch, _bounds, chat_text, train_base, train_tokenizer
from recipe.training.policy import load_policy


def test_learns_and_leaves_a_model_in_the_standard_layout(base_model: Path, base_config: BaseModelConfig) -> None:
    rows = [row for _, row in read_jsonl(base_config.output / "metrics.jsonl")]
    assert [row["step"] for row in rows] == list(range(1, base_config.steps + 1))
    assert rows[-1]["loss"] < rows[0]["loss"] / 2
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= {
        file.name for file in base_model.iterdir()
    }
    policy = load_policy(str(base_model))
    assert policy.model.config.model_type == "qwen2"
    assert policy.model.generation_config.eos_token_id[0] == policy.tokenizer.eos_token_id


def test_equal_seeds_give_equal_weights(base_config: BaseModelConfig, tmp_path: Path) -> None:
    hashes = []
    for name, seed in (("one", 0), ("again", 0), ("other", 1)):
        config = base_config.model_copy(update={"steps": 2, "seed": seed, "output": tmp_path / name})
        hashes.append(file_sha256(train_base(config) / "model.safetensors"))
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize("native_bfloat16", [True, False], indirect=True)
def test_bfloat16_is_not_emulated(native_bfloat16: bool, base_config: BaseModelConfig, tmp_path: Path) -> None:
    short = base_config.model_copy(update={"steps": 2, "bf16": True, "output": tmp_path / "asked"})
    exact = short.model_copy(update={"bf16": False, "output": tmp_path / "exact"})
    first, second = (file_sha256(train_base(config) / "model.safetensors") for config in (short, exact))
    assert (first == second) is not native_bfloat16


def test_shared_head_and_padding_leave_the_loss_as_it_is(base_model: Path) -> None:
    model = load_policy(str(base_model)).model
    draw = torch.Generator().manual_seed(3)
    head = torch.randint(20, 300, (1, 6), generator=draw)
    rests = [torch.randint(20, 300, (length,), generator=draw) for length in (4, 9, 7)]
    ids = torch.full((3, 12), 0)
    labels = torch.full((3, 12), -100)
    for row, rest in enumerate(rests):
        ids[row, : len(rest)] = labels[row, : len(rest)] = rest
    whole = [torch.cat([head[0], rest])[None] for rest in rests]
    surprise = [
        torch.nn.functional.cross_entropy(model(chat).logits[0, 6:-1], chat[0, 7:], reduction="sum") for chat in whole
    ]
    expected = torch.stack(surprise).sum() / sum(len(rest) - 1 for rest in rests)
    torch.testing.assert_close(Batch(head, ids, labels).loss(model), expected, rtol=1e-5, atol=1e-5)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 200))
def test_batches_hold_every_chat_once_and_stay_within_the_budget(lengths: list[int], tokens: int) -> None:
    lengths.sort()
    bounds = _bounds(lengths, tokens)
    assert [index for start, stop in bounds for index in range(start, stop)] == list(range(len(lengths)))
    for start, stop in bounds:
        assert stop - start == 1 or (stop - start) * lengths[stop - 1] <= tokens


def test_context_too_short_is_an_error(base_config: BaseModelConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="raise `context`"):
        train_base(base_config.model_copy(update={"context": 8, "output": tmp_path}))


TEXTS = ["Goal: make tea", "1. boil the water\n2. wait 10 minutes", "don't stir"]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(TEXTS * 3, 400, 64)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_normalised_text_round_trips(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    import unicodedata

    composed = unicodedata.normalize("NFC", text)
    ids = tokenizer(composed, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == composed


def test_size_special_tokens_and_padding(tokenizer: PreTrainedTokenizerFast) -> None:
    assert len(tokenizer) <= 400
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token == "<|endoftext|>"
    assert tokenizer.padding_side == "left"
    for token in SPECIAL_TOKENS:
        assert tokenizer(token, add_special_tokens=False)["input_ids"] == [tokenizer.convert_tokens_to_ids(token)]
    assert tokenizer.tokenize("2024") == ["2", "0", "2", "4"]


def test_chat_is_that_of_qwen(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.chat_template == files("trl").joinpath("chat_templates/qwen2_5.jinja").read_text()
    asked = chat_text(tokenizer, planner_messages("make tea", ["boil the water"]), ask=True)
    assert asked == (
        f"<|im_start|>system\n{SYSTEM_PROMPT}<|im_end|>\n"
        "<|im_start|>user\nGoal: make tea\nDone:\n1. boil the water<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
