"""`recipe evaluate histories`: what Phi tells beside what was annotated."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from recipe.cli import console

if TYPE_CHECKING:
    from recipe.stats import Interval


def histories(
    examples: Annotated[Path, typer.Option(help="The examples whose histories were told.")],
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
    """Compare the histories that Phi tells with the annotated ones, step by step.

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
    told = read_histories(histories)
    asked = read_examples(examples, split)
    compared = [one for one in asked if one.example_id in told] if skip_missing else asked
    embed = open_encoder(EncoderConfig(name=encoder)).encode
    found = summarise_histories(compared, compare_histories(compared, told, embed), seed)
    result = {
        "examples": len(compared),
        "missing": len(asked) - len(compared),
        "encoder": encoder,
        "measures": {name: asdict(value) for name, value in found.items()},
    }
    if output is not None:
        write_json(output, result)
    if json:
        console.print_json(result)
    else:
        _show_histories(found, len(compared), len(asked) - len(compared))


def _show_histories(found: "dict[str, Interval]", compared: int, missing: int) -> None:
    from recipe.evaluation.histories import MEASURES
    from recipe.report.numbers import format_bounds, format_cell

    left_out = f", {missing:,} without a history left out" if missing else ""
    table = Table(title=f"histories of {compared:,} examples{left_out}")
    table.add_column("measure")
    for heading in ("mean", "95% interval", "examples"):
        table.add_column(heading, justify="right")
    for name, value in found.items():
        table.add_row(
            MEASURES[name], format_cell(value.mean, name), format_bounds(value, name), f"{value.observations:,}"
        )
    console.out.print(table)
