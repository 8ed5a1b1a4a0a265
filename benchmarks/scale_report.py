"""The result of scale.py as text and as a picture."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

Result = dict[str, Any]
TASKS = {"one_ms": ("one query", "one_query"), "batch64_ms": ("64 queries", "batch64")}
COLOURS = ("#0072b2", "#d55e00")


def report(result: Result) -> str:
    """All figures, a line each."""
    lines = [
        f"{'narrations':>12}{'segments':>12}{'d':>6}{'codes GB':>10}{'open s':>8}{'1 query ms':>12}{'64 ms':>10}"
        f"{'survivors':>11}{'RSS GB':>8}{'own GB':>8}"
    ]
    lines += [_line(row) for row in result["rows"]]
    for name, build in result["builds"].items():
        lines.append(f"build of the {name} corpus: {build['seconds']:.0f} s, peak RSS {build['peak_rss_gb']:.2f} GB")
    return "\n".join([*lines, _limited(result["limited"]), *(_cost(result, task) for task in TASKS)])


def _limited(row: Result) -> str:
    whole = row["codes_gb"] + row["originals_gb"]
    return (
        f"within {row['limit_gb']:.2f} GB of memory, {whole / row['limit_gb']:.2f} times as much to search, not in the "
        f"page cache: {'the same answers' if row['same_answers'] else 'OTHER ANSWERS'} "
        f"({'streamed' if row['streamed'] else 'mapped'}); first query {row['first_ms']:,.0f} ms, "
        f"then {row['one_ms']:,.0f} ms; 64 queries {row['batch64_ms']:,.0f} ms; peak RSS {row['peak_rss_gb']:.2f} GB"
    )


def _cost(result: Result, task: str) -> str:
    title, key = TASKS[task]
    found = result[key]
    return (
        f"{title}: {found['ns_per_segment']:.2f} ns a segment, {found['ns_per_segment_and_dimension']:.4f} ns more for "
        f"each of its dimensions (within {found['largest_deviation']:.0%}); 25 million segments of 1,024 dimensions: "
        f"{found['goal_ms'] / 1e3:.2f} s here, {result['h200_at_its_limits'][task]:.1f} ms on one H200 at its limits"
    )


def _line(row: Result) -> str:
    return (
        f"{row['narrations']:12,}{row['segments']:12,}{row['dimension']:6}{row['codes_gb']:10.3f}{row['open_s']:8.3f}"
        f"{row['one_ms']:12.1f}{row['batch64_ms']:10.1f}{row['survivors']:11g}{row['peak_rss_gb']:8.2f}{row['peak_own_gb']:8.2f}"
    )


def plot(result: Result, target: Path) -> None:
    """Time of one query and of the batch over the size of the codes, and memory beside it."""
    figure, (times, memory) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    groups = _by_dimension(result["rows"])
    for colour, (task, (title, key)) in zip(COLOURS, TASKS.items(), strict=True):
        for marker, (dimension, rows) in zip("os", groups.items(), strict=False):
            sizes = [row["codes_gb"] for row in rows]
            times.plot(sizes, [row[task] for row in rows], marker, color=colour, label=f"{title}, d = {dimension}")
            _fitted(times, result[key], rows, colour)
    times.set_ylabel("milliseconds, median")
    times.set_title("Time grows linearly", loc="left", fontsize=11)
    ordered = sorted(result["rows"], key=lambda row: row["codes_gb"])
    sizes = [row["codes_gb"] for row in ordered]
    memory.plot(
        sizes, [row["peak_rss_gb"] for row in ordered], "o-", color="#555555", label="resident, mapped files included"
    )
    memory.plot(sizes, [row["peak_own_gb"] for row in ordered], "s-", color="#009e73", label="of the process's own")
    memory.set_ylabel("GB at the peak")
    memory.set_title("Memory: the codes are mapped, not loaded", loc="left", fontsize=11)
    for axis in (times, memory):
        axis.set(xscale="log", yscale="log", xlabel="GB of codes")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=160)
    plt.close(figure)


def _by_dimension(rows: list[Result]) -> dict[int, list[Result]]:
    return {d: [row for row in rows if row["dimension"] == d] for d in sorted({row["dimension"] for row in rows})[::-1]}


def _fitted(axis: Axes, found: Result, rows: list[Result], colour: str) -> None:
    """The fitted cost as a line through the sizes of one dimension."""
    nanoseconds = [
        row["segments"] * found["ns_per_segment"] + row["codes_gb"] * 1e9 * found["ns_per_segment_and_dimension"]
        for row in rows
    ]
    axis.plot([row["codes_gb"] for row in rows], [value / 1e6 for value in nanoseconds], color=colour, linewidth=1)
