"""A teaching study as a table: what each arm gains of what gold gains, and what a choice gains.

    recipe run configs/teaching-tasks.toml --data DATA --output RUN
    python benchmarks/teaching.py RUN --name tasks [--best-of 8]

Of `rows/*.jsonl` of a run folder: on the embedded world exact validity, on annotated procedures matched step F1 in
order and the proxy judge, all from 0 to 1; and steps. A prompt's value is its mean over samples and seeds. Differences
are paired by prompt, with 95% intervals over goals. Best of N takes, of the first N plans that the base wrote for a
prompt, the one that a ranker of the run likes best; with --compose also of plans that are composed of them
(`recipe.reward.composition`). With --average the model whose weights are the means of those of an arm's seeds plans as
well; its plans stay in RUN/averaged.
"""

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from common import add_json, table, totals, write_result

from recipe.artifacts import read_json, read_jsonl
from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.evaluation.judge.plans import cases_of
from recipe.evaluation.judge.proxy import ProxyJudge
from recipe.evaluation.judge.verdicts import accuracy_of
from recipe.evaluation.match import match_metrics
from recipe.evaluation.matching import StepMatcher
from recipe.planning.prediction_files import read_predictions
from recipe.planning.predictions import Prediction
from recipe.reward.composition import compose
from recipe.reward.verifier import Verifier
from recipe.stats import Interval, mean_interval
from recipe.training.average import average_models
from recipe.types import Example, Verdict
from recipe.world.load import load_world
from recipe.world.validity import ValidityScorer

F1, PROXY, VALIDITY = "matched_ordered_f1", "proxy", "score"
STEPS, TOO_MANY = "steps", "length_error"
NAMES = {F1: "matched F1", PROXY: "proxy", VALIDITY: "validity"}
GOLD, BASE = "SFT on gold", "base"
RANKERS = {
    "grounded": "the grounded reward",
    "self-trained": "the self-trained reward",
    "relevance": "R0, no corpus",
    "wrong": "the grounded reward on a wrong corpus",
    "paper": "the paper's reward",
}
AGAINST = ("grounded", "relevance", "wrong")
"""Rankers that those of the corpus are compared with."""
Rows = Sequence[Mapping[str, Any]]


class Prompts:
    """The measures of one system, a value for each prompt: the mean over its seeds, of each the mean over its plans."""

    def __init__(self, runs: Sequence[Rows], goals: Mapping[str, str]) -> None:
        self._goals = goals
        self._of: dict[str, dict[str, float]] = {}
        for metric in (*NAMES, STEPS, TOO_MANY):
            seeds = []
            for rows in runs:
                own = defaultdict(list)
                for row in rows:
                    if row.get(metric) is not None:
                        own[row["example_id"]].append(float(row[metric]))
                seeds.append({name: float(np.mean(values)) for name, values in own.items()})
            if common := set.intersection(*map(set, seeds)):
                self._of[metric] = {name: float(np.mean([seed[name] for seed in seeds])) for name in sorted(common)}

    @property
    def measures(self) -> list[str]:
        """What is known of the quality of its plans."""
        return [metric for metric in NAMES if metric in self._of]

    def mean(self, metric: str) -> float:
        return float(np.mean([*self._of[metric].values()]))

    def minus(self, other: "Prompts", metric: str) -> Interval:
        """The paired difference."""
        names = [name for name in self._of[metric] if name in other._of[metric]]
        gaps = [self._of[metric][name] - other._of[metric][name] for name in names]
        return mean_interval(gaps, [self._goals[name] for name in names])


def chosen(rows: Rows, metric: str, count: int) -> Rows | None:
    """The plan of each prompt with the highest value of a metric among the first ones; None where there is none.

    >>> rows = [{"example_id": "a", "sample": n, "grounded": r} for n, r in enumerate((0.1, 0.3, 0.9))]
    >>> [row["sample"] for row in chosen(rows, "grounded", 2) or ()], chosen(rows, "paper", 2)
    ([1], None)
    """
    best: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row["sample"] < count and (value := row.get(metric)) is not None:
            kept = best.setdefault(row["example_id"], row)
            if value > kept[metric]:
                best[row["example_id"]] = row
    return [*best.values()] or None


