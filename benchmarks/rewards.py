"""What each verifier costs per prompt of four plans, in turns on the same prompts: new prompts, then known ones.

    python benchmarks/rewards.py CORPUS PROCEDURES.jsonl [--prompts 200] [--self-trained FOLDER]

FOLDER is what `recipe reward self-train --corpus CORPUS` has written; its reward is then timed, too. Steps are embedded
beforehand: all verifiers read the same. Times are of the processor, all threads.
"""

import argparse
import time
from pathlib import Path

from common import add_json, table, write_result

from recipe.audit.perturb import build_prompts, select
from recipe.config import GroundedConfig, RewardConfig
from recipe.corpus.store import Corpus
from recipe.data.procedures import read_procedures
from recipe.reward.scorer import PromptGroup, score_or_raise
from recipe.reward.verifier import Verifier

PLANS = ("true", "shuffled", "half", "filler")
BATCH = 8
"""Prompts scored at once, as GRPO does."""


def main() -> None:
    """Time the verifiers in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("procedures", type=Path)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--self-trained", type=Path)
    add_json(parser, "reward-cost")
    arguments = parser.parse_args()
    corpus = Corpus.open(arguments.corpus)
    settings = {name: RewardConfig(verifier=name) for name in ("paper", "grounded")}
    if arguments.self_trained is not None:
        trained = GroundedConfig(self_trained=str(arguments.self_trained), self_trained_anyway=True)
        settings["self-trained"] = RewardConfig(verifier="grounded", grounded=trained)
    verifiers = {name: Verifier(corpus, own) for name, own in settings.items()}
    procedures = read_procedures(arguments.procedures, "skip").procedures
    prompts = build_prompts(select(procedures, limit=arguments.prompts), verifiers["paper"].embed)
    groups = [
        PromptGroup(p.goal, p.history, [p.variants[kind] for kind in PLANS if kind in p.variants]) for p in prompts
    ]
    first, *timed = [groups[i : i + BATCH] for i in range(0, len(groups), BATCH)]
    for verifier in verifiers.values():
        verifier.embed([text for group in groups for text in (group.goal, *group.steps)])
        _run(verifier, first)
    seconds = {f"{name}, {known}": 0.0 for known in ("new", "known") for name in verifiers}
    for known in ("new", "known"):
        for batch in timed:
            for name, verifier in verifiers.items():
                seconds[f"{name}, {known}"] += _run(verifier, batch)
    count = sum(map(len, timed))
    figures = {name: 1e3 * spent / count for name, spent in seconds.items()}
    write_result(
        arguments.json,
        {"segments": int(corpus.offsets[-1]), "prompts": count, "milliseconds_per_prompt": figures},
        title="Cost of a reward",
        guide="reward.md",
        body=[
            f"Prompts of {len(PLANS)} plans against {corpus.offsets[-1]:,} segments of {corpus.dimension} "
            "dimensions; steps are "
            f"embedded beforehand. Processor time over {count} prompts.",
            table({name: {"ms a prompt": value} for name, value in figures.items()}, "verifier, prompts"),
        ],
        partial=arguments.prompts < parser.get_default("prompts"),
    )
    for name, milliseconds in figures.items():
        print(f"{name:20} {milliseconds:7.2f} ms a prompt")


def _run(verifier: Verifier, batch: list[PromptGroup]) -> float:
    began = time.process_time()
    score_or_raise(verifier, batch)
    return time.process_time() - began


if __name__ == "__main__":
    main()
