"""`recipe demo` and `recipe run`: the whole method in one command."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recipe.cli import console

if TYPE_CHECKING:
    from recipe.experiments.comparison.settings import ComparisonConfig
    from recipe.experiments.settings import ExperimentConfig


class Input(StrEnum):
    """What tells the planner what has been done."""

    text = "text"
    video = "video"


Json = Annotated[bool, typer.Option("--json", help="Print the headline figures as JSON.")]
Quick = Annotated[bool, typer.Option(help="A fraction of the work: shows the way, proves nothing.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Stages run side by side.", show_default="from the config")]


def demo(
    output: Annotated[Path | None, typer.Option(help="Run folder.", show_default="runs/demo, runs/video-demo")] = None,
    shown: Annotated[Input, typer.Option("--input", help="What tells the planner the history.")] = Input.text,
    quick: Quick = False,
    seed: Annotated[int, typer.Option(help="Seed of the whole run.")] = 0,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Run the whole method on the embedded world and write a report.

    Corpus, base planner, SFT, GRPO with the paper's reward, best-of-N by the verifier, exact evaluation on held-out cut
    points and goals. With `--input video` the history is shown in drawn clips instead: a visual tower from nothing, SFT
    and GRPO with three seeds, and controls that tell whether the planner reads what it is shown. Needs no network and
    no data. A run folder that exists is gone on with.

    Example: recipe demo --output runs/demo
    """
    if shown is Input.video:
        _run_video(output or Path("runs/video-demo"), quick, seed, workers, as_json)
        return
    from recipe.experiments.settings import demo_config

    _run(demo_config(quick=quick, seed=seed, workers=workers), output or Path("runs/demo"), None, as_json)


def run(
    config: Annotated[Path, typer.Argument(help="TOML file of an experiment, such as configs/narrations.toml.")],
    data: Annotated[Path | None, typer.Option(help="Folder that the config's relative paths start from.")] = None,
    output: Annotated[Path | None, typer.Option(help="Run folder.", show_default="runs/<config name>")] = None,
    quick: Quick = False,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Run the whole method as a config says, on your own narrations and benchmarks, and write a report.

    A config with kind = "comparison" trains on several rewards, each with several seeds, and compares the plans.

    Example: recipe run configs/narrations.toml --data data
    """
    from recipe.experiments.comparison.settings import load_experiment

    experiment = load_experiment(config, quick=quick)
    if workers is not None:
        experiment = experiment.model_copy(update={"workers": workers})
    run_dir = output if output is not None else Path("runs") / config.stem
    _run(experiment, run_dir, data, as_json)


def _run(config: "ExperimentConfig | ComparisonConfig", run_dir: Path, data: Path | None, as_json: bool) -> None:
    from recipe.experiments.comparison.settings import ComparisonConfig
    from recipe.experiments.packages import require_packages_of

    require_packages_of(config)
    from recipe.experiments.comparison.pipeline import run_comparison
    from recipe.experiments.pipeline import run_experiment

    if isinstance(config, ComparisonConfig):
        run_dir = run_comparison(config, run_dir, data, console.progress())
    else:
        run_dir = run_experiment(config, run_dir, data, console.progress())
    _show(run_dir, as_json)


def _run_video(run_dir: Path, quick: bool, seed: int, workers: int | None, as_json: bool) -> None:
    from recipe.experiments.packages import require_packages_of
    from recipe.experiments.video.settings import video_demo_config

    config = video_demo_config(quick=quick, seed=seed, workers=workers)
    require_packages_of(config)
    from recipe.experiments.video.pipeline import run_video_demo

    _show(run_video_demo(config, run_dir, console.progress()), as_json)


def _show(run_dir: Path, as_json: bool) -> None:
    from recipe.artifacts import to_json
    from recipe.experiments.results import load_results

    results = load_results(run_dir / "report.json")
    if as_json:
        console.print_json(to_json(results.scores))
        return
    for sentence in results.summary:
        console.out.print(f"- {sentence}", highlight=False)
    console.out.print(f"report: {run_dir / 'report.html'}", highlight=False)
