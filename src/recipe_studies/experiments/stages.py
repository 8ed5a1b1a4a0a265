"""The stages of an experiment: each reads what earlier stages left in the run folder and leaves its own outputs."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from recipe.artifacts import file_sha256, fingerprint, write_jsonl
from recipe.config import (
    BaseModelConfig,
    BestOfNConfig,
    CorpusConfig,
    GRPOConfig,
    RewardConfig,
    SamplingConfig,
    SFTConfig,
)
from recipe.data.benchmarks import by_role, read_benchmarks, require_benchmarks
from recipe.data.examples import read_examples, write_examples
from recipe.data.narrations import read_narrations
from recipe.data.supervision import cut_procedures, evenly_spaced, limit_videos
from recipe.errors import InputError
from recipe.planning.predictions import Prediction, read_predictions, write_predictions
from recipe.progress import SILENT, Progress
from recipe.prompting import PlannerPrompt, open_prompt
from recipe.reward.scorer import Scorer
from recipe.types import Example, Procedure
from recipe.world.examples import TextNoise
from recipe_studies.experiments import teaching, video
from recipe_studies.experiments.design import (
    ALIGNED,
    ATTRIBUTES,
    BASE,
    CORPUS,
    DOCUMENTS,
    HELD_OUT,
    NARRATIONS,
    TEST,
    TRAIN,
    VALIDATION,
    WORDS,
    WRONG,
    Design,
    PlanSet,
    RunConfig,
    corpus_stage,
    design_of,
)
from recipe_studies.experiments.probes import PROBES, ProbeRewards, reward_probes
from recipe_studies.experiments.report import ReportSettings, write_report
from recipe_studies.experiments.schedule import Stage, run_stages
from recipe_studies.experiments.settings import (
    AnyExperiment,
    ExperimentConfig,
    FilesSource,
    ProceduresSource,
    TeachingConfig,
    TeachingWorld,
    VideoConfig,
    WorldSource,
)

if TYPE_CHECKING:
    from recipe.models.local import LocalEngine
    from recipe.training.video.data import Renderer

NOISE = TextNoise()
"""Noise of the base's training text unless the settings differ."""
VALIDATION_PROMPTS = 100
"""Validation prompts of the world unless `validation.prompts` is given."""
VALIDATION_DRAWS = 4
"""Draws for each of them, because many cut points are training prompts."""
KL_SAMPLES = 2
"""Samples of a prompt that the KL divergence is estimated from."""


def run_experiment(config: AnyExperiment, run_dir: Path, data: Path | None = None, progress: Progress = SILENT) -> Path:
    """Run what is missing of an experiment and write its report; returns the run folder.

    `data` is where the relative paths of a files source start. Raises what the stages raise.
    """
    stages = plan_stages(config, data)
    if config.model:
        from recipe.models.checkpoints import load_reader

        # Before a corpus is built for nothing.
        load_reader(config.model)
        open_prompt(config.prompt or "plain")
    run_stages(run_dir, stages, config.workers, progress)
    return run_dir


def plan_stages(config: AnyExperiment, data: Path | None = None) -> list[Stage]:
    """The stages of an experiment, those that take longest first among those that can run at the same time.

    Raises ConfigError or InputError before anything is run.
    """
    design = design_of(config)
    drawn, corpora = _source_stages(config, design, data)
    stages = [drawn]
    if design.base is not None:
        stages.append(Stage("base", train, Training(design.base), (BASE,), needs=("data",)))
    if isinstance(config, TeachingConfig):
        stages.append(Stage("prompts", teaching.choose_prompts, config.prompts, (TEST,), needs=("data",)))
    if isinstance(config, VideoConfig) and design.base is not None:
        pretraining = video.VisionPretraining(config.vision, design.base.hidden_size, config.seed)
        stages += [
            Stage("attributes", video.learn_symbols, pretraining, (ATTRIBUTES,)),
            Stage("words", video.learn_word_embeddings, pretraining, (WORDS,), needs=("base", "attributes")),
            Stage("align", video.align, pretraining, (ALIGNED,), needs=("words", "data")),
        ]
    stages += corpora
    if any(getattr(run.config, "corpus", None) == Path(WRONG) for run in design.reward_runs):
        stages.append(_wrong_corpus(config, data))
    stages += [
        Stage(run.stage, train, Training(run.config, run.exact, run.elsewhere), (run.folder,), run.needs)
        for run in design.training
    ]
    plans = _plan_stages(config, design)
    report = Stage(
        "report",
        write_report,
        ReportSettings(config),
        ("report.json", "report.html", *(["clips.png"] if isinstance(config, VideoConfig) else [])),
        needs=tuple(stage.name for stage in plans),
    )
    return [*stages, *plans, report]


