"""Validations of training runs: reward and measure against the root of KL, and the chosen step; of one run as a page.

Gao, Schulman and Hilton, Scaling laws for reward model overoptimization, 2023: both rise with the root of the KL
divergence at first; where the reward goes on rising and the measure falls, the policy optimises the reward only.
"""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from recipe.artifacts import read_json, read_jsonl, write_text
from recipe.errors import MissingExtra
from recipe.evaluation.metrics import METRICS, regime_colours
from recipe.report.colours import BLUE, INK, MUTED, VERMILION
from recipe.report.elements import Cell, Figure, Section, Table, headings, row
from recipe.report.html import page_environment, template
from recipe.report.plots import STYLE, inline_svg, new_figure
from recipe.stats import Interval
from recipe_studies.experiments.results import Validated, ValidationCurve

try:
    import matplotlib as mpl
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
except ModuleNotFoundError as error:
    raise MissingExtra("the validation page", "report") from error

DATA, PAGE = "validation.jsonl", "validation.html"
NAMES = METRICS | {"validity": "validity", "proxy": "proxy judge, share of the total"}
CAPTION = (
    "One point a validation, labelled with its step or round, from the base on the left. Ring: the one whose weights "
    "are in model/. Dashed: the base. Where the reward rises to the right and the measure does not, training "
    "optimises the reward and no longer the plans."
)
DRIFT = "root of the KL of a plan, √nats"


def write_validation_page(run: Path) -> Path:
    """Write the page of a run's `validation.jsonl` beside it; raises InputError where it has no row yet."""
    name = run.resolve().name
    curve = read_validations(run, name)
    record = read_json(run / "run.json") if (run / "run.json").is_file() else {}
    write_text(run / PAGE, render_validation(curve, record.get("notes", []), record.get("stage", "")))
    return run / PAGE


def read_validations(run: Path, regime: str, seed: int | None = None) -> ValidationCurve:
    """The validations of a training run; raises InputError where it has none yet."""
    rows = [found for _, found in read_jsonl(run / DATA)]
    points = (
        Validated(
            row["step"],
            row["kl_plan"],
            row["reward"],
            row[row["measure"]],
            row["steps"],
            None if row["gain"] is None else Interval(*row["gain"]),
        )
        for row in rows
    )
    record = read_json(run / "run.json") if (run / "run.json").is_file() else {}
    return ValidationCurve(
        regime,
        rows[0]["measure"],
        tuple(points),
        len(rows[0]["prompts"]),
        rows[0]["plans"],
        "round" if record.get("stage") == "best-of-n" else "step",
        seed,
    )


def render_validation(curve: ValidationCurve, notes: Sequence[str], stage: str) -> str:
    """The page of one run; the same validations give the same page."""
    svg = inline_svg(validation_figure([curve]), "validation", escape(CAPTION))
    found = notes or (f"Best so far: {curve.unit} {curve.chosen.step}. The run is not finished.",)
    sections = [
        Section("curve", "Reward and measure against drift", "Curve", blocks=(Figure(svg, CAPTION),)),
        Section("steps", "The validations", "Validations", blocks=(validation_table(curve),)),
    ]
    page = page_environment("recipe_studies.experiments").get_template("validation.html.jinja")
    style = Markup(template("recipe.report", "page.css"))
    return page.render(name=curve.regime, stage=stage, found=found, sections=sections, style=style)


@mpl.rc_context(STYLE)
def validation_figure(curves: Sequence[ValidationCurve]) -> Drawing:
    """The measure of all runs against the root of KL in one panel, and each run's reward in a panel of its own."""
    measure = curves[0].measure
    colours = regime_colours(curve.regime for curve in curves) if len(curves) > 1 else {curves[0].regime: VERMILION}
    figure = new_figure(7.6, 3.1, gap=0.08)
    panels: list[Axes] = list(figure.subplots(1, len(curves) + (measure != "reward"), squeeze=False)[0])
    for curve in curves:
        if measure != "reward":
            draw_drift(panels[0], curve, colours[curve.regime] if len(curves) > 1 else BLUE)
            panels[0].set_title(NAMES.get(measure, measure))
        own = panels[curves.index(curve) + (measure != "reward")]
        draw_drift(own, curve, colours[curve.regime], [point.reward for point in curve.points])
        own.set_title(f"reward of {curve.regime}" if len(curves) > 1 else "reward")
    for panel in panels:
        panel.set_xlabel(DRIFT)
    return figure


def draw_drift(
    panel: Axes, curve: ValidationCurve, colour: str, values: Sequence[float] | None = None, *, steps: bool = True
) -> None:
    """A run's values, by default its measure, against the root of KL: a point a validation, the chosen one ringed.

    `steps` labels the points with their steps.
    """
    values = [point.measured for point in curve.points] if values is None else values
    drift = [math.sqrt(max(0.0, point.kl)) for point in curve.points]
    panel.plot(drift, values, "-", color=colour, linewidth=1, alpha=0.45)
    panel.plot(drift, values, "o", color=colour, markersize=5)
    panel.axhline(values[0], color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    place = curve.points.index(curve.chosen)
    panel.plot(drift[place], values[place], "o", color=colour, markersize=12, markerfacecolor="none", markeredgewidth=2)
    for across, up, point in zip(drift, values, curve.points, strict=True):
        if steps:
            panel.annotate(
                str(point.step), (across, up), (0, 9), textcoords="offset points", ha="center", color=INK, fontsize=8
            )
    panel.margins(x=0.08, y=0.2)
    panel.locator_params(nbins=5)


def validation_table(curve: ValidationCurve) -> Table:
    """One row a validation."""
    named = () if curve.measure == "reward" else (NAMES.get(curve.measure, curve.measure),)
    lines = []
    for point in curve.points:
        values = [Cell(point.kl, 2), Cell(point.reward, 3), *([Cell(point.measured, 3)] if named else [])]
        label = "base" if point.step == 0 else f"{curve.unit} {point.step}"
        about = "chosen" if point is curve.chosen else ""
        lines.append(row(label, *values, Cell(point.gain, 3, signed=True), Cell(point.length, 1), about=about))
    return Table(
        f"{curve.prompts} prompts, {curve.plans:,} plans each time",
        "policy",
        headings("KL, nats a plan", "reward", *named, "gain over the base", "steps in a plan"),
        tuple(lines),
        notes=(
            "Gain: paired by prompt, 95% interval by goal. It is not corrected for choosing the highest of several.",
        ),
    )
