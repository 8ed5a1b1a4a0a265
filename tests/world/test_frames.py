"""The world in pictures: every step looks its own way, and never twice the same."""

import math
import random

import numpy as np
import pytest

pytest.importorskip("torch", reason="drawing needs torch")

import torch

from recipe.errors import InputError
from recipe.types import Example
from recipe.world import frames as module
from recipe.world.clips import GREY, DrawnClips, history_steps
from recipe.world.frames import PAIR, RATE, SIZE, SIZES, STYLES, Painter, draw_codes, generator, spread
from recipe.world.graph import World


@pytest.fixture(scope="module")
def painter(world: World) -> Painter:
    return Painter(world)


def an_example(world: World, goal: str = "brew a pot of tea", done: int = 3) -> Example:
    order = world.graph(goal).draw(random.Random(0))
    history, left = ([world.wordings[step][0] for step in part] for part in (order[:done], order[done:]))
    return Example("tea-1", "world", "tea", goal, tuple(history), tuple(left), done)


def test_no_two_steps_share_a_code(world: World) -> None:
    codes = draw_codes(world)
    assert codes.keys() == world.wordings.keys()
    assert len(set(codes.values())) == len(codes)
    assert all(0 <= part < size for code in codes.values() for part, size in zip(code, SIZES, strict=True))


def test_the_verb_is_the_action_and_the_rest_is_the_object(world: World) -> None:
    codes = draw_codes(world)
    by_verb: dict[str, set[tuple[int, ...]]] = {}
    by_object: dict[str, set[tuple[int, ...]]] = {}
    for step, code in codes.items():
        verb, _, thing = step.partition("-")
        by_verb.setdefault(verb, set()).add(code[3:])
        by_object.setdefault(thing, set()).add(code[:3])
    for looks in (by_verb, by_object):
        assert all(len(found) == 1 for found in looks.values())
        assert len(set.union(*looks.values())) == len(looks)


def test_codes_do_not_change_with_the_order_of_the_world(world: World) -> None:
    turned = World(world.goals, dict(reversed(world.wordings.items())), world.talk)
    assert draw_codes(turned) == draw_codes(world)


def test_a_world_with_too_many_objects_is_refused(world: World) -> None:
    crowded = World({}, {f"take-thing{number}": ("take it",) for number in range(300)}, world.talk)
    with pytest.raises(InputError, match="300 objects, and 216 can be drawn"):
        draw_codes(crowded)


