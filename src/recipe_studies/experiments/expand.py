"""From a study to its stages: its inputs are looked for and read first, and the expansion itself is pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Literal

from recipe.artifacts import file_sha256, fingerprint
from recipe.config import BaseModelConfig, ModelConfig, SamplingConfig
from recipe.data.benchmarks import BENCHMARKS, find_benchmark, require_benchmarks
from recipe.errors import InputError
from recipe.progress import SILENT, Progress
from recipe.prompting import open_prompt
from recipe.training.preflight import Requirement, encoder_at_hand, model_findings
from recipe.world.examples import TextNoise
from recipe_studies.experiments import data, video
from recipe_studies.experiments.report import write_report
from recipe_studies.experiments.results import ROWS
from recipe_studies.experiments.schedule import Stage, StageList, finished_stages, run_stages, run_state
from recipe_studies.experiments.settings import (
    SELF_TRAINED,
    AnyExperiment,
    ExperimentConfig,
    ProceduresSource,
    TeachingConfig,
    VideoConfig,
    WorldSource,
    require_packages_of,
)
from recipe_studies.experiments.stages import (
    PACKAGED_BASE,
    Labelling,
    Ranking,
    Sampling,
    SelfTraining,
    Training,
    is_self_trained,
    label,
    rank,
    sample,
    self_train,
    train,
    unpack_base,
)
from recipe_studies.experiments.study import (
    ALIGNED,
    ATTRIBUTES,
    BASE,
    BY_LISTS,
    CAPTIONS,
    CORPUS,
    DOCUMENTS,
    HELD_OUT,
    KNOWN,
    LABELLED,
    LABELS,
    LINES_SHUFFLED,
    MIXED,
    NARRATIONS,
    SHUFFLED,
    TEST,
    TRAIN,
    UNCOVERED,
    VALIDATION,
    WORDS,
    WRONG,
    Arm,
    Study,
    study_of,
)

ORDERS: Mapping[str, Literal["shuffled", "mixed"]] = {SHUFFLED: "shuffled", MIXED: "mixed"}
"""Corpora of the same lines in another order."""
PSEUDO_PROMPTS = 120
"""Narrations of the corpus that become pseudo-prompts of a self-trained reward, at most; its own test needs 24."""
INPUT_PATHS = ("root", "files", "narrations", "wrong_narrations", "procedures")
"""Settings of stages that say where inputs lie. What the files hold decides: a run goes on after its data has moved."""


def run_experiment(
    config: AnyExperiment, run_dir: Path, data: Path | None = None, progress: Progress = SILENT, workers: int = 2
) -> Path:
    """Run what is missing of an experiment and write its report; returns the run folder.

    `data` is where the relative paths of a files source start, `workers` how many stages run side by side. Raises what
    the stages raise.
    """
    stages = expand(study_of(config), read_inputs(config, data))
    if config.model:
        from recipe.models.checkpoints import load_reader

        # Before a corpus is built for nothing.
        load_reader(config.model)
        open_prompt(config.prompt or "plain")
    run_stages(run_dir, stages, workers, progress)
    return run_dir


@dataclass(frozen=True, slots=True)
class Inputs:
    """The input files of a study, and fingerprints of what they hold; all empty on the embedded world."""

    root: Path = Path()
    narrations: tuple[Path, ...] = ()
    wrong_narrations: tuple[Path, ...] = ()
    tasks_content: str = ""
    """Of benchmarks and procedures."""
    narrations_content: str = ""
    wrong_content: str = ""


def read_inputs(config: AnyExperiment, folder: Path | None = None) -> Inputs:
    """Look at the input files of an experiment below `folder`. Raises InputError where one is not there."""
    source = config.source
    if isinstance(source, WorldSource):
        return Inputs()
    root = (folder or Path()).resolve()
    paths: list[tuple[Path, ...]] = []
    contents = []
    for group in (source.procedures, source.narrations, getattr(source, "wrong_narrations", ())):
        files = tuple(root / file for file in group)
        if missing := [file for file in files if not file.exists()]:
            raise InputError.at(missing[0], "the file does not exist", "give its folder with --data")
        held = [sorted(path for path in file.rglob("*") if path.is_file()) or [file] for file in files]
        hashed = [
            [(str(path.relative_to(file)), file_sha256(path)) for path in own if path.is_file()]
            for file, own in zip(files, held, strict=True)
        ]
        paths.append(files)
        contents.append(fingerprint(hashed) if files else "")
    procedures, narrations, wrong = contents
    tasks = [procedures, benchmarks_content(root, source.every_benchmark)]
    if isinstance(source, ProceduresSource):  # its narrations are cut with its procedures
        tasks.append(narrations)
    return Inputs(root, paths[1], paths[2], fingerprint(tasks), narrations, wrong)


def benchmarks_content(root: Path, names: Sequence[str]) -> str:
    """A fingerprint of what benchmark folders hold: files and sizes, as hashing them would take minutes."""
    if not names:
        return ""
    held = [
        (name, str(file.relative_to(folder)), file.stat().st_size)
        for name, folder in require_benchmarks(root, names).items()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    ]
    return fingerprint(held)


def expand(study: Study, inputs: Inputs) -> list[Stage]:
    """The stages of a study, those that take longest first among those that can run at the same time.

    Pure: the same study and inputs give the same stages, with the same identities.
    """
    config, stages = study.config, StageList()
    source, seed = config.source, config.seed
    drawn = data.DataSettings(source, seed, content=inputs.tasks_content, root=inputs.root)
    if isinstance(config, TeachingConfig):
        documents = () if config.model else (DOCUMENTS,)
        outputs = (TRAIN, VALIDATION, HELD_OUT, *documents, *((KNOWN,) if config.sft_known else ()))
        stages.add("data", data.split_procedures, drawn, (*outputs, *data.CORPUS_FILES), ignored=INPUT_PATHS)
        stages.add("prompts", data.choose_prompts, config.prompts, (TEST,), (VALIDATION, HELD_OUT))
    elif isinstance(source, WorldSource):
        noisy = data.DataSettings(source, seed, TextNoise(**config.noise))
        stages.add("data", data.draw_world, noisy, (TRAIN, TEST, DOCUMENTS, NARRATIONS))
    else:
        stages.add("data", data.cut_benchmarks, drawn, (TRAIN, TEST, DOCUMENTS), ignored=INPUT_PATHS)
    base = study.arms[0].config
    if isinstance(config, ExperimentConfig) and config.packaged_base:
        packaged = file_sha256(PACKAGED_BASE / "model.safetensors")
        stages.add("base", unpack_base, {"sha256": packaged}, (BASE,))
    elif base is not None:
        add_training(stages, "base", Training(base))
    if isinstance(config, VideoConfig):
        add_vision_stages(stages, config.vision_steps, base.hidden_size, seed)
    if isinstance(config, TeachingConfig):
        for folder in (CORPUS, *study.corpora):
            _add_teaching_corpus(stages, config, folder)
    elif isinstance(source, WorldSource):
        corpus = data.FilesCorpus(config.corpus, CORPUS, (Path(NARRATIONS),))
        stages.add("corpus", data.build_files_corpus, corpus, (CORPUS,), (NARRATIONS,))
    else:
        corpus = data.FilesCorpus(config.corpus, CORPUS, inputs.narrations, inputs.narrations_content)
        stages.add("corpus", data.build_files_corpus, corpus, (CORPUS,), ignored=INPUT_PATHS)
    if isinstance(config, ExperimentConfig) and (config.validation or study.read_from_corpus):
        count = config.validation.get("prompts", data.VALIDATION_PROMPTS)
        prompts = data.DataSettings(source, seed, validation=count)
        stages.add("validation", data.draw_validation, prompts, (VALIDATION,), (TRAIN, TEST))
    read, examples_of = ({str(getattr(arm.config, name, "")) for arm in study.arms} for name in ("corpus", "examples"))
    for folder, order in ORDERS.items():
        if folder in read:
            lines = replace(corpus, folder=folder, order=order, seed=seed)
            written = (NARRATIONS,) if isinstance(source, WorldSource) else ()
            stages.add(folder, data.build_files_corpus, lines, (folder,), written, ignored=INPUT_PATHS)
    if WRONG in read:
        if isinstance(source, WorldSource):
            wrong_domain = data.wrong_domain(source, config.corpus, WRONG, seed)
            stages.add(WRONG, data.build_world_corpus, wrong_domain, (WRONG,))
        else:
            corpus = data.FilesCorpus(config.corpus, WRONG, inputs.wrong_narrations, inputs.wrong_content)
            stages.add(WRONG, data.build_files_corpus, corpus, (WRONG,), ignored=INPUT_PATHS)
    if study.read_from_corpus:
        wordings, trained = (KNOWN if config.model else DOCUMENTS), LABELLED in examples_of
        labelling = Labelling(study.read_from_corpus, wordings, config.has_world, LABELLED if trained else "")
        outputs = (*(plans.file for plans in study.read_from_corpus), *([LABELLED] if trained else []))
        needed = [TEST, CORPUS, *((VALIDATION, TRAIN, wordings) if LABELS in study.read_from_corpus else ())]
        stages.add("plans-corpus", label, labelling, outputs, needed)
    start, sampling = study.start, config.sampling.model_copy(update={"seed": seed})
    for arm in study.arms:
        if arm is not study.arms[0]:
            is_external = bool(config.model) and arm.config.model == config.model
            add_training(stages, arm.stage, Training(arm.config, arm.exact, arm.permuted, is_external))
        if arm is start and study.self_trained is not None and isinstance(config, TeachingConfig):
            asked = config.self_training.samples
            policy = _sampling(config, arm, sampling, asked) if asked else None
            training = SelfTraining(study.self_trained, PSEUDO_PROMPTS, seed, policy)
            needed = [CORPUS, *([] if policy is None or policy.is_external_model else [arm.folder])]
            stages.add("self-train", self_train, training, (SELF_TRAINED,), needed)
    for arm in study.arms:
        if not arm.plans:
            continue
        settings = replace(_sampling(config, arm, sampling, config.samples), reward=study.reward)
        reads = [TEST, *([] if settings.is_external_model else [arm.folder])]
        reads += [CORPUS] if study.reward is not None else []
        stages.add(f"plans-{arm.name}", sample, settings, [plans.file for plans in arm.plans], reads)
    every_file = [plans.file for plans in study.plan_sets]
    for place, ranker in enumerate(study.rankers):
        sets = start.plans if ranker.base_only and start is not None else study.plan_sets
        composed = study.composed[place] if study.composed else None
        ranking = Ranking(ranker.name, ranker.verifier, sets, ranker.corpus, composed, config.best_of)
        outputs = tuple(plans.rewarded(ranker.name) for plans in sets)
        outputs += (composed.file,) if composed is not None else ()
        reads = [TEST, ranker.corpus, *(plans.file for plans in sets), *([TRAIN] if ranker.verifier is None else [])]
        reads += [SELF_TRAINED] if is_self_trained(ranker.verifier) else []
        stages.add(f"rewards-{ranker.name}", rank, ranking, outputs, reads)
        every_file += outputs
    pages = ("report.json", "report.html", ROWS, *(["clips.png"] if isinstance(config, VideoConfig) else []))
    stages.add("report", write_report, config, pages, every_file)
    return stages


def add_training(stages: StageList, name: str, training: Training, folder: str = "") -> None:
    """The stage of a training run in `folder`, which reads what its settings name there."""
    run: Any = training.config
    reads = [run.examples]
    reads += [] if isinstance(run, BaseModelConfig) or training.is_external_model else [run.model]
    named = [path for field in ("corpus", "plans") if (path := getattr(run, field, None)) is not None]
    reads += [path for path in named if not path.is_absolute()]  # one from outside the run
    if (validation := getattr(run, "validation", None)) is not None:
        reads.append(validation.examples)
    reads += [SELF_TRAINED] if is_self_trained(getattr(run, "reward", None)) else []
    reads += [training.shown] if training.shown else []
    stages.add(name, train, training, (str(run.output),), reads, folder=folder)


def _sampling(config: AnyExperiment, arm: Arm, sampling: SamplingConfig, samples: int) -> Sampling:
    """How an arm writes so many plans of a prompt, for its plan sets."""
    external = arm.config is None
    return Sampling(
        model=ModelConfig(model=config.model if external else f"{arm.folder}/model"),
        is_external_model=external,
        plans=arm.plans,
        sampling=sampling,
        samples=samples,
        prompt=config.prompt,
    )


def add_vision_stages(stages: StageList, steps: int, width: int, seed: int, folder: str = "") -> None:
    """The stages of pre-training that make a video model of the base in `folder`, `width` wide; the last of `steps`."""
    first = min(steps, video.SYMBOL_STEPS)
    settings = video.VisionPretraining(video.TowerSettings(first, first, steps), width, seed)
    stages.add("attributes", video.learn_symbols, settings, (ATTRIBUTES,), folder=folder)
    stages.add("words", video.learn_word_embeddings, settings, (WORDS,), (BASE, ATTRIBUTES), folder=folder)
    stages.add("align", video.align, settings, (ALIGNED,), (WORDS, DOCUMENTS), folder=folder)


def _add_teaching_corpus(stages: StageList, config: TeachingConfig, folder: str) -> None:
    """`CORPUS`, or one of the corpora of `Study.corpora`."""
    name = folder if folder == CORPUS else f"corpus-{PurePath(folder).name}"
    source = config.source
    narrations, lists, wrong = data.CORPUS_FILES
    covering, each = (narrations, source.covering) if source.narrations else (lists, source.lists)
    if folder == BY_LISTS:
        covering, each = lists, source.lists
    cut = data.FilesCorpus(config.corpus, folder, (Path(covering),), each=each, seed=config.seed)
    reads = [covering]
    if folder == UNCOVERED:
        cut, reads = replace(cut, instead=wrong), [covering, wrong]
    elif folder == LINES_SHUFFLED:
        cut = replace(cut, order="shuffled")
    elif folder == CAPTIONS:
        cut, reads = replace(cut, captions=lists), [covering, lists]
    stages.add(name, data.build_files_corpus, cut, (folder,), reads)


def check_experiment(
    config: AnyExperiment, run_dir: Path, data: Path | None = None
) -> tuple[list[Requirement], dict[str, bool]]:
    """What an experiment needs, and of each stage by name whether an earlier run finished it. Writes nothing.

    Where an input is missing there are no stages, because they depend on it. Raises ConfigError for settings of a stage
    that cannot be used.
    """
    study = study_of(config)
    findings = [Requirement.of("packages", lambda: require_packages_of(config))]
    installed = findings[0].state != "missing"
    if config.model and installed:
        findings += model_findings(config.model, None, [])
    if config.prompt:
        findings.append(Requirement.of("prompt", lambda: f"{open_prompt(config.prompt).name!r} can be read"))
    if installed:
        findings.append(Requirement.of("encoder", lambda: encoder_at_hand({"name": config.corpus.encoder.name}, True)))
    source, root = config.source, data or Path()
    if isinstance(source, WorldSource):
        findings.append(Requirement("data", "ok", "drawn from the embedded world"))
    else:
        for file in dict.fromkeys((*source.procedures, *source.narrations, *getattr(source, "wrong_narrations", ()))):
            problem = "" if (root / file).exists() else ": the file does not exist; give its folder with --data"
            findings.append(Requirement("data", "missing" if problem else "ok", f"{root / file}{problem}"))
        for name in source.every_benchmark:
            if name not in BENCHMARKS:
                sentence = f"benchmark {name!r} is unknown; known are {', '.join(BENCHMARKS)}"
                findings.append(Requirement("data", "missing", sentence))
            elif (folder := find_benchmark(root, name)) is not None:
                findings.append(Requirement("data", "ok", f"benchmark {name} in {folder}"))
            else:
                origin = f"{BENCHMARKS[name].download}; home page {BENCHMARKS[name].home}"
                findings.append(Requirement("data", "missing", f"benchmark {name} is not in {root}; {origin}"))
    findings.append(Requirement.of("output", lambda: f"{run_dir}: {run_state(run_dir)}"))
    is_ready = all(finding.state != "missing" for finding in findings)
    stages = expand(study, read_inputs(config, data)) if is_ready else []
    done = {*finished_stages(run_dir, stages)}
    return findings, {stage.name: stage.name in done for stage in stages}
