"""Commands of `recipe world`: look at the miniature world and write narrations and examples from it."""

from pathlib import Path
from typing import Annotated

import typer

from recipe.cli.console import CommandGroup, out, print_table

app = CommandGroup(help="The miniature world: goals with known task graphs, for trials and tests.")

Count = Annotated[int, typer.Option(min=1, help="Number to write.")]
Seed = Annotated[int, typer.Option(help="Another seed gives other draws.")]
Output = Annotated[Path, typer.Option(help="The JSON lines file to write.")]
Folder = Annotated[Path | None, typer.Option(help="A folder with a world of your own instead of the packaged one.")]


@app.command("goals")
def goals(folder: Folder = None) -> None:
    """List the goals.

    Example: recipe world goals
    """
    from recipe.report.elements import Table, headings, row
    from recipe.world.load import load_world

    rows = tuple(
        row(graph.goal, graph.domain, len(graph.after), len(graph.optional), "yes" if graph.held_out else "")
        for graph in load_world(folder).goals.values()
    )
    print_table(Table("Goals", "goal", headings("domain", "steps", "optional", "held out"), rows))


@app.command("show")
def show(goal: Annotated[str, typer.Argument(help="A goal of `recipe world goals`.")], folder: Folder = None) -> None:
    """Show the task graph of a goal.

    Example: recipe world show "brew a pot of tea"
    """
    from recipe.report.elements import Table, headings, row
    from recipe.world.load import load_world

    world = load_world(folder)
    graph = world.graph(goal)
    number = {step: str(index) for index, step in enumerate(graph.after, start=1)}
    rows = tuple(
        row(
            number[step],
            world.wordings[step][0],
            ", ".join(number[other] for other in earlier),
            "optional" if step in graph.optional else "",
        )
        for step, earlier in graph.after.items()
    )
    print_table(Table(graph.goal, "no.", headings("step", "after", ""), rows))


@app.command("narrations")
def narrations(output: Output, count: Count = 1500, seed: Seed = 0, folder: Folder = None) -> None:
    """Write narrations for a corpus.

    Example: recipe world narrations --count 1500 --output narrations.jsonl
    """
    from recipe.artifacts import write_jsonl
    from recipe.data.narrations import to_row
    from recipe.world.load import load_world
    from recipe.world.narrator import narrate

    written = write_jsonl(output, map(to_row, narrate(load_world(folder), count, seed)))
    out.print(f"{written} narrations in {output}")


@app.command("examples")
def examples(
    output: Output,
    split: Annotated[
        str, typer.Option(help="train, test_cuts, test_goals, or careless for noisy pre-training text.")
    ] = "train",
    count: Count = 400,
    seed: Seed = 0,
    folder: Folder = None,
) -> None:
    """Write examples for training and tests.

    Example: recipe world examples --split test_goals --count 100 --output test_goals.jsonl
    """
    from recipe.data.examples import write_examples
    from recipe.world.examples import NOISY_SPLIT, draw_examples, noisy_examples
    from recipe.world.load import load_world

    world, noisy = load_world(folder), split == NOISY_SPLIT
    drawn = noisy_examples(world, count, seed) if noisy else draw_examples(world, split, count, seed)
    written = write_examples(output, drawn)
    out.print(f"{written} examples of split {split} in {output}")


@app.command("clip")
def clip(
    output: Annotated[Path, typer.Option(help="The video file to write, for example clip.mp4.")],
    goal: Annotated[str, typer.Option(help="A goal of `recipe world goals`.")],
    history: Annotated[
        list[str] | None, typer.Option(help="A step that was done; repeat the option, in order.")
    ] = None,
    first: Annotated[int | None, typer.Option(min=1, help="Show so many steps of a valid order instead.")] = None,
    unseen: Annotated[bool, typer.Option(help="On the background that training never shows.")] = False,
    seed: Seed = 0,
    folder: Folder = None,
) -> None:
    """Draw steps of a goal as a video, as the planner of `recipe demo --input video` is shown them.

    Example: recipe world clip --goal "brew a pot of tea" --first 3 --output clip.mp4
    """
    import random

    from recipe.errors import InputError
    from recipe.types import Example
    from recipe.world.clips import DrawnClips, write_clip
    from recipe.world.frames import Painter
    from recipe.world.load import load_world

    if (first is None) == (not history):
        given = "no steps to show are given" if first is None else "--history and --first exclude each other"
        raise InputError(f"{given}; give either --history, once for each step, or --first.")
    world = load_world(folder)
    order = world.graph(goal).draw(random.Random(seed))
    done = history or [world.wordings[step][0] for step in order[:first]]
    example = Example("clip", "world", "clip", goal, tuple(done), (), len(done))
    frames = DrawnClips(world, Painter(world), seed, "unseen" if unseen else "train")(example)
    write_clip(output, frames)
    out.print(f"{len(frames.images)} frames, {len(frames.images) / frames.rate:g} seconds, in {output}")
    for text in done:
        out.print(f"- {text}", highlight=False)
