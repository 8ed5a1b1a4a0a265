"""`recipe vpa trace`: why each action of a plan was chosen."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from recipe.cli import console
from recipe.prompting import visible

if TYPE_CHECKING:
    from recipe.planning.vidassist.trace import TracedCandidate, TracedStep


def trace(
    file: Annotated[Path, typer.Argument(help="Trace that `recipe vpa plan` wrote.")],
    example: Annotated[str, typer.Option(help="Id of the example.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the candidates of each action of a plan: who proposed them, in which words, and how they scored.

    Example: recipe vpa trace predictions.trace.jsonl --example crosstask/-9lVZgN7pGE/3
    """
    from recipe.planning.vidassist.trace import read_trace

    steps = read_trace(file, example)
    if json:
        console.print_json([step.model_dump() for step in steps])
        return
    first = steps[0]
    done = ", ".join(first.done) or "nothing yet"
    console.out.print(f"{first.goal}. Done: {done}.", highlight=False, markup=False, soft_wrap=True)
    for step in steps:
        console.out.print(_table(step))
        for lost in step.lost:
            console.out.print(f"no action in: {visible(lost)}", highlight=False, markup=False, soft_wrap=True)


def _table(step: "TracedStep") -> Table:
    names = list(dict.fromkeys(name for candidate in step.candidates for name in candidate.scores))
    table = Table(title=escape(f"{step.step}. {step.action}"), title_justify="left")
    table.add_column("candidate")
    table.add_column("proposed as (cosine, margin)")
    for name in (*names, "total"):
        table.add_column(name.replace("_", " "), justify="right")
    for candidate in step.candidates:
        scores = [_number(candidate.scores.get(name)) for name in names]
        mark = "→ " if candidate.chosen else "  "
        row = [escape(mark + candidate.action), escape(_proposed(candidate)), *scores, _number(candidate.total)]
        table.add_row(*row, style="bold" if candidate.chosen else None)
    return table


def _proposed(candidate: "TracedCandidate") -> str:
    return "\n".join(
        f"{one.source}: {visible(one.text)} ({one.cosine:.2f}, {one.margin:.2f})" for one in candidate.proposals
    )


def _number(score: float | None) -> str:
    return "untold" if score is None else f"{score:.2f}"