def test_a_seed_gives_the_same_clip_and_another_seed_another(world: World, painter: Painter) -> None:
    steps = list(world.wordings)[:4]
    first, again, other = (Painter(world).clip(steps, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.images, again.images)
    assert first.images.shape != other.images.shape or not np.array_equal(first.images, other.images)


def test_a_clip_has_the_shape_that_its_type_says(painter: Painter) -> None:
    steps = list(painter.codes)[:5]
    frames = painter.clip(steps, "shape")
    count = len(frames.images)
    assert frames.images.shape == (count, SIZE, SIZE, 3)
    assert frames.images.dtype == np.uint8
    assert 2 * len(steps) <= count <= 4 * len(steps)
    assert count % PAIR == 0
    assert frames.rate == RATE
    assert np.allclose(np.diff(frames.times), 1 / RATE)


def nearest(painter: Painter, steps: list[str]) -> float:
    """The least distance between pictures of the steps, each drawn with the same draws, which no code decides."""
    drawn = torch.stack([painter.pairs([step], generator(0)).flatten() / 255 for step in steps])
    distances = torch.cdist(drawn, drawn) / drawn.shape[1] ** 0.5 + torch.eye(len(steps))
    return float(distances.min())


def test_different_steps_are_different_pictures(painter: Painter) -> None:
    assert nearest(painter, list(painter.codes)) > 0.01


@pytest.mark.parametrize("part", range(len(SIZES)))
def test_each_part_of_a_code_can_be_seen(part: int, world: World) -> None:
    things = [f"verb0-thing{n}" for n in range(math.prod(SIZES[:3]))]  # as many as can be drawn
    verbs = [f"verb{n}-thing0" for n in range(math.prod(SIZES[3:]))]
    crowded = Painter(World({}, dict.fromkeys(things + verbs, ("do it",)), world.talk))
    others = {step: code[:part] + code[part + 1 :] for step, code in crowded.codes.items()}
    steps = [step for step in others if others[step] == others["verb0-thing0"]]
    assert len(steps) == SIZES[part]
    assert nearest(crowded, steps) > 0.01


def test_the_unseen_background_is_never_drawn_in_training() -> None:
    """Squares are the only pattern of two values that is a product of a row and a column which both vary."""
    squares = {}
    for style in STYLES:
        planes = module._background(400, generator(5), style)[1][:, 0, 0]
        signs = torch.sign(planes - planes.amin((1, 2), keepdim=True) - 1e-6)
        two = torch.tensor([len(plane.unique()) == 2 for plane in planes])
        product = signs[:, :1, :1] * signs == signs[:, :, :1] * signs[:, :1]
        varies = (signs[:, 0] != signs[:, 0, :1]).any(1) & (signs[:, :, 0] != signs[:, :1, 0]).any(1)
        squares[style] = int((two & varies & product.flatten(1).all(1)).sum())
    assert squares == {"train": 0, "unseen": 400}


def test_each_step_takes_one_or_two_pairs_in_order() -> None:
    steps = [f"do-{number}" for number in range(200)]
    shown = spread(steps, random.Random(1))
    assert list(dict.fromkeys(shown)) == steps
    assert {shown.count(step) for step in steps} == {1, 2}


def test_unknown_and_missing_steps_are_refused(painter: Painter) -> None:
    with pytest.raises(InputError, match="no step 'fly-kite-home'"):
        painter.clip(["fly-kite-home"], 0)
    with pytest.raises(InputError, match="at least one"):
        painter.clip([], 0)


def test_an_examples_history_is_drawn_anew_for_every_draw(world: World, painter: Painter) -> None:
    clips, example = DrawnClips(world, painter, 3), an_example(world)
    assert np.array_equal(clips(example).images, clips.render(example, 0).images)
    assert np.array_equal(clips.render(example, 7).images, DrawnClips(world, painter, 3).render(example, 7).images)
    drawn = [clips.render(example, draw).images[:2] for draw in range(4)]
    assert all(not np.array_equal(drawn[0], other) for other in drawn[1:])


def test_other_frames_have_the_same_form_and_other_steps(world: World, painter: Painter) -> None:
    clips, example = DrawnClips(world, painter, 3), an_example(world, done=2)
    shown: list[tuple[str, ...]] = []
    clip = painter.clip

    class Recorder(Painter):
        def clip(self, steps: object, seed: object, style: object = "train") -> object:  # type: ignore[override]
            shown.append(tuple(steps))  # type: ignore[call-overload]
            return clip(steps, seed, style)  # type: ignore[arg-type]

    clips = DrawnClips(world, Recorder(world), 3)
    right, other = clips(example), clips.other(example)
    assert right.images.shape == other.images.shape
    done, instead = shown
    assert done == history_steps(world, example)
    assert len(instead) == len(done)
    assert set(instead) <= set(world.graph(example.goal).steps)
    assert set(instead) - set(done)


def test_blank_frames_are_as_many_and_empty(world: World, painter: Painter) -> None:
    clips, example = DrawnClips(world, painter), an_example(world)
    blank = clips.blank(example)
    assert blank.images.shape == clips(example).images.shape
    assert (blank.images == GREY).all()


def test_a_history_that_is_no_step_cannot_be_drawn(world: World, painter: Painter) -> None:
    strange = Example("x", "world", "x", "brew a pot of tea", ("compose a symphony",), ("pour the tea",), 1)
    with pytest.raises(InputError, match="x: 'compose a symphony' is no step of the world"):
        DrawnClips(world, painter)(strange)
