"""Answers that are begun: a model goes on behind a text, and what it has read it does not read again."""

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
    torch.manual_seed(30)
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


def behind(engine: Engine, chat: list[dict[str, Any]], begun: str, sampling: SamplingConfig) -> str:
    """What a model writes behind a text."""
    [answer] = engine.answer([ModelRequest(chat, sampling, begun=begun, continued=True)])
    assert isinstance(answer, Answer)
    return answer.text


def test_any_beginning_of_an_answer_is_gone_on_with_to_the_same_answer(engine: LocalEngine) -> None:
    sampling = SamplingConfig(temperature=0.0, max_tokens=40)
    for chat in CHATS:
        whole = behind(engine, chat, "", sampling)
        for cut in range(1, len(whole)):
            assert (whole[:cut] + behind(engine, chat, whole[:cut], sampling)).startswith(whole)


def test_a_continuation_does_not_depend_on_its_batch(engine: LocalEngine) -> None:
    sampling = SamplingConfig(temperature=1.0, max_tokens=12)
    requests = [
        ModelRequest(chat, sampling, sample, begun=begun, continued=bool(sample))
        for chat in CHATS
        for begun in ("", "1. a\n", "1. a\n2. b\n")
        for sample in (0, 1)
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
            for begun in ("", "1. a\n"):
                assert behind(other, chat, begun, sampling) == behind(engine, chat, begun, sampling)


def test_a_beginning_is_part_of_the_question(letters: Path, tmp_path: Path) -> None:
    sampling = SamplingConfig(temperature=1.0, max_tokens=8)
    requests = [ModelRequest(CHATS[0], sampling, begun=begun) for begun in ("", "1", "1.")]
    with open_model(ModelConfig(model=str(letters), cache=tmp_path / "cache")) as model:
        assert model.continues
        assert len({model.key(request) for request in requests}) == 3
        first = model.answer(requests)
        again = model.answer(requests)
        assert [one._replace(cached=False) for one in again] == first  # type: ignore[union-attr]
    with open_model(ModelConfig(model=str(letters), cache=tmp_path / "cache", replay=True)) as replayed:
        assert replayed.continues
        assert replayed.answer(requests) == again
    assert not ReplayEngine({}).continues


def test_an_endpoint_is_asked_to_go_on() -> None:
    config = ModelConfig(model="m", endpoint="http://x/v1", continues=True)
    plain, begun = (ModelRequest(CHATS[0], SamplingConfig(), begun=text) for text in ("", "1. a\n"))
    body = request_fields(begun, config)
    assert body["messages"] == [*CHATS[0], {"role": "assistant", "content": "1. a\n"}]
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert set(request_fields(plain, config)) == set(body) - {"continue_final_message", "add_generation_prompt"}
    assert answer_fields(plain, digest, config) != answer_fields(begun, digest, config)


def test_what_was_read_is_not_read_again(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts are the same up to rounding, and of a prompt only the last tokens are read."""
    from recipe.models import decoding

    sizes: list[int] = []
    logits = decoding._logits

    def counted(model: Any, tokens: Any, *rest: Any, **more: Any) -> Any:
        sizes.append(tokens.shape[1])
        return logits(model, tokens, *rest, **more)

    monkeypatch.setattr(decoding, "_logits", counted)
    sampling = SamplingConfig(temperature=0.0, max_tokens=40)
    found = {}
    for most in (1 << 24, 20_000, 0):
        monkeypatch.setattr(engine, "_read", decoding.ReadTexts(most))
        found[most] = [behind(engine, chat, "", sampling) for chat in CHATS]
        sizes.clear()
        for chat, whole in zip(CHATS, list(found[most]), strict=True):
            found[most] += [behind(engine, chat, whole[:cut], sampling) for cut in (9, 10, 17, 30)]
        prompts = [size for size in sizes if size > 1]
        assert all(size <= 8 for size in prompts) == (most == 1 << 24)
    assert found[0] == found[20_000] == found[1 << 24]


def test_prompts_of_several_lengths_share_what_was_read(engine: LocalEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    from recipe.models import decoding

    sampling = SamplingConfig(temperature=1.0, max_tokens=20)
    begun = ["", "1. a\n", "1. a\n2. b\n", "1. a\n2. c\n", "2", "1. abc.abc.abc\n"]
    found: dict[int, list[list[Any]]] = {}
    for most in (1 << 24, 20_000, 0):
        monkeypatch.setattr(engine, "_read", decoding.ReadTexts(most))
        found[most] = []
        for texts in (begun[:2], begun[1:3], begun):
            asked = [(chat, text, sample) for chat in CHATS for text in texts for sample in (0, 1)]
            requests = [ModelRequest(chat, sampling, n, begun=text, continued=True) for chat, text, n in asked]
            found[most].append([getattr(one, "text", None) for one in engine.answer(requests)])
    assert found[0] == found[20_000] == found[1 << 24]
