"""`recipe reward watch`: what recorded completions say of a training run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from recipe.cli.console import out, print_json

if TYPE_CHECKING:
    from recipe.reward.watchdog import Reading

ROWS = 16
"""Rows that the curve is shown in, at most."""
COLUMNS = {
    "length": "steps",
    "reward": "reward",
    "length_pay": "with length",
    "copied": "copied",
    "repeated": "repeated",
    "gated": "gated",
    "still": "all equal",
    "clipped": "cut",
}
"""Readings that are shown, with their headings."""
NUMBERS = {"length": "{:.1f}", "reward": "{:.3f}", "length_pay": "{:+.2f}"}
"""Formats of those that are no shares."""


def watch(
    records: Annotated[
        Path,
        typer.Argument(metavar="RUN_DIR", help="Run folder, folder of JSON-lines files, or one such file."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Replay a run's completions: plan length, copies, repeats, reward, and what to worry about.

    Any trainer's records will do: JSON lines {"step", "goal", "history": [...], "completion", "reward"}.

    Example: recipe reward watch runs/demo/grpo
    """
    from recipe.reward.watchdog import read_records, replay

    watchdog = replay(read_records(records))
    findings = watchdog.findings
    if as_json:
        curve = [reading._asdict() for reading in watchdog.readings]
        print_json({"steps": curve, "findings": [finding._asdict() for finding in findings]})
        return
    out.print(_curve(watchdog.readings))
    for finding in findings:
        ended = "" if finding.until is None else f" (until step {finding.until})"
        out.print(f"- {finding.sentence}{ended}", highlight=False, markup=False)
    if not findings:
        out.print(f"Nothing to worry about in {len(watchdog.readings)} steps.", highlight=False)


def _curve(readings: "list[Reading]") -> Table:
    """Means over stretches of steps of equal length."""
    table = Table("step", box=None, padding=(0, 1))
    for heading in COLUMNS.values():
        table.add_column(heading, justify="right")
    size = -(-len(readings) // ROWS)
    for start in range(0, len(readings), size):
        stretch = readings[start : start + size]
        first, last = stretch[0].step, stretch[-1].step
        table.add_row(str(first) if first == last else f"{first}-{last}", *(_cell(stretch, name) for name in COLUMNS))
    return table


def _cell(stretch: "list[Reading]", name: str) -> str:
    values: list[Any] = [value for reading in stretch if (value := getattr(reading, name)) is not None]
    if not values:
        return "-"
    mean = sum(values) / len(values)
    return NUMBERS[name].format(mean) if name in NUMBERS else f"{100 * mean:.0f}%"
