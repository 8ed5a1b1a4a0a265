"""What RL on one corpus and on another does to the same base: differences of `recipe reproduce` runs on benchmarks.

    python benchmarks/reproduced.py 'CORPUS=RUN' 'OTHER CORPUS=RUN' [--coverage FILE FILE] [--note TEXT]

RUN is the folder of `recipe reproduce main regimes --data DIR --output RUN`, with `--corpus` for another corpus than
DIR's narrations. A prompt's value is its mean over samples of the judge's accuracy in percent; differences to the base
are paired by prompt, of datasets of one role over datasets of their means, with 95% intervals over seeds and prompts.
--coverage names, for each run, what `recipe reward coverage --tasks RUN/tiny/data/train.jsonl --json` says of its
corpus.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from common import add_json, write_result

from recipe.artifacts import read_jsonl
from recipe.data.roles import ROLES, TITLES, role_of
from recipe.stats import Interval, seeded_interval
from recipe_studies.reproduce.study import regime

REGIMES = ("sft-annotated", "sft-ht100m", "rl", "sft-rl", "rl-grounded", "rounds-grounded", "control-r0",
           "control-random", "control-length")  # fmt: skip
STATES = {"known": "known", "partly": "in part", "unknown": "not known"}


def values_of(scores: Path, name: str) -> list[dict[str, float]]:
    """The mean over samples of each prompt, a row for each training seed; empty for a regime that did not run."""
    files = sorted(scores.glob(f"{name}.jsonl")) or sorted(scores.glob(f"{name}-[0-9]*.jsonl"))
    rows = []
    for file in files:
        known: dict[str, list[float]] = {}
        for _, row in read_jsonl(file):
            known.setdefault(str(row["example_id"]), []).append(float(str(row["accuracy"])))
        rows.append({prompt: fmean(values) for prompt, values in known.items()})
    return rows


def differences(scores: Path) -> dict[str, dict[str, Interval]]:
    """Of each regime minus the base, by dataset and by role, with the number of training seeds."""
    [base] = values_of(scores, "base")
    datasets = {prompt: prompt.partition("/")[0] for prompt in base}
    groups = {title: [prompt for prompt in base if datasets[prompt] == key] for key, title in TITLES.items()}
    groups |= {role: [prompt for prompt in base if role_of(datasets[prompt]) == role] for role in ROLES}
    compared: dict[str, dict[str, Interval]] = {}
    for name in REGIMES:
        rows = values_of(scores, name)
        if any(row.keys() != base.keys() for row in rows):
            raise SystemExit(f"{scores}: {name} and the base have plans of other prompts.")
        if rows:
            compared[name] = {
                title: seeded_interval(
                    np.array([[row[prompt] - base[prompt] for prompt in prompts] for row in rows]),
                    [datasets[prompt] for prompt in prompts],
                    prompts,
                )
                for title, prompts in groups.items()
                if prompts
            }
    return compared


def cell(difference: Interval) -> str:
    """A difference in points as `+0.7 [−0.6, 2.0]`."""
    ends = "" if difference.low is None else f" [{difference.low:.1f}, {difference.high:.1f}]"
    return f"{difference.mean:+.1f}{ends}".replace("-", "−")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="CORPUS=RUN")
    parser.add_argument("--scale", default="tiny")
    parser.add_argument("--coverage", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--note", action="append", default=[], help="a paragraph below the tables")
    add_json(parser, "studies-reproduce_benchmarks")
    args = parser.parse_args()
    rows: list[list[str]] = []
    values: dict[str, Any] = {}
    for given in args.runs:
        corpus, _, run = given.partition("=")
        scores = Path(run) / args.scale / "scores"
        compared = differences(scores)
        rows += [
            [f"{regime(name).title}; {corpus}", *map(cell, own.values()), str(len(values_of(scores, name)))]
            for name, own in compared.items()
        ]
        columns = ["", *next(iter(compared.values())), "seeds"]
        values[corpus] = compared
    known = []
    for given, file in zip(args.runs, args.coverage, strict=bool(args.coverage)):
        states = [task["state"] for task in json.loads(file.read_text(encoding="utf-8"))["tasks"]]
        known.append([given.partition("=")[0], *(f"{states.count(state)} of {len(states)}" for state in STATES)])
    coverage = {"title": "training tasks that the corpus knows", "columns": ["corpus", *STATES.values()], "rows": known}
    table = {"title": "accuracy by the proxy judge, minus the base's", "columns": columns, "rows": rows}
    for row in [columns, *rows, *known]:
        print(*row, sep=" | ")
    body = [*([coverage] if known else []), table, *args.note]
    write_result(args.json, values, title="The paper's tables on real benchmarks", guide="studies.md", body=body)


if __name__ == "__main__":
    main()
