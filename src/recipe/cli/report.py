"""`recipe report`: a run's results, or what `recipe evaluate` measured, as a page that needs nothing but itself."""

from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, Literal

import typer

from recipe.cli import console

FIGURES = (".png", ".svg")
RENDERERS = {
    "report.json": "recipe_studies.experiments.page:rerender",
    "results.json": "recipe_studies.reproduce.page:rerender",
    "validation.jsonl": "recipe_studies.experiments.over_optimisation:write_validation_page",
}
"""What writes the page of a run folder again and returns its path, by the file of results in the folder."""
KEY_FIGURES = {"report.json": "recipe_studies.experiments.plots:key_figure"}
"""What draws the key figure of a run folder into a file."""
TITLE = "Evaluation of procedural planners"
_RUN, _SCORES = "Of a run", "Of scores (docs/report.md)"


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
        Literal["paper", "grounded", "grounded-1"],
        typer.Option(help="Verifier that explains them.", rich_help_panel=_SCORES),
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
            help="Links to videos, as in `recipe reward explain`; by source unless given.",
            rich_help_panel=_SCORES,
        ),
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a run's report.html again, or one page of what `recipe evaluate` measured beside the paper's tables.

    Of a training run with validation it writes validation.html: reward and measure against the KL divergence.

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
    from recipe.artifacts import require_writable, write_text
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
    result = {
        "report": str(output),
        "markdown": None if markdown is None else str(markdown),
        "megabytes": round(output.stat().st_size / 1e6, 2),
        "systems": list(board.systems),
        "examples": len(made.views.examples),
        "without_rows": [str(source.path) for source in board.sources if source.rows is None],
        "examples_without_rows": len(board.examples.keys() - made.views.names),
        "explained": explained.examples,
        "explaining_seconds": round(explained.seconds, 2),
    }
    if json:
        console.print_json(result)
    else:
        console.print_lines(*_lines(result))


def _run(folder: Path, figure: Path | None, json: bool) -> None:
    """Render the results in a run folder again; which file holds them says by what."""
    name = next((name for name in RENDERERS if (folder / name).exists()), next(iter(RENDERERS)))
    if figure is not None and figure.suffix.lower() not in FIGURES:
        raise typer.BadParameter(f"{figure.name!r} is neither .png nor .svg.", param_hint="--figure")
    if figure is not None and name not in KEY_FIGURES:
        raise typer.BadParameter(f"goes with a run that holds {' or '.join(KEY_FIGURES)}.", param_hint="--figure")
    page: Path = resolve_name(RENDERERS[name])(folder)
    if figure is not None:
        resolve_name(KEY_FIGURES[name])(folder, figure)
    if json:
        console.print_json({"report": str(page), "figure": None if figure is None else str(figure)})
    else:
        console.print_lines(f"report: {page}")


def _lines(result: dict[str, Any]) -> Iterator[str]:
    yield f"report: {result['report']} ({result['megabytes']} MB, {result['examples']:,} examples)"
    if result["markdown"]:
        yield f"tables: {result['markdown']}"
    if result["explained"]:
        yield f"explained: {result['explained']} examples in {result['explaining_seconds']} s"
    if result["without_rows"]:
        yield f"without rows beside them, so without examples: {', '.join(result['without_rows'])}"
    if result["examples_without_rows"]:
        yield f"examples without a row: {result['examples_without_rows']:,}"
