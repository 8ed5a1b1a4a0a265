"""`recipe evaluate agreement`, `ratings` and `inspect`: judges beside people, and verdicts for other viewers."""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer

from recipe.cli.console import CommandOutput, shows
from recipe.errors import InputError

if TYPE_CHECKING:
    from recipe.evaluation.people.agreement import RaterAgreement
    from recipe.report.elements import Table


@shows
def agreement(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Scores of `recipe evaluate judge`, their rows beside them.")
    ] = None,
    ratings: Annotated[
        list[Path] | None, typer.Option(help="Ratings of people: a filled sheet or table (CSV), or JSON lines.")
    ] = None,
    examples: Annotated[
        list[Path] | None, typer.Option(help="The examples that were planned for: intervals are then of videos.")
    ] = None,
    controls: Annotated[bool, typer.Option("--controls", help="Also compare the ratings of controls.")] = False,
    template: Annotated[
        list[Path] | None,
        typer.Option(help="Scores of a judge: write a sheet to rate its plans on; may be repeated to mix systems."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Plans on a sheet at most, drawn by --seed.")] = None,
    output: Annotated[Path | None, typer.Option(help="File to write: JSON, or CSV with --template.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap and of a sheet's order.")] = 0,
) -> CommandOutput:
    """Compare judges, people and the repeats of a judge on the same plans; or write a sheet for people to fill.

    Example: recipe evaluate agreement llama.json proxy.json --ratings ann.csv --examples test.jsonl
    """
    from recipe.artifacts import require_writable, to_json, write_json
    from recipe.evaluation.people.agreement import agreement_of
    from recipe.evaluation.people.ratings import read_people, write_sheet
    from recipe.evaluation.scoreboard.sources import gather, judgements_of

    if output is not None:
        require_writable(output)
    if template:
        if output is None:
            raise InputError("a sheet needs a file to be written to; give --output sheet.csv.")
        if not examples:
            raise InputError("a sheet shows goals, histories and references; give --examples.")
        board = gather(template, examples)
        judged = [
            judgement
            for source in board.sources
            for judgement in judgements_of(source)
            if controls or not judgement.control
        ]
        rows = write_sheet(output, judged, board.examples, seed, limit)
        return CommandOutput({"rows": rows, "output": str(output)}, [f"{rows:,} plans to rate in {output}"])
    if not files:
        raise InputError("there is nothing to compare; give scores of `recipe evaluate judge`.")
    between, within = agreement_of(gather(files, examples or []), read_people(ratings or []), controls, seed)
    result = {"between": to_json(between), "repeats": {name: to_json(agreement) for name, agreement in within.items()}}
    if output is not None:
        write_json(output, result)
    named = {} if between is None else {"agreement": between}
    named |= {f"repeats of {name}": of for name, of in within.items()}
    return CommandOutput(result, [table for title, of in named.items() for table in _tables(of, title)])


def _tables(agreement: "RaterAgreement", title: str) -> "Iterator[Table]":
    from recipe.report.elements import Cell, Table, headings, row

    yield Table(
        caption=f"{title}: {len(agreement.raters)} raters, {agreement.plans:,} plans rated twice or more",
        first="measure",
        headings=headings("alpha", "95% interval", "plans"),
        rows=tuple(
            row(name.replace("_", " "), "", alpha.reason, "")
            if alpha.alpha is None
            else row(name.replace("_", " "), *Cell(alpha.alpha, 2).split(), alpha.alpha.observations)
            for name, alpha in agreement.alpha.items()
        ),
    )
    if (spread := agreement.spread) is not None:
        shares = spread.variance or {}
        yield Table(
            caption=f"{title}: accuracy on the {spread.plans:,} plans that all rated, percent",
            first="rater",
            headings=headings("mean"),
            rows=(
                *(row(name, Cell(value, 1)) for name, value in spread.means.items()),
                row("mean of all", Cell(fmean(spread.means.values()), 1), section="over raters"),
                row("standard deviation", Cell(spread.deviation, 1), section="over raters"),
                row("lowest", Cell(min(spread.means.values()), 1), section="over raters"),
                row("highest", Cell(max(spread.means.values()), 1), section="over raters"),
                *(
                    row(name, Cell(share, 1, percent=True), section="variance of a verdict")
                    for name, share in shares.items()
                ),
            ),
        )
    for names, measures in agreement.pairs.items():
        yield Table(
            caption=f"{names}: shares of plans, and the first minus the second",
            first="measure",
            headings=headings("same", "±1", "minus", "95% interval", "rank correlation", "plans"),
            rows=tuple(
                row(
                    name.replace("_", " "),
                    Cell(value.exact, 0, percent=True),
                    Cell(value.near, 0, percent=True),
                    *Cell(value.bias, 2, signed=True).split(),
                    Cell(value.spearman, 2),
                    value.units,
                )
                for name, value in measures.items()
            ),
        )


@shows
def ratings(
    files: Annotated[list[Path], typer.Argument(help="Filled sheets or tables (CSV), or JSON lines.")],
    judge: Annotated[Path, typer.Option(help="Scores of a judge of the same plans: those that a sheet was made from.")],
    examples: Annotated[list[Path], typer.Option(help="The examples that were planned for.")],
    output: Annotated[Path, typer.Option(help="Scores file to write, JSON; verdicts go beside it.")],
    system: Annotated[str, typer.Option(help="Name of the system. Default: as in --judge.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
) -> CommandOutput:
    """Turn ratings of people into scores and verdicts as a judge's, for reports and comparisons.

    Example: recipe evaluate ratings ann.csv bob.csv --judge judge.json --examples test.jsonl --output human.json
    """
    from recipe.artifacts import require_writable
    from recipe.evaluation.judge.measures import RubricMeasure
    from recipe.evaluation.judge.verdicts import verdict_rows, write_verdicts
    from recipe.evaluation.measures import summarise
    from recipe.evaluation.people.ratings import human_verdicts, read_people
    from recipe.evaluation.scoreboard.sources import gather, judgements_of
    from recipe.evaluation.scores import rows_path, write_scores
    from recipe.report.numbers import format_number

    require_writable(output)
    require_writable(rows_path(output))
    board = gather([judge], examples)
    people = human_verdicts(read_people(files), judgements_of(board.sources[0]))
    rated = {row.example_id for row in people.rows}
    shown = [example for name, example in board.examples.items() if name in rated]
    named = system or board.sources[0].scores.system
    left_out = {"incomplete ratings": people.incomplete, "ratings of other plans": people.of_others}
    rows = verdict_rows(people.rows)
    scores = summarise(RubricMeasure(people.identity), named, rows, shown, seed, left_out=left_out)
    write_verdicts(rows_path(output), people.rows)
    write_scores(output, scores)
    lines = []
    for group in scores.of("dataset"):
        accuracy = group.values.get("accuracy")
        mean = "no plan scored" if accuracy is None else f"accuracy {format_number(accuracy.mean, 1)}"
        lines.append(f"{group.name or 'examples'}: {group.counts.plans:,} plans, {mean}")
    lines += [f"left out: {count:,} {words}" for words, count in scores.extras["left_out"].items()]
    return CommandOutput(scores, lines)


@shows
def inspect(
    scores: Annotated[Path, typer.Argument(help="Scores of `recipe evaluate judge`, their rows beside them.")],
    examples: Annotated[list[Path], typer.Option(help="The examples that were planned for.")],
    output: Annotated[Path, typer.Option(help="Folder of logs, or a file that ends in .json.")],
    control: Annotated[str, typer.Option(help="The plans of this control instead of the system's.")] = "",
) -> CommandOutput:
    """Write verdicts as a log that `inspect view` shows; Inspect AI itself is not needed.

    Example: recipe evaluate inspect judge.json --examples test.jsonl --output logs
    """
    from recipe.artifacts import require_writable
    from recipe.evaluation.judge.inspect_log import file_name, inspect_log, write_log
    from recipe.evaluation.scoreboard.sources import gather, judgements_of

    board = gather([scores], examples)
    judged = judgements_of(board.sources[0])
    log = inspect_log(board.sources[0].scores, judged, board.examples, control)
    target = output if output.suffix == ".json" else output / file_name(log)
    require_writable(target)
    write_log(target, log)
    count, view = len(log["samples"]), f"inspect view --log-dir {target.parent}"
    return CommandOutput(
        {"samples": count, "output": str(target)}, [f"{count:,} samples in {target}; see them with: {view}"]
    )
