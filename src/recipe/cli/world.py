"""Commands of `recipe world`: look at the miniature world and write narrations and examples from it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recipe.cli.console import out

if TYPE_CHECKING:
    from recipe.types import Example
    from recipe.world.graph import World

app = typer.Typer(no_args_is_help=True, help="The miniature world: goals with known task graphs, for trials and tests.")

Count = Annotated[int, typer.Option(min=1, help="How many to write.")]
Seed = Annotated[int, typer.Option(help="Another seed gives other draws.")]
Output = Annotated[Path, typer.Option(help="The JSON lines file to write.")]
Folder = Annotated[Path | None, typer.Option(help="A folder with a world of your own instead of the packaged one.")]


@app.command("goals")
def goals(folder: Folder = None) -> None:
    """List the goals.

    Example: recipe world goals
    """
    from rich.table import Table

    from recipe.world.load import load_world

    table = Table("goal", "domain", "steps", "optional", "held out")
    for graph in load_world(folder).goals.values():
        held_out = "yes" if graph.held_out else ""
        table.add_row(graph.goal, graph.domain, str(len(graph.after)), str(len(graph.optional)), held_out)
    out.print(table)


@app.command("show")
def show(goal: Annotated[str, typer.Argument(help="A goal of `recipe world goals`.")], folder: Folder = None) -> None:
    """Show the task graph of a goal.

    Example: recipe world show "brew a pot of tea"
    """
    from rich.table import Table

    from recipe.world.load import load_world

    world = load_world(folder)
    graph = world.graph(goal)
    number = {step: str(index) for index, step in enumerate(graph.after, start=1)}
    table = Table("no.", "step", "after", "", title=graph.goal)
    for step, earlier in graph.after.items():
        waits_for = ", ".join(number[other] for other in earlier)
        table.add_row(number[step], world.wordings[step][0], waits_for, "optional" if step in graph.optional else "")
    out.print(table)


@app.command("narrations")
def narrations(output: Output, count: Count = 1500, seed: Seed = 0, folder: Folder = None) -> None:
    """Write narrations for a corpus.

    Example: recipe world narrations --count 1500 --output narrations.jsonl
    """
    from dataclasses import asdict

    from recipe.artifacts import write_jsonl
    from recipe.world.load import load_world
    from recipe.world.narrator import narrate

    written = write_jsonl(output, map(asdict, narrate(load_world(folder), count, seed)))
    out.print(f"{written} narrations in {output}")


@app.command("examples")
def examples(
    output: Output,
    split: Annotated[
        str, typer.Option(help="train, test_cuts, test_goals, or careless for base model text.")
    ] = "train",
    count: Count = 400,
    seed: Seed = 0,
    folder: Folder = None,
) -> None:
    """Write examples for training and tests.

    Example: recipe world examples --split test_goals --count 100 --output test_goals.jsonl
    """
    from recipe.data.examples import write_examples
    from recipe.world.load import load_world

    written = write_examples(output, _draw(load_world(folder), split, count, seed))
    out.print(f"{written} examples of split {split} in {output}")


def _draw(world: "World", split: str, count: int, seed: int) -> "list[Example]":
    from recipe.world.examples import CARELESS, careless_examples, draw_examples

    return careless_examples(world, count, seed) if split == CARELESS else draw_examples(world, split, count, seed)
