"""Verify or label: what the same corpus is worth to either, by how near its narrations are to lists of steps.

    python benchmarks/crossing.py RUNS [--seeds 0 1 2] [--cleaned 0 0.3 0.6 1] [--set KEY=VALUE] [--controls RUNS]
                                  [--earlier RESULT.json]

`configs/crossing.toml` runs for each seed, which is a base with data and errors of its own, and for each value of
`source.clean`, in RUNS/clean-VALUE-seed-SEED; finished runs are kept. Those of `configs/controls.toml`, where
--controls names their folder, hold what such runs at 0 have, and stand in their place. --earlier names a result of the
same study with other seeds: its bases stand in the new one, with their commit and machine.
Means over bases with 95% intervals by Student's t; a base's value is its mean over prompts. Differences are of a base's
own means. The corpora are told apart by the share of lines that are a step of the goal as an annotator writes it.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from common import ROOT, add_json, figure, gain, picture, table, write_result
from comparison import over_bases, student_t

from recipe.artifacts import atomic_path, fingerprint, read_jsonl, to_json
from recipe.progress import SILENT
from recipe.report.colours import BLUE, DARK_GREY, GREEN, VERMILION
from recipe.report.plots import STYLE, new_figure
from recipe.stats import Interval
from recipe.world.load import load_world
from recipe_studies.experiments.expand import run_experiment
from recipe_studies.experiments.results import SPLITS, Results, load_results
from recipe_studies.experiments.settings import load_experiment
from recipe_studies.experiments.study import BASE, COPIES, GREEDY, LABELS, NARRATIONS

CONFIG = ROOT / "configs" / "crossing.toml"
MAIN, BY_LABELS = "trained on grounded", "trained on consensus labels"
BEST, BEST_R0 = "best of 8, grounded", "best of 8, R0"
REGIMES = (BASE, f"{BASE}{GREEDY}", COPIES.regime, LABELS.regime, f"{BY_LABELS}{GREEDY}", BEST_R0, BEST, MAIN,
           f"{MAIN}{GREEDY}", f"{MAIN}, best of 8", f"SFT{GREEDY}")  # fmt: skip
VERIFIED, LABELLED = (
    (f"{MAIN}{GREEDY}", f"{MAIN}, best of 8", BEST),
    (LABELS.regime, f"{BY_LABELS}{GREEDY}", COPIES.regime),
)
DRAWN = {
    f"{MAIN}{GREEDY}": ("verify: trained on grounded, greedy", GREEN, "o"),
    LABELS.regime: ("label: what narrations agree on", VERMILION, "s"),
    COPIES.regime: ("copy the nearest narration", BLUE, "D"),
    f"{BASE}{GREEDY}": ("base, greedy", DARK_GREY, "^"),
}
"""Regimes of the picture, each with its name, colour and mark."""


def means(results: Results, split: str) -> dict[str, float]:
    """The mean validity of each regime."""
    return {row.regime: row.metrics["score"].mean for row in results.scores if row.split == split}


def tables_of(split: str, means: Mapping[str, Any], differences: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tables of a page: of the first kind of prompts with differences, without those of what labels trained."""
    first = split == SPLITS["test_cuts"]
    rows = {
        regime: {column: figure(value) for column, value in row.items()}
        for regime, row in means.items()
        if first or regime in (f"{BASE}{GREEDY}", LABELS.regime, COPIES.regime, *VERIFIED)
    }
    gaps = {
        name: {column: gain(value) for column, value in row.items()}
        for name, row in differences.items()
        if BY_LABELS not in name
    }
    return [table(rows, "plans", split), *([table(gaps, "verify − label")] * first)]


def with_earlier(earlier: Mapping[str, Any] | None, bases: int, values: Sequence[float]) -> Interval:
    """The mean with its 95% interval over the bases of an earlier interval and those of `values`.

    The earlier bases' own values are not needed: their mean and the width of their interval give their sum and their
    sum of squares.
    """
    if earlier is None:
        return over_bases(values)
    error = (earlier["high"] - earlier["low"]) / 2 / student_t(bases)
    count = bases + len(values)
    mean = (bases * earlier["mean"] + sum(values)) / count
    # Deviations from the common mean: those within the earlier bases, of their mean, and of each new base.
    squares = bases * (bases - 1) * error**2 + bases * (earlier["mean"] - mean) ** 2
    squares += sum((value - mean) ** 2 for value in values)
    half = student_t(count) * sqrt(squares / (count - 1) / count)
    return Interval(mean, mean - half, mean + half)


def plain_lines(run: Path) -> float:
    """The share of the narrations' lines that are a step of their goal as an annotator writes it."""
    world, plain = load_world(), []
    for _, row in read_jsonl(run / NARRATIONS):
        steps = {text for step in world.graph(row["title"]).steps for text in world.wordings[step]}
        plain += [segment["text"] in steps for segment in row["segments"]]
    return fmean(plain)


