"""`recipe evaluate validity`: plans against task graphs."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from recipe.cli import console
from recipe.cli.reward_options import Config, Method, open_verifier

if TYPE_CHECKING:
    from recipe.evaluation.scores import ValidityScores
    from recipe.report.elements import Table


def validity(
    predictions: Annotated[Path, typer.Argument(help="Predictions, JSON lines.")],
    examples: Annotated[Path, typer.Option(help="The examples that were planned for.")],
    graphs: Annotated[
        Path | None,
        typer.Option(help="Task graphs: a JSON file, a folder of them, or CaptainCook4D. Default: the embedded world."),
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="With --graphs: encoder that matches lines: minilm, hash:256, hub id or folder.")
    ] = "minilm",
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="With --graphs: least similarity of a line to its step. Default: measured."),
    ] = None,
    split_lines: Annotated[
        bool, typer.Option("--split-lines", help="With --graphs: a line may name steps joined by 'and' or 'then'.")
    ] = False,
    split: Annotated[str, typer.Option(help="Only predictions for examples of this split.")] = "",
    missing: Annotated[
        Literal["zero", "refuse"], typer.Option(help="Examples without a prediction: empty plans, or an error.")
    ] = "zero",
    skip_goals: Annotated[
        bool, typer.Option("--skip-goals", help="Leave out examples whose goal has no task graph.")
    ] = False,
    verdicts: Annotated[
        list[Path] | None, typer.Option(help="A judge's scores or verdicts on the same plans, to compare with.")
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="Corpus folder: plans are rewarded, too.")] = None,
    method: Method = None,
    config: Config = None,
    output: Annotated[Path | None, typer.Option(help="Scores file to write, JSON; rows of plans go beside.")] = None,
    system: Annotated[str, typer.Option(help="Name of the system. Default: the file's.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score plans against their goals' task graphs, where every valid order is right: no judge, no network.

    Example: recipe evaluate validity predictions.jsonl --examples runs/demo/data/test.jsonl

    Example: recipe evaluate validity plans.jsonl --examples test.jsonl --graphs data/captaincook4d --output v.json
    """
    from recipe.artifacts import require_writable, to_json, write_jsonl
    from recipe.data.examples import read_examples
    from recipe.evaluation.plan_measures import open_reader
    from recipe.evaluation.scores import rows_path, write_scores
    from recipe.evaluation.validity.measure import score_plans
    from recipe.evaluation.validity.scores import plan_rows, read_judged, select_plans, validity_scores
    from recipe.planning.predictions import read_predictions
    from recipe.planning.rerank import reward_predictions

    if output is not None:
        require_writable(output)
        require_writable(rows_path(output))
    wanted = read_examples(examples, split)
    known = read_examples(examples) if split else wanted
    judges = [judge for path in verdicts or () for judge in read_judged(path)]
    reader, name, settings = open_reader(graphs, encoder, threshold, split_lines)
    selection = select_plans(wanted, read_predictions(predictions), reader, known, missing, skip_goals)
    planned = selection.predictions
    if corpus is not None:
        planned = reward_predictions(
            open_verifier(corpus, config, method), selection.examples, planned, console.progress()
        )
    scored = score_plans(reader, selection.examples, planned, console.progress())
    scores = validity_scores(system or predictions.stem, name, selection, scored, settings, judges, seed)
    if output is not None:
        write_jsonl(rows_path(output), plan_rows(scored, selection.missing))
        write_scores(output, scores)
    if json:
        console.print_json(to_json(scores))
    else:
        console.print_table(_table(scores))


def _table(scores: "ValidityScores") -> "Table":
    from recipe.evaluation.metrics import METRICS, metric_cell
    from recipe.report.elements import Table, headings, row

    prompts = next(iter(scores.metrics.values())).observations
    return Table(
        caption=f"{scores.system}: {prompts} prompts, {scores.samples} samples each",
        first="metric",
        headings=headings("mean", "95% interval"),
        rows=tuple(
            row(METRICS.get(name, name), *metric_cell(value, name).split()) for name, value in scores.metrics.items()
        ),
        notes=tuple(_notes(scores)),
    )


def _notes(scores: "ValidityScores") -> Iterator[str]:
    counts = scores.counts
    if counts.missing:
        yield f"{counts.missing:,} examples without a prediction count as empty plans."
    if counts.shortened:
        yield f"{counts.shortened:,} plans are too long to be read whole."
    yield from (f"{name}: {value}" for name, value in scores.settings.items())
    for one in scores.agreement:
        rho, tau = one.spearman, one.kendall
        if rho is None or tau is None:
            yield f"{one.judge.name}: no rank correlation over {one.plans:,} plans, all equal to one of the two"
        else:
            bounds = f" (no interval: {rho.reason})" if rho.reason else ""
            if rho.low is not None and rho.high is not None:
                bounds = f" [{rho.low:.2f}, {rho.high:.2f}]"
            yield f"{one.judge.name}: Spearman {rho.mean:.2f}{bounds}, Kendall {tau:.2f} over {one.plans:,} plans"
