"""What an experiment needs and takes, looked for before it starts: inputs, stages, and the time that is left."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe.config import BaseModelConfig, GRPOConfig
from recipe.data.benchmarks import BENCHMARKS, find_benchmark
from recipe.errors import RecipeError
from recipe.prompting import open_prompt
from recipe.training.cost import STARTING, Rates, training_seconds
from recipe.training.preflight import Finding, encoder_at_hand, model_findings, model_rates, tried
from recipe_studies.experiments.design import Design, design_of
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
from recipe_studies.experiments.stages import Sampling, Training, plan_stages

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
    """What was found for an experiment."""

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
    design = design_of(config)
    findings = [*_inputs(config, data), tried("output", lambda: _folder(run_dir))]
    stages: list[Stage] = []
    if not any(one.state == "missing" for one in findings):
        stages = plan_stages(config, data)
    done = {*finished_stages(run_dir, stages)}
    seconds = dict(_seconds(config, design, [one for one in stages if one.name not in done]))
    states = tuple(StageState(one.name, one.name in done, seconds.get(one.name)) for one in stages)
    return ExperimentCheck(
        tuple(findings), states, sum(seconds.values()) / 3600, all(one.state != "missing" for one in findings)
    )


def _folder(run_dir: Path) -> str:
    require_run_folder(run_dir)
    return f"{run_dir}: {'a run that is continued' if run_dir.is_dir() else 'a new run'}"


def _packages(config: AnyExperiment) -> str:
    require_packages_of(config)
    return "all are installed"


def _inputs(config: AnyExperiment, data: Path | None) -> Iterator[Finding]:
    """Packages, model, encoder, narrations and benchmarks; each that is missing has a line of its own."""
    packages = tried("packages", lambda: _packages(config))
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
    known = source.known if isinstance(source, ProceduresSource) else ()
    for file in dict.fromkeys((*source.procedures, *source.narrations, *source.wrong_narrations)):
        if (root / file).exists():
            yield Finding("data", "ok", str(root / file))
        else:
            yield Finding("data", "missing", f"{root / file}: the file does not exist; give its folder with --data")
    for name in dict.fromkeys((*source.benchmarks, *known)):
        yield _benchmark(root, name)


def _benchmark(root: Path, name: str) -> Finding:
    if name not in BENCHMARKS:
        return Finding("data", "missing", f"benchmark {name!r} is unknown; known are {', '.join(BENCHMARKS)}")
    if (folder := find_benchmark(root, name)) is not None:
        return Finding("data", "ok", f"benchmark {name} in {folder}")
    one = BENCHMARKS[name]
    return Finding("data", "missing", f"benchmark {name} is not in {root}; {one.download}; home page {one.home}")


def _seconds(config: AnyExperiment, design: Design, stages: list[Stage]) -> Iterator[tuple[str, float]]:
    """Names and seconds of the stages that train or sample, where the model's size is known."""
    known: dict[str, Rates | None] = {}

    def rates(run: Any) -> Rates | None:
        plain = run.model_copy(update={key: value for key, value in _WITHOUT_PATHS.items() if hasattr(run, key)})
        key = repr(plain)
        if key not in known:
            try:
                known[key] = model_rates(run, config.model, design.base)
            except RecipeError:
                known[key] = None
        return known[key]

    for stage in stages:
        own = stage.settings
        if isinstance(own, Training) and (found := rates(own.config)) is not None:
            yield stage.name, STARTING + training_seconds(own.config, found, _training_examples(config, own.config))
        elif isinstance(own, Sampling) and not isinstance(config, VideoConfig):
            sampled = GRPOConfig(
                model="m", examples=Path("e"), output=Path("o"), corpus=Path("c"),
                prompts_per_step=own.sampling.batch_size, group_size=2, max_completion_tokens=own.sampling.max_tokens,
            )  # fmt: skip
            if (found := rates(sampled)) is not None:
                yield stage.name, STARTING + found.plan_seconds * _prompts(config) * own.samples


def _training_examples(config: AnyExperiment, run: Any) -> int:
    return config.source.documents if isinstance(run, BaseModelConfig) else config.source.train


def _prompts(config: AnyExperiment) -> int:
    """Test prompts of an experiment."""
    source = config.source
    if isinstance(source, FilesSource):
        return source.test * (len(source.benchmarks) + len(source.procedures))
    drawn_twice = isinstance(source, WorldSource) and not isinstance(source, TeachingWorld)
    return source.test * (2 if drawn_twice else 1)
