"""What an experiment needs, looked for before it starts: inputs, and the stages that are left."""

from pathlib import Path

from recipe.data.benchmarks import BENCHMARKS, find_benchmark
from recipe.prompting import open_prompt
from recipe.training.preflight import Requirement, encoder_at_hand, model_findings
from recipe_studies.experiments.expand import expand, read_inputs
from recipe_studies.experiments.schedule import finished_stages, run_state
from recipe_studies.experiments.settings import AnyExperiment, WorldSource, require_packages_of
from recipe_studies.experiments.study import study_of


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
