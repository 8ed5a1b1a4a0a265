"""`recipe evaluate match`, `validity`, `histories`, `compare` and `agreement`: what asks no judge."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from recipe.artifacts import require_writable, to_json, write_json
from recipe.cli import console
from recipe.cli.console import CommandOutput, shows
from recipe.cli.evaluate.runner import PlanOptions, measure_command
from recipe.cli.reward_options import Config, Method, open_verifier


@measure_command()
def match(
    plans: PlanOptions,
    annotated: Annotated[
        list[Path] | None,
        typer.Option(help="More examples whose steps the controls of labels draw from, such as those of training."),
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Corpus folder without the measured videos: controls retrieve plans from it.")
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="Encoder that matches lines: minilm, hash:256, hub id or folder.")
    ] = "minilm",
) -> CommandOutput:
    """Compare plans with the annotated continuation, step by step, next to control plans; needs no judge.

    Example: recipe evaluate match predictions.jsonl --examples test.jsonl

    Example: recipe evaluate match plans.jsonl --examples test.jsonl --annotated train.jsonl --output match.json

    Example: recipe evaluate match plans.jsonl --examples test.jsonl --annotated train.jsonl --corpus corpora/lists
    """
    from recipe.data.examples import read_examples
    from recipe.evaluation.match import MatchMeasure, match_metrics

    selection, known = plans.read()
    labelled = [*known, *(example for path in annotated or () for example in read_examples(path))]
    measure = MatchMeasure(encoder=encoder, annotated=labelled, seed=plans.seed)
    if corpus is not None:
        from recipe.corpus.store import Corpus
        from recipe.evaluation.retrieval import retrieval_controls

        measure.more_controls, made = retrieval_controls(
            Corpus.open(corpus),
            selection.examples,
            labelled,
            lambda example, steps: match_metrics(measure.matcher, example, steps)["matched_f1"],
            plans.seed,
        )
        measure.settings |= made
    return plans.show(*plans.evaluate(measure, selection))


@measure_command()
def validity(
    plans: PlanOptions,
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
    skip_goals: Annotated[
        bool, typer.Option("--skip-goals", help="Leave out examples whose goal has no task graph.")
    ] = False,
    verdicts: Annotated[
        list[Path] | None, typer.Option(help="A judge's scores or verdicts on the same plans, to compare with.")
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="Corpus folder: plans are rewarded, too.")] = None,
    method: Method = None,
    config: Config = None,
) -> CommandOutput:
    """Score plans against their goals' task graphs, where every valid order is right: no judge, no network.

    Example: recipe evaluate validity predictions.jsonl --examples runs/demo/data/test.jsonl

    Example: recipe evaluate validity plans.jsonl --examples test.jsonl --graphs data/captaincook4d --output v.json
    """
    from recipe.evaluation.validity.scores import ValidityMeasure, agreement_with, agreements, read_judged
    from recipe.planning.rerank import reward_predictions

    judges = [judge for path in verdicts or () for judge in read_judged(path)]
    measure = ValidityMeasure(graphs, None, encoder, threshold, split_lines)
    selection, _ = plans.read("zero")
    kept, left_out = measure.known(selection.examples, skip_goals)
    selection = selection.of(kept, plans.missing)
    if corpus is not None:
        verifier = open_verifier(corpus, config, method)
        rewarded = reward_predictions(verifier, selection.examples, selection.predictions, console.progress())
        selection = selection._replace(predictions=[*rewarded])
    scores, rows = plans.evaluate(measure, selection, left_out)
    agreement = [to_json(agreement_with(judge, own, measure.scored, plans.seed)) for judge, own in judges]
    if agreement:
        scores = replace(scores, extras=scores.extras | {"agreement": agreement})
        scores = replace(scores, findings=(*scores.findings, *(own.sentence for own in agreements(scores))))
    return plans.show(scores, rows)


@shows
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
) -> CommandOutput:
    """Compare histories from a video with the annotated ones, step by step.

    Example: recipe evaluate histories --examples test.jsonl --histories phi.jsonl
    """
    from recipe.config import EncoderConfig
    from recipe.corpus.encoders import open_encoder
    from recipe.data.examples import read_examples
    from recipe.data.histories import read_histories
    from recipe.evaluation.histories import MEASURES, compare_histories, summarise_histories
    from recipe.evaluation.metrics import metric_cell
    from recipe.report.elements import Table, headings, row

    if output is not None:
        require_writable(output)
    read, chosen = read_histories(histories), read_examples(examples, split)
    compared = [example for example in chosen if example.example_id in read] if skip_missing else chosen
    missing = len(chosen) - len(compared)
    embed = open_encoder(EncoderConfig(name=encoder)).encode
    measures = summarise_histories(compared, compare_histories(compared, read, embed), seed)
    result = {
        "examples": len(compared),
        "missing": missing,
        "encoder": encoder,
        "measures": {name: asdict(value) for name, value in measures.items()},
    }
    if output is not None:
        write_json(output, result)
    rows = tuple(
        row(MEASURES[name], *metric_cell(value, name).split(), value.observations) for name, value in measures.items()
    )
    lost = f", {missing:,} without a history left out" if missing else ""
    caption = f"histories of {len(compared):,} examples{lost}"
    return CommandOutput(result, [Table(caption, "measure", headings("mean", "95% interval", "examples"), rows)])


@shows
def compare(
    first: Annotated[Path, typer.Argument(help="Scores that `recipe evaluate` wrote, next to their rows.")],
    second: Annotated[Path, typer.Argument(help="Scores of the same kind of another system.")],
    examples: Annotated[
        list[Path] | None, typer.Option(help="The examples that were planned for: they name videos and datasets.")
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="Compare this metric; may be repeated. Default: the paper's.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="File to write, JSON.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap and of the sign flips.")] = 0,
) -> CommandOutput:
    """Compare two systems plan by plan: difference with interval, p-value of a permutation test, effect.

    Example: recipe evaluate compare rl.json base.json --examples test.jsonl
    """
    from recipe.evaluation.compare import compare_systems
    from recipe.evaluation.scoreboard.sources import gather

    if output is not None:
        require_writable(output)
    board = gather([first, second], examples or [])
    comparison = compare_systems(board.sources[0], board.sources[1], board.examples, metric or [], seed)
    if output is not None:
        write_json(output, to_json(comparison))
    return CommandOutput(comparison, comparison.tables())


@shows
def agreement(
    files: Annotated[list[Path], typer.Argument(help="Scores of `recipe evaluate judge`, next to their rows.")],
    ratings: Annotated[
        list[Path] | None, typer.Option(help="Ratings of people: a table (CSV) or JSON lines (docs/statistics.md).")
    ] = None,
    examples: Annotated[
        list[Path] | None, typer.Option(help="The examples that were planned for, so that intervals resample videos.")
    ] = None,
    controls: Annotated[bool, typer.Option("--controls", help="Also compare the ratings of controls.")] = False,
    output: Annotated[Path | None, typer.Option(help="File to write, JSON.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
) -> CommandOutput:
    """Compare judges and people who rated the same plans: Krippendorff's alpha, and each pair of raters.

    Example: recipe evaluate agreement llama.json proxy.json --ratings ann.csv --examples test.jsonl
    """
    from recipe.evaluation.agreement import agreement_of, raters_of
    from recipe.evaluation.scoreboard.sources import gather

    if output is not None:
        require_writable(output)
    board = gather(files, examples or [])
    compared = agreement_of(raters_of(board, ratings or [], controls), board, seed)
    if output is not None:
        write_json(output, to_json(compared))
    return CommandOutput(compared, compared.tables())
