"""What RL on one corpus and on another does to the same base: differences of `recipe reproduce` runs on benchmarks.

    python benchmarks/reproduced.py 'CORPUS=RUN' 'OTHER CORPUS=RUN' [--coverage 'CORPUS=FILE' ...]

RUN is the folder of `recipe reproduce main regimes --data DIR --output RUN`, with `--corpus` for another corpus than
DIR's narrations. A prompt's value is its mean over samples of the judge's accuracy in percent; differences to the base
are paired by prompt, of datasets of one role over datasets of their means, with 95% intervals over seeds and prompts.
--coverage names what `recipe reward coverage --tasks RUN/tiny/data/train.jsonl --json` says of a corpus.
"""

import argparse
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from common import add_json, write_result

from recipe.artifacts import read_json, read_jsonl
from recipe.data.roles import ROLES, TITLES, in_order, role_of
from recipe.stats import Interval
from recipe_studies.reproduce.findings import Values
from recipe_studies.reproduce.study import regime

REGIMES = ("sft-annotated", "sft-ht100m", "rl", "sft-rl", "rl-grounded", "rounds-grounded", "control-r0",
           "control-random", "control-length")  # fmt: skip
STATES = {"known": "known", "partly": "in part", "unknown": "not known"}


def read_values(scores: Path) -> Values:
    """The accuracy of each prompt, a mean over samples, by regime and training seed.

    Raises SystemExit where a regime has plans of other prompts than the base.
    """
    table: dict[str, list[dict[str, float]]] = {}
    for name in ("base", *REGIMES):
        for file in sorted(scores.glob(f"{name}.jsonl")) or sorted(scores.glob(f"{name}-[0-9]*.jsonl")):
            known: dict[str, list[float]] = {}
            for _, row in read_jsonl(file):
                known.setdefault(str(row["example_id"]), []).append(float(str(row["accuracy"])))
            table.setdefault(name, []).append({prompt: fmean(values) for prompt, values in known.items()})
    prompts = tuple(table["base"][0])
    if other := [name for name, rows in table.items() if any(row.keys() != {*prompts} for row in rows)]:
        raise SystemExit(f"{scores}: {', '.join(other)} and the base have plans of other prompts.")
    arrays = {name: np.array([[row[prompt] for prompt in prompts] for row in rows]) for name, rows in table.items()}
    return Values(prompts, tuple(prompt.partition("/")[0] for prompt in prompts), prompts, arrays)


def cell(difference: Interval) -> str:
    """A difference in points as `+0.7 [−0.6, 2.0]`."""
    ends = "" if difference.low is None else f" [{difference.low:.1f}, {difference.high:.1f}]"
    return f"{difference.mean:+.1f}{ends}".replace("-", "−")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="CORPUS=RUN")
    parser.add_argument("--scale", default="tiny")
    parser.add_argument("--coverage", nargs="+", default=[], metavar="CORPUS=FILE")
    parser.add_argument("--note", action="append", default=[], help="a paragraph below the tables")
    add_json(parser, "studies-reproduce_benchmarks")
    args = parser.parse_args()
    rows: list[list[str]] = []
    values: dict[str, Any] = {}
    for given in args.runs:
        corpus, _, run = given.partition("=")
        read = read_values(Path(run) / args.scale / "scores")
        groups = {TITLES[key]: [key] for key in in_order({*read.datasets})}
        groups |= {role: [key for key in TITLES if role_of(key) == role and key in read.datasets] for role in ROLES}
        columns = {title: read.restricted(keys) for title, keys in groups.items() if keys}
        values[corpus] = {
            name: {title: part.difference(name, "base") for title, part in columns.items()}
            for name in read.table
            if name != "base"
        }
        rows += [
            [f"{regime(name).title}; {corpus}", *map(cell, own.values()), str(len(read.table[name]))]
            for name, own in values[corpus].items()
        ]
    known = []
    for given in args.coverage:
        corpus, _, file = given.partition("=")
        states = [task["state"] for task in read_json(file)["tasks"]]
        known.append([corpus, *(f"{states.count(state)} of {len(states)}" for state in STATES)])
    coverage = {"title": "training tasks that the corpus knows", "columns": ["corpus", *STATES.values()], "rows": known}
    table = {"title": "accuracy by the proxy judge, minus the base's", "columns": ["", *columns, "seeds"], "rows": rows}
    for row in [table["columns"], *rows, *known]:
        print(*row, sep=" | ")
    body = [*([coverage] if known else []), table, *args.note]
    write_result(args.json, values, title="The paper's tables on real benchmarks", guide="studies.md", body=body)


if __name__ == "__main__":
    main()
