"""What may be wrong at a site: one sentence that names it, and nothing that was there is lost.

Elsewhere: a checkpoint without a chat template (tests/house/test_checkpoints.py), a corpus of another encoder
(tests/corpus/test_store.py), a judge that refuses its schema (tests/evaluation/test_judge_endpoint.py), videos that are
missing (tests/cli/test_perceive.py, tests/training/video/test_video_inputs.py).
"""

import importlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytest.importorskip("sentence_transformers")

from recipe.config import ModelConfig, SamplingConfig
from recipe.errors import RecipeError
from recipe.models.model import open_model
from recipe.models.protocol import ModelRequest
from recipe.text import planner_messages

Hub = Callable[[str], Path]


def test_a_tokenizer_of_another_model_is_refused_in_one_sentence(hub: Hub, tmp_path: Path) -> None:
    """It has entries beyond the rows of the weights."""
    folder = Path(shutil.copytree(hub("Qwen/Qwen2.5-0.5B-Instruct"), tmp_path / "model"))
    safetensors = importlib.import_module("safetensors.torch")
    tensors, name = safetensors.load_file(folder / "model.safetensors"), "model.embed_tokens.weight"
    changed = tensors | {name: tensors[name][:1000].clone()}
    safetensors.save_file(changed, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 1000}))
    asked = ModelRequest(planner_messages("make tea", ("boil water",)), SamplingConfig(max_tokens=2))
    with pytest.raises(RecipeError, match="tokenizer") as caught, open_model(ModelConfig(model=str(folder))) as model:
        list(model.answer([asked]))
    assert "\n" not in str(caught.value)
