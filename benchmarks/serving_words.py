"""How well the words of the planner page hold: *supported* for a step, *knows this task* for a prompt.

    python benchmarks/serving_words.py CORPUS --examples test.jsonl --foreign other.jsonl [--prompts 150]

A prompt of `--examples` is shown with its true continuation, and with that of an example of another goal: the shares of
steps that the page calls supported. Its coverage is compared with that of prompts of `--foreign`, whose tasks the
corpus need not know. Neither file may hold videos that are narrated in the corpus.
"""

import argparse
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from common import add_json, table, write_result

from recipe.config import RewardConfig
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples
from recipe.reward.verifier import Verifier
from recipe.types import Example
from recipe_apps.serving.evidence import SUPPORT, CorpusEvidence


def drawn(path: Path, count: int, seed: int = 0) -> list[Example]:
    """Some examples with a history and a continuation."""
    examples = [one for one in read_examples(path) if one.history and one.continuation]
    random.Random(seed).shuffle(examples)
    return examples[:count]


def gains(evidence: CorpusEvidence, examples: list[Example], plans: list[tuple[str, ...]]) -> list[float]:
    """What each step of each plan adds to the narrations of its activity, over those of anything else."""
    prompted = [((one.goal, one.history), plan) for one, plan in zip(examples, plans, strict=True)]
    return [gain for own in evidence.gains(prompted) for gain in own]


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--examples", type=Path, required=True)
    parser.add_argument("--foreign", type=Path, required=True)
    parser.add_argument("--prompts", type=int, default=150)
    add_json(parser, "serving-words")
    asked = parser.parse_args()
    evidence = CorpusEvidence(Verifier(Corpus.open(asked.corpus), RewardConfig(verifier="grounded")))
    own, foreign = drawn(asked.examples, asked.prompts), drawn(asked.foreign, asked.prompts)
    draw = random.Random(1)
    wrong = [draw.choice([other for other in own if other.goal != one.goal]).continuation for one in own]
    true_gains = gains(evidence, own, [one.continuation for one in own])
    wrong_gains = gains(evidence, own, wrong)
    result: dict[str, Any] = {"prompts": len(own), "narrations": len(evidence.verifier.corpus)}
    for threshold in (0.0, SUPPORT, 0.02, 0.05):
        result[f"supported above {threshold:g}"] = {
            "true": float(np.mean(np.array(true_gains) > threshold)),
            "wrong": float(np.mean(np.array(wrong_gains) > threshold)),
        }
    for name, examples in (("known", own), ("foreign", foreign)):
        found = evidence.coverage([(one.goal, one.history) for one in examples])
        values = [one["value"] for one in found if one["value"] is not None]
        states = Counter(one["state"] for one in found)
        result[name] = {
            "coverage": [round(float(value), 3) for value in np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95))],
            "states": {state: round(count / len(found), 3) for state, count in states.items()},
        }
    for name, value in result.items():
        print(f"{name}: {value}")
    shares = {name: value for name, value in result.items() if name.startswith("supported")}
    write_result(
        asked.json,
        result,
        title="How well the words of the page hold",
        guide="serving.md",
        body=[
            f"{len(own)} prompts against {result['narrations']:,} narrations: the share of steps called supported, "
            "of true "
            "continuations and of continuations of another goal; and what the page says of known and of foreign tasks.",
            table(shares, "steps"),
            table({name: result[name] for name in ("known", "foreign")}, "tasks"),
        ],
        partial=asked.prompts < parser.get_default("prompts"),
    )


if __name__ == "__main__":
    main()
