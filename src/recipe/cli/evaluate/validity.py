"""`recipe evaluate validity`: plans against task graphs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from recipe.cli import console
from recipe.cli.reward_options import Config, Method, open_verifier

if TYPE_CHECKING:
    from recipe.evaluation.results import Scores


def validity(
    predictions: Annotated[Path, typer.Argument(help="Predictions, JSON lines.")],
    examples: Annotated[Path, typer.Option(help="The examples that were planned for.")],
    split: Annotated[str, typer.Option(help="Only predictions for examples of this split.")] = "",
    corpus: Annotated[Path | None, typer.Option(help="Corpus folder: plans are rewarded, too.")] = None,
    method: Method = None,
    config: Config = None,
    output: Annotated[Path | None, typer.Option(help="Scores file to write, JSON.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score plans for the embedded world exactly, against its task graphs.

    Example: recipe evaluate validity predictions.jsonl --examples runs/demo/data/test.jsonl
    """
    from recipe.artifacts import require_writable, write_json
    from recipe.data.examples import read_examples
    from recipe.evaluation.results import to_json
    from recipe.evaluation.validity import prompt_means, score_predictions, summarise
    from recipe.planning.predictions import predictions_for, read_predictions
    from recipe.planning.rerank import reward_predictions
    from recipe.world.load import load_world

    if output is not None:
        require_writable(output)
    asked = read_examples(examples, split)
    planned = predictions_for(asked, read_predictions(predictions), read_examples(examples) if split else None)
    if corpus is not None:
        planned = reward_predictions(open_verifier(corpus, config, method), asked, planned, console.progress())
    scored = score_predictions(load_world(), asked, planned, console.progress())
    scores = summarise(split, predictions.stem, prompt_means(scored), seed)
    if output is not None:
        write_json(output, to_json(scores))
    if json:
        console.print_json(to_json(scores))
    else:
        _show(scores)


def _show(scores: "Scores") -> None:
    from recipe.evaluation.formats import format_bounds, format_cell
    from recipe.evaluation.results import METRICS

    table = Table(title=f"{scores.regime}: {scores.prompts} prompts, {scores.samples} samples each")
    table.add_column("metric")
    for heading in ("mean", "95% interval"):
        table.add_column(heading, justify="right")
    for name, value in scores.metrics.items():
        table.add_row(METRICS.get(name, name), format_cell(value.mean, name), format_bounds(value, name))
    console.out.print(table)
