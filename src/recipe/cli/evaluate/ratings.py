"""`recipe evaluate ratings`: ratings of people as the scores of a judge."""

from pathlib import Path
from typing import Annotated

import typer

from recipe.cli import console
from recipe.cli.evaluate.agreement import judged_rows, read_people


def ratings(
    files: Annotated[list[Path], typer.Argument(help="Filled sheets or tables (CSV), or JSON lines.")],
    judge: Annotated[Path, typer.Option(help="Scores of a judge of the same plans: those that a sheet was made from.")],
    examples: Annotated[list[Path], typer.Option(help="The examples that were planned for.")],
    output: Annotated[Path, typer.Option(help="Scores file to write, JSON; verdicts lie beside it.")],
    system: Annotated[str, typer.Option(help="Name of what planned. Default: as in --judge.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Turn ratings of people into scores and verdicts as a judge's, for reports and comparisons.

    Example: recipe evaluate ratings ann.csv bob.csv --judge judge.json --examples test.jsonl --output human.json
    """
    from recipe.artifacts import require_writable
    from recipe.evaluation.formats import format_number
    from recipe.evaluation.human import human_verdicts
    from recipe.evaluation.judged import judge_scores
    from recipe.evaluation.results import to_json
    from recipe.evaluation.scoreboard.sources import gather
    from recipe.evaluation.scores import rows_path, write_scores
    from recipe.evaluation.verdicts import write_verdicts

    require_writable(output)
    require_writable(rows_path(output))
    board = gather([judge], examples)
    people = human_verdicts(read_people(files), judged_rows(board.sources[0]))
    rated = {row.example_id for row in people.rows}
    shown = [one for name, one in board.examples.items() if name in rated]
    named = system or board.sources[0].scores.system
    left_out = {"incomplete ratings": people.incomplete, "ratings of other plans": people.elsewhere}
    scores = judge_scores(named, people.identity, shown, people.rows, seed, left_out=left_out)
    write_verdicts(rows_path(output), people.rows)
    write_scores(output, scores)
    if json:
        console.print_json(to_json(scores))
        return
    for one in scores.datasets:
        mean = "no plan scored" if one.accuracy is None else f"accuracy {format_number(one.accuracy.mean, 1)}"
        told = f"{one.dataset or 'examples'}: {one.counts.plans:,} plans, {mean}"
        console.out.print(told, markup=False, highlight=False, soft_wrap=True)
    for words, count in scores.left_out.items():
        console.out.print(f"left out: {count:,} {words}", markup=False, highlight=False)
