"""What an experiment needs, looked for before it starts: inputs, and the stages that are left."""

from dataclasses import dataclass
from pathlib import Path

from recipe.data.benchmarks import BENCHMARKS, find_benchmark
from recipe.prompting import open_prompt
from recipe.training.preflight import Requirement, check, encoder_at_hand, model_findings
from recipe_studies.experiments.expand import expand, read_inputs
from recipe_studies.experiments.schedule import finished_stages, run_state
from recipe_studies.experiments.settings import (
    AnyExperiment,
    FilesSource,
    ProceduresSource,
    WorldSource,
    require_packages_of,
)
from recipe_studies.experiments.study import study_of


@dataclass(frozen=True, slots=True)
class StageState:
    """A stage, and whether an earlier run finished it."""

    name: str
    done: bool


@dataclass(frozen=True, slots=True)
class ExperimentCheck:
    """The inputs and stages of an experiment."""

    findings: tuple[Requirement, ...]
    stages: tuple[StageState, ...]
    """Empty where an input is missing that they depend on."""
    ready: bool


def check_experiment(config: AnyExperiment, run_dir: Path, data: Path | None = None) -> ExperimentCheck:
    """Look for all inputs of an experiment and for its finished stages. Writes nothing.

    Raises ConfigError for settings of a stage that cannot be used.
    """
    study = study_of(config)
    findings = [check("packages", lambda: require_packages_of(config))]
    installed = findings[0].state != "missing"
    if config.model and installed:
        findings += model_findings(config.model, None, [])
    if config.prompt:
        findings.append(check("prompt", lambda: f"{open_prompt(config.prompt).name!r} can be read"))
    if installed:
        findings.append(check("encoder", lambda: encoder_at_hand({"name": config.corpus.encoder.name}, True)))
    source, root = config.source, data or Path()
    if isinstance(source, WorldSource):
        findings.append(Requirement("data", "ok", "drawn from the embedded world"))
    else:
        foreign = source.wrong_narrations if isinstance(source, FilesSource) else ()
        for file in dict.fromkeys((*source.procedures, *source.narrations, *foreign)):
            problem = "" if (root / file).exists() else ": the file does not exist; give its folder with --data"
            findings.append(Requirement("data", "missing" if problem else "ok", f"{root / file}{problem}"))
        known = source.known if isinstance(source, ProceduresSource) else ()
        for name in dict.fromkeys((*source.benchmarks, *known)):
            if name not in BENCHMARKS:
                sentence = f"benchmark {name!r} is unknown; known are {', '.join(BENCHMARKS)}"
                findings.append(Requirement("data", "missing", sentence))
            elif (folder := find_benchmark(root, name)) is not None:
                findings.append(Requirement("data", "ok", f"benchmark {name} in {folder}"))
            else:
                origin = f"{BENCHMARKS[name].download}; home page {BENCHMARKS[name].home}"
                findings.append(Requirement("data", "missing", f"benchmark {name} is not in {root}; {origin}"))
    findings.append(check("output", lambda: f"{run_dir}: {run_state(run_dir)}"))
    ready = all(finding.state != "missing" for finding in findings)
    stages = expand(study, read_inputs(config, data)) if ready else []
    done = {*finished_stages(run_dir, stages)}
    states = tuple(StageState(stage.name, stage.name in done) for stage in stages)
    return ExperimentCheck(tuple(findings), states, ready)
