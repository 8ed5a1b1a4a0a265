"""The page of a training run's validations: reward and measure step by step, and the step that is kept."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from recipe.artifacts import JsonObject, read_json, read_jsonl, write_text
from recipe.errors import InputError, MissingExtra
from recipe.report.colours import BLUE, VERMILION
from recipe.report.elements import Cell, Figure, Section, Table, headings, row
from recipe.report.page import render
from recipe.report.plots import Line, curves, inline_svg
from recipe.stats import Interval

try:
    from matplotlib.figure import Figure as Drawing
    from matplotlib.ticker import MaxNLocator
except ModuleNotFoundError as error:
    raise MissingExtra("the page of validations", "report") from error

DATA, PAGE = "validation.jsonl", "validation.html"
NAMES = {"matched_f1": "matched step F1", "proxy": "proxy judge, share of the total"}
"""Measures that validation chooses by, in words; others are called by their keys."""
CAPTION = "Means over the validation prompts. Dashed: the base. Diamond: the step or round that is kept."
Row = Mapping[str, Any]


def read_validations(run: Path) -> tuple[list[Row], JsonObject, Literal["step", "round"]]:
    """The validations of a run in order, its record, and what is counted between them.

    Raises InputError where none is there yet.
    """
    if (run / DATA).is_file() and not (run / DATA).stat().st_size:
        raise InputError.at(run / DATA, "the run has not validated yet", "wait until the base is validated")
    rows: list[Row] = [line for _, line in read_jsonl(run / DATA)]
    record = read_json(run / "run.json") if (run / "run.json").is_file() else {}
    return rows, record, "round" if record.get("stage") == "best-of-n" else "step"


def write_validation_page(run: Path) -> Path:
    """Write the page of a run's `validation.jsonl` next to that file, even while the run goes on.

    Raises InputError if there is no validation yet.
    """
    rows, record, unit = read_validations(run)
    measure = rows[0]["measure"]
    kept = max(rows, key=lambda line: line[measure])  # the earliest of equals
    findings = record.get("notes") or [f"Best so far: {unit} {kept['step']}. The run is not finished."]
    svg = inline_svg(_validation_figure(rows, kept, unit), "validation", CAPTION)
    title = f"Validation by {unit}"
    section = Section("curve", title, title, blocks=(Figure(svg, CAPTION), _validation_table(rows, kept, unit)))
    subtitle = f"recipe train {record['stage']}" if record.get("stage") else ""
    write_text(run / PAGE, render(f"Validation of {run.resolve().name}", subtitle, findings, [section]))
    return run / PAGE


def _validation_figure(rows: Sequence[Row], kept: Row, unit: str) -> Drawing:
    """The reward and the measure over training, one panel each."""
    lines, levels = [], {}
    for name in dict.fromkeys(("reward", rows[0]["measure"])):
        panel = NAMES.get(name, name)
        lines.append(Line(panel, "validated", [line["step"] for line in rows], [line[name] for line in rows]))
        lines.append(Line(panel, "kept", [kept["step"]], [kept[name]], hollow=True))
        levels[panel] = [("base", rows[0][name])]
    figure = curves(lines, colours={"validated": BLUE, "kept": VERMILION}, xlabel=unit, levels=levels)
    for axes in figure.axes:
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    return figure


def _validation_table(rows: Sequence[Row], kept: Row, unit: str) -> Table:
    """One row a validation."""
    measure = rows[0]["measure"]
    named = [] if measure == "reward" else [measure]
    lines = []
    for line in rows:
        label = "base" if line["step"] == 0 else f"{unit} {line['step']}"
        gain = None if line["gain"] is None else Interval(*line["gain"])
        values = [Cell(line["reward"], 3), *(Cell(line[name], 3) for name in named), Cell(gain, 3, signed=True)]
        values += [Cell(line["steps"], 1), Cell(line["kl_plan"], 2)]
        lines.append(row(label, *values, about="kept" if line is kept else ""))
    names: list[str] = [NAMES.get(name, name) for name in named]
    return Table(
        f"{len(rows[0]['prompts'])} prompts, {rows[0]['plans']:,} plans each time",
        "policy",
        headings("reward", *names, "gain over the base", "steps in a plan", "KL, nats a plan"),
        tuple(lines),
        notes=(
            "Gain: paired by prompt, 95% interval by goal. It is not corrected for choosing the highest of several.",
        ),
    )
