"""`recipe evaluate compare`: two systems on the same examples."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recipe.cli import console

if TYPE_CHECKING:
    from recipe.evaluation.paired import SystemComparison
    from recipe.report.elements import Table

_LEAST = 0.001
_PERCENT = ("accuracy", "without_failure", "success_rate", "iou")
"""Endings of metrics in percent."""


def compare(
    first: Annotated[Path, typer.Argument(help="Scores that `recipe evaluate` wrote, their rows beside them.")],
    second: Annotated[Path, typer.Argument(help="Scores of the same kind of another system.")],
    examples: Annotated[
        list[Path] | None, typer.Option(help="The examples that were planned for: they name videos and datasets.")
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
        for table in _tables(found):
            console.print_table(table)


def _tables(found: "SystemComparison") -> "list[Table]":
    """The comparison, and its readings where verdicts are missing."""
    from recipe.evaluation.metrics import readings_table
    from recipe.report.elements import Cell, Table, headings, row

    several = len({one.metric for one in found.rows}) > 1
    rows, read = [], []
    for one in found.rows:
        metric, result = one.metric.replace("_", " "), one.result
        digits = 1 if one.metric.endswith(_PERCENT) else 2
        name = f"{metric}, {one.over}" if several and one.over else one.over or metric
        read.append((name, one.readings))
        rows.append(
            row(
                name,
                Cell(result.first, digits),
                Cell(result.second, digits),
                Cell(result.difference, digits, signed=True),
                Cell(result.p_value if one.adjusted is None else one.adjusted, 3, least=_LEAST),
                Cell(result.effect, 2),
            )
        )
    left_out = ", ".join(f"{count:,} {words}" for words, count in found.left_out.items() if count) or "none"
    p = "p (Holm)" if len(found.rows) > 1 else "p"
    table = Table(
        caption=f"first: {found.first}, second: {found.second}, {found.examples:,} examples",
        first="metric" if several or not found.rows[0].over else "over",
        headings=headings("first", "second", "difference, 95%", p, "d"),
        rows=tuple(rows),
        notes=(f"Intervals and sign flips are of whole {found.clusters}s. Plans left out: {left_out}.", *found.notes),
    )
    digits = 1 if all(one.metric.endswith(_PERCENT) for one in found.rows) else 2
    return [table, *readings_table("First minus second", read, digits, signed=True)]
