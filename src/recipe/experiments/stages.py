"""The stages of an experiment; each reads what earlier stages left in the run folder and leaves its own.

data/        narrations.jsonl (world only), train.jsonl, test.jsonl, documents.jsonl
corpus/      the verification corpus
base/ sft/ grpo/   training runs, each with `model/`
predictions/ one file a regime: every sample with its reward
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from recipe.artifacts import write_jsonl
from recipe.config import BaseModelConfig, CorpusConfig, GRPOConfig, RewardConfig, SamplingConfig, SFTConfig
from recipe.data.benchmarks import by_role, read_benchmarks, require_benchmarks
from recipe.data.examples import read_examples, write_examples
from recipe.data.narrations import read_narrations
from recipe.data.supervision import cut_procedures, limit_videos
from recipe.errors import InputError
from recipe.experiments.settings import FilesSource, WorldSource
from recipe.planning.predictions import Prediction, write_predictions
from recipe.progress import Progress
from recipe.text import planner_messages
from recipe.types import Example

if TYPE_CHECKING:
    from recipe.models.local import LocalEngine

Run = TypeVar("Run", BaseModelConfig, SFTConfig, GRPOConfig)

NARRATIONS, TRAIN, TEST, DOCUMENTS = (f"data/{name}.jsonl" for name in ("narrations", "train", "test", "documents"))
CORPUS = "corpus"
BASE = "base"
ADAPTED: dict[str, object] = {"model": "base/model", "examples": TRAIN, "split": ""}
"""Paths of a training run that starts from the base."""
WEIGHED = 2
"""Samples of a prompt that the KL divergence is estimated from."""
REGIMES = {BASE: "base", "SFT": "sft", "RL": "grpo"}
"""Regime to the training run whose model it is."""


@dataclass(frozen=True, slots=True)
class WorldData:
    """Narrations and examples of the embedded world, drawn from one seed."""

    source: WorldSource
    seed: int


@dataclass(frozen=True, slots=True)
class FilesData:
    """Examples of published benchmarks below `root`; `held` stands for what the folders hold."""

    source: FilesSource
    seed: int
    held: str
    root: Path = field(repr=False)


@dataclass(frozen=True, slots=True)
class CorpusBuild:
    """A corpus of narration files, by default the world's; `held` stands for what they hold."""

    config: CorpusConfig
    held: str = ""
    narrations: tuple[Path, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Plans of one trained model for every test prompt, rewarded by the verifier."""

    regime: str
    reward: RewardConfig
    sampling: SamplingConfig
    samples: int


def draw_world(run_dir: Path, settings: WorldData, progress: Progress) -> None:
    """Narrations, training and test examples, and careless text for the base model."""
    from recipe.world.examples import careless_examples, draw_examples
    from recipe.world.load import load_world
    from recipe.world.narrator import narrate

    world, source, seed = load_world(), settings.source, settings.seed
    with progress.task("drawing the world", 4) as advance:
        write_jsonl(run_dir / NARRATIONS, map(asdict, narrate(world, source.narrations, seed)))
        advance(1)
        write_examples(run_dir / TRAIN, draw_examples(world, "train", source.train, seed))
        advance(1)
        tests = (draw_examples(world, split, source.test, seed) for split in ("test_cuts", "test_goals"))
        write_examples(run_dir / TEST, [example for drawn in tests for example in drawn])
        advance(1)
        write_examples(run_dir / DOCUMENTS, careless_examples(world, source.documents, seed))
        advance(1)


def cut_benchmarks(run_dir: Path, settings: FilesData, progress: Progress) -> None:
    """Training, test and base-model examples of the benchmarks, cut by hash; videos stay in their published split."""
    source, seed = settings.source, settings.seed
    folders = require_benchmarks(settings.root, source.benchmarks)
    procedures, _ = by_role(read_benchmarks(folders, progress))
    held_out = {p.video_id for p in procedures if p.split != "train"}
    # Published splits ignore each other: a video that one benchmark tests on is not trained on in another.
    trained = [p for p in procedures if p.split == "train" and p.video_id not in held_out]
    cut = cut_procedures(trained, train=4, seed=seed).examples
    tested = limit_videos([p for p in procedures if p.split == "test"], source.test, seed)
    tests = cut_procedures(tested, test=1, seed=seed).examples
    if not cut or not tests:
        found = f"{len(cut)} examples to train on and {len(tests)} to test on"
        raise InputError.at(settings.root, f"the benchmarks give {found}", "give benchmarks with both")
    write_examples(run_dir / DOCUMENTS, _some(cut, source.documents))
    write_examples(run_dir / TRAIN, _some(cut, source.train))
    write_examples(run_dir / TEST, [replace(example, split=example.source) for example in tests])


def build(run_dir: Path, settings: CorpusBuild, progress: Progress) -> None:
    """The verification corpus."""
    from recipe.corpus.build import build_corpus

    files = settings.narrations or (run_dir / NARRATIONS,)
    narrations = read_narrations(files, duplicates="keep-first")
    build_corpus(narrations, run_dir / CORPUS, settings.config, progress)


def base(run_dir: Path, settings: BaseModelConfig, progress: Progress) -> None:
    """The small base planner."""
    from recipe.training.base import train_base

    train_base(placed(settings, run_dir), progress)


def sft(run_dir: Path, settings: SFTConfig, progress: Progress) -> None:
    """Supervised fine-tuning of the base."""
    from recipe.training.sft import train_sft

    train_sft(placed(settings, run_dir), progress)


def grpo(run_dir: Path, settings: GRPOConfig, progress: Progress) -> None:
    """GRPO from the base against the verifier."""
    from recipe.corpus.store import Corpus
    from recipe.reward.verifier import Verifier
    from recipe.training.grpo import train_grpo

    config = placed(settings, run_dir)
    corpus = Corpus.open(config.corpus, devices=config.corpus_devices)
    train_grpo(config, Verifier(corpus, config.reward), progress)


def sample(run_dir: Path, settings: Sampling, progress: Progress) -> None:
    """Sample plans of a model for every test prompt; reward each, and weigh some against the base for the KL."""
    from recipe.corpus.store import Corpus
    from recipe.planning.rerank import reward_predictions
    from recipe.reward.verifier import Verifier

    examples = read_examples(run_dir / TEST)
    run = REGIMES[settings.regime]
    predictions = plan_examples(run_dir, run, examples, settings.sampling, settings.samples, progress)
    verifier = Verifier(Corpus.open(run_dir / CORPUS), settings.reward)
    rewarded = reward_predictions(verifier, examples, predictions, progress)
    write_predictions(predictions_path(run_dir, settings.regime), rewarded)


def plan_examples(
    run_dir: Path, run: str, examples: Sequence[Example], sampling: SamplingConfig, samples: int, progress: Progress
) -> list[Prediction]:
    """Plans of the model of a training run, with the KL to the base of some of them."""
    from recipe.models.local import LocalEngine
    from recipe.planning.planner import Planner

    engine = LocalEngine(run_dir / run / "model")
    predictions = Planner(engine, sampling).predict(examples, samples, progress)
    if run == REGIMES[BASE] or sampling.temperature == 0:  # greedy plans have no density
        return predictions
    base = LocalEngine(run_dir / REGIMES[BASE] / "model")
    return _weigh(predictions, examples, engine, base, sampling, progress)


def _weigh(
    predictions: Sequence[Prediction],
    examples: Sequence[Example],
    engine: "LocalEngine",
    base: "LocalEngine",
    sampling: SamplingConfig,
    progress: Progress,
) -> list[Prediction]:
    """The predictions, the first samples of each prompt with log pi(plan) - log pi_base(plan) at their temperature."""
    known = {example.example_id: example for example in examples}
    weighed = [p for p in predictions if p.sample < WEIGHED and p.text is not None]
    chats = [planner_messages(known[p.example_id].goal, known[p.example_id].history) for p in weighed]
    texts = [p.text or "" for p in weighed]
    own, reference = (
        model.log_likelihood(chats, texts, temperature=sampling.temperature, progress=progress)
        for model in (engine, base)
    )
    ratio = {(p.example_id, p.sample): a - b for p, a, b in zip(weighed, own, reference, strict=True)}
    return [replace(p, kl=ratio.get((p.example_id, p.sample))) for p in predictions]


def predictions_path(run_dir: Path, regime: str) -> Path:
    """Where a regime's sampled plans lie."""
    return run_dir / "predictions" / f"{REGIMES[regime]}.jsonl"


def placed(config: Run, run_dir: Path) -> Run:
    """The config with its paths, which are relative in an experiment, below the run folder."""
    paths = {
        name: run_dir / getattr(config, name) for name in ("examples", "output", "corpus") if hasattr(config, name)
    }
    model = {"model": str(run_dir / config.model)} if hasattr(config, "model") else {}
    return config.model_copy(update={**paths, **model})


def _some(examples: Sequence[Example], count: int) -> list[Example]:
    """At most `count` examples, evenly spaced, because files are often ordered by goal."""
    stride = max(1, len(examples) / count)
    return [examples[int(index * stride)] for index in range(min(count, len(examples)))]
