"""The stages of the video demo beside those of any experiment (recipe.experiments.stages).

eye/attributes/  the visual tower after the first lesson
eye/words/       the video model after the second, a standard model folder
eye/aligned/     the video model after the third
sft/0 grpo/0     training runs of a seed, each with `model/`
plans/           one file for each run and each view of the history, such as `plans/sft-0-other.jsonl`
cpu/             processor seconds of each stage
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from recipe.artifacts import atomic_path, read_json, write_json
from recipe.config import BaseModelConfig, GRPOConfig, SamplingConfig, SFTConfig
from recipe.data.examples import read_examples, write_examples
from recipe.experiments import stages
from recipe.experiments.stages import BASE, DOCUMENTS, TEST, placed
from recipe.experiments.video.settings import EyeSettings
from recipe.planning.predictions import write_predictions
from recipe.progress import Progress
from recipe.types import Example
from recipe.world.examples import Carelessness, careless_examples
from recipe.world.load import load_world

if TYPE_CHECKING:
    from recipe.models.checkpoints import Checkpoint
    from recipe.perception.frames import Clips
    from recipe.planning.planner import Request
    from recipe.training.video_model import VisionShape
    from recipe.world.clips import DrawnClips

View = Literal["video", "other", "blank", "goal", "text"]
"""What a planner is shown of a history: its clip, one of other steps, grey frames, nothing, or its steps in words."""
VIEWS: tuple[View, ...] = get_args(View)

ATTRIBUTES, WORDS, ALIGNED = (f"eye/{name}" for name in ("attributes", "words", "aligned"))
CPU = "cpu"
TEST_SEED = 1 << 20
"""Of the drawings that are tested on: none of training has it."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The world's data; the base's texts are as careless as is said here."""

    data: stages.WorldData
    carelessness: Carelessness


@dataclass(frozen=True, slots=True)
class Lesson:
    """A lesson of the eye, for a language model `width` wide."""

    eye: EyeSettings
    width: int
    seed: int


@dataclass(frozen=True, slots=True)
class Views:
    """Plans of one trained model for every test prompt, for each view of the history."""

    run: str
    views: tuple[View, ...]
    sampling: SamplingConfig
    samples: int


def run_folder(kind: str, seed: int) -> str:
    """Folder of a training run."""
    return f"{kind}/{seed}"


def plans_file(kind: str, seed: int, view: View) -> str:
    """Where the plans of a run lie that were made with a view of the history."""
    return f"plans/{kind}-{seed}-{view}.jsonl"


@contextmanager
def measured(run_dir: Path, name: str) -> Iterator[None]:
    """Keep the processor seconds that a stage takes, of all its threads; what an interrupted call took is lost."""
    began = time.process_time()
    yield
    write_json(run_dir / CPU / f"{name}.json", {"cpu_seconds": round(time.process_time() - began, 1)})


def cpu_seconds(run_dir: Path) -> dict[str, float]:
    """Processor seconds of each stage, by name."""
    return {file.stem: read_json(file)["cpu_seconds"] for file in sorted((run_dir / CPU).glob("*.json"))}


def draw(run_dir: Path, settings: Drawn, progress: Progress) -> None:
    """Narrations, training and test examples, and careless text for the base model."""
    with measured(run_dir, "data"):
        stages.draw_world(run_dir, settings.data, progress)
        count, seed = settings.data.source.documents, settings.data.seed
        texts = careless_examples(load_world(), count, seed, carelessness=settings.carelessness)
        write_examples(run_dir / DOCUMENTS, texts)


def base(run_dir: Path, settings: BaseModelConfig, progress: Progress) -> None:
    """The small base planner."""
    with measured(run_dir, "base"):
        stages.base(run_dir, settings, progress)


def build(run_dir: Path, settings: stages.CorpusBuild, progress: Progress) -> None:
    """The verification corpus."""
    with measured(run_dir, "corpus"):
        stages.build(run_dir, settings, progress)


def attributes(run_dir: Path, settings: Lesson, progress: Progress) -> None:
    """The first lesson: which symbols a picture holds. Needs no language model."""
    from recipe.training.vision_pretraining import Schedule, new_tower, pair_accuracy, save_tower, train_attributes
    from recipe.world.frames import STYLES, Painter

    eye = settings.eye
    with measured(run_dir, "attributes"), progress.task("seeing symbols", eye.attribute_steps) as advance:
        tower = new_tower(_shape(eye), settings.width, settings.seed)
        painter = Painter(load_world())
        schedule = Schedule(eye.attribute_steps, bf16=eye.bf16)
        heads, _ = train_attributes(
            tower,
            painter,
            schedule,
            rate=eye.learning_rate,
            batch=eye.batch,
            seed=settings.seed,
            advance=advance,
        )
        found = {style: pair_accuracy(tower, heads, painter, style).whole for style in STYLES}
        with atomic_path(run_dir / ATTRIBUTES) as partial:
            save_tower(tower, partial)
            write_json(partial / "seen.json", found)


