"""Rewards compared over several seeds: what each gains over the base, by training on it and by its choice among plans.

    python benchmarks/comparison.py RUNS [--config CONFIG.toml] [--data DATA] [--seeds 3] [--set KEY=VALUE]
    python benchmarks/comparison.py RUNS --variant "independent: noise.systematic=0, noise.drop=0.11" --variant ...

CONFIG is a study; without it the settings of `recipe demo`. The study runs once for each seed, in RUNS/seed-SEED: data,
base and training have that seed. Finished stages are skipped. With variants it runs once for each of these instead, in
RUNS/NAME, with what it sets.
Differences are paired by prompt, with 95% intervals over goals: each regime against the base, greedy plans against its
greedy plans, and what else the study compares. The mean over the seeds has an interval over bases, by Student's t. Of
the first seed the result also holds what the report begins with, for the README (docs/results.py).
"""

import argparse
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import as_file, files
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from common import add_json, table, write_result
from scipy.stats import t as student

from recipe.artifacts import to_json
from recipe.evaluation.metrics import METRICS
from recipe.progress import SILENT
from recipe.stats import Interval
from recipe_studies.experiments.expand import run_experiment
from recipe_studies.experiments.plots import curves_hash
from recipe_studies.experiments.results import KEPT, SPLITS, Results, load_results
from recipe_studies.experiments.settings import load_experiment
from recipe_studies.experiments.study import BASE, GREEDY

MEAN = "mean, interval over bases"


def over_bases(values: Sequence[float]) -> Interval:
    """The mean with its 95% interval by Student's t, a value a base."""
    count = len(values)
    if count < 3:
        return Interval(fmean(values))
    half = float(student.ppf(0.975, count - 1)) * stdev(values) / sqrt(count)
    return Interval(fmean(values), fmean(values) - half, fmean(values) + half)


def rows_of(studies: dict[str, Results], split: str, metric: str) -> dict[str, dict[str, Any]]:
    """A row for each difference, a column for each run; of seeds also the mean."""
    rows: dict[str, dict[str, Any]] = {}
    gains: dict[str, list[float]] = {}
    for column, study in studies.items():
        for row in study.differences:
            if (row.split, row.metric) == (split, metric):
                name = f"{row.regime} − {row.baseline}"
                gains.setdefault(name, []).append(row.value.mean)
                kept = row.baseline == BASE and study.kept_base(row.regime)
                rows.setdefault(name, {})[column] = KEPT if kept else row.value
    if not next(iter(studies)).startswith("seed "):
        return rows
    return {name: {MEAN: over_bases(gains[name])} | row for name, row in rows.items()}


def means_of(studies: dict[str, Results], split: str, metric: str) -> dict[str, dict[str, Any]]:
    """A measure of each regime, and the steps of its plans, with each seed; of seeds also the mean."""
    rows: dict[str, dict[str, Any]] = {}
    means: dict[str, list[float]] = {}
    for column, study in studies.items():
        for row in study.scores:
            if row.split == split and metric in row.metrics:
                shown = f"{row.metrics[metric].mean:.3f}, {row.metrics['steps'].mean:.1f} steps"
                rows.setdefault(row.regime, {})[column] = shown
                means.setdefault(row.regime, []).append(row.metrics[metric].mean)
    if not next(iter(studies)).startswith("seed "):
        return rows
    return {name: {MEAN: over_bases(means[name])} | row for name, row in rows.items()}


def page_rows(tables: dict[str, dict[str, dict[str, Any]]], where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a page shows: of each regime the mean and what it is over the base's; and what the first regime that a
    reward trained, or the first choice, is over the others."""
    means, gaps = (
        tables[where],
        {tuple(name.split(" − ")): row for name, row in tables[f"{where}, differences"].items()},
    )
    first = next((regime for regime, baseline in gaps if baseline == BASE and not regime.startswith("SFT")), "")
    rows = {}
    for regime, row in means.items():
        over = gaps.get((regime, f"{BASE}{GREEDY}"), gaps.get((regime, BASE), {}))
        rows[regime] = {"mean": row.get(MEAN, next(iter(row.values())))} | {
            "over the base" if column == MEAN else f"{column}: over the base": own for column, own in over.items()
        }
    beside = {
        f"{regime} − {baseline}": row
        for (regime, baseline), row in gaps.items()
        if regime.startswith(first) and not baseline.startswith(BASE)
    }
    return rows, beside


def main() -> None:
    """Run the study with each seed, print the tables and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--variant", action="append", default=[], metavar='"NAME: KEY=VALUE, ..."')
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--title", help="of the result")
    parser.add_argument("--quick", action="store_true", help="a fraction of the work, which proves nothing")
    add_json(parser, "studies-demo")
    asked = parser.parse_args()
    runs = {f"seed {seed}": [f"seed={seed}"] for seed in range(asked.seeds)}
    if asked.variant:
        runs = {
            name: re.split(r", (?=[a-z_.]+=)", own.strip())
            for name, _, own in (v.partition(":") for v in asked.variant)
        }
    studies: dict[str, Results] = {}
    with as_file(files("recipe_studies.experiments") / "demo.toml") as packaged:
        for name, own in runs.items():
            config = load_experiment(asked.config or packaged, quick=asked.quick, changes=[*asked.changes, *own])
            run = run_experiment(config, asked.runs / name.replace(" ", "-"), asked.data, SILENT)
            studies[name] = load_results(run / "report.json")
            print(f"{name}: {run / 'report.html'}", flush=True)
    first = next(iter(studies.values()))
    metrics = [first.main_metric(), *(["proxy"] if any("proxy" in row.metrics for row in first.scores) else [])]
    tables: dict[str, dict[str, dict[str, Any]]] = {}
    for split in first.splits():
        for metric in metrics:
            where = f"{SPLITS.get(split, split)}{f', {METRICS[metric]}' if len(metrics) > 1 else ''}"
            tables[where] = means_of(studies, split, metric)
            tables[f"{where}, differences"] = rows_of(studies, split, metric)
    stages = {stage.name: {"seconds": stage.seconds, "of which": stage.detail} for stage in first.stages}
    body: list[str | dict[str, Any]] = []
    for title, rows in (*tables.items(), ("stages of the first run", stages)):
        shown = table(rows, "stage" if rows is stages else "regime", title=title)
        print("", shown["title"], *("  ".join(cells) for cells in [shown["columns"], *shown["rows"]]), sep="\n")
    for where in list(tables)[::2]:
        rows, beside = page_rows(tables, where)
        if where == next(iter(tables)):
            body += [
                table(rows, "plans", where),
                *([table(beside, "difference", f"{where}, beside others")] * bool(beside)),
            ]
        else:  # a cell of the page has one name
            named = {name: {f"{column}, {where}": own for column, own in row.items()} for name, row in rows.items()}
            body.append(table(named, "plans"))
    values: dict[str, Any] = tables | {"stages": stages}
    if first.opening is not None:
        main = first.main_metric()
        values |= {"opening": to_json(first.opening), "curves": curves_hash(first)}
        values["scores"] = to_json([replace(row, metrics={main: row.metrics[main]}) for row in first.scores])
        values["differences"] = to_json([row for row in first.differences if row.metric == main])
    write_result(
        asked.json,
        values,
        title=asked.title or f"The demo with {asked.seeds} seeds",
        guide="studies.md",
        body=body,
        partial=asked.quick,
    )


if __name__ == "__main__":
    main()
