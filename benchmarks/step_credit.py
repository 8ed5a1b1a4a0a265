"""Training by steps: what composed plans and credit for steps are worth on the embedded world, and what they cost.

    recipe run configs/teaching.toml --set 'arms=["narrations","narrations-steps", ...]' --output RUN
    python benchmarks/step_credit.py RUN [--prompts 100]

1. Of the N plans that a run in rounds wrote for its training prompts, the exact validity of the plan that the grounded
   reward likes best: among the plans, without the steps that add nothing, and among plans that are composed of them in
   several ways. Means over prompts with 95% intervals over goals, differences paired by prompt.
2. Milliseconds a prompt for the rewards of N plans, and for those of all their beginnings, with texts that are encoded.
3. The plans that RUN wrote for its test prompts: the validity of the best by reward, and of the best composed one.
4. The arms of RUN, where it has a report: validity, differences to the base and steps too many.
5. Of training runs given as --validated NAME=FOLDER, the validity of each validation while they trained.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from common import add_json, table, write_result

from recipe.artifacts import read_json, read_jsonl
from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples
from recipe.planning.predictions import read_predictions
from recipe.reward.composition import crossings
from recipe.reward.scorer import Prompt, PromptGroup, Scorer, Steps, batches, score_or_raise, score_prefixes
from recipe.reward.verifier import Verifier
from recipe.stats import mean_interval
from recipe.text import plan_steps
from recipe.types import Reward
from recipe.world.load import load_world
from recipe.world.validity import ValidityScorer

Totals = dict[Steps, float]
ROUNDS = 5
"""Timings of each prompt's rewards, of which the median counts."""


def totals(scorer: Scorer, prompts: Sequence[Prompt], plans: Sequence[Sequence[Steps]]) -> list[Totals]:
    """The reward of each plan of each prompt."""
    groups = [PromptGroup(*prompt, list(dict.fromkeys(own))) for prompt, own in zip(prompts, plans, strict=True)]
    rewards = [own for batch in batches(groups) for own in score_or_raise(scorer, batch)]
    return [
        {plan: reward.total for plan, reward in zip(group.plans, own, strict=True)}
        for group, own in zip(groups, rewards, strict=True)
    ]


def cuts_apart(plans: Sequence[Steps]) -> list[Steps]:
    """Crossings whose second part begins up to one place earlier or later, no longer than the longest plan."""
    longest = max(map(len, plans))
    crossed = (
        one[:cut] + other[behind:]
        for one in plans
        for other in plans
        for cut in range(1, len(one) + 1)
        for behind in range(cut - 1, min(cut + 1, len(other)) + 1)
    )
    return [plan for plan in dict.fromkeys(crossed) if len(plan) <= longest and len(set(plan)) == len(plan)]


def best(known: Sequence[Totals]) -> list[Steps]:
    """The plan with the highest reward of each prompt, the first of equals."""
    return [max(own, key=own.__getitem__) for own in known]


def prefix_totals(verifier: Verifier, prompts: Sequence[Prompt], plans: Sequence[Steps]) -> list[list[float]]:
    """The rewards of the beginnings of each plan."""
    outcomes = score_prefixes(verifier, prompts, plans)
    return [[one.total for one in own if isinstance(one, Reward)] for own in outcomes]


def gaining(verifier: Verifier, prompts: Sequence[Prompt], plans: Sequence[Steps]) -> list[Steps]:
    """The plans without the steps that do not raise the reward where they stand."""
    earned = prefix_totals(verifier, prompts, plans)
    return [
        tuple(step for step, (before, after) in zip(plan, pairwise(own), strict=True) if after > before)
        for plan, own in zip(plans, earned, strict=True)
    ]


