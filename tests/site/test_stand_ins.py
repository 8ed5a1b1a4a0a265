"""The published checkpoints that the project names: their layout is read, and plans end where their turns end."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("trl")

from recipe.config import EncoderConfig, ModelConfig, SamplingConfig
from recipe.corpus.encoders import open_encoder
from recipe.models.checkpoints import end_of_turn, end_tokens, load_checkpoint, load_reader
from recipe.models.model import open_model
from recipe.models.protocol import Answer, ModelRequest
from recipe.text import planner_messages

pytestmark = pytest.mark.thorough

Hub = Callable[[str], Path]
TURN = "<|im_start|>"
USER = [{"role": "user", "content": "hi"}]
QWEN_END, LLAMA_END = (151645, "<|im_end|>"), (128009, "<|eot_id|>")
DEFAULT = f"{TURN}system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
ASKED = f"{TURN}user\nhi<|im_end|>\n{TURN}assistant\n"
TEXT = {
    "Qwen/Qwen2.5-0.5B-Instruct": (DEFAULT + ASKED, QWEN_END, {151645, 151643}, 151936, True),
    "Qwen/Qwen2.5-7B-Instruct": (DEFAULT + ASKED, QWEN_END, {151645, 151643}, 152064, False),
    "Qwen/Qwen2.5-0.5B": (
        f"{TURN}system\nYou are a helpful assistant.<|im_end|>\n{ASKED}", QWEN_END, {151645, 151643}, 151936, True
    ),
    "Qwen/Qwen2.5-VL-3B-Instruct": (
        f"{TURN}system\nYou are a helpful assistant.<|im_end|>\n{ASKED}", QWEN_END, {151645, 151643}, 151936, True
    ),
    "meta-llama/Llama-3.3-70B-Instruct": (None, LLAMA_END, {128001, 128008, 128009}, 128256, False),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXT)
def test_a_checkpoint_is_read_as_published(hub: Hub, name: str) -> None:
    shown, end, ends, vocabulary, tied = TEXT[name]
    hub(name)
    checkpoint = load_checkpoint(name)
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    found = end_of_turn(tokenizer)
    assert (found.id, found.token, found.written) == (*end, True)
    assert set(end_tokens(model.generation_config, tokenizer)) == ends
    weights = model.get_input_embeddings().weight
    assert weights.shape == (vocabulary, 32)
    assert (model.get_output_embeddings().weight is weights) == tied
    text = tokenizer.apply_chat_template(USER, tokenize=False, add_generation_prompt=True)
    if shown is not None:
        assert text == shown
    else:
        assert text.startswith(
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: "
        )
        assert text.endswith("user<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n")
    assert len(tokenizer) <= vocabulary
    special = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|vision_start|>": 151652, "<|video_pad|>": 151656}
    if name.startswith("Qwen"):
        assert {token: tokenizer.convert_tokens_to_ids(token) for token in special} == special
    assert (checkpoint.video is not None) == ("VL" in name)


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-3B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"])
def test_the_model_answers_and_its_own_sampling_settings_have_no_say(hub: Hub, tmp_path: Path, name: str) -> None:
    altered = Path(shutil.copytree(hub(name), tmp_path / "altered"))
    path = altered / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"top_k": 1, "repetition_penalty": 9.0, "top_p": 0.1}))
    prompt = planner_messages("make tea", ("boil water",))
    request = ModelRequest(prompt, SamplingConfig(temperature=1.0, max_tokens=12))
    answers = []
    for model in (name, str(altered)):
        with open_model(ModelConfig(model=model)) as opened:
            answers += opened.answer([request])
    first, second = answers
    assert isinstance(first, Answer)
    assert isinstance(second, Answer)
    assert first.text == second.text
    assert first.text
    tokenizer = load_reader(name).tokenizer
    ids = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
    # A begin token that the template writes is not put before the text once more.
    assert first.tokens_in == len(ids)
    assert sum(token == tokenizer.bos_token_id for token in ids) == (1 if name.startswith("meta") else 0)


def test_jina_is_read_with_the_adapter_of_its_task(hub: Hub) -> None:
    name = "jinaai/jina-embeddings-v3-hf"
    hub(name)
    texts = ["chop the onion", "fry it in butter until golden"]
    encoder = open_encoder(EncoderConfig(name=name))
    assert (encoder.identity["task"], encoder.identity["dimension"]) == ("text-matching", 32)
    assert encoder.identity["revision"] == "0123456789abcdef0123456789abcdef01234567"
    other = open_encoder(EncoderConfig(name=name, task="retrieval.query"))
    vectors = encoder.encode(texts)
    assert vectors.shape == (2, 32)
    assert abs(vectors - other.encode(texts)).max() > 1e-3
    assert open_encoder(EncoderConfig(name=name, dimension=16)).encode(texts).shape == (2, 16)
