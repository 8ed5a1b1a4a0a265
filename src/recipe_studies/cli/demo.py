"""`recipe demo` and `recipe run`: a whole experiment in one command."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from recipe.cli import console
from recipe.cli.console import CommandOutput, shows
from recipe.cli.flags import require_file_of, settable, setting_keys
from recipe.errors import RecipeError

if TYPE_CHECKING:
    from recipe_studies.experiments.settings import AnyExperiment

FINDINGS = 8
"""Sentences that a terminal shows: what the report begins with."""


Quick = Annotated[bool, typer.Option(help="A fraction of the work, to try it out; the figures mean nothing.")]
Workers = Annotated[int, typer.Option(min=1, help="Stages run side by side.")]


@shows
def demo(
    output: Annotated[Path | None, typer.Option(help="Run folder.", show_default="runs/demo, runs/video-demo")] = None,
    history: Annotated[
        Literal["text", "video"], typer.Option("--input", help="Form of the planner's history.")
    ] = "text",
    quick: Quick = False,
    seed: Annotated[int, typer.Option(help="Seed of the whole run.")] = 0,
    train_base: Annotated[
        bool, typer.Option("--train-base", help="Train the base anew; without it, the packaged one is taken.")
    ] = False,
    workers: Workers = 2,
) -> CommandOutput:
    """Train a planner on narrations to correct what its base always gets wrong, and write a report.

    GRPO with the grounded reward, with the paper's, and with narrations of other tasks; exact evaluation on held-out
    cut points and goals, next to greedy plans, choices among samples, and labels read from the corpus. With
    `--input video` the history is a drawn clip: a vision tower from scratch, SFT and GRPO with three seeds, and
    controls that show whether the planner reads it. Needs no network and no data. The same command resumes.

    Example: recipe demo --output runs/demo
    """
    from recipe_studies.experiments.settings import demo_config

    folder = "demo" if history == "text" else "video-demo"
    config = demo_config(history, quick=quick, seed=seed, train_base=train_base)
    return _run(config, output or Path("runs") / folder, None, workers)


def _keys() -> dict[str, str]:
    from recipe_studies.experiments.settings import KINDS, TABLES, ExperimentConfig

    return setting_keys(ExperimentConfig, *KINDS.values(), **TABLES)


@shows
@settable(_keys)
def run(
    config: Annotated[Path, typer.Argument(help="TOML file of an experiment, such as configs/narrations.toml.")],
    data: Annotated[Path | None, typer.Option(help="Folder that the config's relative paths start from.")] = None,
    output: Annotated[Path | None, typer.Option(help="Run folder.", show_default="runs/<config name>")] = None,
    quick: Quick = False,
    workers: Workers = 2,
    controls: Annotated[bool, typer.Option("--controls", help="Train the controls, too.")] = False,
    changes: console.Changes = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List stages and what is missing; start nothing.")] = False,
) -> CommandOutput:
    """Run the experiment of a config, on your own narrations and benchmarks or on the embedded world; write a report.

    Without `kind` a config runs the whole method once. With kind = "teaching" it trains on several rewards, each with
    several seeds, and compares their plans for tasks of which the base has read no annotations. With kind = "video"
    it shows the history as drawn clips.

    Example: recipe run configs/narrations.toml --data data
    """
    from recipe_studies.experiments.settings import load_experiment

    require_file_of("recipe run", config)
    experiment = load_experiment(config, quick=quick, controls=controls, changes=changes or ())
    run_dir = output or Path("runs") / config.stem
    return _check(experiment, run_dir, data) if dry_run else _run(experiment, run_dir, data, workers)


def _check(config: "AnyExperiment", run_dir: Path, data: Path | None) -> CommandOutput:
    """What an experiment needs, its stages and what is left; exit code 1 where something is missing."""
    from recipe.artifacts import to_json

    with console.progress().task("checking the run"):
        from recipe_studies.experiments.expand import check_experiment

        findings, stages = check_experiment(config, run_dir, data)
    is_ready = bool(stages)  # there are none where an input is missing
    lines = [*console.finding_lines(findings)]
    lines += [f"{'done' if done else 'to do':<8} {name}" for name, done in stages.items()]
    if stages:
        lines.append(f"{sum(stages.values())} of {len(stages)} stages are done")
    states = [{"name": name, "done": done} for name, done in stages.items()]
    value = {"config": config.model_dump(mode="json"), "findings": to_json(findings), "stages": states}
    return CommandOutput(value | {"ready": is_ready}, lines, 0 if is_ready else RecipeError.exit_code)


def _run(config: "AnyExperiment", run_dir: Path, data: Path | None, workers: int) -> CommandOutput:
    """Run an experiment; shows its findings, or its table as JSON."""
    from recipe_studies.experiments.settings import require_packages_of

    require_packages_of(config)
    from recipe_studies.experiments.expand import run_experiment
    from recipe_studies.experiments.findings import headline
    from recipe_studies.experiments.results import load_results

    run_experiment(config, run_dir, data, console.progress(), workers)
    results = load_results(run_dir / "report.json")
    report = f"report: {run_dir / 'report.html'}"
    sentences = [*dict.fromkeys((*headline(results), *results.summary))]
    lines = [f"- {sentence}" for sentence in sentences[:FINDINGS]]
    if more := len(sentences) - len(lines):
        lines.append(f"- {more} more {'finding is' if more == 1 else 'findings are'} in the report.")
    return CommandOutput(results.scores, [*lines, report])
