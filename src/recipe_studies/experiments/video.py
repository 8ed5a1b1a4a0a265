"""What only the video experiment has: drawn clips of histories, and the pre-training of the visual tower on them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recipe.artifacts import atomic_path, write_json
from recipe.config import FrameConfig
from recipe.data.examples import read_examples
from recipe.planning.planner import Request
from recipe.progress import Progress
from recipe.types import Example, Frames
from recipe.world.graph import World
from recipe.world.load import load_world
from recipe_studies.experiments.study import ALIGNED, ATTRIBUTES, BASE, DOCUMENTS, WORDS, View

if TYPE_CHECKING:
    from recipe.perception.frames import Clips
    from recipe.world.clips import DrawnClips
    from recipe_studies.vision.video_model import VisionShape

TEST_SEED = 1 << 20
"""Seed of the drawings that are tested on; no training run has it."""
ACCURACY = "recognition.json"
"""File next to a pre-trained tower: share of held-out pictures that it recognises whole, by style of drawing."""
SYMBOL_STEPS = 300
"""Steps of each of the first two stages at most, as the figures of the video demo were made with."""
COLUMNS = 12
"""Frames of a clip that the report's picture shows, at most."""
# Of the third stage: clips in a step, and the decoder's learning rate.
_ALIGN_BATCH, _ALIGN_RATE = 16, 1e-3
# Share of the batches of the third stage whose history is text.
_TEXT_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class TowerSettings:
    """How the visual tower is built and pre-trained (`recipe_studies.vision.pretraining`)."""

    attribute_steps: int
    """Optimiser steps of the first stage: the attributes of single pictures."""
    word_steps: int
    """Optimiser steps of the second stage: pictures as word embeddings."""
    align_steps: int
    """Optimiser steps of the third stage: planning from clips of the history."""
    # The sizes of `VisionShape`; the figures of docs/results are of this tower.
    depth: int = 3
    hidden_size: int = 128
    batch: int = 128
    """Pairs of frames in a step of the first two stages."""
    learning_rate: float = 2e-3
    """Peak rate of the first two stages."""
    merger_learning_rate: float = 1e-4
    """Of the merger while the decoder is aligned: at the decoder's rate it forgets."""
    bf16: bool = False
    """At these widths a CPU spends more on casts than it saves."""

    @property
    def shape(self) -> "VisionShape":
        """Its shape; the feed-forward layers are twice as wide."""
        from recipe_studies.vision.video_model import VisionShape

        return VisionShape(self.depth, self.hidden_size, intermediate_size=2 * self.hidden_size)


@dataclass(frozen=True, slots=True)
class VisionPretraining:
    """A stage of pre-training for a language model `width` wide."""

    vision: TowerSettings
    width: int
    seed: int


def learn_symbols(folder: Path, settings: VisionPretraining, progress: Progress) -> None:
    """First stage: the visual tower learns which symbols a picture holds. Needs no language model."""
    from recipe.world.frames import STYLES, Painter
    from recipe_studies.vision.pretraining import Schedule, new_tower, pair_accuracy, train_attributes

    vision = settings.vision
    with progress.task("learning symbols", vision.attribute_steps) as advance:
        tower = new_tower(vision.shape, settings.width, settings.seed)
        painter = Painter(load_world())
        heads, _ = train_attributes(
            tower,
            painter,
            Schedule(vision.attribute_steps, bf16=vision.bf16),
            rate=vision.learning_rate,
            batch=vision.batch,
            seed=settings.seed,
            advance=advance,
        )
        accuracy = {style: pair_accuracy(tower, heads, painter, style) for style in STYLES}
        with atomic_path(folder / ATTRIBUTES) as partial:
            tower.save(partial)
            write_json(partial / ACCURACY, accuracy)


def learn_word_embeddings(folder: Path, settings: VisionPretraining, progress: Progress) -> None:
    """Second stage: the tower learns to give pictures as word embeddings of the base model."""
    from recipe.models.checkpoints import load_checkpoint
    from recipe.training.policy import save_model
    from recipe.world.frames import PAIR, SIZE, STYLES, Painter
    from recipe_studies.vision.pretraining import Schedule, Vocabulary, tower_of, train_words, word_accuracy
    from recipe_studies.vision.video_model import build_video_model

    vision, world = settings.vision, load_world()
    with progress.task("learning words", vision.word_steps) as advance:
        base = load_checkpoint(str(folder / BASE / "model"))
        checkpoint = build_video_model(base, vision.shape, settings.seed)
        tower_of(checkpoint).load(folder / ATTRIBUTES)
        painter = Painter(world)
        assert checkpoint.video is not None
        time, high, wide = checkpoint.video.grid(PAIR, SIZE, SIZE)
        pair_tokens = time * high * wide // checkpoint.video.merge_size**2
        vocabulary = Vocabulary.of(world.wordings, checkpoint.tokenizer, pair_tokens)
        train_words(
            checkpoint,
            painter,
            vocabulary,
            Schedule(vision.word_steps, bf16=vision.bf16),
            rate=vision.learning_rate,
            batch=vision.batch,
            seed=settings.seed,
            advance=advance,
        )
        accuracy = {style: word_accuracy(checkpoint, painter, vocabulary, style) for style in STYLES}
        save_model(checkpoint.model, checkpoint.tokenizer, folder / WORDS / "model", checkpoint.video)
        write_json(folder / WORDS / ACCURACY, accuracy)


