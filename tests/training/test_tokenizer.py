from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from recipe.text import SYSTEM_PROMPT, planner_messages
from recipe.training.base import SPECIAL_TOKENS, chat_text, train_tokenizer

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


def test_each_digit_is_a_token(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.tokenize("2024") == ["2", "0", "2", "4"]


def test_chat_is_that_of_qwen(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.chat_template == files("trl").joinpath("chat_templates/qwen2_5.jinja").read_text()
    asked = chat_text(tokenizer, planner_messages("make tea", ["boil the water"]), ask=True)
    assert asked == (
        f"<|im_start|>system\n{SYSTEM_PROMPT}<|im_end|>\n"
        "<|im_start|>user\nGoal: make tea\nDone:\n1. boil the water<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_saved_and_loaded_is_the_same(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    messages = planner_messages("make tea", TEXTS)
    assert loaded.apply_chat_template(messages) == tokenizer.apply_chat_template(messages)
    assert (loaded.eos_token_id, loaded.pad_token_id) == (tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert loaded.padding_side == "left"
