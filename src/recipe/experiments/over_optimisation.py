"""A training run's validations as one page: reward and measure against the root of KL, and the chosen step.

Gao, Schulman and Hilton, Scaling laws for reward model overoptimization, 2023: both rise with the root of the KL
divergence at first; where the reward goes on rising and the measure falls, the policy optimises the reward only.
"""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from recipe.artifacts import read_json, read_jsonl, write_text
from recipe.errors import MissingExtra
from recipe.evaluation.metrics import METRICS
from recipe.report.colours import BLUE, GREEN, INK, MUTED, VERMILION
from recipe.report.elements import Cell, Figure, Section, Table, headings, row
from recipe.report.html import page_environment, template
from recipe.report.plots import STYLE, inline_svg, new_figure
from recipe.stats import Interval

try:
    import matplotlib as mpl
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
except ModuleNotFoundError as error:
    raise MissingExtra("the validation page", "report") from error

DATA, PAGE = "validation.jsonl", "validation.html"
NAMES = METRICS | {"validity": "validity", "proxy": "proxy judge, share of the total"}
_CAPTION = (
    "One point a validation, labelled with its step, from the base on the left. Ring: the step whose weights are in "
    "model/. Dashed: the base. Where the reward rises to the right and the measure does not, training "
    "optimises the reward and no longer the plans."
)


def write_validation_page(run: Path) -> Path:
    """Write the page of a run's `validation.jsonl` beside it; raises InputError where it has no row yet."""
    rows = [found for _, found in read_jsonl(run / DATA)]
    record = read_json(run / "run.json") if (run / "run.json").is_file() else {}
    write_text(
        run / PAGE, render_validation(rows, record.get("notes", []), run.resolve().name, record.get("stage", ""))
    )
    return run / PAGE


def render_validation(rows: Sequence[dict[str, Any]], notes: Sequence[str], name: str, stage: str) -> str:
    """The whole page; the same rows give the same page."""
    chosen = chosen_row(rows)
    svg = inline_svg(validation_figure(rows), "validation", escape(_CAPTION))
    found = notes or (f"Best so far: step {chosen['step']}. The run is not finished.",)
    sections = [
        Section("curve", "Reward and measure against drift", "Curve", blocks=(Figure(svg, _CAPTION),)),
        Section("steps", "The validations", "Validations", blocks=(validation_table(rows),)),
    ]
    page = page_environment("recipe.experiments").get_template("validation.html.jinja")
    style = Markup(template("recipe.report", "page.css"))
    return page.render(name=name, stage=stage, found=found, sections=sections, style=style)


def chosen_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The row of the step that validation chooses: the highest measure, the earliest of equals."""
    return max(rows, key=lambda found: float(found[found["measure"]]))


@mpl.rc_context(STYLE)
def validation_figure(rows: Sequence[dict[str, Any]]) -> Drawing:
    """The reward and the named measure against the root of KL, one panel each; one where the measure is the reward."""
    measure = rows[0]["measure"]
    shown = [("reward", VERMILION)] + ([(measure, BLUE)] if measure != "reward" else [])
    figure = new_figure(7.6, 3.1, gap=0.08)
    panels: Sequence[Axes] = figure.subplots(1, len(shown), squeeze=False)[0]
    for (name, colour), panel in zip(shown, panels, strict=True):
        drift, values = [math.sqrt(max(0.0, one["kl_plan"])) for one in rows], [one[name] for one in rows]
        panel.plot(drift, values, "-", color=colour, linewidth=1, alpha=0.45)
        panel.plot(drift, values, "o", color=colour, markersize=5)
        panel.axhline(values[0], color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
        place = rows.index(chosen_row(rows))
        panel.plot(
            drift[place], values[place], "o", color=GREEN, markersize=12, markerfacecolor="none", markeredgewidth=2
        )
        for across, up, one in zip(drift, values, rows, strict=True):
            panel.annotate(
                str(one["step"]), (across, up), (0, 9), textcoords="offset points", ha="center", color=INK, fontsize=8
            )
        panel.set_title(NAMES.get(name, name))
        panel.set_xlabel("root of the KL of a plan, √nats")
        panel.margins(x=0.08, y=0.2)
        panel.locator_params(nbins=5)
    return figure


def validation_table(rows: Sequence[dict[str, Any]]) -> Table:
    """One row a validation."""
    measure, chosen = rows[0]["measure"], chosen_row(rows)
    named = () if measure == "reward" else (NAMES.get(measure, measure),)
    lines = []
    for one in rows:
        gain = None if one["gain"] is None else Interval(*one["gain"])
        values = [Cell(one["kl_plan"], 2), Cell(one["reward"], 3), *([] if not named else [Cell(one[measure], 3)])]
        label = "base" if one["step"] == 0 else f"step {one['step']}"
        about = "chosen" if one is chosen else ""
        lines.append(row(label, *values, Cell(gain, 3, signed=True), Cell(one["steps"], 1), about=about))
    return Table(
        f"{len(rows[0]['prompts'])} prompts, {rows[0]['plans']:,} plans each time",
        "policy",
        headings("KL, nats a plan", "reward", *named, "gain over the base", "steps in a plan"),
        tuple(lines),
        notes=(
            "Gain: paired by prompt, 95% interval by goal. It is not corrected for choosing the highest of several.",
        ),
    )
