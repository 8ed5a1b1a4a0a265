"""Verify or label: what the same corpus is worth to either, by how near its narrations are to lists of steps.

    python benchmarks/crossing.py RUNS [--seeds 3] [--cleaned 0 0.3 0.6 1] [--set KEY=VALUE] [--controls RUNS]

`configs/crossing.toml` runs for each seed, which is a base with data and errors of its own, and for each value of
`source.clean`, in RUNS/clean-VALUE-seed-SEED; finished runs are kept. Those of `configs/controls.toml`, where
--controls names their folder, hold what such runs at 0 have, and stand in their place.
Means over bases with 95% intervals by Student's t; a base's value is its mean over prompts. Differences are of a base's
own means. The corpora are told apart by the share of lines that are a step of the goal as an annotator writes it.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from common import ROOT, add_json, figure, gain, picture, table, write_result
from comparison import over_bases

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
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cleaned", type=float, nargs="+", default=[0, 0.3, 0.6, 1])
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--title", default="Verify or label", help="of the result")
    parser.add_argument("--controls", type=Path, help="runs of configs/controls.toml")
    parser.add_argument("--figure", type=Path, help="an SVG")
    parser.add_argument("--quick", action="store_true", help="a fraction of the work, which proves nothing")
    add_json(parser, "studies-crossing")
    asked = parser.parse_args()
    shares: dict[float, float] = {}
    studies: dict[float, list[Results]] = {}
    for cleaned in sorted(asked.cleaned):
        plain = []
        for seed in range(asked.seeds):
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
    values: dict[str, Any] = {"plain lines": shares}
    body: list[Any] = [
        "Exact validity of plans. A column is a corpus, named by the share of its lines that are plain steps; "
        f"{asked.seeds} bases, 95% intervals over bases. No setting was chosen on these goals."
    ]
    for split in studies[min(studies)][0].splits():
        own = {cleaned: [means(results, split) for results in runs] for cleaned, runs in studies.items()}
        where = "" if split == "test_cuts" else f", {SPLITS.get(split, split)}"
        named = {f"{shares[cleaned]:.0%}{where}": runs for cleaned, runs in own.items()}
        rows = {
            regime: {column: over_bases([run[regime] for run in runs]) for column, runs in named.items()}
            for regime in REGIMES
        }
        gaps = {
            f"{verified} − {labelled}": {
                column: over_bases([run[verified] - run[labelled] for run in runs]) for column, runs in named.items()
            }
            for verified in VERIFIED
            for labelled in LABELLED
        }
        name = SPLITS.get(split, split)
        values[name] = {"means": rows, "differences": gaps}
        body += tables_of(name, rows, gaps)
        if split == "test_cuts" and asked.figure is not None:
            drawn = {
                shares[cleaned]: {regime: over_bases([run[regime] for run in runs]) for regime in DRAWN}
                for cleaned, runs in own.items()
            }
            values["curves"] = draw(drawn, asked.figure)
            body[1:1] = picture(asked.figure, "Exact validity against the share of plain lines in the corpus")
    for part in body:
        if isinstance(part, dict) and "columns" in part:
            print(
                "", part.get("title", ""), *("  ".join(cells) for cells in [part["columns"], *part["rows"]]), sep="\n"
            )
    write_result(asked.json, values, title=asked.title, guide="studies.md", body=body, partial=asked.quick)


if __name__ == "__main__":
    main()
