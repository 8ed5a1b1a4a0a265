"""Search while planning against best of N at equal cost: exact validity by tokens written and steps encoded.

    python benchmarks/search_while_planning.py demo --model runs/demo/base/model --corpus runs/demo/corpus \\
        --examples runs/demo/data/test.jsonl --systems recombine:8:4 --work runs/search

The base samples 32 plans for each prompt. Of n of them, drawn without replacement, the one that the verifier likes best
has an expected validity, reward and number of different steps: those of all draws, in closed form. A search is compared
with the n whose plans cost as many tokens, and with the n whose plans hold as many different steps; both pairs by
prompt, with 95% intervals over goals. `recombine:SAMPLES:WIDTH` is a search. What is finished is kept in --work, so
that a run that was ended goes on.
"""

import argparse
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from common import add_json, table, write_result
from numpy.typing import NDArray

from recipe.artifacts import write_json
from recipe.config import ModelConfig, RewardConfig, SamplingConfig, SearchConfig
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples
from recipe.models.model import open_model
from recipe.models.protocol import all_answered
from recipe.planning.planner import Planner, Request, read_plan
from recipe.planning.search import PlanSearch
from recipe.reward.scorer import PromptGroup, Scorer, Steps, score_or_raise
from recipe.reward.verifier import Verifier
from recipe.stats import mean_interval
from recipe.types import Example
from recipe.world.load import load_world
from recipe.world.validity import ValidityScorer

SAMPLES = 32
SHOWN = (1, 2, 4, 8, 16, 32)
"""Numbers of plans of which the table shows the best."""
FIGURES = ("validity", "reward", "tokens", "encodings", "steps")
Table = dict[str, NDArray[np.float64]]
"""Each of FIGURES, [prompts]; of the samples [prompts, n], for n from 1."""


def totals(scorer: Scorer, examples: Sequence[Example], plans: Sequence[Sequence[Steps]]) -> list[list[float]]:
    """The reward of each plan of each example."""
    groups = [PromptGroup.of(one.goal, one.history, own) for one, own in zip(examples, plans, strict=True)]
    return [[reward.total for reward in own] for own in score_or_raise(scorer, groups)]


def best_of(rewards: Sequence[float], values: Sequence[float]) -> list[float]:
    """The expected value of the best by reward of n plans drawn from these, for n from 1 to all.

    >>> best_of([0.2, 0.9, 0.1], [1.0, 0.5, 0.0])
    [0.5, 0.6666666666666666, 0.5]
    """
    total, order = len(rewards), np.argsort(-np.asarray(rewards), kind="stable")
    return [
        sum(
            math.comb(total - 1 - rank, n - 1) / math.comb(total, n) * values[place] for rank, place in enumerate(order)
        )
        for n in range(1, total + 1)
    ]


def different_steps(plans: Sequence[Steps]) -> list[float]:
    """The expected number of different steps of n plans drawn from these, for n from 1 to all.

    >>> different_steps([("a", "b"), ("a",)])
    [1.5, 2.0]
    """
    total, held = len(plans), Counter(step for plan in plans for step in set(plan))
    return [
        sum(1 - math.comb(total - count, n) / math.comb(total, n) for count in held.values())
        for n in range(1, total + 1)
    ]


def sampled(planner: Planner, verifier: Verifier, examples: Sequence[Example]) -> dict[str, Any]:
    """SAMPLES plans of each example, their rewards and what they cost."""
    began = time.monotonic()
    outcomes = planner.complete([Request.of(one) for one in examples], SAMPLES)
    answers = [all_answered(own) for own in outcomes]
    plans = [[tuple(getattr(read_plan(one), "steps", ())) for one in own] for own in answers]
    rewards = totals(verifier, examples, plans)
    seconds = (time.monotonic() - began) / SAMPLES
    return {
        "plans": plans,
        "rewards": rewards,
        "tokens": [[one.tokens_out for one in own] for own in answers],
        "seconds": seconds,
    }


def searched(search: PlanSearch, examples: Sequence[Example]) -> dict[str, Any]:
    """The best plan of a search for each example, with its reward and cost."""
    began = time.monotonic()
    predictions = search.predict(examples)
    seconds = time.monotonic() - began
    records = [one.search for one in predictions if one.search is not None]
    return {
        "plans": [list(one.steps) for one in predictions],
        "rewards": [one.reward for one in predictions],
        "tokens": [record.tokens_out for record in records],
        "read": [record.tokens_in for record in records],
        "encodings": [record.encodings for record in records],
        "scored": [record.rewards for record in records],
        "seconds": seconds,
    }


def config_of(system: str) -> SearchConfig:
    """The settings that a name such as `recombine:8:4` stands for."""
    search, samples, width = system.split(":")
    return SearchConfig.model_validate({"search": search, "samples": int(samples), "width": int(width)})