def composed(rows: Rows, ranker: str, count: int, run: Path) -> Rows:
    """For each prompt the plan that a ranker likes best among the first ones and their crossings."""
    # The grounded reward as the run set it for its arms.
    rewards = [read_json(file)["config"].get("reward") or {} for file in sorted((run / "teach").glob("*/run.json"))]
    settings = [own["grounded"] for own in rewards if own.get("verifier") == "grounded"]
    grounded: dict[str, Any] = next((own for own in settings if "self_trained" not in own), {})
    net = {"self_trained": str(run / "self-trained"), "self_trained_anyway": True} if ranker == "self-trained" else {}
    config = RewardConfig.model_validate(
        {"verifier": "r0" if ranker == "relevance" else "grounded", "grounded": grounded | net}
    )
    verifier = Verifier(Corpus.open(run / ("corpora/0" if ranker == "wrong" else "corpus")), config)
    first: dict[str, Mapping[str, Any]] = {}
    sampled: dict[str, dict[tuple[str, ...], None]] = defaultdict(dict)
    for row in rows:
        if row["sample"] < count:
            first.setdefault(row["example_id"], row)
            sampled[row["example_id"]][tuple(row["plan"])] = None
    prompts = [(row["goal"], tuple(row["history"])) for row in first.values()]
    known = totals(verifier, prompts, [[*own] for own in sampled.values()])
    plans = [plan for plan, _ in compose(verifier, prompts, known)]
    return measured([*first.values()], plans, verifier)


def averaged(systems: Sequence[str], run: Path, verifier: Verifier) -> Rows:
    """Plans of the model whose weights are the means of those of several runs, as many as of each run."""
    folder = run / "averaged" / systems[0].rpartition("-")[0]
    asked = read_json(run / "stages" / f"plans-{systems[0]}.json")["identity"]["settings"]
    if not (folder / "plans.jsonl").is_file():
        average_models([run / "teach" / name for name in systems], folder / "model")
        sampling = [f"--set=sampling.{name}={json.dumps(value)}" for name, value in asked["sampling"].items()]
        command = ["plan", "--model", str(folder / "model"), "--examples", str(run / asked["prompts"]), "--count",
                   str(asked["samples"]), "--output", str(folder / "plans.jsonl"), *sampling]  # fmt: skip
        subprocess.run([sys.executable, "-m", "recipe", *command], check=True)
    rows = {row["example_id"]: row for _, row in read_jsonl(run / "rows" / f"{systems[0]}.jsonl")}
    predictions = [one for one in read_predictions(folder / "plans.jsonl") if one.example_id in rows]
    plans = [one.steps for one in predictions]
    return measured([rows[one.example_id] for one in predictions], plans, verifier)


def measured(rows: Rows, plans: Sequence[tuple[str, ...]], verifier: Verifier) -> Rows:
    """The measures of a plan for the prompt of each row, by the verifier's encoder."""
    prompts = [(row["goal"], tuple(row["history"])) for row in rows]
    found = [
        {"example_id": row["example_id"], STEPS: len(plan), TOO_MANY: len(plan) - len(row["continuation"])}
        for row, plan in zip(rows, plans, strict=True)
    ]
    if VALIDITY in rows[0]:
        exact = totals(ValidityScorer(load_world()), prompts, [[plan] for plan in plans])
        return [row | {VALIDITY: own[plan]} for row, own, plan in zip(found, exact, plans, strict=True)]
    examples = {
        row["example_id"]: Example(
            row["example_id"], row["source"], "", row["goal"], tuple(row["history"]), tuple(row["continuation"]), 0
        )
        for row in rows
    }
    matcher, judge = StepMatcher(verifier.embed), ProxyJudge(verifier.embed)  # one encoder, whatever the corpus
    texts = [text for one in examples.values() for text in (*one.history, *one.continuation, one.goal)]
    matcher.learn([*texts, *(step for plan in plans for step in plan)])
    samples: dict[str, int] = defaultdict(int)
    predictions = []
    for row, plan in zip(rows, plans, strict=True):
        predictions.append(Prediction(row["example_id"], plan, sample=samples[row["example_id"]]))
        samples[row["example_id"]] += 1
    cases = judge.judge(cases_of([*examples.values()], predictions, samples="all").cases)
    proxies = {(case.example_id, case.sample): case.outcome for case in cases}
    for row, prediction in zip(found, predictions, strict=True):
        outcome = proxies[prediction.example_id, prediction.sample]
        row |= {F1: match_metrics(matcher, examples[prediction.example_id], prediction.steps)[F1]}
        row |= {PROXY: accuracy_of(outcome) / 100 if isinstance(outcome, Verdict) else None}
    return found


def plain(value: Interval) -> dict[str, Any]:
    """An interval as it is written."""
    return {"mean": value.mean, "low": value.low, "high": value.high}


