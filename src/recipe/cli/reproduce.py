"""`recipe reproduce`: the paper's tables by one command."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from recipe.cli import console

if TYPE_CHECKING:
    from recipe.config import ModelConfig
    from recipe.reproduce.cost import Estimate

_MODELS = "Models behind endpoints"


def reproduce(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE...",
            help="main, regimes, weak, video, ablation, diversity, vpa, frontier, qualitative, or all.",
        ),
    ],
    scale: Annotated[list[str], typer.Option(help="tiny, smollm2, 135m, 0.5b, 3b, 7b; repeat for several.")] = ["tiny"],  # noqa: B006
    data: Annotated[
        str, typer.Option(metavar="world|DIR", help="The embedded world, or a folder of benchmarks and narrations/.")
    ] = "world",
    output: Annotated[Path, typer.Option(help="Run folder; the same folder goes on where it stopped.")] = Path(
        "runs/reproduce"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Training seeds of every regime: 0, 1, ...")] = 3,
    corpus: Annotated[Path | None, typer.Option(help="Corpus folder; default: built from DIR/narrations.")] = None,
    regime: Annotated[list[str] | None, typer.Option(help="Run these regimes only; repeat for several.")] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Runs side by side without a GPU; with GPUs, what needs none.")
    ] = 2,
    engine: Annotated[Literal["transformers", "vllm"], typer.Option(help="What writes completions.")] = "transformers",
    quick: Annotated[bool, typer.Option("--quick", help="A fraction of the work: proves nothing.")] = False,
    controls: Annotated[
        bool, typer.Option("--controls", help="Train RL on R0, on the number of steps and with a wrong corpus, too.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop where a history, video or pseudo-trace of DIR is absent.")
    ] = False,
    changes: console.Changes = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print runs, hours, memory and disk, and stop.")] = False,
    judge_endpoint: Annotated[
        str | None, typer.Option(help="Address of the judge, in place of the proxy.", rich_help_panel=_MODELS)
    ] = None,
    judge_model: Annotated[
        str, typer.Option(help="Its model.", rich_help_panel=_MODELS)
    ] = "meta-llama/Llama-3.3-70B-Instruct",
    frontier_endpoint: Annotated[
        str | None, typer.Option(help="Address of the frontier models.", rich_help_panel=_MODELS)
    ] = None,
    frontier_model: Annotated[
        list[str] | None, typer.Option(help="A frontier model; repeat for several.", rich_help_panel=_MODELS)
    ] = None,
    key_variable: Annotated[
        str | None, typer.Option(help="Environment variable with the endpoints' key.", rich_help_panel=_MODELS)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Run what the paper's tables need and write each table beside the paper's figures, with what holds here.

    Runs are shared between tables, run side by side, and resumed; what is done is skipped.

    Example: recipe reproduce all --scale tiny --data world
    """
    from recipe.artifacts import to_json
    from recipe.config import ModelConfig
    from recipe.errors import require_packages
    from recipe.reproduce.study import Endpoints, Study

    require_packages({"cpu": "corpus search", "train": "training", "report": "the report"})
    if bool(frontier_endpoint) != bool(frontier_model):
        raise typer.BadParameter("needs both an address and a model.", param_hint="--frontier-endpoint")

    def model(name: str, endpoint: str) -> "ModelConfig":
        return ModelConfig(model=name, endpoint=endpoint, key_variable=key_variable)

    study = Study(
        tables=tuple(tables),
        scales=tuple(dict.fromkeys(scale)),
        data=None if data == "world" else _folder(data),
        seeds=tuple(range(seeds)),
        corpus=corpus,
        regimes=tuple(regime or ()),
        endpoints=Endpoints(
            judge=None if judge_endpoint is None else model(judge_model, judge_endpoint),
            frontier=tuple(model(name, frontier_endpoint or "") for name in frontier_model or ()),
        ),
        engine=engine,
        quick=quick,
        controls=controls,
        changes=tuple(changes or ()),
        strict=strict,
    )
    from recipe.reproduce.run import reproduce as run
    from recipe.reproduce.run import study_cost

    costs = study_cost(study, output)
    if not as_json:
        _show_costs([cost for cost, _ in costs], workers)
        for sentence in dict.fromkeys(sentence for _, made in costs for sentence in made.missing):
            console.err.print(f"note: {sentence}", highlight=False, soft_wrap=True)
    if dry_run:
        if as_json:
            console.print_json(to_json([cost for cost, _ in costs]))
        return
    results = run(study, output, workers, console.progress(), shlex.join(["recipe", *sys.argv[1:]]))
    if as_json:
        console.print_json(to_json(results.findings))
        return
    measured = [one for one in results.findings if one.verdict != "not measured"]
    for one in measured:
        console.out.print(f"- {one.table}: {one.words}", highlight=False, soft_wrap=True)
    if left := len(results.findings) - len(measured):
        console.out.print(f"- {left} claims were not measured: their regimes were not run.", highlight=False)
    console.out.print(f"report: {output / 'report.html'}", highlight=False, soft_wrap=True)


def _folder(data: str) -> Path:
    from recipe.errors import InputError

    if not Path(data).is_dir():
        raise InputError.at(data, "this folder does not exist", "give `world`, or a folder of benchmarks")
    return Path(data)


def _show_costs(costs: "list[Estimate]", workers: int) -> None:
    from recipe.report.elements import Table, headings, row

    rows = tuple(
        row(
            one.scale,
            one.training_runs,
            f"{one.done} of {one.stages}",
            f"{one.hours:.1f}",
            f"{max(one.longest_hours, one.hours / workers):.1f}",
            f"{one.memory_gb:g}",
            f"{one.disk_gb:.1f}",
        )
        for one in costs
    )
    names = ("runs to train", "stages done", "hours in all", f"with {workers} workers", "GB memory", "GB disk")
    notes = tuple(f"Costs of {one.scale}: {one.source}." for one in costs)
    console.print_table(Table("What is left to do", "scale", headings(*names), rows, notes=notes))
