"""Rewards compared over several seeds: what each gains over the base, by training on it and by its choice among plans.

    python benchmarks/comparison.py RUNS [--config CONFIG.toml] [--data DATA] [--seeds 3] [--set KEY=VALUE]
    python benchmarks/comparison.py RUNS --variant "independent: noise.systematic=0, noise.drop=0.11" --variant ...

CONFIG is a study; without it the settings of `recipe demo`. The study runs once for each seed, in RUNS/seed-SEED: data,
base and training have that seed. Finished stages are skipped. With variants it runs once for each of these instead, in
RUNS/NAME, with what it sets.
--earlier names a result of the same study: its seeds stand in the new one, with their commit and machine.
Differences are paired by prompt, with 95% intervals over goals: each regime against the base, greedy plans against its
greedy plans, and what else the study compares. The mean over the seeds has an interval over bases, by Student's t. Of
the first seed the result also holds what the report begins with, for the README (docs/results.py).
"""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import as_file, files
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from common import add_json, figure, gain, table, write_result
from scipy.stats import false_discovery_control
from scipy.stats import t as student

from recipe.artifacts import to_json
from recipe.evaluation.metrics import METRICS
from recipe.progress import SILENT
from recipe.stats import Interval
from recipe_studies.experiments.expand import run_experiment
from recipe_studies.experiments.plots import curves_hash
from recipe_studies.experiments.results import KEPT, SPLITS, Results, load_results
from recipe_studies.experiments.settings import load_experiment
from recipe_studies.experiments.study import BASE, COPIES, GREEDY

MEAN = "mean, interval over bases"
LEVEL = 0.05
FEWEST = 3
"""Bases that an interval takes; gains over another regime of fewer are not shown."""
Tables = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Rows of columns by name, of each measure."""
Gaps = Mapping[tuple[str, str], Mapping[str, Any]]
"""Rows of differences by regime and baseline."""


def student_t(bases: int) -> float:
    """Student's t of a 95% interval over so many bases: half its width in standard errors."""
    return float(student.ppf(1 - LEVEL / 2, bases - 1))


def over_bases(values: Sequence[float]) -> Interval:
    """The mean with its 95% interval by Student's t, a value a base."""
    count = len(values)
    if count < FEWEST:
        return Interval(fmean(values))
    half = student_t(count) * stdev(values) / sqrt(count)
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


def page_body(tables: Tables) -> list[dict[str, Any] | str]:
    """What a page shows of the tables of a result, which hold a measure and its differences in turns.

    The first has a row for each regime: its samples and greedy plans, and their gains over the base's. Over bases these
    are means, of variants there is a column each. The second has the gains of regimes over one another, without copies
    and without gains over too few bases for an interval. A star marks what Benjamini and Hochberg's procedure keeps of
    all differences over bases.
    """
    first, *others = list(tables)[::2]
    means = tables[first]
    differences = {where: _gaps(tables[f"{where}, differences"]) for where in (first, *others)}
    gaps = differences[first]
    columns = list(next(iter(means.values())))
    seeds = columns[0] == MEAN
    p = p_values(differences) if seeds else {}
    adjusted = dict(zip(p, false_discovery_control(list(p.values())), strict=True)) if p else {}

    def over(where: str, regime: str, baseline: str) -> str:
        """The gain over bases, starred or not; empty where there is none."""
        mean = differences[where].get((regime, baseline), {}).get(MEAN)
        return gain(mean) + ("*" if adjusted.get((where, regime, baseline), 1.0) <= LEVEL else "")

    plans, rivals = dict[str, dict[str, Any]](), dict[str, dict[str, Any]]()
    for regime in means:
        if regime.endswith(GREEDY):
            continue
        greedy = means.get(f"{regime}{GREEDY}", {})
        if not seeds:
            pair = gaps.get((regime, BASE), {}), gaps.get((f"{regime}{GREEDY}", f"{BASE}{GREEDY}"), {})
            own = (means[regime], greedy) if regime == BASE else pair
            plans[regime] = {column: _both(*(row.get(column) for row in own)) for column in columns}
            continue
        plans[regime] = {
            "samples": figure(means[regime][MEAN]),
            "over the base": over(first, regime, BASE),
            "greedy plans": figure(greedy.get(MEAN)),
            "over the base's": over(first, f"{regime}{GREEDY}", f"{BASE}{GREEDY}"),
            **{f"over the base, {where}": over(where, regime, BASE) for where in others},
            "bases": len(means[regime]) - 1,
        }
    for (regime, rival), row in gaps.items():
        if (regime.endswith(GREEDY) and rival.endswith(GREEDY)) or rival in (BASE, COPIES.regime):
            continue
        if seeds and len(row) - 1 < FEWEST:
            continue
        greedy_gap = f"{regime}{GREEDY}", f"{rival}{GREEDY}"
        rivals[f"{regime} − {rival}"] = (
            {"samples": over(first, regime, rival), "greedy plans": over(first, *greedy_gap)}
            | {where: over(where, regime, rival) for where in others}
            | {"bases": len(row) - 1}
            if seeds
            else {column: _both(row.get(column), gaps.get(greedy_gap, {}).get(column)) for column in columns}
        )
    note = [
        f"\\* is kept by Benjamini–Hochberg at 5% among the {len(p)} differences over bases; "
        f"{sum(value <= LEVEL for value in p.values())} intervals are without 0."
    ]
    title = first if seeds else f"{first}: over the base; greedy plans over its greedy ones"
    return [table(plans, "plans", title), *([table(rivals, "difference")] * bool(rivals)), *(note * bool(p))]


