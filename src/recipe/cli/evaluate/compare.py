"""`recipe evaluate compare`: two systems on the same examples."""

from pathlib import Path
from typing import Annotated

import typer

from recipe.cli import console


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
    from recipe.evaluation.compare import compare_systems, comparison_tables
    from recipe.evaluation.scoreboard.sources import gather

    if output is not None:
        require_writable(output)
    board = gather([first, second], examples or [])
    found = compare_systems(board.sources[0], board.sources[1], board.examples, metric or [], seed)
    if output is not None:
        write_json(output, to_json(found))
    if json:
        console.print_json(to_json(found))
    else:
        for table in comparison_tables(found):
            console.print_table(table)