def main() -> None:
    """Read a run, print the tables, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--name", required=True, help="ends the name of the result")
    parser.add_argument("--best-of", type=int, default=8)
    parser.add_argument("--compose", action="store_true", help="also plans composed of the first ones; minutes")
    parser.add_argument("--average", action="store_true", help="also plans of the mean of an arm's seeds")
    add_json(parser, "studies-self_trained_NAME")
    asked = parser.parse_args()
    report = read_json(asked.run / "report.json")
    runs: dict[str, list[Rows]] = defaultdict(list)
    files: dict[str, list[str]] = defaultdict(list)
    goals: dict[str, str] = {}
    for file in sorted((asked.run / "rows").glob("*.jsonl")):
        rows = [row for _, row in read_jsonl(file)]
        runs[rows[0]["regime"]].append(rows)
        files[rows[0]["regime"]].append(file.stem)
        goals |= {row["example_id"]: row["goal"] for row in rows}
    [base_rows] = runs[BASE]
    systems = {name: Prompts(own, goals) for name, own in runs.items()}
    base, gold = systems[BASE], systems.get(GOLD)
    means: dict[str, Prompts] = {}
    if asked.average:
        verifier = Verifier(Corpus.open(asked.run / "corpus"), RewardConfig())
        several = {name: own for name, own in files.items() if len(own) > 1}
        means = {name: Prompts([averaged(own, asked.run, verifier)], goals) for name, own in several.items()}
    values: dict[str, Any] = {"title": report["title"], "prompts": len(goals), "goals": len({*goals.values()})}

    def line(one: Prompts) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for metric in base.measures:
            first = metric == base.measures[0]
            gained = "over the base" if first else f"{NAMES[metric]} over the base"
            row |= {NAMES[metric]: one.mean(metric), gained: None} | ({"of gold's gain, %": None} if first else {})
            if one is not base:
                gain = one.minus(base, metric)
                row[gained] = plain(gain)
                if first and gold is not None and (ceiling := gold.minus(base, metric).mean) > 0:
                    row["of gold's gain, %"] = round(100 * gain.mean / ceiling)
        return row | {"steps": round(one.mean(STEPS), 1), "steps too many": round(one.mean(TOO_MANY), 2)}

    trained = {BASE: line(base)}
    for name, one in systems.items():
        if name != BASE:
            seeds = len(runs[name])
            trained[f"{name}, {seeds} seed{'' if seeds == 1 else 's'}"] = line(one)
        if name in means:
            trained[f"{name}, mean of the weights"] = line(means[name])
    chosen_by = {name: chosen(base_rows, name, asked.best_of) for name in RANKERS}
    picks = {name: Prompts([plans], goals) for name, plans in chosen_by.items() if plans is not None}
    choices = {RANKERS[name]: line(one) for name, one in picks.items()}
    if asked.compose:
        for ranker in ("self-trained", *AGAINST):
            if ranker not in picks:
                continue
            name = f"composed, {ranker}"
            picks[name] = Prompts([composed(base_rows, ranker, asked.best_of, asked.run)], goals)
            choices[f"{RANKERS[ranker]}, composed"] = line(picks[name])
    if best := chosen(base_rows, base.measures[0], asked.best_of):
        choices["the truth (best possible)"] = line(Prompts([best], goals))
    apart = {}
    choice = f"best of {asked.best_of}"
    pairs = [(choice, picks, own, other) for own in ("self-trained", "grounded") for other in AGAINST if own != other]
    mine = "composed, grounded"
    pairs += [(choice, picks, mine, other) for other in picks if other != mine]
    for kind, found in (("trained", systems), ("means of weights", means)):
        compared = [name for name in found if name not in (BASE, GOLD)]
        mine_of = [name for name in compared if name.startswith(("self-trained", "covering"))]
        pairs += [(kind, found, own, other) for own in mine_of for other in compared if other != own]
    for name, one in means.items():
        apart[f"{name}: mean of the weights minus the seeds"] = {
            NAMES[metric]: plain(one.minus(systems[name], metric)) for metric in base.measures
        }
    for kind, found, first, second in pairs:
        if first in found and second in found:
            words = [RANKERS.get(name, name) for name in (first, second)]
            apart[f"{kind}: {' minus '.join(words)}"] = {
                NAMES[metric]: plain(found[first].minus(found[second], metric)) for metric in base.measures
            }
    values |= {"trained": trained, f"best of {asked.best_of}": choices, "differences": apart}
    values["findings"] = [one for one in report["summary"] if "self-trained reward learned" in one]
    print(json.dumps(values, indent=1))
    where = f"{values['prompts']} prompts of {values['goals']} goals, 95% intervals over goals."
    body: list[Any] = [where, *values["findings"]]
    body.append(table(trained, "plans of", "Trained"))
    body.append(table(choices, "chosen by", f"Best of {asked.best_of} plans of the base, without training"))
    if apart:
        body.append(table(apart, "difference", "Rewards of the corpus beside the others, paired by prompt"))
    target = asked.json.with_name(asked.json.name.replace("NAME", asked.name))
    write_result(target, values, title=report["title"], guide="studies.md", body=body)


if __name__ == "__main__":
    main()
