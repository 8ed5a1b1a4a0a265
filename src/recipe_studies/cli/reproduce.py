"""`recipe reproduce`: the paper's tables by one command."""

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from recipe.cli import console
from recipe.cli.console import CommandOutput, shows
from recipe.cli.flags import require_file_of, settable, setting_keys
from recipe.cli.models import open_for_command

if TYPE_CHECKING:
    from recipe.report.elements import Table
    from recipe_studies.reproduce.cost import RemainingCost


def _keys() -> dict[str, str]:
    from recipe_studies.experiments.settings import TABLES
    from recipe_studies.reproduce.study import Scale

    return setting_keys(Scale, **TABLES)


@shows
@settable(_keys)
def reproduce(
    tables: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE...",
            help="main, steps, regimes, weak, video, ablation, diversity, vpa, frontier, qualitative, or all of these.",
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
        int,
        typer.Option(
            min=1, help="Runs at once; with GPUs, only of those that need none. With --dry-run: GPUs to plan for."
        ),
    ] = 2,
    engine: Annotated[Literal["transformers", "vllm"], typer.Option(help="What writes completions.")] = "transformers",
    quick: Annotated[
        bool, typer.Option("--quick", help="A fraction of the work, to try it out; the figures mean nothing.")
    ] = False,
    controls: Annotated[
        bool,
        typer.Option(
            "--controls", help="Train RL on relevance (R0), on the number of steps and with a wrong corpus, too."
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop where a history, video or pseudo-trace of DIR is absent.")
    ] = False,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Steps of GRPO at every scale (paper, appendix A.3); default: those of the scale."),
    ] = None,
    changes: console.Changes = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print runs, hours, calls, memory and disk, and stop.")
    ] = False,
    models: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Judges, assessor and frontier models (docs/studies.md).")
    ] = None,
    as_json: bool = False,
) -> CommandOutput:
    """Run what the paper's tables need, write each next to the paper's figures, and say which claims hold here.

    Runs are shared between tables, run side by side, and resumed; what is done is skipped.

    Example: recipe reproduce all --scale tiny --data world
    """
    from recipe.errors import InputError, require_packages
    from recipe_studies.reproduce.study import Endpoints, PaperStudy, load_endpoints

    require_packages({"cpu": "corpus search", "train": "training", "report": "the report"})
    if data != "world" and not Path(data).is_dir():
        raise InputError.at(data, "this folder does not exist", "give `world`, or a folder of benchmarks")
    if models is not None:
        require_file_of("recipe reproduce --models", models)
    endpoints = Endpoints() if models is None else load_endpoints(models, output)
    study = PaperStudy(
        tables=tuple(tables),
        scales=tuple(dict.fromkeys(scale)),
        data=None if data == "world" else Path(data),
        seeds=tuple(range(seeds)),
        corpus=corpus,
        regimes=tuple(regime or ()),
        endpoints=endpoints,
        engine=engine,
        quick=quick,
        controls=controls,
        changes=(*(changes or ()), *([] if steps is None else [f"grpo.steps={steps}"])),
        strict=strict,
    )
    from recipe_studies.experiments.schedule import finished_stages
    from recipe_studies.reproduce.cost import estimate
    from recipe_studies.reproduce.expand import expand, restrict
    from recipe_studies.reproduce.run import reproduce as run

    wholes = [expand(study, name) for name in study.scales]
    asked = [restrict(study, whole) for whole in wholes]
    costs = []
    for part in asked:
        folder = output / part.name
        costs.append(estimate(part, finished_stages(folder, part.stages), folder, workers))
    tables_of_costs = _cost_tables(costs)
    if not as_json:
        for sentence in dict.fromkeys(sentence for part in asked for sentence in part.missing):
            console.err.print(f"note: {sentence}", highlight=False, soft_wrap=True)
    if dry_run:
        return CommandOutput(costs, tables_of_costs)
    for table in () if as_json else tables_of_costs:  # before what may take days
        console.print_table(table)
    for _, model in endpoints.roles():
        with open_for_command(
            model
        ):  # an address or a key that cannot be used ends the call now, and not after the training
            pass
    results = run(study, wholes, output, workers, console.progress(), shlex.join(["recipe", *sys.argv[1:]]))
    measured = [finding for finding in results.findings if finding.verdict != "not measured"]
    lines = [f"- {finding.table}: {finding.words}" for finding in measured]
    if left := len(results.findings) - len(measured):
        lines.append(f"- {left} claims were not measured: their regimes were not run.")
    return CommandOutput(results.findings, [*lines, f"report: {output / 'report.html'}"])


def _cost_tables(costs: "list[RemainingCost]") -> "Iterator[Table]":
    from recipe.report.elements import NONE, Cell, Table, headings, row

    rows = (
        row("runs to train", *(cost.training_runs for cost in costs)),
        row("stages done", *(f"{cost.done} of {cost.stages}" for cost in costs)),
        row("device hours", *(cost.hours for cost in costs)),
        row("endpoint hours", *(cost.endpoint_hours for cost in costs)),
        row(f"hours with {costs[0].workers} workers", *(cost.wall_hours for cost in costs)),
        row("GB memory", *(cost.memory_gb for cost in costs)),
        row("GB disk", *(cost.disk_gb for cost in costs)),
    )
    notes = tuple(f"Costs of {cost.scale}: {cost.source}." for cost in costs)
    scales = headings(*(cost.scale for cost in costs))
    yield Table("What is left to do", "scale", scales, rows, notes=notes)
    for cost in costs:
        kinds = tuple(row(kind.kind, kind.stages, kind.hours, kind.endpoint_hours) for kind in cost.kinds)
        prompts = (
            f"{cost.prompts:,} prompts of the test, {'counted' if cost.counted else 'as the scale says or assumed'}."
        )
        columns = headings("stages", "device hours", "endpoint hours")
        yield Table(f"Stages of {cost.scale}", "kind", columns, kinds, notes=(prompts,))
        tables = tuple(row(name, hours) for name, hours in cost.tables.items())
        alone = ("What several tables need is counted for each.",)
        yield Table(f"Tables of {cost.scale}", "table", headings("device hours"), tables, notes=alone)
        if not cost.roles:
            continue
        roles = tuple(
            row(
                role.role,
                role.calls,
                role.tokens_in / 1e6,
                role.tokens_out / 1e6,
                role.hours,
                NONE if role.cost is None else Cell(role.cost, 2),
            )
            for role in cost.roles
        )
        columns = headings("calls", "M in", "M out", "hours", "cost")
        notes = ("Calls are counted, at most; tokens (M in, M out) and hours are assumed (docs/studies.md).",)
        for role in cost.roles:
            bound = "" if role.max_calls is None else f", max_calls is {role.max_calls:,}"
            notes += (f"{role.role}: {role.model}; {role.reasks:,} reasks at most; {role.kept:,} answers kept{bound}.",)
        yield Table(f"Models behind endpoints, {cost.scale}", "role", columns, roles, notes=notes)
