"""An audit as one HTML page that needs nothing but itself: coverage first, then classes, length, padding, attack."""

from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from recipe.artifacts import atomic_path, write_json, write_text
from recipe.errors import MissingExtra
from recipe.evaluation.audit.plots import attack_figure, filler_figure
from recipe.evaluation.audit.results import Audit, RewardAudit, audit_json
from recipe.evaluation.audit.sentences import bounds, percent
from recipe.evaluation.formats import format_number, format_seconds, format_signed
from recipe.evaluation.inline import DARK, inline_svg, variable
from recipe.evaluation.results import Interval
from recipe.reward.audit.corruptions import CORRUPTIONS

try:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise MissingExtra("the audit's page", "report") from error

DATA, PAGE = "audit.json", "audit.html"
PLOTS: dict[str, Callable[[Sequence[RewardAudit]], Figure | None]] = {"filler": filler_figure, "attack": attack_figure}
"""Figures by the names of their files."""
CAPTIONS = {
    "filler": "Mean reward with its 95% interval; dashed: the true continuation by itself.",
    "attack": "Mean length of the greedy optimum, by the kinds of its steps; how often it earns more than the truth.",
}


def render_audit(audit: Audit) -> str:
    """The whole page; the same audit gives the same page."""
    template = files("recipe.evaluation").joinpath("templates/audit.html.jinja").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "percent": percent,
        "bounds": lambda share: bounds(share).strip(" []").replace(", ", " to "),
        "heat": heat,
        "number": format_number,
        "signed": lambda value: format_signed(value, "coverage"),
        "points": lambda share: format_signed(share, "gated").removesuffix(" pp"),
        "seconds": format_seconds,
    }
    return environment.from_string(template).render(
        audit=audit,
        meanings=CORRUPTIONS,
        figures={name: _inline(audit, name) for name in PLOTS},
        captions=CAPTIONS,
        light=[(variable(colour), colour) for colour in DARK],
        dark=[(variable(colour), shade) for colour, shade in DARK.items()],
    )


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


def _inline(audit: Audit, name: str) -> Markup | None:
    figure = PLOTS[name](audit.rewards)
    return None if figure is None else Markup(inline_svg(figure, name, escape(CAPTIONS[name])))
