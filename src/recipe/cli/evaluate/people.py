"""`recipe evaluate agreement`, `ratings` and `inspect`: judges beside people, and verdicts for other viewers."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recipe.cli import console
from recipe.errors import InputError

if TYPE_CHECKING:
    from recipe.evaluation.judge.verdicts import Judgement
    from recipe.evaluation.people.agreement import Agreement
    from recipe.evaluation.people.ratings import Rating
    from recipe.evaluation.scoreboard.sources import Source
    from recipe.report.elements import Table


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
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare judges, people and the repeats of a judge on the same plans; or write a sheet for people to fill.

    Example: recipe evaluate agreement llama.json proxy.json --ratings ann.csv --examples test.jsonl
    """
    from recipe.artifacts import require_writable, to_json, write_json

    if output is not None:
        require_writable(output)
    if template:
        rows = _write_sheet(template, examples or [], output, controls, seed, limit)
        if json:
            console.print_json({"rows": rows, "output": str(output)})
        else:
            console.print_lines(f"{rows:,} plans to rate in {output}")
        return
    between, within = _compared(files or [], ratings or [], examples or [], controls, seed)
    result = {"between": to_json(between), "repeats": {name: to_json(one) for name, one in within.items()}}
    if output is not None:
        write_json(output, result)
    if json:
        console.print_json(result)
        return
    shown = {} if between is None else {"agreement": between}
    for title, one in (shown | {f"repeats of {name}": one for name, one in within.items()}).items():
        for table in _tables(one, title):
            console.print_table(table)


def _write_sheet(
    template: list[Path], examples: list[Path], output: Path | None, controls: bool, seed: int, limit: int | None
) -> int:
    from recipe.evaluation.people.ratings import write_sheet
    from recipe.evaluation.scoreboard.sources import gather

    if output is None:
        raise InputError("a sheet needs a file to be written to; give --output sheet.csv.")
    if not examples:
        raise InputError("a sheet shows goals, histories and references; give --examples.")
    board = gather(template, examples)
    judged = [one for source in board.sources for one in judged_rows(source) if controls or not one.control]
    return write_sheet(output, judged, board.examples, seed, limit)


def _compared(
    files: list[Path], ratings: list[Path], examples: list[Path], controls: bool, seed: int
) -> "tuple[Agreement | None, dict[str, Agreement]]":
    """The agreement of raters, and that of the repeats of each judge with several."""
    from recipe.evaluation.people.agreement import agreement as agreed
    from recipe.evaluation.people.agreement import human_raters, judge_rater, repeat_raters, require_same_plans
    from recipe.evaluation.scoreboard.sources import gather

    if not files:
        raise InputError("there is nothing to compare; give scores of `recipe evaluate judge`.")
    board = gather(files, examples)
    videos = {name: f"{one.source} {one.video_id}" for name, one in board.examples.items() if one.video_id}
    judges = dict(zip(_names(board.sources), map(judged_rows, board.sources), strict=True))
    [first, *_] = judges.values()
    for source, judged in zip(board.sources, judges.values(), strict=True):
        require_same_plans(first, judged, str(source.path))
    raters = [judge_rater(name, judged, controls) for name, judged in judges.items()]
    everything = [one for judged in judges.values() for one in judged]
    raters += human_raters(read_people(ratings), everything, controls)
    within = {}
    for name, judged in judges.items():
        repeats = repeat_raters(name, judged, controls)
        if len(repeats) > 1:
            within[name] = agreed(repeats, videos, seed, pairs=False)
    if len(raters) == 1 and not within:
        raise InputError("one judge without repeats has nothing to agree with; give another, or --ratings.")
    return (agreed(raters, videos, seed) if len(raters) > 1 else None), within


def judged_rows(source: "Source") -> "tuple[Judgement, ...]":
    """The verdicts beside a judge's scores. Raises InputError for other scores, and without them."""
    from recipe.evaluation.scores import rows_path

    if source.scores.kind != "judge":
        raise InputError.at(source.path, f"these are {source.scores.kind} scores", "give scores of a judge")
    if source.judgements is None:
        raise InputError.at(rows_path(source.path), "the file does not exist", "keep the rows beside their scores")
    return source.judgements


def _names(sources: "tuple[Source, ...]") -> list[str]:
    """Each judge's name, with its file's where two have the same."""
    names = [source.scores.judge.name if source.scores.kind == "judge" else "" for source in sources]
    return [
        name if names.count(name) == 1 else f"{name} ({source.path.stem})"
        for name, source in zip(names, sources, strict=True)
    ]


def read_people(paths: list[Path]) -> "list[Rating]":
    """The ratings of several files. Raises InputError where one name rates in two of them."""
    from recipe.evaluation.people.ratings import read_ratings

    found: list[Rating] = []
    for path in paths:
        new = read_ratings(path).ratings
        if again := {one.rater for one in found} & {one.rater for one in new}:
            problem = f"{min(again)!r} also rates in a file before"
            raise InputError.at(path, problem, "name raters apart in a column 'rater', or rename the file")
        found += new
    return found


def _tables(found: "Agreement", title: str) -> "Iterator[Table]":
    from recipe.report.elements import Cell, Table, headings, row

    yield Table(
        caption=f"{title}: {len(found.raters)} raters, {found.plans:,} plans rated twice or more",
        first="measure",
        headings=headings("alpha", "95% interval", "plans"),
        rows=tuple(
            row(name.replace("_", " "), "", one.reason, "")
            if one.alpha is None
            else row(name.replace("_", " "), *Cell(one.alpha, 2).split(), one.alpha.observations)
            for name, one in found.alpha.items()
        ),
    )
    for names, measures in found.pairs.items():
        yield Table(
            caption=f"{names}: shares of plans, first minus second, rank correlation",
            first="measure",
            headings=headings("same", "±1", "minus", "95% interval", "rho", "plans"),
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


def ratings(
    files: Annotated[list[Path], typer.Argument(help="Filled sheets or tables (CSV), or JSON lines.")],
    judge: Annotated[Path, typer.Option(help="Scores of a judge of the same plans: those that a sheet was made from.")],
    examples: Annotated[list[Path], typer.Option(help="The examples that were planned for.")],
    output: Annotated[Path, typer.Option(help="Scores file to write, JSON; verdicts lie beside it.")],
    system: Annotated[str, typer.Option(help="Name of the system. Default: as in --judge.")] = "",
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Turn ratings of people into scores and verdicts as a judge's, for reports and comparisons.

    Example: recipe evaluate ratings ann.csv bob.csv --judge judge.json --examples test.jsonl --output human.json
    """
    from recipe.artifacts import require_writable, to_json
    from recipe.evaluation.judge.verdicts import judge_scores, write_verdicts
    from recipe.evaluation.people.ratings import human_verdicts
    from recipe.evaluation.scoreboard.sources import gather
    from recipe.evaluation.scores import rows_path, write_scores
    from recipe.report.numbers import format_number

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
        console.print_lines(f"{one.dataset or 'examples'}: {one.counts.plans:,} plans, {mean}")
    console.print_lines(*(f"left out: {count:,} {words}" for words, count in scores.left_out.items()))


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
    from recipe.evaluation.judge.inspect_log import file_name, inspect_log, write_log
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
        view = f"inspect view --log-dir {target.parent}"
        console.print_lines(f"{len(log['samples']):,} samples in {target}; see them with: {view}")
