"""Rewards compared over several seeds: what each gains over the base, by training on it and by its choice among plans.

    python benchmarks/comparison.py RUNS [--config CONFIG.toml] [--data DATA] [--seeds 3] [--set KEY=VALUE]

CONFIG is a study without `kind`, whose key `compared` names rewards; without it the settings of `recipe demo`. The
study runs once for each seed, in RUNS/seed-SEED: data, base and training have that seed. Finished stages are skipped.
Differences to the base in the main measure are paired by prompt, with 95% intervals over goals.
"""

import argparse
from importlib.resources import as_file, files
from pathlib import Path
from statistics import fmean
from typing import Any

from common import add_json, table, write_result

from recipe.progress import SILENT
from recipe_studies.experiments.expand import run_experiment
from recipe_studies.experiments.results import KEPT, MAIN, SPLITS, Results, load_results
from recipe_studies.experiments.settings import load_experiment
from recipe_studies.experiments.study import BASE


def rows_of(studies: dict[int, Results], split: str) -> dict[str, dict[str, Any]]:
    """A row for each regime: its difference to the base with each seed, and the mean of these."""
    metric = next(iter(studies.values())).main_metric()
    rows: dict[str, dict[str, Any]] = {}
    gains: dict[str, list[float]] = {}
    for seed, study in studies.items():
        for row in study.differences:
            if (row.split, row.metric, row.baseline) == (split, metric, BASE):
                gains.setdefault(row.regime, []).append(row.value.mean)
                shown = KEPT if study.kept_base(row.regime) else row.value
                rows.setdefault(row.regime, {})[f"seed {seed}"] = shown
    return {name: row | {"mean of the seeds": fmean(gains[name])} for name, row in rows.items()}


def main() -> None:
    """Run the study with each seed, print the tables and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--quick", action="store_true", help="a fraction of the work, which proves nothing")
    add_json(parser, "studies-seeds")
    asked = parser.parse_args()
    studies: dict[int, Results] = {}
    with as_file(files("recipe_studies.experiments") / "demo.toml") as packaged:
        for seed in range(asked.seeds):
            changes = [*asked.changes, f"seed={seed}"]
            config = load_experiment(asked.config or packaged, quick=asked.quick, changes=changes)
            run = run_experiment(config, asked.runs / f"seed-{seed}", asked.data, SILENT)
            studies[seed] = load_results(run / "report.json")
            print(f"seed {seed}: {run / 'report.html'}", flush=True)
    first = next(iter(studies.values()))
    found = {split: rows_of(studies, split) for split in first.splits()}
    body: list[str | dict[str, Any]] = [f"{MAIN[first.main_metric()]}, differences to the base."]
    for split, rows in found.items():
        shown = table(rows, "regime", title=SPLITS.get(split, split))
        body.append(shown)
        print("", shown["title"], *("  ".join(cells) for cells in [shown["columns"], *shown["rows"]]), sep="\n")
    write_result(
        asked.json,
        found,
        title=f"Rewards compared over {asked.seeds} seeds: {first.title}",
        guide="studies.md",
        body=body,
        partial=asked.quick,
    )


if __name__ == "__main__":
    main()
