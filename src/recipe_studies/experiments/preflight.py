"""What an experiment needs and takes, looked for before it starts: inputs, stages, and the time that is left."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recipe.config import BaseModelConfig, GRPOConfig
from recipe.data.benchmarks import BENCHMARKS, find_benchmark
from recipe.errors import RecipeError
from recipe.prompting import open_prompt
from recipe.training.cost import STARTING, Rates, training_seconds
from recipe.training.preflight import Finding, encoder_at_hand, model_findings, model_rates, tried
from recipe_studies.experiments.expand import expand, read_inputs
from recipe_studies.experiments.schedule import Stage, finished_stages, require_run_folder
from recipe_studies.experiments.settings import (
    AnyExperiment,
    FilesSource,
    ProceduresSource,
    TeachingWorld,
    VideoConfig,
    WorldSource,
    require_packages_of,
)
from recipe_studies.experiments.stages import Sampling, Training
from recipe_studies.experiments.study import Study, study_of

_WITHOUT_PATHS = {"seed": 0, "output": Path("o"), "examples": Path("e"), "corpus": None, "validation": None}


@dataclass(frozen=True, slots=True)
class StageState:
    """A stage: whether an earlier run finished it, and what it takes."""

    name: str
    done: bool
    seconds: float | None
    """None where it is not known: of corpora, rewards and measures."""


@dataclass(frozen=True, slots=True)
class ExperimentCheck:
    """The inputs, stages and remaining hours of an experiment."""

    findings: tuple[Finding, ...]
    stages: tuple[StageState, ...]
    """Empty where an input is missing that they depend on."""
    hours: float
    """Of training and sampling that are left, one stage after the other on this device, as busy as it is."""
    ready: bool


def check_experiment(config: AnyExperiment, run_dir: Path, data: Path | None = None) -> ExperimentCheck:
    """Look for all inputs of an experiment and for its finished stages. Writes nothing.

    Raises ConfigError for settings of a stage that cannot be used.
    """
    study = study_of(config)

    def folder_state() -> str:
        require_run_folder(run_dir)
        return f"{run_dir}: {'a run that is continued' if run_dir.is_dir() else 'a new run'}"

    findings = (*_inputs(config, data), tried("output", folder_state))
    ready = all(finding.state != "missing" for finding in findings)
    stages = expand(study, read_inputs(config, data)) if ready else []
    done = {*finished_stages(run_dir, stages)}
    seconds = dict(_seconds(study, [stage for stage in stages if stage.name not in done]))
    states = tuple(StageState(stage.name, stage.name in done, seconds.get(stage.name)) for stage in stages)
    return ExperimentCheck(findings, states, sum(seconds.values()) / 3600, ready)


def _inputs(config: AnyExperiment, data: Path | None) -> Iterator[Finding]:
    """Packages, model, encoder, narrations and benchmarks; each that is missing has a line of its own."""

    def package_state() -> str:
        require_packages_of(config)
        return "all are installed"

    packages = tried("packages", package_state)
    yield packages
    installed = packages.state != "missing"
    if config.model and installed:
        yield from model_findings(config.model, None, [])
    if config.prompt:
        yield tried("prompt", lambda: f"{open_prompt(config.prompt).name!r} can be read")
    if installed:
        yield tried("encoder", lambda: encoder_at_hand({"name": config.corpus.encoder.name}, True))
    source, root = config.source, data or Path()
    if isinstance(source, WorldSource):
        yield Finding("data", "ok", "drawn from the embedded world")
        return
    for file in dict.fromkeys((*source.procedures, *source.narrations, *source.wrong_narrations)):
        if (root / file).exists():
            yield Finding("data", "ok", str(root / file))
        else:
            yield Finding("data", "missing", f"{root / file}: the file does not exist; give its folder with --data")
    known = source.known if isinstance(source, ProceduresSource) else ()
    for name in dict.fromkeys((*source.benchmarks, *known)):
        if name not in BENCHMARKS:
            known_names = ", ".join(BENCHMARKS)
            yield Finding("data", "missing", f"benchmark {name!r} is unknown; known are {known_names}")
        elif (folder := find_benchmark(root, name)) is not None:
            yield Finding("data", "ok", f"benchmark {name} in {folder}")
        else:
            benchmark = BENCHMARKS[name]
            origin = f"{benchmark.download}; home page {benchmark.home}"
            yield Finding("data", "missing", f"benchmark {name} is not in {root}; {origin}")


def _seconds(study: Study, stages: list[Stage]) -> Iterator[tuple[str, float]]:
    """Names and seconds of the stages that train or sample, where the model's size is known."""
    config, source = study.config, study.config.source
    prompts = source.test
    if isinstance(source, FilesSource):
        prompts *= len(source.benchmarks) + len(source.procedures)
    elif isinstance(source, WorldSource) and not isinstance(source, TeachingWorld):
        prompts *= 2  # held-out cut points and held-out goals
    known: dict[str, Rates | None] = {}
    for stage in stages:
        own = stage.settings
        if isinstance(own, Training):
            run = own.config
        elif isinstance(own, Sampling) and not isinstance(config, VideoConfig):
            run = GRPOConfig(
                model="m", examples=Path("e"), output=Path("o"), corpus=Path("c"),
                prompts_per_step=own.sampling.batch_size, group_size=2, max_completion_tokens=own.sampling.max_tokens,
            )  # fmt: skip
        else:
            continue
        # Runs that differ in paths and seed only take the same time, and a measurement takes seconds.
        key = repr(run.model_copy(update={name: v for name, v in _WITHOUT_PATHS.items() if hasattr(run, name)}))
        if key not in known:
            try:
                known[key] = model_rates(run, config.model, study.arms[0].config)
            except RecipeError:
                known[key] = None
        if (rates := known[key]) is None:
            continue
        if isinstance(own, Training):
            examples = source.documents if isinstance(run, BaseModelConfig) else source.train
            yield stage.name, STARTING + training_seconds(run, rates, examples)
        else:
            yield stage.name, STARTING + rates.plan_seconds * prompts * own.samples
