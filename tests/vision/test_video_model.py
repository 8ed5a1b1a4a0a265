"""A Qwen2.5-VL built around a language model: what it keeps, and from what it cannot be built."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("trl")

from recipe.errors import ConfigError  # noqa: E402
from recipe.models.checkpoints import Checkpoint, load_checkpoint  # noqa: E402
from recipe.text import planner_messages  # noqa: E402
from recipe.training.base import train_tokenizer  # noqa: E402
from recipe.types import Frames  # noqa: E402
from recipe_studies.vision.video_model import VisionShape, build_video_model  # noqa: E402

SHAPE = VisionShape(depth=1, hidden_size=16, heads=1, intermediate_size=32)


def base(**changes: Any) -> Checkpoint:
    tokenizer = train_tokenizer(["boil the water"], 512, 512)
    torch.manual_seed(0)
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        **changes,
    )
    model = transformers.Qwen2ForCausalLM(config).eval()
    model.generation_config.eos_token_id = [1, 2]
    return Checkpoint(model, tokenizer)


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True}, {"rope_theta": 300.0, "rms_norm_eps": 1e-3}])
def test_text_is_read_as_before(changes: dict[str, Any]) -> None:
    language = base(**changes)
    built = build_video_model(language, SHAPE, seed=0)
    tokens = torch.randint(20, language.model.config.vocab_size, (3, 40))
    with torch.no_grad():
        torch.testing.assert_close(built.model(tokens).logits, language.model(tokens).logits, atol=1e-5, rtol=1e-5)
    assert built.model.generation_config.eos_token_id == [1, 2]
    chat = planner_messages("tea", ["boil the water"])
    rendered = [one.tokenizer.apply_chat_template(chat, tokenize=False) for one in (built, language)]
    assert rendered[0] == rendered[1]


def test_the_seed_decides_the_tower_and_nothing_else() -> None:
    language = base()
    torch.manual_seed(5)
    first, second, other = (build_video_model(language, SHAPE, seed).model.state_dict() for seed in (0, 0, 1))
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))
    changed = {name for name in first if not torch.equal(first[name], other[name])}
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert changed
    assert all("visual" in name for name in changed)


def test_square_frames_are_seen_as_the_shape_says() -> None:
    built = build_video_model(base(), VisionShape(), 0)
    assert built.video is not None
    patches = built.video(Frames(np.zeros((6, 60, 60, 3), np.uint8), np.arange(6) / 2, 2.0))
    assert patches.grid == (3, 4, 4)
    features = built.model.get_video_features(patches.pixels, torch.tensor([patches.grid])).pooler_output
    assert [seen.shape for seen in features] == [(12, 32)]
    assert 0.1 < features[0].std() < 10  # nothing fades on the way


def test_what_is_no_base_is_refused(tiny_model: Path) -> None:
    with pytest.raises(ConfigError, match="built onto a Qwen2 model, not onto 'olmo2'"):
        build_video_model(load_checkpoint(str(tiny_model)), SHAPE, 0)
    language = base()
    tokenizer = copy.deepcopy(load_checkpoint(str(tiny_model)).tokenizer)
    with pytest.raises(ConfigError, match=r"The tokenizer has no '<\|image_pad\|>'"):
        build_video_model(Checkpoint(language.model, tokenizer), SHAPE, 0)