def choices(verifier: Verifier, prompts: Sequence[Prompt], sampled: Sequence[Sequence[Steps]]) -> dict[str, Any]:
    """For each way to choose: the plan of each prompt, and how many plans were rewarded for it beyond the sampled."""
    known = totals(verifier, prompts, sampled)
    found: dict[str, Any] = {"the first of them": ([own[0] for own in sampled], 0)}
    for count in (4, len(sampled[0])):
        some = [{plan: own[plan] for plan in plans[:count]} for own, plans in zip(known, sampled, strict=True)]
        found[f"best of {count}"] = (best(some), 0)
    chosen = best(known)
    found["best, without steps that add nothing"] = (gaining(verifier, prompts, chosen), sum(map(len, chosen)))

    ways: dict[str, Callable[[Sequence[Steps]], list[Steps]]] = {
        "composed, cut at the same place": crossings,
        "composed, cuts up to one place apart": cuts_apart,
    }
    for name, way in ways.items():
        further = totals(verifier, prompts, [way([*own]) for own in known])
        both = [own | new for own, new in zip(known, further, strict=True)]
        found[name] = (best(both), sum(map(len, further)))
        if way is crossings:
            top = [sorted(own, key=own.__getitem__, reverse=True)[: len(sampled[0])] for own in both]
            again = totals(verifier, prompts, [crossings(own) for own in top])
            crossed = best([own | new for own, new in zip(both, again, strict=True)])
            found["composed twice"] = (crossed, sum(map(len, further)) + sum(map(len, again)))
    return found


def cost(verifier: Verifier, prompts: Sequence[Prompt], sampled: Sequence[Sequence[Steps]]) -> dict[str, float]:
    """Milliseconds a prompt, the median over prompts of the median of `ROUNDS`; both are timed in turn."""
    taken: dict[str, list[float]] = {"rewards of the plans": [], "rewards of all beginnings": []}
    beginnings = []
    for prompt, plans in zip(prompts, sampled, strict=True):
        asked = {
            "rewards of the plans": [PromptGroup(*prompt, list(plans))],
            "rewards of all beginnings": [
                PromptGroup(*prompt, list(dict.fromkeys(one[:end] for one in plans for end in range(len(one) + 1))))
            ],
        }
        beginnings.append(len(asked["rewards of all beginnings"][0].plans))
        times: dict[str, list[float]] = {name: [] for name in asked}
        for turn in range(ROUNDS + 1):
            for name, groups in asked.items():
                began = time.perf_counter()
                verifier.score_groups(groups)
                if turn:  # the first one encodes the texts and finds the pool
                    times[name].append(1e3 * (time.perf_counter() - began))
        for name, own in times.items():
            taken[name].append(median(own))
    plain, whole = (median(own) for own in taken.values())
    return {
        "plans": len(sampled[0]),
        "beginnings": fmean(beginnings),
        **{f"{name}, ms": median(own) for name, own in taken.items()},
        "ratio": whole / plain,
    }


def served(run: Path, verifier: Verifier) -> dict[str, dict[str, Any]]:
    """For each model whose plans of test prompts lie in a run: exact validity of a plan, the best and the composed."""
    exact = ValidityScorer(load_world())
    examples = {one.example_id: one for one in read_examples(run / "data" / "test.jsonl")}
    prompts, goals = [(one.goal, one.history) for one in examples.values()], [one.goal for one in examples.values()]
    rows: dict[str, dict[str, Any]] = {}
    for file in sorted((run / "rewarded" / "grounded").glob("*.jsonl")):
        plans: dict[str, list[Steps]] = {name: [] for name in examples}
        for one in read_predictions(file):
            plans[one.example_id].append(one.steps)
        known = totals(verifier, prompts, [*plans.values()])
        further = totals(verifier, prompts, [crossings([*own]) for own in known])
        composed = best([own | new for own, new in zip(known, further, strict=True)])
        judged = totals(exact, prompts, [[*own, *more] for own, more in zip(known, further, strict=True)])
        valid = {
            "one plan": [fmean(own[plan] for plan in drawn) for own, drawn in zip(judged, plans.values(), strict=True)],
            "best of 10": [own[plan] for own, plan in zip(judged, best(known), strict=True)],
            "composed of 10": [own[plan] for own, plan in zip(judged, composed, strict=True)],
        }
        apart = [one - other for one, other in zip(valid["composed of 10"], valid["best of 10"], strict=True)]
        rows[file.stem] = {name: interval(vars_of(mean_interval(own, goals))) for name, own in valid.items()}
        rows[file.stem] |= {"composed minus best": interval(vars_of(mean_interval(apart, goals)))}
        rows[file.stem] |= {"steps, best": fmean(map(len, best(known))), "steps, composed": fmean(map(len, composed))}
    return rows


def validated(folder: Path) -> dict[str, Any]:
    """The validations of a training run: validity by step or round, and steps and nats of the last plans."""
    rows = [row for _, row in read_jsonl(folder / "validation.jsonl")]
    found = {f"after {row['step']}": row["validity"] for row in rows}
    return found | {"steps at last": rows[-1]["steps"], "nats at last": rows[-1]["kl_plan"]}


