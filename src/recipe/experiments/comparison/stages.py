"""The stages of a comparison beside those of any experiment (recipe.experiments.stages).

rl/          a training run for every reward and seed, such as `rl/grounded-1`
plans/       one file a run: every sample, not yet rewarded
rewarded/    the same by ranker, such as `rewarded/paper/grounded-1.jsonl`
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recipe.config import GRPOConfig, RewardConfig, SamplingConfig
from recipe.data.examples import read_examples
from recipe.experiments.comparison.settings import RankerName, RewardName
from recipe.experiments.stages import BASE, CORPUS, TEST, TRAIN, placed, plan_examples
from recipe.planning.predictions import read_predictions, write_predictions
from recipe.progress import Progress

if TYPE_CHECKING:
    from recipe.corpus.store import Corpus
    from recipe.reward.scorer import Scorer


@dataclass(frozen=True, slots=True)
class RewardedRun:
    """GRPO from the base on one reward with one seed; `grpo.reward` holds a verifier's settings."""

    reward: RewardName
    grpo: GRPOConfig


@dataclass(frozen=True, slots=True)
class Plans:
    """Plans of one run's model for every test prompt."""

    run: str
    sampling: SamplingConfig
    samples: int


@dataclass(frozen=True, slots=True)
class Ranking:
    """All plans of all runs, rewarded by one ranker; `verifier` is None for R0."""

    ranker: RankerName
    verifier: RewardConfig | None
    runs: tuple[str, ...]


def run_name(reward: RewardName, seed: int) -> str:
    """What a training run, its folder and its files are called."""
    return f"{reward}-{seed}"


def run_folder(run: str) -> str:
    """Folder of a training run below the run folder."""
    return run if run == BASE else f"rl/{run}"


def plans_file(run: str) -> str:
    """Where the plans of a run lie."""
    return f"plans/{run}.jsonl"


def rewarded_file(ranker: RankerName, run: str) -> str:
    """Where the plans of a run lie with a ranker's rewards."""
    return f"rewarded/{ranker}/{run}.jsonl"


def train(run_dir: Path, settings: RewardedRun, progress: Progress) -> None:
    """GRPO from the base against a reward."""
    from recipe.corpus.store import Corpus
    from recipe.reward.verifier import Verifier
    from recipe.training.grpo import train_grpo

    config = placed(settings.grpo, run_dir)
    if settings.reward == "validity":
        from recipe.world.load import load_world
        from recipe.world.validity import ValidityScorer

        train_grpo(config, ValidityScorer(load_world()), progress)
        return
    corpus = Corpus.open(config.corpus, devices=config.corpus_devices)
    train_grpo(config, Verifier(corpus, config.reward), progress)


def plan(run_dir: Path, settings: Plans, progress: Progress) -> None:
    """Sample plans of a run's model for every test prompt."""
    examples = read_examples(run_dir / TEST)
    folder = run_folder(settings.run)
    planned = plan_examples(run_dir, folder, examples, settings.sampling, settings.samples, progress)
    write_predictions(run_dir / plans_file(settings.run), planned)


def rank(run_dir: Path, settings: Ranking, progress: Progress) -> None:
    """Reward the plans of all runs; a prompt's pool is found once for all of them."""
    from recipe.corpus.store import Corpus
    from recipe.planning.rerank import reward_predictions

    examples = read_examples(run_dir / TEST)
    planned = {run: read_predictions(run_dir / plans_file(run)) for run in settings.runs}
    scorer = _ranker(run_dir, Corpus.open(run_dir / CORPUS), settings.verifier)
    for run, predictions in planned.items():
        rewarded = reward_predictions(scorer, examples, predictions, progress)
        write_predictions(run_dir / rewarded_file(settings.ranker, run), rewarded)


def _ranker(run_dir: Path, corpus: "Corpus", config: RewardConfig | None) -> "Scorer":
    """The scorer of a ranker's name: a verifier, or R0 without one."""
    from recipe.reward.relevance import RelevanceScorer
    from recipe.reward.verifier import Verifier

    verifier = Verifier(corpus, config or RewardConfig())
    if config is not None:
        return verifier
    known = {text for example in read_examples(run_dir / TRAIN) for text in (*example.history, *example.continuation)}
    return RelevanceScorer(verifier.embed, verifier.embed(sorted(known)).mean(axis=0))
