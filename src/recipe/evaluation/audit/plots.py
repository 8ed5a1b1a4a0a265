"""The audit's figures: rewards of plans padded with generic steps, and what greedy optima are made of."""

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from recipe.evaluation.audit.results import RewardAudit
from recipe.evaluation.audit.sentences import percent
from recipe.evaluation.plots import COLOURS, INK, MUTED, STYLE
from recipe.reward.audit.attack import KINDS

KIND_COLOURS = dict(zip(KINDS, (COLOURS[name] for name in ("best", "rl", "reference", "sft->rl", "sft")), strict=True))
"""Kinds of steps of an attack."""
_ACROSS = 3
"""Panels side by side."""


@mpl.rc_context(STYLE)
def filler_figure(rewards: Sequence[RewardAudit]) -> Figure:
    """Mean reward and its interval against the number of generic steps after the true plan, one panel a reward."""
    rows = -(-len(rewards) // _ACROSS)
    across = min(_ACROSS, len(rewards))
    figure = Figure(figsize=(7.6, 0.5 + 1.8 * rows), layout=ConstrainedLayoutEngine(wspace=0.06, hspace=0.08))
    panels = figure.subplots(rows, across, squeeze=False).ravel()
    for one, panel in zip(rewards, panels, strict=False):
        _draw_fillers(panel, one)
    for panel in panels[len(rewards) :]:
        panel.set_visible(False)
    figure.supxlabel("generic steps after the true continuation", color=MUTED, fontsize=9)
    return figure


@mpl.rc_context(STYLE)
def attack_figure(rewards: Sequence[RewardAudit]) -> Figure | None:
    """Length of the greedy optimum in true lengths, by kinds of steps; None where no reward was attacked."""
    attacked = [(one.name, one.attack) for one in rewards if one.attack is not None]
    if not attacked:
        return None
    figure = Figure(figsize=(7.6, 1.25 + 0.42 * len(attacked)), layout=ConstrainedLayoutEngine())
    panel = figure.subplots()
    for place, (_, attack) in enumerate(attacked):
        left = 0.0
        for kind in KINDS:
            width = attack.length_ratio * attack.composition.get(kind, 0.0)
            panel.barh(place, width, left=left, height=0.62, color=KIND_COLOURS[kind])
            left += width
        note = f"earns more in {percent(attack.beats_true.mean)}%"
        panel.annotate(
            note,
            (max(left, 1.0), place),
            (6, 0),
            textcoords="offset points",
            va="center",
            color=INK,
            annotation_clip=False,
        )
    panel.axvline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    panel.set_yticks(range(len(attacked)), [name for name, _ in attacked], fontsize=10)
    panel.set_ylim(len(attacked) - 0.5, -0.5)
    panel.set_xlim(0, 1.3 * max(1.2, *(attack.length_ratio for _, attack in attacked)))
    panel.grid(visible=False, axis="y")
    panel.set_xlabel("steps of the attack, in true lengths (dashed: the true continuation)")
    handles = [Patch(color=KIND_COLOURS[kind], label=kind) for kind in KINDS]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(KINDS), frameon=False, fontsize=9)
    return figure


def _draw_fillers(panel: Axes, one: RewardAudit) -> None:
    steps = [point.steps for point in one.filler_curve]
    bounded = [point.reward for point in one.filler_curve if point.reward.low is not None]
    if len(bounded) == len(steps):
        low, high = ([end for end in ends if end is not None] for ends in _ends(one))
        panel.fill_between(steps, low, high, color=COLOURS["sft"], alpha=0.18, linewidth=0)
    panel.plot(steps, [point.reward.mean for point in one.filler_curve], "o-", color=COLOURS["sft"], markersize=4)
    panel.axhline(one.filler_curve[0].reward.mean, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    panel.set_title(one.name)
    panel.set_xticks(steps, ["" if 0 < step < 4 else str(step) for step in steps])
    panel.locator_params(axis="y", nbins=4)


def _ends(one: RewardAudit) -> tuple[list[float | None], list[float | None]]:
    return [point.reward.low for point in one.filler_curve], [point.reward.high for point in one.filler_curve]
