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
        f"{title}: {found['ms_a_search']:.1f} ms, {found['ns_per_segment']:.2f} ns a segment and "
        f"{found['ns_per_segment_and_dimension']:.4f} ns for each of its dimensions (within "
        f"{found['largest_deviation']:.0%}); 25 million segments of 1,024 dimensions: "
        f"{found['goal_ms'] / 1e3:.2f} s here, {result['h200_at_its_limits'][task]:.1f} ms on one H200 at its limits"
    )


def _line(row: Result) -> str:
    return (
        f"{row['narrations']:12,}{row['segments']:12,}{row['dimension']:6}{row['codes_gb']:10.3f}{row['open_s']:8.3f}"
        f"{row['one_ms']:12.1f}{row['batch64_ms']:10.1f}{row['survivors']:11g}{row['peak_rss_gb']:8.2f}{row['peak_own_gb']:8.2f}"
    )


def plot(result: Result, target: Path) -> None:
    """Time of one query and of the batch over the number of segments, and memory beside it."""
    figure, (times, memory) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for marker, rows in zip("os^", _by_dimension(result["rows"]), strict=False):
        size = [row["segments"] / 1e6 for row in rows]
        dimension = f"d = {rows[0]['dimension']:,}"
        for colour, (task, (title, key)) in zip(COLOURS, TASKS.items(), strict=True):
            times.plot(size, [row[task] for row in rows], marker, color=colour, label=f"{title}, {dimension}")
            _fitted(times, result[key], rows[0]["dimension"], colour)
        for colour, kind, words in (
            ("#555555", "peak_rss_gb", "with mapped files"),
            ("#009e73", "peak_own_gb", "its own"),
        ):
            line = "-" if len(rows) > 1 else ""
            memory.plot(size, [row[kind] for row in rows], line + marker, color=colour, label=f"{words}, {dimension}")
    times.set(ylabel="milliseconds, best run")
    times.set_title("Time is linear in segments and dimensions (lines: the fit)", loc="left", fontsize=11)
    memory.set(ylabel="GB at the peak", ylim=(0.05, 20))
    memory.set_title("Memory: vectors are mapped, not loaded", loc="left", fontsize=11)
    for axis in (times, memory):
        axis.set(xscale="log", yscale="log", xlabel="million segments")
        axis.xaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_major_formatter("{x:,g}")
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8, ncols=2)
    times.set_ylim(top=times.get_ylim()[1] * 10)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=160)
    plt.close(figure)


def _by_dimension(rows: list[Result]) -> list[list[Result]]:
    return [
        [row for row in rows if row["dimension"] == dimension]
        for dimension in sorted({row["dimension"] for row in rows})
    ]


def _fitted(axis: Axes, found: Result, dimension: int, colour: str) -> None:
    """The fitted cost of one dimension as a line."""
    ends = [0.2, 30.0]
    cost = found["ns_per_segment"] + dimension * found["ns_per_segment_and_dimension"]
    axis.plot(ends, [found["ms_a_search"] + cost * million for million in ends], color=colour, linewidth=0.8, alpha=0.6)