def words(run_dir: Path, settings: Lesson, progress: Progress) -> None:
    """The second lesson: pictures as words of the base model."""
    from recipe.models.checkpoints import load_checkpoint
    from recipe.training.video_model import build_video_model
    from recipe.training.vision_pretraining import (
        Schedule,
        load_tower,
        tower_of,
        train_words,
        word_accuracy,
        words_of_steps,
    )
    from recipe.world.frames import STYLES, Painter

    eye, world = settings.eye, load_world()
    with measured(run_dir, "words"), progress.task("seeing words", eye.word_steps) as advance:
        checkpoint = build_video_model(load_checkpoint(str(run_dir / BASE / "model")), _shape(eye), settings.seed)
        load_tower(tower_of(checkpoint), run_dir / ATTRIBUTES)
        painter = Painter(world)
        vocabulary = words_of_steps(world.wordings, checkpoint.tokenizer, eye_slots(checkpoint))
        train_words(
            checkpoint,
            painter,
            vocabulary,
            Schedule(eye.word_steps, bf16=eye.bf16),
            rate=eye.learning_rate,
            batch=eye.batch,
            seed=settings.seed,
            advance=advance,
        )
        found = {style: word_accuracy(checkpoint, painter, vocabulary, style) for style in STYLES}
        _save(checkpoint, run_dir / WORDS / "model")
        write_json(run_dir / WORDS / "seen.json", found)


def align(run_dir: Path, settings: Lesson, progress: Progress) -> None:
    """The third lesson: careless planning from histories that are shown."""
    from recipe.models.checkpoints import load_checkpoint
    from recipe.training.vision_pretraining import Schedule, align_decoder
    from recipe.world.frames import Painter

    eye, world = settings.eye, load_world()
    with measured(run_dir, "align"), progress.task("reading clips", eye.align_steps) as advance:
        checkpoint = load_checkpoint(str(run_dir / WORDS / "model"), attention="eager")
        align_decoder(
            checkpoint,
            world,
            Painter(world),
            read_examples(run_dir / DOCUMENTS)[: eye.align_steps * eye.align_batch],
            Schedule(eye.align_steps, warmup=30, bf16=eye.bf16),
            rate=eye.align_learning_rate,
            merger_rate=eye.merger_learning_rate,
            text_share=eye.text_share,
            batch=eye.align_batch,
            seed=settings.seed,
            advance=advance,
        )
        _save(checkpoint, run_dir / ALIGNED / "model")


def sft(run_dir: Path, settings: SFTConfig, progress: Progress) -> None:
    """Supervised fine-tuning on clips, drawn anew at each use."""
    from recipe.training.sft import train_sft

    config = placed(settings, run_dir)
    with measured(run_dir, f"sft-{settings.seed}"):
        train_sft(config, progress, drawn_clips(settings.seed))


def grpo(run_dir: Path, settings: GRPOConfig, progress: Progress) -> None:
    """GRPO from the SFT model of the same seed against the verifier, on clips drawn anew."""
    from recipe.corpus.store import Corpus
    from recipe.reward.verifier import Verifier
    from recipe.training.grpo import train_grpo

    config = placed(settings, run_dir)
    with measured(run_dir, f"grpo-{settings.seed}"):
        verifier = Verifier(Corpus.open(config.corpus), config.reward)
        train_grpo(config, verifier, progress, drawn_clips(settings.seed))


def plan(run_dir: Path, settings: Views, progress: Progress) -> None:
    """Sample plans of a model for every test prompt, once for each view."""
    from recipe.models.local import LocalEngine
    from recipe.planning.planner import Planner

    kind, _, seed = settings.run.partition("/")
    examples = read_examples(run_dir / TEST)
    with measured(run_dir, f"plans-{kind}-{seed}"):
        planner = Planner(LocalEngine(run_dir / settings.run / "model"), settings.sampling)
        clips = drawn_clips(TEST_SEED, unseen=True)
        for view in settings.views:
            predictions = planner.predict(examples, settings.samples, progress, seen_as(view, clips))
            write_predictions(run_dir / plans_file(kind, int(seed), view), predictions)


def drawn_clips(seed: int, *, unseen: bool = False) -> "DrawnClips":
    """What shows histories in this experiment; `unseen` on the background that training never shows."""
    from recipe.world.clips import DrawnClips
    from recipe.world.frames import Painter

    world = load_world()
    return DrawnClips(world, Painter(world), seed, "unseen" if unseen else "train")


def seen_as(view: View, clips: "DrawnClips") -> "Callable[[Example], Request]":
    """The request that a view makes of an example."""
    from recipe.planning.planner import Request

    drawn: dict[View, Clips] = {"video": clips, "other": clips.other, "blank": clips.blank}

    def request(example: Example) -> Request:
        if view in drawn:
            return Request(example.goal, video=drawn[view](example))
        return Request(example.goal, example.history if view == "text" else ())

    return request


def eye_slots(checkpoint: "Checkpoint") -> int:
    """Tokens of a pair of frames."""
    from recipe.world.frames import PAIR, SIZE

    assert checkpoint.video is not None
    time, high, wide = checkpoint.video.grid(PAIR, SIZE, SIZE)
    return time * high * wide // checkpoint.video.merge_size**2


def _shape(eye: EyeSettings) -> "VisionShape":
    from recipe.training.video_model import VisionShape

    return VisionShape(depth=eye.depth, hidden_size=eye.hidden_size, intermediate_size=2 * eye.hidden_size)


def _save(checkpoint: "Checkpoint", folder: Path) -> None:
    from recipe.training.policy import save_model

    save_model(checkpoint.model, checkpoint.tokenizer, folder, checkpoint.video)