def arms(run: Path) -> dict[str, dict[str, Any]]:
    """Rows of the arms of a run: validity, the paired difference to the base, and steps too many."""
    if not (run / "report.json").is_file():
        return {}
    report = read_json(run / "report.json")
    rows = {
        one["regime"]: {
            "validity": interval(one["metrics"]["score"]),
            "over the base": None,
            "steps too many": one["metrics"]["length_error"]["mean"],
        }
        for one in report["scores"]
    }
    for one in report["differences"]:
        if one["baseline"] == "base" and one["metric"] == "score" and one["regime"] in rows:
            rows[one["regime"]]["over the base"] = interval(one["value"])
    return rows


def interval(value: Any) -> dict[str, float]:
    """Mean and ends of an interval, rounded."""
    return {name: round(value[name], 4) for name in ("mean", "low", "high")}


def main() -> None:
    """Read a run, print the tables, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--record", default="teach/narrations-rounds-0/completions/round-01.jsonl")
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--validated", nargs="*", default=[], metavar="NAME=FOLDER")
    add_json(parser, "training-steps")
    asked = parser.parse_args()
    drawn: dict[Prompt, list[Steps]] = {}
    for _, row in read_jsonl(asked.run / asked.record):
        steps = plan_steps(row["completion"], cut=row["clipped"])
        drawn.setdefault((row["goal"], tuple(row["history"])), []).append(steps)
    prompts = list(drawn)[: asked.prompts]
    sampled = [drawn[prompt] for prompt in prompts]
    verifier = Verifier(Corpus.open(asked.run / "corpus"), RewardConfig(verifier="grounded"))
    exact, goals = ValidityScorer(load_world()), [goal for goal, _ in prompts]

    def judged(plans: Sequence[Steps]) -> list[float]:
        return [own[plan] for own, plan in zip(totals(exact, prompts, [[one] for one in plans]), plans, strict=True)]

    found, most = choices(verifier, prompts, sampled), f"best of {len(sampled[0])}"
    beside = judged(found[most][0])
    rows: dict[str, Any] = {}
    for name, (plans, further) in found.items():
        validity = judged(plans)
        rewards = totals(verifier, prompts, [[plan] for plan in plans])
        apart = [one - other for one, other in zip(validity, beside, strict=True)]
        rows[name] = {
            "validity": interval(vars_of(mean_interval(validity, goals))),
            f"minus {most}": None if name == most else interval(vars_of(mean_interval(apart, goals))),
            "reward": fmean(own[plan] for own, plan in zip(rewards, plans, strict=True)),
            "steps": fmean(map(len, plans)),
            "further rewards a prompt": round(further / len(prompts)),
        }
    possible = fmean(max(own.values()) for own in totals(exact, prompts, sampled))
    earned = prefix_totals(verifier, prompts, found[most][0])
    losing = fmean(after <= before for own in earned for before, after in pairwise(own))
    costs, trained = cost(verifier, prompts[:50], sampled[:50]), arms(asked.run)
    chosen = served(asked.run, verifier) if trained else {}
    runs = {name: validated(Path(folder)) for name, _, folder in (word.partition("=") for word in asked.validated)}
    result = {"choices": rows, "best possible": possible, "losing steps": losing, "cost": costs}
    result |= {"served": chosen, "arms": trained, "validated": runs}
    print(json.dumps(result, indent=1))
    write_result(
        asked.json,
        result,
        title="Credit for steps, composed plans",
        guide="training.md",
        body=[
            f"Of {len(sampled[0])} plans for each of {len(prompts)} training prompts of taught goals: exact validity "
            f"of the plan that the grounded reward likes best (32 narrations a goal); the best possible has "
            f"{possible:.3f}. Of the steps of the best plans, {losing:.0%} do not raise the reward.",
            table(rows, "choice"),
            table({"a prompt": costs}, "", "Cost of the rewards of all beginnings"),
            *([table(chosen, "plans of", "Choosing when plans are served, test prompts")] if chosen else []),
            *([table(trained, "arm", "Arms of the run, test prompts")] if trained else []),
            *([table(runs, "run", "Validations while training, 60 prompts, two plans each")] if runs else []),
        ],
        partial=len(prompts) < 100,
    )


def vars_of(value: Any) -> dict[str, Any]:
    """An interval's fields by name."""
    return {name: getattr(value, name) for name in ("mean", "low", "high")}


if __name__ == "__main__":
    main()
