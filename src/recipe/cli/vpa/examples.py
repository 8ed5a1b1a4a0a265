"""`recipe vpa examples`: the samples of the protocol as examples that any planner reads."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from recipe.cli.console import out, print_json
from recipe.cli.data_options import AsJson
from recipe.cli.vpa.protocol_options import CrossTask, Order, ProtocolName, RuleName


def examples(
    root: CrossTask,
    output: Annotated[Path, typer.Option(help="Examples file to write, JSON lines.")],
    split: Annotated[Literal["train", "val", "test"], typer.Option(help="Videos of this list.")] = "test",
    protocol: ProtocolName = "shared",
    rule: RuleName = "vlamp",
    order: Order = "file",
    as_json: AsJson = False,
) -> None:
    """Write the samples of Visual Planning for Assistance for `recipe plan --examples` and `recipe perceive`.

    A sample of a video that has only begun has an empty history. The same options always give the same bytes.

    Example: recipe vpa examples --root data --output vpa.jsonl
    """
    from recipe.artifacts import require_writable
    from recipe.data.examples import write_examples
    from recipe.data.vpa import cut_samples, read_release

    require_writable(output)
    release = read_release(root, order)
    samples = cut_samples(release.split(split), release.cards, protocol, rule)
    written = write_examples(output, (one.example() for one in samples))
    videos = len({one.video_id for one in samples})
    start = sum(not one.history for one in samples)
    if as_json:
        print_json({"output": str(output), "examples": written, "videos": videos, "without_history": start})
        return
    line = f"{written:,} examples of {videos:,} videos written to {output}; {start:,} of them have no history"
    out.print(line, highlight=False, markup=False, soft_wrap=True)
