"""`recipe evaluate histories`: histories from a video beside the annotated ones."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recipe.cli import console

if TYPE_CHECKING:
    from recipe.report.elements import Table
    from recipe.stats import Interval


def histories(
    examples: Annotated[Path, typer.Option(help="The examples that the histories are of.")],
    histories: Annotated[Path, typer.Option(help="Histories that `recipe perceive` wrote.")],
    split: Annotated[str, typer.Option(help="Only examples of this split.")] = "",
    encoder: Annotated[str, typer.Option(help="Encoder that matches steps: minilm, hash:256, hub id or folder.")] = (
        "minilm"
    ),
    skip_missing: Annotated[bool, typer.Option("--skip-missing", help="Leave out examples without a history.")] = False,
    output: Annotated[Path | None, typer.Option(help="File to write, JSON.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare histories from a video with the annotated ones, step by step.

    Example: recipe evaluate histories --examples test.jsonl --histories phi.jsonl
    """
    from dataclasses import asdict

    from recipe.artifacts import require_writable, write_json
    from recipe.config import EncoderConfig
    from recipe.corpus.encoders import open_encoder
    from recipe.data.examples import read_examples
    from recipe.data.histories import read_histories
    from recipe.evaluation.histories import compare_histories, summarise_histories

    if output is not None:
        require_writable(output)
    read = read_histories(histories)
    wanted = read_examples(examples, split)
    compared = [one for one in wanted if one.example_id in read] if skip_missing else wanted
    embed = open_encoder(EncoderConfig(name=encoder)).encode
    measures = summarise_histories(compared, compare_histories(compared, read, embed), seed)
    result = {
        "examples": len(compared),
        "missing": len(wanted) - len(compared),
        "encoder": encoder,
        "measures": {name: asdict(value) for name, value in measures.items()},
    }
    if output is not None:
        write_json(output, result)
    if json:
        console.print_json(result)
    else:
        console.print_table(_table(measures, len(compared), len(wanted) - len(compared)))


def _table(measures: "dict[str, Interval]", compared: int, missing: int) -> "Table":
    from recipe.evaluation.histories import MEASURES
    from recipe.evaluation.metrics import metric_cell
    from recipe.report.elements import Table, headings, row

    return Table(
        caption=f"histories of {compared:,} examples{f', {missing:,} without a history left out' if missing else ''}",
        first="measure",
        headings=headings("mean", "95% interval", "examples"),
        rows=tuple(
            row(MEASURES[name], *metric_cell(value, name).split(), value.observations)
            for name, value in measures.items()
        ),
    )
