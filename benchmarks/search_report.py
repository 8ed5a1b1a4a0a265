"""The result of search.py as a table and as a picture."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

Result = dict[str, Any]
TASKS = {"one_ms": "one query", "batch64_ms": "64 queries", "shared64_ms": "16 histories x 4"}
CERTIFIED = "recipe int8, certified"
OURS, THEIRS, LIMIT = "#0072b2", "#b9bec4", "#d55e00"


def systems(result: Result) -> dict[str, Result]:
    """The entries of a result that are systems: the certified search, the rest of ours, the peers, each by its time."""
    rows = [(name, row) for name, row in result.items() if isinstance(row, dict) and "recall" in row]
    return dict(sorted(rows, key=lambda pair: (pair[0] != CERTIFIED, not ours(pair[0]), pair[1]["batch64_ms"])))


def ours(name: str) -> bool:
    """True for the systems of this project."""
    return name.startswith("recipe")


def table(result: Result) -> str:
    """One line a system: times, how many times ours is faster, recall and size."""
    corpus = result["corpus"]
    titles = "".join(f"{title:>18}" for title in TASKS.values())
    lines = [
        "{narrations:,} narrations, {segments:,} segments, d = {dimension}, encoder {encoder}".format(**corpus),
        f"{'median ms':30}{titles}{'x one':>8}{'x 64':>8}{'recall':>8}{'GB':>7}",
    ]
    for name, row in systems(result).items():
        times = "".join(f"{row[task]:18,.1f}" for task in TASKS)
        ratios = f"{row['ratio_one']:8.1f}{row['ratio_64']:8.1f}"
        lines.append(f"{name:30}{times}{ratios}{row['recall']:8.3f}{row['bytes'] / 1e9:7.2f}")
    certificate = result["certificate"]
    lines.append(
        "certified answers equal to float64 in set and order: {same_set_and_order} of {queries}; "
        "re-scored a query: median {survivors_median:g}, most {survivors_most:g}".format(**certificate)
    )
    return "\n".join(lines)


def limits(result: Result) -> str:
    """The machine's limits, and how near to them ours comes."""
    lines = [f"{name:56}{value:9.1f}" for name, value in result["limits"].items()]
    lines += [f"{name:56}{value:9.1%}" for name, value in result["shares"].items()]
    return "\n".join(lines)


def plot(result: Result, target: Path) -> None:
    """Bars of time on a logarithmic axis, one query and the batch, with ratio and recall; a row of them a corpus."""
    parts = [part for part in (result, result.get("real")) if part]
    figure = plt.figure(figsize=(11, 3.6 * len(parts)), layout="constrained")
    for rows, part in zip(figure.subfigures(len(parts), 1, squeeze=False)[:, 0], parts, strict=True):
        axes = rows.subplots(1, 2, sharey=True)
        for axis, task, ratio in zip(axes, ("one_ms", "batch64_ms"), ("ratio_one", "ratio_64"), strict=True):
            _bars(axis, systems(part), task, ratio)
            axis.set_title(TASKS[task], loc="left", fontsize=10, pad=16)
            if floor := part.get("floors", {}).get(task):
                axis.axvline(floor, color=LIMIT, linestyle="--", linewidth=1.2, zorder=0.5)
                axis.text(floor, -0.7, f"{part['floors'][task + '_is']}: {duration(floor)}", color=LIMIT, fontsize=8)
        axes[0].set_yticks(range(len(systems(part))), list(systems(part)))
        axes[0].invert_yaxis()
        words = "{narrations:,} narrations, {segments:,} segments, d = {dimension:,}, encoder {encoder}"
        rows.suptitle(words.format(**part["corpus"]), x=0.01, ha="left", fontsize=11, fontweight="bold")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=160)
    plt.close(figure)


def _bars(axis: Axes, rows: dict[str, Result], task: str, ratio: str) -> None:
    times = [row[task] for row in rows.values()]
    colours = [OURS if ours(name) else THEIRS for name in rows]
    axis.barh(range(len(rows)), times, color=colours, height=0.62)
    axis.set_xscale("log")
    axis.set_xlim(min(times) / 4, max(times) * 80)
    axis.set_xlabel("milliseconds, median")
    axis.spines[["top", "right"]].set_visible(False)
    for place, row in enumerate(rows.values()):
        slower = "" if place == 0 else f"{row[ratio]:{'.0f' if row[ratio] > 99 else '.2g'}} times, "
        label = f"{duration(row[task])}, {slower}recall {row['recall']:.3f}"
        axis.text(
            row[task] * 1.25, place, label, va="center", fontsize=8, bbox={"fc": "white", "ec": "none", "pad": 0.8}
        )


def duration(milliseconds: float) -> str:
    """In words, three digits."""
    return f"{milliseconds:.3g} ms" if milliseconds < 999.5 else f"{milliseconds / 1e3:.3g} s"