def _benchmarks_content(root: Path, names: Sequence[str]) -> str:
    """A fingerprint of what benchmark folders hold: files and sizes, as hashing them would take minutes."""
    return fingerprint(
        [
            (str(file.relative_to(folder)), file.stat().st_size)
            for folder in require_benchmarks(root, names).values()
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        ]
    )


def _taught(config: TeachingConfig, data: Path | None) -> Stage:
    """The stage that brings the data of a teaching experiment. Raises InputError where files are not there."""
    outputs = (TRAIN, VALIDATION, HELD_OUT, *(() if config.model else (DOCUMENTS,)))
    if isinstance(config.source, TeachingWorld):
        return Stage("data", teaching.draw_taught_world, teaching.TaughtWorld(config.source, config.seed), outputs)
    source, root = config.source, (data or Path()).resolve()
    _, content = _files_below((*source.procedures, *source.narrations, *source.wrong_narrations), root)
    if names := dict.fromkeys((*source.benchmarks, *source.known)):
        content = fingerprint([content, _benchmarks_content(root, [*names])])
    given = teaching.TaughtProcedures(source, config.seed, content, root)
    return Stage("data", teaching.split_procedures, given, (*outputs, *teaching.CORPUS_FILES))


def _taught_corpora(config: TeachingConfig, design: Design) -> Iterator[Stage]:
    """The corpora of a teaching experiment, the verification corpus first."""
    for folder, covering in {CORPUS: config.covering, **design.corpora}.items():
        if isinstance(config.source, ProceduresSource):
            given = teaching.covering_corpus(config.source, config.corpus, folder, covering)
            yield Stage(corpus_stage(folder), teaching.build_covering, given, (folder,), needs=("data",))
        else:
            told = teaching.taught_corpus(config.source, config.corpus, config.seed, folder, covering)
            yield Stage(corpus_stage(folder), teaching.build_told, told, (folder,))


def _wrong_corpus(config: AnyExperiment, data: Path | None) -> Stage:
    """The corpus of another domain. Raises InputError where its files are not there."""
    if isinstance(config.source, WorldSource):
        return wrong_domain(config.source, config.corpus, config.seed)
    files, content = _files_below(config.source.wrong_narrations, (data or Path()).resolve())
    return Stage(WRONG, build, CorpusBuild(config.corpus, content, files, folder=WRONG), (WRONG,))


