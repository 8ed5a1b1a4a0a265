"""`recipe evaluate inspect`: verdicts as a log of Inspect AI."""

from pathlib import Path
from typing import Annotated

import typer

from recipe.cli import console
from recipe.cli.evaluate.agreement import judged_rows


def inspect(
    scores: Annotated[Path, typer.Argument(help="Scores of `recipe evaluate judge`, their rows beside them.")],
    examples: Annotated[list[Path], typer.Option(help="The examples that were planned for.")],
    output: Annotated[Path, typer.Option(help="Folder of logs, or a file that ends in .json.")],
    control: Annotated[str, typer.Option(help="The plans of this control instead of the system's.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write verdicts as a log that `inspect view` shows; Inspect AI itself is not needed.

    Example: recipe evaluate inspect judge.json --examples test.jsonl --output logs
    """
    from recipe.artifacts import require_writable
    from recipe.evaluation.inspect_log import file_name, inspect_log, write_log
    from recipe.evaluation.scoreboard.sources import gather
    from recipe.evaluation.scores import JudgeScores

    board = gather([scores], examples)
    judged = judged_rows(board.sources[0])
    [(_, found)] = board.of(JudgeScores)
    log = inspect_log(found, judged, board.examples, control)
    target = output if output.suffix == ".json" else output / file_name(log)
    require_writable(target)
    write_log(target, log)
    if json:
        console.print_json({"samples": len(log["samples"]), "output": str(target)})
    else:
        told = f"{len(log['samples']):,} samples in {target}; see them with: inspect view --log-dir {target.parent}"
        console.out.print(told, markup=False, highlight=False, soft_wrap=True)
