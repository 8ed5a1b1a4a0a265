"""Figures in one style, as SVG inside a page."""

import io
import re
from collections.abc import Sequence

from recipe.errors import MissingExtra
from recipe.report.colours import DARK, INK, MUTED, RULE, variable

try:
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
except ModuleNotFoundError as error:
    raise MissingExtra("the report", "report") from error

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


def new_figure(width: float, height: float, gap: float = 0.02) -> Figure:
    """An empty figure of a size in inches; `gap` is the space between panels as a share of their width."""
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=gap))


def label_rows(panel: Axes, names: Sequence[str]) -> None:
    """Names of the rows 0, 1, ... from top to bottom."""
    panel.set_yticks(range(len(names)), names, fontsize=10)
    panel.set_ylim(len(names) - 0.5, -0.65)
    for label in panel.get_yticklabels():
        label.set_color(INK)


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
