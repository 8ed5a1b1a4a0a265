"""`recipe report`: a run's results, or what `recipe evaluate` measured, as a page that needs nothing but itself."""

from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from recipe.artifacts import read_json, read_jsonl, require_writable, write_text
from recipe.cli import console
from recipe.cli.console import CommandOutput, shows

FIGURES = (".png", ".svg")
TITLE = "Evaluation of procedural planners"
_RUN, _SCORES = "Of a run", "Of scores (docs/evaluation.md)"


@shows
def report(
    paths: Annotated[
        list[Path],
        typer.Argument(help="A folder of `recipe run`, `reproduce` or `train`, or files of `recipe evaluate`."),
    ],
    figure: Annotated[
        Path | None, typer.Option(help="Also draw the key figure, PNG or SVG.", rich_help_panel=_RUN)
    ] = None,
    output: Annotated[Path | None, typer.Option(help="The page to write.", rich_help_panel=_SCORES)] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Also write sentences and tables as Markdown.", rich_help_panel=_SCORES)
    ] = None,
    examples: Annotated[
        list[Path] | None,
        typer.Option(help="Examples that were planned for; repeat for more files.", rich_help_panel=_SCORES),
    ] = None,
    title: Annotated[str, typer.Option(help="The page's title.", rich_help_panel=_SCORES)] = TITLE,
    corpus: Annotated[
        Path | None, typer.Option(help="Corpus folder whose narrations explain plans.", rich_help_panel=_SCORES)
    ] = None,
    verifier: Annotated[
        Literal["paper", "grounded"], typer.Option(help="Verifier that explains them.", rich_help_panel=_SCORES)
    ] = "grounded",
    explain: Annotated[
        int,
        typer.Option(
            min=0, help="Examples to explain, those first where systems differ most.", rich_help_panel=_SCORES
        ),
    ] = 12,
    link: Annotated[
        str,
        typer.Option(
            help="Links to videos, as in `recipe reward explain`; by source unless given.", rich_help_panel=_SCORES
        ),
    ] = "",
) -> CommandOutput:
    """Write a run's report.html again, or one page of `recipe evaluate` results next to the paper's tables.

    Of a training run with validation it writes validation.html: reward and measure by step. Of one without, it shows
    the metrics.

    Example: recipe report evaluations/*.json --examples examples.jsonl --output report.html --markdown report.md
    """
    if len(paths) == 1 and not paths[0].is_file() and paths[0].suffix != ".json":
        if output or markdown or examples or corpus:
            raise typer.BadParameter("a run folder takes --figure and --json only.", param_hint="PATHS")
        return _run(paths[0], figure)
    if figure is not None:
        raise typer.BadParameter("goes with a run folder.", param_hint="--figure")
    if output is None:
        raise typer.BadParameter("is missing; name the page to write.", param_hint="--output")
    from recipe.evaluation.scoreboard.page import make_report, render_page
    from recipe.evaluation.scoreboard.sources import gather
    from recipe.evaluation.scoreboard.views import NO_EXPLANATIONS, explain_plans
    from recipe.explain.records import Links

    for target in (output, markdown):
        if target is not None:
            require_writable(target)
    board = gather(paths, examples or [])
    made, links = make_report(board, title), Links(link)
    explained = NO_EXPLANATIONS
    if corpus is not None and explain > 0:
        from recipe.cli.reward_options import open_verifier

        opened = open_verifier(corpus, None, verifier)
        explained = explain_plans(opened, made.views, explain, links, console.progress())
    write_text(output, render_page(made, explained))
    if markdown is not None:
        write_text(markdown, made.markdown())
    result: dict[str, Any] = {
        "report": str(output),
        "markdown": None if markdown is None else str(markdown),
        "megabytes": round(output.stat().st_size / 1e6, 2),
        "systems": list(board.systems),
        "examples": len(made.views.examples),
        "without_rows": [str(source.path) for source in board.sources if source.rows is None],
        "examples_without_rows": len(board.examples.keys() - {view.example_id for view in made.views.examples}),
        "explained": explained.examples,
        "explaining_seconds": round(explained.seconds, 2),
    }
    lines = [f"report: {output} ({result['megabytes']} MB, {result['examples']:,} examples)"]
    if markdown is not None:
        lines.append(f"tables: {markdown}")
    if explained.examples:
        lines.append(f"explained: {explained.examples} examples in {result['explaining_seconds']} s")
    if without := result["without_rows"]:
        lines.append(f"without a file of rows, so without examples: {', '.join(without)}")
    if lost := result["examples_without_rows"]:
        lines.append(f"examples without a row: {lost:,}")
    return CommandOutput(result, lines)


