"""The command line: thin commands over the rooms, each imported when it is called, with what it needs."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from recipe import __version__
from recipe.children import safe_path
from recipe.cli.console import CommandGroup, run
from recipe.errors import InputError

app = CommandGroup(
    {
        "perceive": "recipe.cli.perceive:perceive",
        "plan": "recipe.cli.plan:plan",
        "report": "recipe.cli.report:report",
        "publish": "recipe.cli.publish:publish",
        "docs": "recipe.cli:docs",
        "corpus": "recipe.cli.corpus:app",
        "data": "recipe.cli.data:app",
        "world": "recipe.cli.world:app",
        "train": "recipe.cli.train:app",
        "vpa": "recipe.cli.vpa:app",
        "reward": "recipe.cli.reward:app",
        "evaluate": "recipe.cli.evaluate:app",
    },
    name="recipe",
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _show_version(requested: bool) -> None:
    """Print the version and stop."""
    if requested:
        typer.echo(f"recipe {__version__}")
        raise typer.Exit


@app.callback()
def recipe(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Procedural planning with rewards verified against narrated how-to videos.

    Pages such as docs/data.md, which help and errors cite, are shown by `recipe docs data`.

    Example: recipe demo --quick
    """


def docs(
    page: Annotated[str, typer.Argument(metavar="PAGE", help="Such as `data` for docs/data.md.")] = "index",
) -> None:
    """Show a page of the documentation, as help and errors cite them; without a name, the list of pages.

    Example: recipe docs data
    """
    from difflib import get_close_matches

    from rich.console import Console
    from rich.markdown import Markdown

    packaged = Path(__file__).parents[1] / "docs"
    folder = packaged if packaged.is_dir() else Path(__file__).parents[3] / "docs"
    pages = {path.stem: path for path in folder.glob("*.md")}
    name = page.removeprefix("docs/").removesuffix(".md")
    if name not in pages:
        near = get_close_matches(name, pages, n=1) or ["index"]
        raise InputError(f"{page!r} is no page of the documentation; try `recipe docs {near[0]}`.")
    text = pages[name].read_text(encoding="utf-8")
    console = Console()
    # Raw Markdown for programs and pagers; a terminal gets it laid out.
    console.print(Markdown(text)) if console.is_terminal else typer.echo(text)


def main() -> None:
    """Entry point of the `recipe` command.

    Exit code 0, 1 for input that cannot be used, 2 for wrong usage, 130 after Ctrl-C.
    """
    with safe_path():  # also for processes that libraries start
        sys.exit(run(app))
