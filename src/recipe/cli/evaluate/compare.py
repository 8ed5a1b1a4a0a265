"""`recipe evaluate compare`: two systems on the same examples."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from recipe.cli import console

if TYPE_CHECKING:
    from recipe.evaluation.paired import ComparedRow, ComparedSystems
    from recipe.stats import Interval

_LEAST = 0.001
_PERCENT = ("accuracy", "success_rate", "iou")
"""Endings of metrics in percent."""


def compare(
    first: Annotated[Path, typer.Argument(help="Scores that `recipe evaluate` wrote, their rows beside them.")],
    second: Annotated[Path, typer.Argument(help="Scores of the same kind of another system.")],
    examples: Annotated[
        list[Path] | None, typer.Option(help="The examples that were planned for: they tell videos and datasets.")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="Compare this metric; may be repeated. Default: the paper's.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="File to write, JSON.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap and of the sign flips.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two systems plan by plan: difference with interval, p-value of a permutation test, effect.

    Example: recipe evaluate compare rl.json base.json --examples test.jsonl
    """
    from recipe.artifacts import require_writable, to_json, write_json
    from recipe.evaluation.paired import compare_systems
    from recipe.evaluation.scoreboard.sources import gather

    if output is not None:
        require_writable(output)
    found = compare_systems(gather([first, second], examples or []), metric or [], seed)
    if output is not None:
        write_json(output, to_json(found))
    if json:
        console.print_json(to_json(found))
    else:
        _show(found)


def _show(found: "ComparedSystems") -> None:
    several = len({row.metric for row in found.rows}) > 1
    names = f"first: {found.first}, second: {found.second}, {found.examples:,} examples"
    table = Table(title=escape(names))
    table.add_column("metric" if several or not found.rows[0].over else "over", no_wrap=True)
    adjusted = len(found.rows) > 1
    for heading in ("first", "second", "difference, 95%", "p (Holm)" if adjusted else "p", "d"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in found.rows:
        table.add_row(_name(row, several), *_cells(row))
    console.out.print(table)
    left_out = [f"{count:,} {words}" for words, count in found.left_out.items() if count]
    notes = f"intervals and flips are of whole {found.clusters}s; plans left out: {', '.join(left_out) or 'none'}"
    console.out.print(notes, markup=False, highlight=False, soft_wrap=True)


def _name(row: "ComparedRow", several: bool) -> str:
    metric = row.metric.replace("_", " ")
    if not row.over:
        return metric
    return escape(f"{metric}, {row.over}" if several else row.over)


def _cells(row: "ComparedRow") -> list[str]:
    from recipe.report.numbers import format_number

    result = row.result
    digits = 1 if row.metric.endswith(_PERCENT) else 2
    return [
        format_number(result.first, digits),
        format_number(result.second, digits),
        _difference(result.difference, digits),
        _p(result.p_value if row.adjusted is None else row.adjusted),
        "" if result.effect is None else format_number(result.effect),
    ]


def _difference(value: "Interval", digits: int) -> str:
    """A difference and its interval: `+3.6, +1.2 to +6.2`."""
    from recipe.report.numbers import format_number

    def signed(number: float) -> str:
        return ("+" if round(number, digits) > 0 else "") + format_number(number, digits)

    if value.low is None or value.high is None:
        return signed(value.mean)
    return f"{signed(value.mean)}, {signed(value.low)} to {signed(value.high)}"


def _p(value: float) -> str:
    return f"< {_LEAST}" if value < _LEAST else f"{value:.3f}"