def _run(folder: Path, figure: Path | None) -> CommandOutput:
    """Render the results in a run folder again.

    Entry points of `recipe.reports` say what writes the page, by the file of results in the folder, and those of
    `recipe.key_figures` what draws the key figure into a file.
    """
    pages, figures = entry_points(group="recipe.reports"), entry_points(group="recipe.key_figures")
    name = next((entry.name for entry in pages if (folder / entry.name).exists()), "")
    if figure is not None and figure.suffix.lower() not in FIGURES:
        raise typer.BadParameter(f"{figure.name!r} is neither .png nor .svg.", param_hint="--figure")
    if figure is not None and name not in figures.names:
        files = " or ".join(sorted(figures.names))
        raise typer.BadParameter(f"goes with a run that holds {files}.", param_hint="--figure")
    if not name:
        return _metrics(folder)
    page: Path = pages[name].load()(folder)
    if figure is not None:
        figures[name].load()(folder, figure)
    return CommandOutput({"report": str(page), "figure": None if figure is None else str(figure)}, [f"report: {page}"])


def _metrics(run: Path) -> CommandOutput:
    """The metrics of a training run that validated nothing, as means over the quarters of its steps.

    Raises InputError for a folder that holds no results.
    """
    from recipe.errors import InputError
    from recipe.report.elements import Table, headings, row

    if not run.is_dir():
        raise InputError.at(run, "the folder does not exist", "check the path")
    record = read_json(run / "run.json") if (run / "run.json").is_file() else {}
    path = run / "metrics.jsonl"
    steps = [step for _, step in read_jsonl(path)] if path.is_file() and path.stat().st_size else []
    if not steps:
        problem = f"the folder holds no results ({', '.join(sorted(entry_points(group='recipe.reports').names))})"
        remedy = "run its command again, which finishes what was begun" if record or path.is_file() else "give a folder"
        files = " of `recipe run`, `reproduce`, `train` or `reward audit`, or the files of `recipe evaluate`"
        raise InputError.at(run, problem, remedy + files * (not record and not path.is_file()))
    names = [name for name in dict.fromkeys(name for step in steps for name in step) if name not in {"step", "round"}]
    # Quarters of the steps there are, so that a run of three steps has three.
    bounds = [len(steps) * part // 4 for part in range(5)]
    quarters = [steps[begin:end] for begin, end in pairwise(bounds) if end > begin]
    means: dict[str, list[float | None]] = {}
    for name in names:
        values = [
            [float(value) for step in part if isinstance(value := step.get(name), int | float)] for part in quarters
        ]
        if any(values):
            means[name] = [sum(own) / len(own) if own else None for own in values]
    done = "finished" if record.get("finished") else "not finished"
    table = Table(
        f"{len(steps):,} step{'' if len(steps) == 1 else 's'} of `recipe train {record.get('stage', '')}`, {done}: "
        "means by quarter of the steps",
        "metric",
        headings(*(f"to {part[-1].get('step', bounds[index + 1])}" for index, part in enumerate(quarters))),
        tuple(row(name, *(None if mean is None else f"{mean:.3g}" for mean in own)) for name, own in means.items()),
        notes=(
            f"Nothing was validated, so there is no page; with a table [validation] in its settings a run also says "
            f"whether plans got better. All figures by step: {path}",
        ),
    )
    return CommandOutput({"report": None, "figure": None, "steps": len(steps), "metrics": means}, [table])
