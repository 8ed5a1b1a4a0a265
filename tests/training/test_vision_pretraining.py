"""Vision pre-training on a miniature: what each stage changes and leaves alone; the losses are the planner's own."""

import copy
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.asking import forced_likelihood

from recipe.errors import ComputeError, ConfigError
from recipe.models.checkpoints import Checkpoint, load_checkpoint
from recipe.text import format_plan, video_messages
from recipe.training.base import chat_text
from recipe.types import Example, Frames
from recipe.world.clips import history_steps
from recipe.world.examples import draw_examples, noisy_examples
from recipe.world.frames import RATE, Painter, generator, spread
from recipe.world.graph import World
from recipe.world.load import load_world
from recipe_studies.vision.pretraining import (
    Schedule,
    Vocabulary,
    align_decoder,
    batch_loss,
    new_tower,
    optimise,
    pair_accuracy,
    tokenise_examples,
    tower_of,
    train_attributes,
    train_words,
    word_accuracy,
)
from recipe_studies.vision.video_model import VisionShape

SHAPE = VisionShape(depth=2, hidden_size=32, heads=2, intermediate_size=64)


@pytest.fixture(scope="module")
def world() -> World:
    return load_world()


@pytest.fixture(scope="module")
def painter(world: World) -> Painter:
    return Painter(world)


@pytest.fixture
def checkpoint(video_model: Path) -> Checkpoint:
    return load_checkpoint(str(video_model), attention="eager")


@pytest.fixture(scope="module")
def told(world: World) -> list[Example]:
    return noisy_examples(world, 24, 0)


def ignore(_: int) -> None:
    return


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return copy.deepcopy(dict(model.named_parameters()))


def changed(before: dict[str, torch.Tensor], model: torch.nn.Module) -> set[str]:
    return {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}


def test_a_loss_that_is_no_number_ends_training() -> None:
    weight = torch.nn.Parameter(torch.tensor([1.0]))

    def losses():
        yield (weight * math.nan).sum()

    with pytest.raises(ComputeError, match="diverged"):
        optimise([([weight], 1e-3)], losses, Schedule(1, bf16=False), ignore)


def test_a_new_tower_fits_onto_a_model_of_its_width(checkpoint: Checkpoint, painter: Painter, tmp_path: Path) -> None:
    tower = new_tower(SHAPE, checkpoint.model.config.text_config.hidden_size, seed=3)
    tower.save(tmp_path / "tower")
    built = tower_of(checkpoint)
    pairs = painter.pairs(list(painter.codes)[:3], generator(0))
    with torch.no_grad():
        wanted = tower.encode_pairs(pairs)
        assert not torch.allclose(built.encode_pairs(pairs), wanted, atol=1e-5)
        built.load(tmp_path / "tower")
        assert torch.allclose(built.encode_pairs(pairs), wanted, atol=1e-5)
    assert wanted.shape == (3, 4, checkpoint.model.config.text_config.hidden_size)


def test_the_tokens_of_a_pair_do_not_depend_on_its_neighbours(painter: Painter) -> None:
    tower = new_tower(SHAPE, 32, seed=3)
    pairs = painter.pairs(list(painter.codes)[:4], generator(0))
    with torch.no_grad():
        assert torch.allclose(tower.encode_pairs(pairs)[2], tower.encode_pairs(pairs[2:3])[0], atol=1e-5)


def test_a_text_model_has_no_tower(base_model: Path) -> None:
    with pytest.raises(ConfigError, match="no visual tower"):
        tower_of(load_checkpoint(str(base_model)))


@pytest.mark.thorough
def test_attributes_are_learnt_and_the_same_twice(painter: Painter) -> None:
    def learn() -> tuple[list[float], float]:
        tower = new_tower(SHAPE, 32, seed=0)
        heads, losses = train_attributes(
            tower, painter, Schedule(30, warmup=5, bf16=False), rate=3e-3, batch=24, seed=1, advance=ignore
        )
        return losses, pair_accuracy(tower, heads, painter, "unseen", count=40)

    losses, recognised = learn()
    assert sum(losses[-5:]) < sum(losses[:5])
    assert learn() == (losses, recognised)


