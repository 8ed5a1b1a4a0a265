"""`recipe report`: a run's results as a page, and its key figure as a picture."""

from pathlib import Path
from typing import Annotated

import typer

from recipe.cli import console

FIGURES = (".png", ".svg")


def report(
    run_dir: Annotated[Path, typer.Argument(help="Run folder that holds report.json.")],
    figure: Annotated[Path | None, typer.Option(help="Also draw the key figure, PNG or SVG.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write a run's report.html again from its report.json.

    Example: recipe report runs/demo --figure figure.png
    """
    if figure is not None and figure.suffix.lower() not in FIGURES:
        raise typer.BadParameter(f"{figure.name!r} is neither .png nor .svg.", param_hint="--figure")
    from recipe.evaluation.plots import key_figure
    from recipe.evaluation.report import rerender
    from recipe.evaluation.results import load_results

    page = rerender(run_dir)
    if figure is not None:
        key_figure(load_results(run_dir / "report.json"), figure)
    if json:
        console.print_json({"report": str(page), "figure": None if figure is None else str(figure)})
    else:
        console.out.print(f"report: {page}", highlight=False, soft_wrap=True)