def align(folder: Path, settings: VisionPretraining, progress: Progress) -> None:
    """Third stage: the decoder learns noisy planning from clips of the history."""
    from recipe.models.checkpoints import load_checkpoint
    from recipe.training.policy import save_model
    from recipe.world.frames import Painter
    from recipe_studies.vision.pretraining import Schedule, align_decoder

    vision, world = settings.vision, load_world()
    with progress.task("reading clips", vision.align_steps) as advance:
        checkpoint = load_checkpoint(str(folder / WORDS / "model"), attention="eager")
        align_decoder(
            checkpoint,
            world,
            Painter(world),
            read_examples(folder / DOCUMENTS)[: vision.align_steps * _ALIGN_BATCH],
            Schedule(vision.align_steps, warmup=30, bf16=vision.bf16),
            rate=_ALIGN_RATE,
            merger_rate=vision.merger_learning_rate,
            text_share=_TEXT_SHARE,
            batch=_ALIGN_BATCH,
            seed=settings.seed,
            advance=advance,
        )
        save_model(checkpoint.model, checkpoint.tokenizer, folder / ALIGNED / "model", checkpoint.video)


def drawn_clips(seed: int, *, unseen: bool = False) -> "DrawnClips":
    """The clips that show histories in this experiment; `unseen` on the background that training never shows."""
    from recipe.world.clips import DrawnClips
    from recipe.world.frames import Painter

    world = load_world()
    return DrawnClips(world, Painter(world), seed, "unseen" if unseen else "train")


class ShownHistories:
    """Draws, for an example, the history that another example of the same id has: what was done, whatever was read."""

    def __init__(self, clips: "DrawnClips", shown: Sequence[Example]) -> None:
        self._clips, self._shown = clips, {example.example_id: example for example in shown}

    def render(self, example: Example, draw: int) -> Frames:
        """The frames of the example's true history at its place `draw` in the run."""
        return self._clips.render(self._shown[example.example_id], draw)


def view_request(
    view: View, videos: Path | None = None, frames: FrameConfig | None = None
) -> Callable[[Example], Request]:
    """The request that a view makes of a test example.

    A clip is of the example's video in the folder `videos`; without one it is drawn, on the unseen background.
    """
    if view == "text":
        return Request.of
    if view == "perceived":
        return request_from_perceived_history
    if view == "goal":
        return lambda example: Request(example.goal)
    if view == "video" and videos is not None:
        from recipe.perception.frames import VideoClips
        from recipe.perception.videos import VideoFolder

        filmed = VideoClips(VideoFolder(videos), frames or FrameConfig())
        return lambda example: Request(example.goal, video=filmed(example))
    # On a background that no training clip has: what is recognised there was not learnt by heart.
    drawn = drawn_clips(TEST_SEED, unseen=True)
    views: dict[View, Clips] = {"video": drawn, "other": drawn.other, "blank": drawn.blank}
    clips = views[view]
    return lambda example: Request(example.goal, video=clips(example))


def request_from_perceived_history(example: Example) -> Request:
    """The request for a test example: its goal, and its history as Phi read it where that is known."""
    return Request(example.goal, example.history if example.told_history is None else example.told_history)


def draw_clips(world: World, examples: Sequence[Example], target: Path) -> None:
    """Draw each example's clip as trained on, on the unseen background, and with other steps. Writes a PNG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    from recipe.report.plots import STYLE

    trained, unseen = drawn_clips(0), drawn_clips(0, unseen=True)
    rows = [
        (f"{example.goal}: {name}", make(example).images)
        for example in examples
        for name, make in (("drawn for training", trained), ("unseen background", unseen), ("other", unseen.other))
    ]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 0.95 * len(rows)), layout="constrained")
        for panel, (title, images) in zip(figure.subplots(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
            shown = images[:COLUMNS]
            strip = shown.transpose(1, 0, 2, 3).reshape(shown.shape[1], -1, 3)
            panel.imshow(strip, interpolation="nearest", aspect="equal")
            panel.set_xlim(0, COLUMNS * shown.shape[2])
            panel.set_axis_off()
            more = f", {len(images)} frames" if len(images) > COLUMNS else ""
            panel.set_title(f"{title}{more}", fontsize=8, loc="left")
        with atomic_path(target) as partial:
            figure.savefig(partial, format="png", dpi=140, facecolor="white", metadata={"Software": None})