def test_accuracy_counts_whole_pairs(painter: Painter) -> None:
    told = torch.tensor([painter.codes[step] for step in list(painter.codes)[:6]])
    told[:2, 1] += 1

    def heads(_: torch.Tensor) -> list[torch.Tensor]:
        return [torch.nn.functional.one_hot(part, 99) for part in told.T]

    found = pair_accuracy(new_tower(SHAPE, 32, seed=0), heads, painter, "unseen", count=6)  # type: ignore[arg-type]
    assert found == pytest.approx(4 / 6)


def test_training_words_leaves_the_decoder_alone(world: World, painter: Painter, checkpoint: Checkpoint) -> None:
    vocabulary = Vocabulary.of(world.wordings, checkpoint.tokenizer, 4)
    before = weights(checkpoint.model)
    schedule = Schedule(12, warmup=2, bf16=False)
    losses = train_words(checkpoint, painter, vocabulary, schedule, rate=3e-3, batch=16, seed=0, advance=ignore)
    assert len(losses) == 12
    assert changed(before, checkpoint.model)
    assert all(".visual." in name for name in changed(before, checkpoint.model))
    assert 0 <= word_accuracy(checkpoint, painter, vocabulary, "unseen", count=30) <= 1


def test_alignment_trains_decoder_and_merger_and_freezes_the_tower(
    checkpoint: Checkpoint, world: World, painter: Painter, told: list[Example]
) -> None:
    before = weights(checkpoint.model)
    rates: dict[str, Any] = {"rate": 1e-3, "merger_rate": 1e-4, "text_share": 0.0, "batch": 8, "seed": 0}
    schedule = Schedule(3, warmup=1, bf16=False)
    losses = align_decoder(checkpoint, world, painter, told, schedule, **rates, advance=ignore)
    moved = changed(before, checkpoint.model)
    assert len(losses) == 3
    assert any(".visual.merger." in name for name in moved)
    assert any(".language_model.layers." in name for name in moved)
    assert not any(".visual." in name and ".merger." not in name for name in moved)
    assert all(weight.requires_grad for weight in checkpoint.model.parameters())


def test_the_loss_of_alignment_is_the_likelihood_of_planning(
    checkpoint: Checkpoint, world: World, painter: Painter
) -> None:
    """What alignment trains is what the planner's own decoding weighs, clip, positions, template and all."""
    example = draw_examples(world, "train", 5, 0)[4]
    head, [row] = tokenise_examples(checkpoint, world, [example], shown=True)
    steps = history_steps(world, example)
    shown = spread(steps, random.Random("lengths"))
    frames = painter.pairs(shown, generator("picture"))
    with torch.no_grad():
        loss = batch_loss(
            checkpoint.model, tower_of(checkpoint), painter, head, [row], random.Random("lengths"), generator("picture")
        )
        images = frames.flatten(0, 1).numpy().copy()
        clip_frames = Frames(images, torch.arange(len(images)).double().numpy() / RATE, RATE)
        assert checkpoint.video is not None
        clip = checkpoint.video(clip_frames)
        text = chat_text(checkpoint.tokenizer, video_messages(example.goal, clip_frames), ask=True)
        ids = checkpoint.tokenizer(text, add_special_tokens=False)["input_ids"]
        place = ids.index(checkpoint.model.config.video_token_id)
        prompt = [*ids[:place], *[ids[place]] * checkpoint.video.tokens(clip), *ids[place + 1 :]]
        answer = format_plan(example.continuation) + checkpoint.tokenizer.eos_token
        completion = checkpoint.tokenizer(answer, add_special_tokens=False)["input_ids"]
        [total] = forced_likelihood(checkpoint.model, [prompt], [completion], [clip])
    assert float(loss) * len(completion) == pytest.approx(-total, rel=1e-5)


def test_neighbours_in_a_batch_do_not_change_a_loss(
    checkpoint: Checkpoint, world: World, painter: Painter, told: list[Example]
) -> None:
    head, rows = tokenise_examples(checkpoint, world, told[:2], shown=False)

    def loss(some: list[int]) -> float:
        drawn = [rows[index] for index in some]
        with torch.no_grad():
            return float(
                batch_loss(checkpoint.model, tower_of(checkpoint), painter, head, drawn, random.Random(0), generator(0))
            )

    sizes = [len(row.answer) for row in rows]
    apart = (loss([0]) * sizes[0] + loss([1]) * sizes[1]) / sum(sizes)
    assert loss([0, 1]) == pytest.approx(apart, rel=1e-5)
