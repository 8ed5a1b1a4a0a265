"""An audit as one self-contained HTML page: a picture and coverage first, then classes, length, padding, attack."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from recipe.artifacts import atomic_path, write_json, write_text
from recipe.audit.attack import BEST_OF, KINDS
from recipe.audit.classes import CORRUPTIONS, GROUP_OF, GROUPS, Group
from recipe.audit.lodo import points
from recipe.audit.results import AttackResult, Audit, RewardAudit, audit_json
from recipe.audit.score import LENGTH, RELEVANCE
from recipe.audit.shares import bounds, percent
from recipe.errors import MissingExtra
from recipe.report.colours import BLUE, DARK, GREEN, GREY, INK, MUTED, PURPLE, SPARE, VERMILION, variable
from recipe.report.html import template
from recipe.report.numbers import format_number, format_seconds, format_signed
from recipe.report.plots import STYLE, inline_svg
from recipe.stats import Interval

try:
    import matplotlib as mpl
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.patches import Patch
except ModuleNotFoundError as error:
    raise MissingExtra("the audit's page", "report") from error

DATA, PAGE = "audit.json", "audit.html"
KIND_COLOURS = dict(zip(KINDS, (GREEN, VERMILION, GREY, PURPLE, BLUE, SPARE[0]), strict=True))
"""Kinds of steps of an attack."""
_ACROSS = 3
"""Panels side by side."""


@mpl.rc_context(STYLE)
def shares_figure(rewards: Sequence[RewardAudit]) -> Figure:
    """How often each reward prefers the true continuation: its mean with the interval, and its worst class."""
    figure = Figure(figsize=(7.6, 0.9 + 0.5 * len(rewards)), layout=ConstrainedLayoutEngine())
    panel = figure.subplots()
    for place, one in enumerate(rewards):
        colour = GREY if one.name in (LENGTH, RELEVANCE) else BLUE
        mean, worst = 100 * one.mean.mean, 100 * one.worst.mean
        panel.plot([worst, mean], [place, place], color=colour, linewidth=1, alpha=0.5)
        if one.mean.low is not None and one.mean.high is not None:
            panel.plot([100 * one.mean.low, 100 * one.mean.high], [place, place], color=colour, linewidth=4, alpha=0.4)
        panel.plot(mean, place, "o", color=colour, markersize=8)
        panel.plot(worst, place, "o", color=colour, markersize=7, markerfacecolor="none")
        side = "left" if worst < 50 else "right"
        words = one.worst_class.replace("_", " ")
        style: dict[str, Any] = {"textcoords": "offset points", "ha": side, "va": "top", "color": MUTED, "fontsize": 9}
        panel.annotate(words, (worst, place), (0, -6), **style)
    panel.axvline(50, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    panel.set_yticks(range(len(rewards)), [one.name for one in rewards], fontsize=10)
    panel.set_ylim(len(rewards) - 0.5, -0.5)
    panel.set_xlim(-2, 102)
    panel.grid(visible=False, axis="y")
    panel.set_xlabel("percent of comparisons in which the true continuation earns more (dashed: chance)")
    return figure


@mpl.rc_context(STYLE)
def filler_figure(rewards: Sequence[RewardAudit]) -> Figure:
    """Mean reward and its interval against the number of generic steps after the true plan, one panel a reward."""
    rows = -(-len(rewards) // _ACROSS)
    across = min(_ACROSS, len(rewards))
    figure = Figure(figsize=(7.6, 0.5 + 1.8 * rows), layout=ConstrainedLayoutEngine(wspace=0.06, hspace=0.08))
    panels = figure.subplots(rows, across, squeeze=False).ravel()
    for one, panel in zip(rewards, panels, strict=False):
        steps = [point.steps for point in one.filler_curve]
        low, high = ([getattr(point.reward, end) for point in one.filler_curve] for end in ("low", "high"))
        if None not in low:
            panel.fill_between(steps, low, high, color=BLUE, alpha=0.18, linewidth=0)
        panel.plot(steps, [point.reward.mean for point in one.filler_curve], "o-", color=BLUE, markersize=4)
        panel.axhline(one.filler_curve[0].reward.mean, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        panel.set_title(one.name)
        panel.set_xticks(steps, ["" if 0 < step < 4 else str(step) for step in steps])
        panel.locator_params(axis="y", nbins=4)
    for panel in panels[len(rewards) :]:
        panel.set_visible(False)
    figure.supxlabel("generic steps after the true continuation", color=MUTED, fontsize=9)
    return figure


@mpl.rc_context(STYLE)
def attack_figure(
    rewards: Sequence[RewardAudit], attack_of: Callable[[RewardAudit], AttackResult | None]
) -> Figure | None:
    """Length of an attack's plans in true lengths, by kinds of steps; None where no reward was attacked."""
    results = [(one.name, attack_of(one)) for one in rewards]
    attacked = [(name, attack) for name, attack in results if attack is not None]
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
        style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "color": INK, "annotation_clip": False}
        panel.annotate(note, (max(left, 1.0), place), (6, 0), **style)
    panel.axvline(1, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    panel.set_yticks(range(len(attacked)), [name for name, _ in attacked], fontsize=10)
    panel.set_ylim(len(attacked) - 0.5, -0.5)
    panel.set_xlim(0, 1.3 * max(1.2, *(attack.length_ratio for _, attack in attacked)))
    panel.grid(visible=False, axis="y")
    panel.set_xlabel("steps of the attack, in true lengths (dashed: the true continuation)")
    there = [kind for kind in KINDS if any(kind in attack.composition for _, attack in attacked)]
    handles = [Patch(color=KIND_COLOURS[kind], label=kind) for kind in there]
    figure.legend(handles=handles, loc="outside upper left", ncols=len(there), frameon=False, fontsize=9)
    return figure


PLOTS: dict[str, Callable[[Sequence[RewardAudit]], Figure | None]] = {
    "shares": shares_figure,
    "filler": filler_figure,
    "attack": partial(attack_figure, attack_of=lambda one: one.attack),
    "best_of": partial(attack_figure, attack_of=lambda one: one.best_of),
}
"""Figures by the names of their files."""
CAPTIONS = {
    "shares": "Filled: mean over all classes of corrupted plans, with its 95% interval. Hollow: the class where the "
    "reward is worst. Grey: controls that read no corpus.",
    "filler": "Mean reward with its 95% interval; dashed: the true continuation by itself.",
    "attack": "Mean length of the greedy optimum, by the kinds of its steps; how often it earns more than the truth.",
    "best_of": f"The same of the best of {BEST_OF} plans that are composed at random, of one step to two true lengths.",
}


def render_audit(audit: Audit) -> str:
    """The whole page; the same audit gives the same page."""
    page = template("recipe.audit", "audit.html.jinja")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "percent": percent,
        "bounds": lambda share: bounds(share).strip(" []").replace(", ", " to "),
        "heat": heat,
        "heat_of": lambda share: heat(Interval(share)),
        "gain": points,
        "number": format_number,
        "signed": format_signed,
        "points": lambda share: format_signed(100 * share, 0),
        "seconds": format_seconds,
    }
    return environment.from_string(page).render(
        audit=audit,
        bands=bands(audit.rewards),
        best_of=BEST_OF,
        systems=list(dict.fromkeys(system for one in audit.rewards for system in one.samples)),
        figures={
            name: None if (figure := draw(audit.rewards)) is None else Markup(inline_svg(figure, name, caption))
            for (name, draw), caption in zip(PLOTS.items(), CAPTIONS.values(), strict=True)
        },
        captions=CAPTIONS,
        light=[(variable(colour), colour) for colour in DARK],
        dark=[(variable(colour), shade) for colour, shade in DARK.items()],
    )


