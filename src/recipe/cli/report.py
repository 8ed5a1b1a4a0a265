"""`recipe report`: a run's results, or what `recipe evaluate` measured, as a page that needs nothing but itself."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from recipe.cli import console

if TYPE_CHECKING:
    from recipe.evaluation.scoreboard.views import ExampleViews, PlanExplanations

FIGURES = (".png", ".svg")
TITLE = "Evaluation of procedural planners"
_RUN, _SCORES = "Of a run", "Of scores (docs/report.md)"


class Asked(NamedTuple):
    """What a page of scores is made from."""

    paths: list[Path]
    output: Path
    markdown: Path | None
    examples: list[Path]
    title: str
    corpus: Path | None
    verifier: str
    explain: int
    link: str


class Told(NamedTuple):
    """What was made, as `--json` prints it."""

    report: str
    markdown: str | None
    megabytes: float
    systems: list[str]
    examples: int
    without_rows: list[str]
    examples_without_rows: int
    explained: int
    explaining_seconds: float


def report(
    paths: Annotated[
        list[Path], typer.Argument(help="A run folder that holds report.json, or files that `recipe evaluate` wrote.")
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
        Literal["paper", "grounded"], typer.Option(help="Who explains them.", rich_help_panel=_SCORES)
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
            help="Links to videos, as in `recipe reward explain`; YouTube's by default.", rich_help_panel=_SCORES
        ),
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a run's report.html again, or one page of what `recipe evaluate` measured beside the paper's tables.

    Example: recipe report evaluations/*.json --examples examples.jsonl --output report.html --markdown report.md
    """
    if len(paths) == 1 and not paths[0].is_file() and paths[0].suffix != ".json":
        if output or markdown or examples or corpus:
            raise typer.BadParameter("a run folder takes --figure and --json only.", param_hint="PATHS")
        _run(paths[0], figure, json)
        return
    if figure is not None:
        raise typer.BadParameter("goes with a run folder.", param_hint="--figure")
    if output is None:
        raise typer.BadParameter("is missing; name the page to write.", param_hint="--output")
    _scores(Asked(paths, output, markdown, examples or [], title, corpus, verifier, explain, link), json)


def _run(run_dir: Path, figure: Path | None, json: bool) -> None:
    if figure is not None and figure.suffix.lower() not in FIGURES:
        raise typer.BadParameter(f"{figure.name!r} is neither .png nor .svg.", param_hint="--figure")
    from recipe.experiments.page import rerender
    from recipe.experiments.plots import key_figure
    from recipe.experiments.results import load_results

    page = rerender(run_dir)
    if figure is not None:
        key_figure(load_results(run_dir / "report.json"), figure)
    if json:
        console.print_json({"report": str(page), "figure": None if figure is None else str(figure)})
    else:
        console.out.print(f"report: {page}", highlight=False, soft_wrap=True)


def _scores(asked: Asked, json: bool) -> None:
    from recipe.artifacts import require_writable, write_text
    from recipe.evaluation.scoreboard.page import make_report, render_page
    from recipe.evaluation.scoreboard.sources import gather

    for target in (asked.output, asked.markdown):
        if target is not None:
            require_writable(target)
    board = gather(asked.paths, asked.examples)
    made = make_report(board, asked.title)
    grounds = _grounds(made.views, asked)
    write_text(asked.output, render_page(made, grounds))
    if asked.markdown is not None:
        write_text(asked.markdown, made.markdown())
    told = Told(
        report=str(asked.output),
        markdown=None if asked.markdown is None else str(asked.markdown),
        megabytes=round(asked.output.stat().st_size / 1e6, 2),
        systems=list(board.systems),
        examples=len(made.views.examples),
        without_rows=[str(source.path) for source in board.sources if not source.has_rows],
        examples_without_rows=len(board.examples.keys() - made.views.names),
        explained=grounds.examples,
        explaining_seconds=round(grounds.seconds, 2),
    )
    if json:
        console.print_json(told._asdict())
        return
    for line in _lines(told):
        console.out.print(line, highlight=False, markup=False, soft_wrap=True)


def _grounds(cases: "ExampleViews", asked: Asked) -> "PlanExplanations":
    from recipe.evaluation.scoreboard.views import NO_EXPLANATIONS, explain_plans
    from recipe.explain.records import Links

    links = Links(asked.link)
    if asked.corpus is None or asked.explain == 0:
        return NO_EXPLANATIONS
    from recipe.cli.reward_options import open_verifier

    verifier = open_verifier(asked.corpus, None, asked.verifier)
    return explain_plans(verifier, cases, asked.explain, links, console.progress())


def _lines(told: Told) -> Iterator[str]:
    yield f"report: {told.report} ({told.megabytes} MB, {told.examples:,} examples)"
    if told.markdown:
        yield f"tables: {told.markdown}"
    if told.explained:
        yield f"explained: {told.explained} examples in {told.explaining_seconds} s"
    if told.without_rows:
        yield f"without rows beside them, so without examples: {', '.join(told.without_rows)}"
    if told.examples_without_rows:
        yield f"examples that no row is about: {told.examples_without_rows:,}"
