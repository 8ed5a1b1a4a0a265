"""What RL on one corpus and on another does to the same base: differences of `recipe reproduce` runs on benchmarks.

    python benchmarks/reproduced.py 'CORPUS=RUN' 'OTHER CORPUS=RUN' [--coverage FILE FILE] [--note TEXT]

RUN is the folder of `recipe reproduce main regimes --data DIR --output RUN`, with `--corpus` for another corpus than
DIR's narrations. A prompt's value is its mean over samples and seeds of the judge's accuracy in percent; differences to
the base are paired by prompt, of datasets of one role over datasets of their means, with 95% intervals over prompts.
--coverage names, for each run, what `recipe reward coverage --tasks RUN/tiny/data/train.jsonl --json` says of its
corpus.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from common import add_json, write_result

from recipe.artifacts import read_jsonl
from recipe.data.roles import TITLES, role_of
from recipe.stats import Comparison, compare
from recipe_studies.reproduce.study import regime

REGIMES = ("sft-annotated", "sft-ht100m", "rl", "sft-rl", "rl-grounded", "rounds-grounded", "control-r0",
           "control-random", "control-length")  # fmt: skip
STATES = {"known": "known", "partly": "in part", "unknown": "not known"}


def values_of(scores: Path, name: str) -> dict[str, float]:
    """The mean of each prompt over samples and seeds; empty for a regime that did not run."""
    known: dict[str, list[float]] = {}
    for file in sorted(scores.glob(f"{name}.jsonl")) or sorted(scores.glob(f"{name}-[0-9]*.jsonl")):
        for _, row in read_jsonl(file):
            known.setdefault(str(row["example_id"]), []).append(float(str(row["accuracy"])))
    return {prompt: fmean(values) for prompt, values in known.items()}


def seeds_of(scores: Path, name: str) -> int:
    """How many training seeds of a regime were scored."""
    return len([*scores.glob(f"{name}-[0-9]*.jsonl")])


def differences(scores: Path) -> dict[str, dict[str, Comparison]]:
    """Of each regime minus the base, by dataset and by role."""
    base = values_of(scores, "base")
    compared: dict[str, dict[str, Comparison]] = {}
    for name in REGIMES:
        own = values_of(scores, name)
        if not own:
            continue
        if own.keys() != base.keys():
            raise SystemExit(f"{scores}: {name} and the base have plans of other prompts.")
        of = {prompt: prompt.partition("/")[0] for prompt in base}
        groups = {title: [prompt for prompt in base if of[prompt] == key] for key, title in TITLES.items()}
        groups |= {
            role: [prompt for prompt in base if role_of(of[prompt]) == role] for role in ("in-domain", "zero-shot")
        }
        compared[name] = {
            title: compare([own[n] for n in names], [base[n] for n in names], names, [of[n] for n in names])
            for title, names in groups.items()
            if names
        }
    return compared


def means(scores: Path) -> dict[str, float]:
    """The base's accuracy on each dataset."""
    base = values_of(scores, "base")
    own = {
        title: [value for name, value in base.items() if name.startswith(f"{key}/")] for key, title in TITLES.items()
    }
    return {title: fmean(values) for title, values in own.items() if values}


def cell(comparison: Comparison) -> str:
    """A difference in points as `+0.7 [−0.6, 2.0]`."""
    one = comparison.difference
    ends = "" if one.low is None else f" [{one.low:.1f}, {one.high:.1f}]"
    return f"{one.mean:+.1f}{ends}".replace("-", "−")


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
            [f"{regime(name).title}; {corpus}", *map(cell, own.values()), str(seeds_of(scores, name))]
            for name, own in compared.items()
        ]
        columns = ["", *next(iter(compared.values())), "seeds"]
        values[corpus] = {"base": means(scores), "differences": compared}
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