def bands(rewards: Sequence[RewardAudit]) -> list[tuple[Group, dict[str, str]]]:
    """The groups with their classes and what these are, those that any reward was audited with."""
    there = {name for one in rewards for name in one.classes}
    members = {
        group: {n: CORRUPTIONS[n] for n in CORRUPTIONS if n in there and GROUP_OF[n] == group} for group in GROUPS
    }
    return [(group, own) for group, own in members.items() if own]


def write_audit(audit: Audit, folder: Path) -> list[Path]:
    """Write data, page and plots into a folder, each all or nothing; returns the files."""
    written = [folder / DATA, folder / PAGE]
    write_json(written[0], audit_json(audit))
    write_text(written[1], render_audit(audit))
    for name, draw in PLOTS.items():
        if (figure := draw(audit.rewards)) is not None:
            written.append(folder / f"{name}.png")
            with atomic_path(written[-1]) as partial:
                figure.savefig(partial, format="png", dpi=160, facecolor="white", metadata={"Software": None})
    return written


def heat(share: Interval) -> str:
    """The style of a table's cell: how far a share lies above 50% (`--up`) or below it (`--down`), 0 to 100.

    >>> heat(Interval(0.75)), heat(Interval(0.4))
    ('--up: 50', '--down: 20')
    """
    return f"--{'up' if share.mean >= 0.5 else 'down'}: {round(200 * abs(share.mean - 0.5))}"
