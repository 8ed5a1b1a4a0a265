"""What may be wrong at a site: one sentence that names it, and nothing that was there is lost.

Elsewhere: a checkpoint without a chat template (tests/house/test_checkpoints.py), a corpus of another encoder
(tests/corpus/test_store.py), a judge that refuses its schema (tests/evaluation/test_judge_endpoint.py), videos that are
missing (tests/cli/test_perceive.py, tests/training/video/test_video_inputs.py).
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytest.importorskip("sentence_transformers")

from recipe.config import CorpusConfig, EncoderConfig, ModelConfig, SamplingConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.store import Corpus
from recipe.errors import EncoderMismatch, RecipeError
from recipe.models.model import open_model
from recipe.models.protocol import ModelRequest
from recipe.text import planner_messages
from recipe.types import Narration, Segment

Hub = Callable[[str], Path]


def copied(hub: Hub, target: Path) -> Path:
    return Path(shutil.copytree(hub("Qwen/Qwen2.5-0.5B-Instruct"), target))


def without_template(folder: Path) -> str:
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    del settings["chat_template"]
    path.write_text(json.dumps(settings))
    return "chat template"


def of_another_model(folder: Path) -> str:
    """The tokenizer has entries beyond the rows of the weights."""
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    name = "model.embed_tokens.weight"
    save_file(tensors | {name: tensors[name][:1000].clone()}, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 1000}))
    assert tensors[name].dtype == torch.bfloat16
    return "tokenizer"


@pytest.mark.parametrize("damage", [without_template, of_another_model])
def test_a_checkpoint_that_does_not_fit_is_refused_in_one_sentence(
    hub: Hub, tmp_path: Path, damage: Callable[[Path], str]
) -> None:
    folder = copied(hub, tmp_path / "model")
    named = damage(folder)
    asked = ModelRequest(planner_messages("make tea", ("boil water",)), SamplingConfig(max_tokens=2))
    with pytest.raises(RecipeError, match=named) as caught, open_model(ModelConfig(model=str(folder))) as model:
        list(model.answer([asked]))
    assert "\n" not in str(caught.value)


def test_a_corpus_of_another_encoder_is_refused_and_stays(hub: Hub, tmp_path: Path) -> None:
    hub("jinaai/jina-embeddings-v3-hf")
    told = [Narration(f"v{n}", (Segment("chop the onion"), Segment(f"fry it {n}"))) for n in range(4)]
    build_corpus(told, tmp_path / "c", CorpusConfig(encoder=EncoderConfig(name="hash:64")))
    before = {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()}
    with pytest.raises(EncoderMismatch, match="jina-embeddings-v3-hf"):
        Corpus.open(tmp_path / "c", EncoderConfig(name="jinaai/jina-embeddings-v3-hf"))
    assert {path: path.read_bytes() for path in (tmp_path / "c").rglob("*") if path.is_file()} == before