def wrong_domain(source: WorldSource, config: CorpusConfig, seed: int) -> Stage:
    """The stage that builds the corpus of the world's domain with the fewest goals."""
    from recipe.world.load import load_world

    domains: dict[str, list[str]] = {}
    for graph in load_world().goals.values():
        domains.setdefault(graph.domain, []).append(graph.goal)
    goals = min(domains.values(), key=len)  # what it covers by chance is the least of the test
    counts = tuple((goal, source.narrations // len(goals)) for goal in goals)
    return Stage(WRONG, teaching.build_told, teaching.ToldCorpus(config, WRONG, counts, seed), (WRONG,))


def _files_below(given: Sequence[Path], root: Path) -> tuple[tuple[Path, ...], str]:
    """Files and folders below a folder, and a fingerprint of what they hold. Raises InputError for a missing one."""
    files = tuple(root / file for file in given)
    if missing := [file for file in files if not file.exists()]:
        raise InputError.at(missing[0], "the file does not exist", "give its folder with --data")
    # What the files hold decides, not where they lie: a run goes on after its data has moved.
    return files, fingerprint([file_sha256(file) if file.is_file() else _folder_content(file) for file in files])


def _folder_content(folder: Path) -> list[tuple[str, str]]:
    held = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(str(path.relative_to(folder)), file_sha256(path)) for path in held]


def _plan_stages(config: AnyExperiment, design: Design) -> list[Stage]:
    """Plans of every model, and their rewards."""
    sampling, base = config.sampling.model_copy(update={"seed": config.seed}), config.model or BASE
    stages = []
    for run in design.sampling:
        settings = Sampling(
            model=base if run.model == BASE else run.model,
            plans=run.plans,
            sampling=sampling,
            samples=config.samples,
            reference=base if run.reference == BASE else run.reference,
            reward=design.reward,
            given=config.model,
            prompt=config.prompt,
        )
        needs = (run.after, *(() if design.reward is None else ("corpus",)))
        if isinstance(config, TeachingConfig):
            needs = (*needs, "prompts")
        stages.append(Stage(run.stage, sample, settings, tuple(plans.file for plans in run.plans), needs))
    planned = tuple(stage.name for stage in stages)
    for ranker in design.rankers:
        sets = tuple(one for one in design.plan_sets if one.regime == BASE or not ranker.base_only)
        needed = ("plans-base",) if ranker.base_only else planned
        outputs = tuple(plans.rewarded(ranker.name) for plans in sets)
        ranking = Ranking(ranker.name, ranker.verifier, sets, ranker.corpus)
        needs = (corpus_stage(ranker.corpus), *needed)
        stages.append(Stage(f"rewards-{ranker.name}", rank, ranking, outputs, needs))
    if design.reward is not None:
        probes = ProbeRewards(design.reward, config.has_world, config.seed)
        stages.append(Stage("hand-made", reward_probes, probes, (PROBES,), needs=("data", "corpus")))
    return stages


def _source_stages(config: AnyExperiment, design: Design, data: Path | None) -> tuple[Stage, list[Stage]]:
    """The stages that bring the data and the corpora. Raises InputError where the data is not there."""
    outputs = (TRAIN, TEST, DOCUMENTS)
    if isinstance(config, TeachingConfig):
        return _taught(config, data), list(_taught_corpora(config, design))
    if isinstance(config.source, WorldSource):
        drawn = WorldData(config.source, config.seed, TextNoise(**config.noise))
        stages = [Stage("corpus", build, CorpusBuild(config.corpus), (CORPUS,), needs=("data",))]
        if isinstance(config, ExperimentConfig) and config.validation:
            count = config.validation.get("prompts", VALIDATION_PROMPTS)
            further = FurtherPrompts(config.source.train, count, config.seed)
            stages.append(Stage("validation", draw_validation, further, (VALIDATION,), needs=("data",)))
        return Stage("data", draw_world, drawn, (*outputs, NARRATIONS)), stages
    root = (data or Path()).resolve()
    narrations, content = _files_below(config.source.narrations, root)
    tasks = _benchmarks_content(root, config.source.benchmarks) if config.source.benchmarks else ""
    if config.source.procedures:
        tasks = fingerprint([tasks, _files_below(config.source.procedures, root)[1]])
    cut = FilesData(config.source, config.seed, tasks, root)
    return (
        Stage("data", cut_benchmarks, cut, outputs),
        [Stage("corpus", build, CorpusBuild(config.corpus, content, narrations), (CORPUS,))],
    )


@dataclass(frozen=True, slots=True)
class WorldData:
    """Narrations and examples of the embedded world, drawn from one seed; `noise` is that of the base's text."""

    source: WorldSource
    seed: int
    noise: TextNoise = NOISE


def draw_world(run_dir: Path, settings: WorldData, progress: Progress) -> None:
    """Narrations, training and test examples, and noisy pre-training text for the base model."""
    from recipe.world.examples import draw_examples, noisy_examples
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
        texts = noisy_examples(world, source.documents, seed, noise=settings.noise)
        write_examples(run_dir / DOCUMENTS, texts)
        advance(1)


@dataclass(frozen=True, slots=True)
class FurtherPrompts:
    """Examples to draw after the `drawn` ones of the training split."""

    drawn: int
    count: int
    seed: int


def draw_validation(run_dir: Path, settings: FurtherPrompts, progress: Progress) -> None:
    """Validation prompts of the world: cut points of the training split that no training or test prompt has.

    Raises InputError where the world has too few.
    """
    from recipe.world.examples import draw_examples
    from recipe.world.load import load_world
    from recipe.world.validity import PlanKey, plan_key

    world = load_world()

    def cut(example: Example) -> tuple[str, PlanKey]:
        return example.goal, plan_key(world, example.goal, example.history)

    with progress.task("drawing validation prompts"):
        used = {cut(example) for file in (TRAIN, TEST) for example in read_examples(run_dir / file)}
        # The first examples of a seed are the training examples, so that these are of other videos, too.
        draws = draw_examples(world, "train", settings.drawn + VALIDATION_DRAWS * settings.count, settings.seed)
        chosen: list[Example] = []
        for example in draws[settings.drawn :]:
            if len(chosen) == settings.count:
                break
            if (key := cut(example)) not in used:
                used.add(key)
                chosen.append(replace(example, split="validation"))
        if len(chosen) < settings.count:
            problem = f"the world has {len(chosen)} cut points left for {settings.count} validation prompts"
            raise InputError.at(run_dir / VALIDATION, problem, "lower validation.prompts or source.train")
        write_examples(run_dir / VALIDATION, chosen)


@dataclass(frozen=True, slots=True)
class FilesData:
    """Examples of published benchmarks below `root`; `content` stands for what the folders hold."""

    source: FilesSource
    seed: int
    content: str
    root: Path = field(repr=False)


def cut_benchmarks(run_dir: Path, settings: FilesData, progress: Progress) -> None:
    """Training, test and base-model examples of benchmarks and own procedures, cut by hash; videos stay in their
    published split.
    """
    source, seed = settings.source, settings.seed
    procedures: list[Procedure] = []
    if source.benchmarks:
        procedures, _ = by_role(read_benchmarks(require_benchmarks(settings.root, source.benchmarks), progress))
    for file in source.procedures:
        procedures += teaching.own_procedures(settings.root / file, seed)
    held_out = {p.video_id for p in procedures if p.split != "train"}
    # Published splits ignore each other: a video that one benchmark tests on is not trained on in another.
    trained = [p for p in procedures if p.split == "train" and p.video_id not in held_out]
    cut = cut_procedures(trained, train=4, seed=seed).examples
    tested = limit_videos([p for p in procedures if p.split == "test"], source.test, seed)
    tests = cut_procedures(tested, test=1, seed=seed).examples
    if not cut or not tests:
        counts = f"{len(cut)} examples to train on and {len(tests)} to test on"
        raise InputError.at(settings.root, f"the procedures give {counts}", "give procedures of both splits")
    write_examples(run_dir / DOCUMENTS, evenly_spaced(cut, source.documents))
    write_examples(run_dir / TRAIN, evenly_spaced(cut, source.train))
    write_examples(run_dir / TEST, [replace(example, split=example.source) for example in tests])


@dataclass(frozen=True, slots=True)
class CorpusBuild:
    """A corpus of narration files, by default the world's; `content` stands for what they hold."""

    config: CorpusConfig
    content: str = ""
    narrations: tuple[Path, ...] = field(default=(), repr=False)
    without_tests: bool = False
    """Leave out the videos of the test examples, and near-copies of their texts."""
    folder: str = field(default=CORPUS, repr=False)
    """Where the corpus lies."""


def build(run_dir: Path, settings: CorpusBuild, progress: Progress) -> None:
    """A corpus of narration files."""
    from recipe.corpus.build import build_corpus
    from recipe.corpus.leaks import ExclusionReport, Exclusions, warn_unchecked

    files = settings.narrations or (run_dir / NARRATIONS,)
    if not settings.without_tests:
        build_corpus(read_narrations(files, "keep-first"), run_dir / settings.folder, settings.config, progress)
        return
    exclusions, report = Exclusions.read([run_dir / TEST]), ExclusionReport()
    narrations = exclusions.filter(read_narrations(files, "keep-first", check=exclusions.require_clear), report)
    build_corpus(narrations, run_dir / settings.folder, settings.config, progress)
    warn_unchecked(exclusions.checked(report), TEST)


@dataclass(frozen=True, slots=True)
class Training:
    """A training run; `exact` rewards GRPO with the validity of the world in place of a verifier."""

    config: BaseModelConfig | SFTConfig | GRPOConfig | BestOfNConfig
    exact: bool = False
    elsewhere: bool = False
    """Whether the model to start from is a hub id or a folder outside the run."""
    shown: str = ""
    """Examples whose histories drawn clips show, where those of the training examples are not what was done."""


def train(run_dir: Path, settings: Training, progress: Progress) -> None:
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

    if isinstance(settings.config, BaseModelConfig):
        train_base(_placed(settings.config, run_dir), progress)
        return
    clips: Renderer | None = None
    if settings.config.input == "video" and settings.config.videos is None:
        clips = video.drawn_clips(settings.config.seed)
        if settings.shown:
            clips = video.ShownHistories(clips, read_examples(run_dir / settings.shown))
    if isinstance(settings.config, SFTConfig):
        train_sft(_placed(settings.config, run_dir, settings.elsewhere), progress, clips)
        return
    config = _placed(settings.config, run_dir, settings.elsewhere)
    scorer: Scorer
    if settings.exact:
        scorer = ValidityScorer(load_world())
    else:
        assert config.corpus is not None
        scorer = Verifier(Corpus.open(config.corpus, devices=config.corpus_devices), config.reward)
    measure = None if config.validation is None else plan_measure(config.validation)
    if isinstance(config, BestOfNConfig):
        train_best_of_n(config, scorer, progress, measure=measure)
    else:
        train_grpo(config, scorer, progress, clips, measure=measure)


def _placed(config: RunConfig, run_dir: Path, elsewhere: bool = False) -> RunConfig:
    """The config with its paths, which are relative in an experiment, below the run folder; the model but where it is
    elsewhere.
    """
    names = ("examples", "output", "corpus", "plans")
    paths = {name: run_dir / path for name in names if (path := getattr(config, name, None)) is not None}
    validation = getattr(config, "validation", None)
    if validation is not None:
        paths["validation"] = validation.model_copy(update={"examples": run_dir / validation.examples})
    model = {"model": str(run_dir / config.model)} if hasattr(config, "model") and not elsewhere else {}
    return config.model_copy(update={**paths, **model})


@dataclass(frozen=True, slots=True)
class Sampling:
    """The plan sets of one trained model, for every test prompt."""

    model: str
    """Folder of its training run."""
    plans: tuple[PlanSet, ...]
    sampling: SamplingConfig
    samples: int
    reference: str
    """Folder of the run that the KL divergence is taken against; empty for none."""
    reward: RewardConfig | None
    """The verifier that rewards the plans, if any."""
    given: str = field(default="", repr=False)
    """A hub id or a folder outside the run that may stand in place of a run."""
    prompt: str = ""
    """What the model is asked with; empty: what it was trained with."""


def sample(run_dir: Path, settings: Sampling, progress: Progress) -> None:
    """Sample plans for every test prompt and view; estimate the KL from some of them, and reward all."""
    from recipe.corpus.store import Corpus
    from recipe.models.local import LocalEngine
    from recipe.planning.planner import Planner
    from recipe.planning.rerank import reward_predictions
    from recipe.reward.verifier import Verifier

    examples = read_examples(run_dir / TEST)

    def load(run: str) -> LocalEngine:
        return LocalEngine(run if run == settings.given else run_dir / run / "model")

    engine = load(settings.model)
    prompt = open_prompt(settings.prompt) if settings.prompt else engine.prompt
    planner = Planner(engine, settings.sampling, prompt)
    for plans in settings.plans:
        request = video.view_request(plans.view)
        predictions = planner.predict(examples, settings.samples, progress, request)
        temperature = settings.sampling.temperature if settings.sampling.imitate == "none" else None
        # Greedy plans have no density, and what an imitated checkpoint samples from is no softmax.
        if settings.reference and temperature:
            reference = load(settings.reference)
            engines = (engine, reference)
            predictions = _with_kl(predictions, examples, engines, prompt, temperature, progress)
        if settings.reward is not None:
            verifier = Verifier(Corpus.open(run_dir / CORPUS), settings.reward)
            predictions = reward_predictions(verifier, examples, predictions, progress)
        write_predictions(run_dir / plans.file, predictions)


def _with_kl(
    predictions: Sequence[Prediction],
    examples: Sequence[Example],
    engines: Sequence["LocalEngine"],
    prompt: PlannerPrompt,
    temperature: float,
    progress: Progress,
) -> list[Prediction]:
    """The predictions, the first samples of each prompt with log pi(plan) - log pi_base(plan) at their temperature."""
    known = {example.example_id: example for example in examples}
    estimated = [p for p in predictions if p.sample < KL_SAMPLES and p.text is not None]
    texts = [p.text or "" for p in estimated]

    def likelihood(engine: "LocalEngine") -> list[float]:
        examples = [known[p.example_id] for p in estimated]
        chats = [prompt.chat(example.goal, example.history) for example in examples]
        return engine.log_likelihood(chats, texts, temperature=temperature, progress=progress)

    own, reference = map(likelihood, engines)
    ratio = {(p.example_id, p.sample): a - b for p, a, b in zip(estimated, own, reference, strict=True)}
    return [replace(p, kl=ratio.get((p.example_id, p.sample))) for p in predictions]


@dataclass(frozen=True, slots=True)
class Ranking:
    """All plans of all runs, rewarded by one ranker; `verifier` is None for R0."""

    ranker: str
    verifier: RewardConfig | None
    plans: tuple[PlanSet, ...]
    corpus: str = field(default=CORPUS, repr=False)


def rank(run_dir: Path, settings: Ranking, progress: Progress) -> None:
    """Reward the plans of all runs; a prompt's pool is found once for all of them."""
    from recipe.corpus.store import Corpus
    from recipe.planning.rerank import reward_predictions
    from recipe.reward.controls import RelevanceScorer
    from recipe.reward.verifier import Verifier

    examples = read_examples(run_dir / TEST)
    planned = [read_predictions(run_dir / plans.file) for plans in settings.plans]
    verifier = Verifier(Corpus.open(run_dir / settings.corpus), settings.verifier or RewardConfig())
    scorer: Scorer = verifier
    if settings.verifier is None:
        training = read_examples(run_dir / TRAIN)
        known = {text for example in training for text in (*example.history, *example.continuation)}
        scorer = RelevanceScorer(verifier.embed, verifier.embed(sorted(known)).mean(axis=0))
    for plans, predictions in zip(settings.plans, planned, strict=True):
        rewarded = reward_predictions(scorer, examples, predictions, progress)
        write_predictions(run_dir / plans.rewarded(settings.ranker), rewarded)
