"""The local engine on chats with a video: what is asked, what it depends on, what is refused."""

import shutil
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.models.asking import pieces_of, texts_of  # noqa: E402

from recipe.config import FrameConfig, SamplingConfig  # noqa: E402
from recipe.errors import InputError  # noqa: E402
from recipe.models.checkpoints import load_checkpoint  # noqa: E402
from recipe.models.local import LocalEngine  # noqa: E402
from recipe.models.protocol import Chat  # noqa: E402
from recipe.models.vision import VideoProcessor  # noqa: E402
from recipe.text import planner_messages, video_messages  # noqa: E402
from recipe.types import Frames  # noqa: E402


@pytest.fixture(scope="module")
def engine(tiny_video_model: Path) -> LocalEngine:
    return LocalEngine(tiny_video_model, device="cpu")


def clip(seed: int, frames: int = 2, size: int = 56) -> Frames:
    images = np.random.default_rng(seed).integers(0, 256, (frames, size, size, 3), dtype=np.uint8)
    return Frames(images, np.arange(frames) / 2, 2.0)


def chats() -> list[Chat]:
    return [
        video_messages("dig a hole", clip(0)),
        planner_messages("dig a hole", ["boil the water"]),
        video_messages("tea", clip(1, 5, 90)),
        video_messages("tea", clip(2, 5, 90)),
        planner_messages("tea", []),
    ]


def sampling(**kept: object) -> SamplingConfig:
    return SamplingConfig.model_validate({"temperature": 1.0, "max_tokens": 12, **kept})


def test_a_saved_model_is_one_of_transformers(tiny_video_model: Path, engine: LocalEngine) -> None:
    model = transformers.AutoModelForImageTextToText.from_pretrained(tiny_video_model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_video_model)
    frames = clip(0)
    patches = VideoProcessor.load(tiny_video_model)(frames)
    text = tokenizer.apply_chat_template(
        video_messages("dig a hole", frames), tokenize=False, add_generation_prompt=True
    )
    assert "Done:\n<|vision_start|><|video_pad|><|vision_end|><|im_end|>\n<|im_start|>assistant\n" in text
    ids = tokenizer(text.replace("<|video_pad|>", "<|video_pad|>" * 4), return_tensors="pt")
    output = model.generate(
        **ids,
        pixel_values_videos=patches.pixels,
        video_grid_thw=torch.tensor([patches.grid]),
        second_per_grid_ts=torch.tensor([1.0]),
        mm_token_type_ids=2 * (ids["input_ids"] == model.config.video_token_id).int(),
        max_new_tokens=12,
        do_sample=False,
    )
    expected = tokenizer.decode(output[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
    assert texts_of(engine, [video_messages("dig a hole", frames)], 1, sampling(temperature=0)) == [[expected]]


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_a_completion_does_not_depend_on_its_batch(engine: LocalEngine, batch_size: int) -> None:
    whole = texts_of(engine, chats(), 3, sampling(batch_size=7))
    assert texts_of(engine, chats(), 3, sampling(batch_size=batch_size)) == whole
    assert texts_of(engine, chats()[2:3], 3, sampling(batch_size=batch_size)) == whole[2:3]
    assert len({text for texts in whole for text in texts}) > 10


def test_what_is_shown_decides(engine: LocalEngine) -> None:
    greedy = sampling(temperature=0, max_tokens=30)
    shown = [video_messages("tea", clip(seed, 4)) for seed in range(6)]
    assert len({text for [text] in texts_of(engine, shown, 1, greedy)}) > 1
    same = [video_messages("tea", clip(0, 4)), video_messages("tea", clip(0, 4))]
    [first], [second] = texts_of(engine, same, 1, sampling())
    assert first == second


def test_every_clip_draws_its_own_numbers(engine: LocalEngine) -> None:
    first = clip(0)
    later = Frames(first.images, first.times + 60, first.rate)  # the model sees no difference
    asked = [video_messages("tea", first), video_messages("tea", later)]
    [[one], [other]] = texts_of(engine, asked, 1, sampling())
    assert one != other
    [[one], [other]] = texts_of(engine, asked, 1, sampling(temperature=0))
    assert one == other


def test_characters_come_whole(engine: LocalEngine, tiny_video_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = load_checkpoint(str(tiny_video_model)).tokenizer
    tokens = [*tokenizer("a€é😀\ufffdb\ufffd", add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    assert len(tokens) > 10
    written = [([0], [token], [place == len(tokens)]) for place, token in enumerate(tokens, start=1)]
    monkeypatch.setattr("recipe.models.local.steps", lambda *_, **__: iter(written))
    assert list(pieces_of(engine, chats()[1], sampling())) == ["a", "€", "é", "😀", "\ufffdb", "\ufffd"]


def test_frames_count_in_the_context(engine: LocalEngine, tiny_video_model: Path) -> None:
    with pytest.raises(InputError, match=r"of \d+ tokens leaves no room .* of 512; take fewer or smaller frames"):
        texts_of(engine, [video_messages("tea", clip(0, 200))], 1, sampling())
    small = LocalEngine(tiny_video_model, device="cpu", frames=FrameConfig(min_pixels=28 * 28, max_pixels=28 * 28))
    assert texts_of(small, [video_messages("tea", clip(0, 200))], 1, sampling(max_tokens=2))


def test_what_cannot_be_seen_is_refused(
    engine: LocalEngine, tiny_model: Path, tiny_video_model: Path, tmp_path: Path
) -> None:
    blind = LocalEngine(tiny_model, device="cpu")
    with pytest.raises(InputError, match="it reads text only and was shown a video; give a Qwen"):
        texts_of(blind, [video_messages("w1", clip(0))], 1, sampling())
    with pytest.raises(InputError, match="shows 2 videos; show one"):
        texts_of(engine, [[*video_messages("a", clip(0)), *video_messages("b", clip(1))]], 1, sampling())
    shutil.copytree(tiny_video_model, tmp_path / "m")
    (tmp_path / "m" / "chat_template.jinja").write_text("{{ messages[0].content }}")
    with pytest.raises(InputError, match="its chat template writes 0 tokens for a video"):
        texts_of(LocalEngine(tmp_path / "m", device="cpu"), [chats()[0]], 1, sampling())


@pytest.mark.gpu
def test_a_gpu_sees(tiny_video_model: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    engine = LocalEngine(tiny_video_model, device="cuda")
    first = texts_of(engine, chats(), 3, sampling())
    assert texts_of(engine, chats(), 3, sampling()) == first
