"""Validations of training runs: reward and measure against the root of KL, and the chosen step; of one run as a page.

Gao, Schulman and Hilton, Scaling laws for reward model overoptimization, 2023: both rise with the root of the KL
divergence at first; where the reward goes on rising and the measure falls, the policy optimises the reward only.
"""

from pathlib import Path

from recipe.artifacts import read_json, read_jsonl, write_text
from recipe.report.elements import Cell, Figure, Section, Table, headings, row
from recipe.report.page import render
from recipe.report.plots import inline_svg
from recipe.stats import Interval
from recipe_studies.experiments.plots import validation_figure
from recipe_studies.experiments.results import NAMES, Validated, ValidationCurve

DATA, PAGE = "validation.jsonl", "validation.html"
CAPTION = (
    "One point a validation, labelled with its step or round, from the base on the left. Ring: the one whose weights "
    "are in model/. Dashed: the base. Where the reward rises to the right and the measure does not, training "
    "optimises the reward and no longer the plans."
)


def write_validation_page(run: Path) -> Path:
    """Write the page of a run's `validation.jsonl` beside it; raises InputError where it has no row yet."""
    curve = read_validations(run, run.resolve().name)
    record = read_json(run / "run.json") if (run / "run.json").is_file() else {}
    svg = inline_svg(validation_figure([curve]), "validation", CAPTION)
    findings = record.get("notes") or [f"Best so far: {curve.unit} {curve.chosen.step}. The run is not finished."]
    sections = [
        Section("curve", "Reward and measure against drift", "Curve", blocks=(Figure(svg, CAPTION),)),
        Section("steps", "The validations", "Validations", blocks=(validation_table(curve),)),
    ]
    subtitle = f"recipe train {record['stage']}" if record.get("stage") else ""
    write_text(run / PAGE, render(f"Validation of {curve.regime}", subtitle, findings, sections))
    return run / PAGE


def read_validations(run: Path, regime: str, seed: int | None = None) -> ValidationCurve:
    """The validations of a training run; raises InputError where it has none yet."""
    rows = [row for _, row in read_jsonl(run / DATA)]
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
