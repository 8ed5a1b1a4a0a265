"""The command line: thin commands over the rooms, each importing what it needs only when it runs."""

import sys
from typing import Annotated

import typer

from recipe import __version__
from recipe.cli import corpus, data, demo, evaluate, perceive, plan, report, reproduce, reward, train, vpa, world
from recipe.cli.console import run

app = typer.Typer(
    name="recipe",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def show_version(asked: bool) -> None:
    """Print the version and stop."""
    if asked:
        typer.echo(f"recipe {__version__}")
        raise typer.Exit


@app.callback()
def recipe(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Procedural planning with rewards verified against narrated how-to videos.

    Example: recipe demo --quick
    """


app.command("demo")(demo.demo)
app.command("run")(demo.run)
app.command("reproduce")(reproduce.reproduce)
app.add_typer(corpus.app, name="corpus")
app.add_typer(data.app, name="data")
app.add_typer(world.app, name="world")
app.add_typer(train.app, name="train")
app.command("perceive")(perceive.perceive)
app.command("plan")(plan.plan)
app.add_typer(vpa.app, name="vpa")
app.add_typer(reward.app, name="reward")
app.add_typer(evaluate.app, name="evaluate")
app.command("report")(report.report)


def main() -> None:
    """Entry point of the `recipe` command.

    Exit code 0, 1 for input that cannot be used, 2 for wrong usage, 130 after Ctrl-C.
    """
    sys.exit(run(app))
