"""What commands of `recipe data` share: options that mean the same everywhere, and how results are shown."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from recipe.cli.console import out

Root = Annotated[Path | None, typer.Option(help="Folder of benchmark folders, or one benchmark's own folder.")]
Benchmarks = Annotated[
    list[str] | None,
    typer.Option("--benchmark", help="Only this benchmark; repeat for several. Default: all found."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def known(names: list[str]) -> list[str]:
    """The names of benchmarks, each of which is one."""
    from recipe.data.benchmarks import BENCHMARKS

    for name in names:
        if name not in BENCHMARKS:
            listed = ", ".join(BENCHMARKS)
            raise typer.BadParameter(f"{name!r} is unknown; known are {listed}.", param_hint="--benchmark")
    return names


def show_groups(groups: list[dict[str, Any]], counted: str) -> None:
    """A table of what was written of each source and split."""
    table = Table("source", "split", "videos", counted)
    for group in groups:
        table.add_row(escape(group["source"]), group["split"], f"{group['videos']:,}", f"{group[counted]:,}")
    out.print(table)


def show_left_out(result: dict[str, Any], reasons: dict[str, str]) -> None:
    """A line for each source of which something was left out, and why."""
    for key, reason in reasons.items():
        for source, count in result[key].items():
            out.print(f"left out of {source}: {count:,} {reason}", highlight=False, markup=False)


def show_written(result: dict[str, Any], what: str) -> None:
    """Where the result is."""
    text = f"{result[what]:,} {what} written to {result['output']}"
    out.print(text, highlight=False, markup=False, soft_wrap=True)
