"""What the planner sees, as one picture: clips of histories, and the controls beside them."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from recipe.artifacts import atomic_path
from recipe.experiments.video.stages import drawn_clips
from recipe.report.plots import STYLE
from recipe.types import Example
from recipe.world.graph import World

COLUMNS = 12
"""Frames of a clip that are shown, at most."""


def draw_clips(world: World, examples: Sequence[Example], target: Path) -> None:
    """Each example's clip on a training background and on the unseen one, and another history's. Writes a PNG."""
    trained, unseen = drawn_clips(0), drawn_clips(0, unseen=True)
    rows = [
        (f"{example.goal}: {name}", make(example).images)
        for example in examples
        for name, make in (("drawn for training", trained), ("unseen background", unseen), ("other", unseen.other))
    ]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9, 0.95 * len(rows)), layout="constrained")
        for panel, (title, images) in zip(figure.subplots(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
            shown = images[:COLUMNS]
            strip = shown.transpose(1, 0, 2, 3).reshape(shown.shape[1], -1, 3)
            panel.imshow(strip, interpolation="nearest", aspect="equal")
            panel.set_xlim(0, COLUMNS * shown.shape[2])
            panel.set_axis_off()
            more = f", {len(images)} frames" if len(images) > COLUMNS else ""
            panel.set_title(f"{title}{more}", fontsize=8, loc="left")
        with atomic_path(target) as partial:
            figure.savefig(partial, format="png", dpi=140, facecolor="white", metadata={"Software": None})
