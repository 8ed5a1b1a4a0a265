"""Answers that are begun: a model goes on behind a text, a line at a time."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import fake_vllm

from recipe.config import ModelConfig, SamplingConfig
from recipe.models.endpoint.wire import answer_fields, request_fields
from recipe.models.local import LocalEngine
from recipe.models.model import open_model
from recipe.models.protocol import Answer, Engine, ModelRequest, ReplayEngine, digest

LETTERS = ["<pad>", "<end>", "a", "b", "c", "1", "2", ".", "Ġ", "Ċ"]
TEMPLATE = "{% for m in messages %}{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}c{% endif %}"
CHATS = [[{"role": "user", "content": text}] for text in ("ab", "12 a", "c.c.c")]


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights that writes one letter at a time, line breaks among them."""
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    path = tmp_path_factory.mktemp("letters")
    bytes_only = Tokenizer(models.BPE({letter: place for place, letter in enumerate(LETTERS)}, []))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=bytes_only, eos_token="<end>", pad_token="<pad>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    torch.manual_seed(3)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 96}
    heads: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.Olmo2Config(
        vocab_size=len(LETTERS), initializer_range=0.3, eos_token_id=1, pad_token_id=0, **sizes, **heads
    )
    transformers.Olmo2ForCausalLM(config).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def engine(letters: Path) -> LocalEngine:
    return LocalEngine(letters, device="cpu")


def lines(engine: Engine, chat: list[dict[str, Any]], sampling: SamplingConfig, most: int = 40) -> list[str]:
    """What a model writes line by line, each behind those before it."""
    written: list[str] = []
    for _ in range(most):
        [answer] = engine.answer([ModelRequest(chat, sampling, begun="".join(written), line=True)])
        assert isinstance(answer, Answer)
        written.append(answer.text)
        if "\n" not in answer.text:
            break
    return written


def test_lines_one_behind_the_other_are_the_whole_answer(engine: LocalEngine) -> None:
    sampling = SamplingConfig(temperature=0.0, max_tokens=30)
    for chat in CHATS:
        [whole] = engine.answer([ModelRequest(chat, sampling)])
        assert isinstance(whole, Answer)
        written = lines(engine, chat, sampling)
        assert all(line.count("\n") == line.endswith("\n") for line in written)
        assert "".join(written).startswith(whole.text)


def test_a_line_ends_with_its_break_or_with_the_answer(engine: LocalEngine) -> None:
    requests = [ModelRequest(CHATS[0], SamplingConfig(temperature=1.0, max_tokens=40), n, line=True) for n in range(40)]
    answers = [answer for answer in engine.answer(requests) if isinstance(answer, Answer)]
    assert {answer.text.count("\n") for answer in answers} == {0, 1}
    for answer in answers:
        assert "\n" not in answer.text[:-1]
        assert answer.finish == ("stop" if answer.tokens_out < 40 else answer.finish)


def test_a_continuation_does_not_depend_on_its_batch(engine: LocalEngine) -> None:
    sampling = SamplingConfig(temperature=1.0, max_tokens=12)
    requests = [
        ModelRequest(chat, sampling, sample, begun=begun, line=line)
        for chat in CHATS
        for begun in ("", "1. a\n", "1. a\n2. b\n")
        for sample, line in ((0, False), (1, True))
    ]
    together = engine.answer(requests)
    assert [one.text for one in together] == [engine.answer([request])[0].text for request in requests]  # type: ignore[union-attr]
    streamed = {place: piece for place, piece in engine.stream_all(requests) if isinstance(piece, Answer)}
    assert [streamed[place].text for place in range(len(requests))] == [one.text for one in together]  # type: ignore[union-attr]


def test_vllm_goes_on_where_the_local_engine_does(engine: LocalEngine, letters: Path) -> None:
    sampling = SamplingConfig(temperature=0.0, max_tokens=30)
    with fake_vllm.installed(), open_model(ModelConfig(model=str(letters), engine="vllm")) as other:
        assert other.continues
        for chat in CHATS:
            assert lines(other, chat, sampling) == lines(engine, chat, sampling)


def test_a_beginning_is_part_of_the_question(letters: Path, tmp_path: Path) -> None:
    sampling = SamplingConfig(temperature=1.0, max_tokens=8)
    requests = [
        ModelRequest(CHATS[0], sampling, begun=begun, line=line) for begun in ("", "1") for line in (False, True)
    ]
    with open_model(ModelConfig(model=str(letters), cache=tmp_path / "cache")) as model:
        assert model.continues
        assert len({model.key(request) for request in requests}) == 4
        first = model.answer(requests)
        again = model.answer(requests)
        assert [one._replace(cached=False) for one in again] == first  # type: ignore[union-attr]
    with open_model(ModelConfig(model=str(letters), cache=tmp_path / "cache", replay=True)) as replayed:
        assert replayed.continues
        assert replayed.answer(requests) == again
    assert not ReplayEngine({}).continues


def test_an_endpoint_is_asked_to_go_on() -> None:
    config = ModelConfig(model="m", endpoint="http://x/v1", continues=True)
    plain, begun = (ModelRequest(CHATS[0], SamplingConfig(), begun=text, line=bool(text)) for text in ("", "1. a\n"))
    body = request_fields(begun, config)
    assert body["messages"] == [*CHATS[0], {"role": "assistant", "content": "1. a\n"}]
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert (body["stop"], body["include_stop_str_in_output"]) == (["\n"], True)
    assert set(request_fields(plain, config)) == set(body) - {
        "continue_final_message", "add_generation_prompt", "stop", "include_stop_str_in_output"
    }  # fmt: skip
    assert answer_fields(plain, digest, config) != answer_fields(begun, digest, config)