def joined(earlier: Tables, tables: Tables) -> Tables:
    """The tables of an earlier result with the seeds of this one added, and the means over all of them.

    Raises ValueError where both hold a seed, or where they hold other measures.
    """
    if [where for where in earlier if where in tables] != [*tables]:
        raise ValueError(f"the earlier result holds {', '.join(earlier)}, this study {', '.join(tables)}")
    result: dict[str, dict[str, dict[str, Any]]] = {}
    for where, now in tables.items():
        before, rows = earlier[where], result.setdefault(where, {})
        for name in (*before, *(name for name in now if name not in before)):
            columns = [(key, cell) for side in (before, now) for key, cell in side.get(name, {}).items() if key != MEAN]
            seeds = dict(columns)
            if len(seeds) < len(columns):
                raise ValueError(f"{where}, {name}: both results hold one seed; run another")
            rows[name] = {MEAN: over_bases([value_of(cell) for cell in seeds.values()])} | seeds
    return result


def value_of(cell: Any) -> float:
    """The mean that a column holds: of an interval, or of "0.611, 3.7 steps"."""
    return float(cell.partition(",")[0]) if isinstance(cell, str) else float(to_json(cell)["mean"])


def p_values(differences: Mapping[str, Gaps]) -> dict[tuple[str, str, str], float]:
    """Two-sided p of each difference over three bases or more, by the Student's t of its interval.

    Keys are measure, regime and baseline; differences to copies of narrations are left out.
    """
    found = dict[tuple[str, str, str], float]()
    for where, gaps in differences.items():
        for (regime, baseline), row in gaps.items():
            mean, free = to_json(row[MEAN]), len(row) - 2
            if mean.get("low") is None or baseline == COPIES.regime:
                continue
            error = (mean["high"] - mean["low"]) / 2 / student_t(free + 1)
            p = 2 * float(student.sf(abs(mean["mean"]) / error, free)) if error else float(mean["mean"] == 0)
            found[where, regime, baseline] = p
    return found


def _gaps(rows: Mapping[str, Mapping[str, Any]]) -> Gaps:
    """The differences of a measure by regime and baseline."""
    return {(regime, baseline): row for name, row in rows.items() for regime, _, baseline in [name.partition(" − ")]}


def _both(samples: Any, greedy: Any) -> str:
    """What samples gain, and greedy plans after them where they were compared."""
    return "; ".join(filter(None, (gain(samples), gain(greedy) and f"greedy {gain(greedy)}")))


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
    parser.add_argument("--earlier", type=Path, metavar="RESULT.json")
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
    tables: dict[str, Any] = {}
    for split in first.splits():
        for metric in metrics:
            where = f"{SPLITS.get(split, split)}{f', {METRICS[metric]}' if len(metrics) > 1 else ''}"
            tables[where] = means_of(studies, split, metric)
            tables[f"{where}, differences"] = rows_of(studies, split, metric)
    earlier = json.loads(asked.earlier.read_text(encoding="utf-8")) if asked.earlier else None
    if earlier is not None:
        tables = dict(joined({name: earlier["values"][name] for name in tables}, tables))
    stages = {stage.name: {"seconds": stage.seconds, "of which": stage.detail} for stage in first.stages}
    for title, rows in (*tables.items(), ("stages of the first run", stages)):
        shown = table(rows, "stage" if rows is stages else "regime", title=title)
        print("", shown["title"], *("  ".join(cells) for cells in [shown["columns"], *shown["rows"]]), sep="\n")
    values: dict[str, Any] = tables | {"stages": stages}
    body = page_body(tables)
    if earlier is not None:
        values = earlier["values"] | tables
        seeds = [column for column in next(iter(earlier["values"][next(iter(tables))].values())) if column != MEAN]
        body.append(f"{', '.join(seeds)}: commit {earlier['commit']}, {earlier['machine']}.")
    elif first.opening is not None:
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
