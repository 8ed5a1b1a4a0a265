"""Figures in one style: one colour a system, labels at the data; as SVG inside a page."""

import io
import re
from collections.abc import Iterable, Sequence
from itertools import cycle

from recipe.errors import MissingExtra

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
except ModuleNotFoundError as error:
    raise MissingExtra("the report", "report") from error


INK, MUTED, RULE = "#1b1b1a", "#6b6b66", "#dddcd5"
"""Text, secondary text, and grid."""


COLOURS = {
    "reference": "#8a8a84",
    "base": "#6e6e69",
    "sft": "#0072b2",
    "rl": "#d55e00",
    "sft->rl": "#a0508a",
    "best": "#00805f",
}
"""Regimes by their lower-case names; after Okabe and Ito, so that colour-blind readers tell them apart."""


REWARDS = {"paper": COLOURS["rl"], "grounded": COLOURS["best"], "validity": COLOURS["sft"], "relevance": "#7a4fbf"}
"""Regimes that end on the name of what pays or chooses, in a comparison of rewards."""


SPARE = ("#9a7b00", "#3a8fb7", "#7a4fbf", "#a03b3b")
"""Colours of further regimes, in order of appearance."""


STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "recipe",
    "lines.solid_capstyle": "round",
}


MARKERS = ("o", "D", "s", "^")
"""Splits, where they share a panel."""


def regime_colours(regimes: Iterable[str]) -> dict[str, str]:
    """A colour for each regime; those of one name always have the same."""
    spare = cycle(SPARE)
    return {regime: _known_colour(regime) or next(spare) for regime in dict.fromkeys(regimes)}


def _known_colour(regime: str) -> str | None:
    name = regime.lower().replace(" ", "").replace("→", "->").replace("best-of", "best")
    for reward, colour in REWARDS.items():
        if name.endswith(reward):
            return colour
    if name.startswith("best"):
        return COLOURS["best"]
    return COLOURS.get(name)


def new_figure(width: float, height: float, gap: float = 0.02) -> Figure:
    """An empty figure of a size in inches; `gap` is the space between panels as a share of their width."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=gap))


def label_rows(panel: Axes, names: Sequence[str]) -> None:
    """Names of the rows 0, 1, ... from top to bottom."""
    panel.set_yticks(range(len(names)), names, fontsize=10)
    panel.set_ylim(len(names) - 0.5, -0.65)
    for label in panel.get_yticklabels():
        label.set_color(INK)


DARK = {
    INK: "#ecebe4",
    MUTED: "#a3a29a",
    RULE: "#3a3a36",
    COLOURS["reference"]: "#9a9a93",
    COLOURS["base"]: "#b3b2aa",
    COLOURS["sft"]: "#5cb3ea",
    COLOURS["rl"]: "#f08a4b",
    COLOURS["sft->rl"]: "#d58cc2",
    COLOURS["best"]: "#3fc29a",
    SPARE[0]: "#d6b640",
    SPARE[1]: "#7cc4e4",
    SPARE[2]: "#b79af0",
    SPARE[3]: "#e08888",
}
"""Each colour of the figures with its counterpart on a dark page."""


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an `<svg>` element whose ids start with `name`; `description` is for readers who cannot see it."""
    buffer = io.StringIO()
    with rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="|url\()#', rf"\g<1>#{name}-", svg)
    svg = re.sub(r"font: ([\d. ]*?[\d.]+px) [^;\"]*", r"font: \1 var(--sans)", svg)
    for colour in DARK:
        svg = re.sub(colour, f"var({variable(colour)})", svg, flags=re.IGNORECASE)
    return re.sub(
        r'<svg [^>]*?(viewBox="[^"]*")[^>]*>', rf'<svg \1 role="img"><title>{description}</title>', svg, count=1
    )


def variable(colour: str) -> str:
    """The name of the style sheet's variable for a colour."""
    return f"--c-{colour.lstrip('#')}"
