"""Figures as SVG that lives inside a page: no ids in common, text as text, colours from the page's style sheet."""

import io
import re

from matplotlib import rc_context
from matplotlib.figure import Figure

from recipe.evaluation.plots import COLOURS, INK, MUTED, RULE, SPARE, STYLE

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