def main() -> None:
    """Sample, search, print the tables, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world", help="what is measured, such as demo: part of the name of the result")
    for name in ("model", "corpus", "examples", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--systems", nargs="*", default=["recombine:4:4", "recombine:8:4", "recombine:16:4"])
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--title", default="")
    add_json(parser, "planning-search")
    asked = parser.parse_args()

    every = read_examples(asked.examples)
    examples = every[:: max(len(every) // asked.prompts, 1)][: asked.prompts]
    corpus, validity = Corpus.open(asked.corpus), ValidityScorer(load_world())
    asked.work.mkdir(parents=True, exist_ok=True)
    kept: dict[str, dict[str, Any]] = {}
    with open_model(ModelConfig(model=str(asked.model))) as model:
        planner = Planner(model, SamplingConfig(temperature=asked.temperature, max_tokens=96, batch_size=400))
        for system in ("samples", *asked.systems):
            file = asked.work / f"{asked.world}-{system.replace(':', '-')}.json"
            if not file.is_file():
                # A verifier of its own: what another system has encoded would be free.
                verifier = Verifier(corpus, RewardConfig(verifier="grounded"))
                verifier.score(goal="make tea", history=["boil the water"], continuations=[["pour the water"]])
                row = (
                    sampled(planner, verifier, examples)
                    if system == "samples"
                    else searched(PlanSearch(planner, verifier, config_of(system)), examples)
                )
                write_json(file, row)
            kept[system] = json.loads(file.read_text())
            print(f"{system}: {kept[system]['seconds']:.1f} s", flush=True)

    goals = [one.goal for one in examples]
    pool = kept["samples"]
    worth = totals(validity, examples, pool["plans"])
    rows = list(zip(pool["rewards"], worth, pool["plans"], pool["tokens"], strict=True))
    curve: Table = {
        "validity": np.array([best_of(rewards, own) for rewards, own, _, _ in rows]),
        "reward": np.array([best_of(rewards, rewards) for rewards, _, _, _ in rows]),
        "tokens": np.array([np.arange(1, SAMPLES + 1) * np.mean(tokens) for _, _, _, tokens in rows]),
        "encodings": np.array([different_steps(list(map(tuple, plans))) for _, _, plans, _ in rows]),
        "steps": np.array([best_of(rewards, [len(plan) for plan in plans]) for rewards, _, plans, _ in rows]),
    }

    def interval(values: NDArray[np.float64]) -> dict[str, float | None]:
        one = mean_interval(values.tolist(), goals)
        return {
            name: None if value is None else round(value, 4)
            for name, value in asdict(one).items()
            if name in ("mean", "low", "high")
        }

    systems: dict[str, dict[str, Any]] = {}
    for n in SHOWN:
        own = {name: curve[name][:, n - 1] for name in FIGURES}
        systems[f"best of {n}"] = {
            name: interval(values) if name == "validity" else float(values.mean()) for name, values in own.items()
        }
        systems[f"best of {n}"]["seconds"] = pool["seconds"] * n
    differences: dict[str, dict[str, Any]] = {}
    for system in asked.systems:
        row = kept[system]
        found: Table = {
            "validity": np.array([own for [own] in totals(validity, examples, [[plan] for plan in row["plans"]])]),
            "reward": np.array(row["rewards"]),
            "tokens": np.array(row["tokens"], np.float64),
            "encodings": np.array(row["encodings"], np.float64),
            "steps": np.array([len(plan) for plan in row["plans"]], np.float64),
        }
        systems[system] = {
            name: interval(values) if name == "validity" else float(values.mean()) for name, values in found.items()
        }
        systems[system]["seconds"] = row["seconds"]
        differences[system] = {}
        for cost in ("tokens", "encodings", "reward"):
            n = 1 + int(np.abs(curve[cost].mean(axis=0) - found[cost].mean()).argmin())
            differences[system][f"n of equal {cost}"] = n
            differences[system][f"validity minus best of n of equal {cost}"] = interval(
                found["validity"] - curve["validity"][:, n - 1]
            )
    print(json.dumps({"systems": systems, "differences": differences}, indent=1))
    target = (
        asked.json if asked.json.stem != "planning-search" else asked.json.with_stem(f"planning-search_{asked.world}")
    )
    write_result(
        target,
        {"systems": systems, "differences": differences},
        title=asked.title or f"Search while planning, {asked.world}",
        guide="planning.md",
        body=[
            f"Exact validity of the plan that the grounded reward likes best; {len(examples)} prompts, 95% intervals "
            f"over goals, temperature {asked.temperature}. Tokens written, encodings (different steps) and steps are "
            "means of a prompt; seconds are those of all prompts, on a busy machine. `recombine:SAMPLES:WIDTH`.",
            table(systems, "system"),
            table(differences, "system", title="Minus the best of n at the same cost, and at the same reward"),
        ],
        partial=asked.prompts < 100,
    )


if __name__ == "__main__":
    main()