@mpl.rc_context(STYLE | {"svg.fonttype": "path"})
def draw(columns: Mapping[float, Mapping[str, Interval]], target: Path) -> str:
    """Validity against the share of plain lines, a line for each regime of `DRAWN`; returns a hash of what is shown."""
    drawing = new_figure(6.4, 3.4)
    panel = drawing.subplots()
    for regime, (name, colour, mark) in DRAWN.items():
        own = [rows[regime] for rows in columns.values()]
        ends = [[value.mean - (value.low or value.mean), (value.high or value.mean) - value.mean] for value in own]
        panel.errorbar(
            [100 * share for share in columns], [value.mean for value in own], list(zip(*ends, strict=True)),
            color=colour, marker=mark, capsize=3, label=name,
        )  # fmt: skip
    panel.set_xlabel("lines of the corpus that are plain steps, percent")
    panel.set_title("exact validity of plans; 95% intervals over bases")
    panel.legend(frameon=False, fontsize=8.5)
    drawing.set_facecolor("white")
    with atomic_path(target) as partial:
        name = fingerprint(to_json(columns))
        drawing.savefig(partial, format="svg", facecolor="white", metadata={"Date": None, "Description": name})
    return name


def main() -> None:
    """Run what is missing, print the tables and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cleaned", type=float, nargs="+", default=[0, 0.3, 0.6, 1])
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--title", default="Verify or label", help="of the result")
    parser.add_argument("--controls", type=Path, help="runs of configs/controls.toml")
    parser.add_argument("--earlier", type=Path, metavar="RESULT.json")
    parser.add_argument("--figure", type=Path, help="an SVG")
    parser.add_argument("--quick", action="store_true", help="a fraction of the work, which proves nothing")
    add_json(parser, "studies-crossing")
    asked = parser.parse_args()
    earlier = json.loads(asked.earlier.read_text(encoding="utf-8")) if asked.earlier else None
    before = len(earlier["values"]["seeds"]) if earlier else 0
    shares: dict[float, float] = {}
    studies: dict[float, list[Results]] = {}
    for cleaned in sorted(asked.cleaned):
        plain = []
        for seed in asked.seeds:
            run = asked.runs / f"clean-{cleaned:g}-seed-{seed}"
            if cleaned == 0 and asked.controls is not None:
                run = asked.controls / f"seed-{seed}"
            else:
                changes = [*asked.changes, f"seed={seed}", f"source.clean={cleaned:g}"]
                run_experiment(load_experiment(CONFIG, quick=asked.quick, changes=changes), run, None, SILENT)
            studies.setdefault(cleaned, []).append(load_results(run / "report.json"))
            plain.append(plain_lines(run))
            print(f"{cleaned:g}, seed {seed}: {run / 'report.html'}", flush=True)
        shares[cleaned] = fmean(plain)
        if earlier:
            own_share = earlier["values"]["plain lines"][f"{cleaned:g}"]
            shares[cleaned] = (before * own_share + sum(plain)) / (before + len(plain))
    seeds = [*(earlier["values"]["seeds"] if earlier else []), *asked.seeds]
    if earlier and {float(share) for share in earlier["values"]["plain lines"]} != {*shares}:
        parser.error(f"{asked.earlier} has other shares than --cleaned {asked.cleaned}")
    if len({*seeds}) < len(seeds):
        parser.error(f"{asked.earlier} holds one of the seeds {asked.seeds}: give others")
    values: dict[str, Any] = {
        "seeds": seeds,
        "plain lines": {f"{cleaned:g}": share for cleaned, share in shares.items()},
    }
    body: list[Any] = [
        "Exact validity of plans. A column is a corpus, named by the share of its lines that are plain steps; "
        f"{len(seeds)} bases, 95% intervals over bases. No setting was chosen on these goals."
    ]
    for split in studies[min(studies)][0].splits():
        own = {cleaned: [means(results, split) for results in runs] for cleaned, runs in studies.items()}
        where = "" if split == "test_cuts" else f", {SPLITS.get(split, split)}"
        name = SPLITS.get(split, split)
        columns = {cleaned: f"{shares[cleaned]:.0%}{where}" for cleaned in own}

        def over(kind: str, row: str, number: int, cells: Sequence[float], name: str = name) -> Interval:
            """The mean over all bases of a cell: of the earlier result the column in the same place."""
            cell = [*earlier["values"][name][kind][row].values()][number] if earlier else None
            return with_earlier(cell, before, cells)

        rows = {
            regime: {
                columns[cleaned]: over("means", regime, number, [run[regime] for run in runs])
                for number, (cleaned, runs) in enumerate(own.items())
            }
            for regime in REGIMES
        }
        gaps = {
            f"{verified} − {labelled}": {
                columns[cleaned]: over(
                    "differences",
                    f"{verified} − {labelled}",
                    number,
                    [run[verified] - run[labelled] for run in runs],
                )
                for number, (cleaned, runs) in enumerate(own.items())
            }
            for verified in VERIFIED
            for labelled in LABELLED
        }
        values[name] = {"means": rows, "differences": gaps}
        body += tables_of(name, rows, gaps)
        if split == "test_cuts" and asked.figure is not None:
            drawn = {
                shares[cleaned]: {regime: rows[regime][column] for regime in DRAWN}
                for cleaned, column in columns.items()
            }
            values["curves"] = draw(drawn, asked.figure)
            body[1:1] = picture(asked.figure, "Exact validity against the share of plain lines in the corpus")
    if earlier:
        own_seeds = ", ".join(map(str, earlier["values"]["seeds"]))
        body.append(f"Seeds {own_seeds}: commit {earlier['commit']}, {earlier['machine']}.")
    for part in body:
        if isinstance(part, dict) and "columns" in part:
            print(
                "", part.get("title", ""), *("  ".join(cells) for cells in [part["columns"], *part["rows"]]), sep="\n"
            )
    write_result(asked.json, values, title=asked.title, guide="studies.md", body=body, partial=asked.quick)


if __name__ == "__main__":
    main()
