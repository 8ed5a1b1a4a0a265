"""Does GRPO teach a planner what its base always gets wrong? The gain against the share of systematic errors.

    python benchmarks/systematic.py [--run 0.65:grounded ...] [--steps 150] [--seed 0] [--quick]

A world of three domains: 20 goals that are trained on. A base reads 12,000 noisy texts about them, in which each goal
has errors of its own in a share of its texts; at share 0 the errors are independent. GRPO then trains it on a reward:
the grounded one with the right corpus or with that of other domains, the paper's, R0, or exact validity, which is the
most that any reward can teach. Base and trained planner write plans for 120 test prompts, cut points that nobody
trained on, at temperature 0.7 and greedily. Values are exact validity; intervals cover goals, not the seed of training.

Settings were chosen on validation prompts of another base. One thread; a run is a share and a reward, and what a folder
(`--folder`) has already is not made again. Needs the extras `train` and `offline`.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from common import add_json, table, write_result

from recipe.artifacts import read_json, write_json
from recipe.config import (
    BaseModelConfig,
    CorpusConfig,
    EncoderConfig,
    GroundedConfig,
    GRPOConfig,
    LoraSettings,
    RewardConfig,
)
from recipe.corpus.build import build_corpus
from recipe.corpus.store import Corpus
from recipe.data.examples import read_examples, write_examples
from recipe.models.checkpoints import decode_completions, end_tokens
from recipe.plan_text import plan_steps
from recipe.progress import SILENT
from recipe.reward.baselines import RelevanceScorer
from recipe.reward.scorer import Scorer
from recipe.reward.verifier import Verifier
from recipe.stats import Interval, paired_interval
from recipe.text import planner_messages
from recipe.training.base import train_base
from recipe.training.grpo import train_grpo
from recipe.training.policy import load_policy, sample
from recipe.types import Example
from recipe.world.examples import TextNoise, draw_parts, noisy_examples
from recipe.world.load import load_world
from recipe.world.narrator import goal_narrations
from recipe.world.validity import ValidityScorer, score_plan

DOMAINS = ("cooking", "crafts", "household")
REWARDS = ("grounded", "wrong", "paper", "r0", "validity")
INDEPENDENT = TextNoise(drop=0.11, swap=0.15, alien=0.125, repeat=0.06, stop=0.06)
SAMPLES = 5
LONGEST = 96
ALL_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def main() -> None:
    """Train what is asked for, and print the gains."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", action="append", default=[], metavar="SHARE:REWARD", help=f"of {', '.join(REWARDS)}")
    parser.add_argument("--steps", type=int, default=150, help="of GRPO, 8 prompts of 8 plans each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("runs/systematic"))
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    add_json(parser, "studies-systematic")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.quick:
        options.run, options.steps = ["0.65:grounded"], 2
    shares = (f"{share}:grounded" for share in (0, 0.35, 0.65, 0.9))
    rows = {}
    for run in options.run or [*shares, *(f"0.65:{reward}" for reward in REWARDS[1:])]:
        share, _, reward = run.partition(":")
        folder = options.folder / f"share-{float(share):g}-seed-{options.seed}"
        examples = prepare(folder, float(share), options.seed, 2 if options.quick else 450)
        base = measured(folder / "base", examples)
        output, seconds = train(folder, reward, options)
        trained = measured(output, examples)
        rows[f"{float(share):g}, {reward}"] = row = gains(base, trained) | {"seconds of training": seconds}
        print(f"{run}: " + ", ".join(f"{name} {figure}" for name, figure in row.items()), flush=True)
    write_result(
        options.json,
        {"steps": options.steps, "seed": options.seed, "rows": rows},
        title="What GRPO teaches, by how systematically the base errs",
        guide="studies.md",
        body=[
            f"{options.steps} steps of 8 prompts x 8 plans, temperature 0.7, token mean, beta 0, LoRA 32 on all layers "
            "at 5e-4, pool 40; 120 test prompts of 20 goals, one look.",
            table(rows, "share of texts with each error, reward"),
        ],
        partial=options.quick,
    )


def prepare(folder: Path, share: float, seed: int, steps: int) -> list[Example]:
    """Data, corpora and base of a share; returns the test prompts."""
    world = load_world()
    goals = [graph.goal for graph in world.goals.values() if graph.domain in DOMAINS and not graph.held_out]
    others = [graph.goal for graph in world.goals.values() if graph.domain not in DOMAINS and not graph.held_out]
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "test.jsonl").is_file():
        write_examples(folder / "train.jsonl", draw_parts(world, goals, "train", 256, seed))
        write_examples(folder / "test.jsonl", draw_parts(world, goals, "test", 120, seed))
    encoder = CorpusConfig(encoder=EncoderConfig(name="minilm", dtype="auto"), shard_size=512)
    for name, own in (("corpus", goals), ("wrong", others[: len(goals)])):
        if not (folder / name).is_dir():
            build_corpus(
                [one for goal in own for one in goal_narrations(world, goal, 32, seed)], folder / name, encoder
            )
    noise = TextNoise(drop=0.06, swap=0, alien=0, repeat=0, stop=0, systematic=share) if share else INDEPENDENT
    if not (folder / "documents.jsonl").is_file():
        write_examples(folder / "documents.jsonl", noisy_examples(world, 12_000, seed, goals, noise))
    train_base(
        BaseModelConfig(
            examples=folder / "documents.jsonl", output=folder / "base", steps=steps, batch_tokens=1024, bf16=False,
            seed=seed, save_every=10_000,
        )
    )  # fmt: skip
    return read_examples(folder / "test.jsonl")


def train(folder: Path, reward: str, options: argparse.Namespace) -> tuple[Path, float]:
    """The run of GRPO on a reward, and the seconds that it took."""
    corpus = folder / ("wrong" if reward == "wrong" else "corpus")
    settings = RewardConfig(
        verifier="paper" if reward == "paper" else "grounded", grounded=GroundedConfig(pool_size=40)
    )
    config = GRPOConfig(
        model=str(folder / "base" / "model"), examples=folder / "train.jsonl", corpus=corpus,
        output=folder / f"grpo-{reward}", steps=options.steps, prompts_per_step=8, group_size=8, beta=0, loss="dapo",
        learning_rate=5e-4, max_completion_tokens=LONGEST, save_every=1000, bf16=False, seed=options.seed, metrics=(),
        lora=LoraSettings(rank=32, alpha=64, dropout=0, target_modules=ALL_LAYERS), reward=settings,
    )  # fmt: skip
    scorer: Scorer = ValidityScorer(load_world())
    if reward != "validity":
        verifier = Verifier(Corpus.open(corpus), settings)
        scorer = verifier
        if reward == "r0":
            known = sorted(
                {s for own in read_examples(folder / "train.jsonl") for s in (*own.history, *own.continuation)}
            )
            scorer = RelevanceScorer(verifier.embed, verifier.embed(known).mean(axis=0))
    began = time.process_time()
    train_grpo(config, scorer, SILENT)
    seconds = folder / f"grpo-{reward}" / "seconds.json"
    if not seconds.is_file():
        write_json(seconds, {"cpu": round(time.process_time() - began)})
    return config.output, read_json(seconds)["cpu"]


def measured(run: Path, examples: Sequence[Example]) -> dict[str, list[Any]]:
    """Exact validity and length of the plans of a run's model, by prompt; made once."""
    kept = run / "measured.json"
    if kept.is_file():
        return dict(read_json(kept))
    policy, world = load_policy(str(run / "model")), load_world()
    chats = [planner_messages(own.goal, own.history) for own in examples]
    prompts = policy.tokenizer.apply_chat_template(chats, add_generation_prompt=True, return_dict=True)["input_ids"]
    ends = [*end_tokens(policy.model.generation_config, policy.tokenizer), policy.tokenizer.pad_token_id]
    figures: dict[str, list[Any]] = {"goal": [own.goal for own in examples]}
    for name, temperature, count in (("warm", 0.7, SAMPLES), ("greedy", 1e-4, 1)):
        asked = [prompt for prompt in prompts for _ in range(count)]
        keys = [f"test {place}" for place in range(len(asked))]
        written = sample(policy.model, asked, keys, temperature=temperature, longest=LONGEST, ends=ends)
        plans = [plan_steps(text) for text in decode_completions(policy.tokenizer, written, "")]
        scores = [
            score_plan(world, examples[place // count].goal, examples[place // count].history, plan).score
            for place, plan in enumerate(plans)
        ]
        figures[name] = [sum(scores[at : at + count]) / count for at in range(0, len(scores), count)]
        figures[f"{name} steps"] = [len(plan) for plan in plans]
    write_json(kept, figures)
    return figures


def gains(base: dict[str, list[Any]], trained: dict[str, list[Any]]) -> dict[str, Any]:
    """Base, trained and difference at both temperatures, and the length of plans."""
    figures: dict[str, Any] = {}
    for name in ("warm", "greedy"):
        first, last = (sum(own[name]) / len(own[name]) for own in (base, trained))
        gain = paired_interval(trained[name], base[name], base["goal"])
        figures[f"{name}, base"], figures[f"{name}, trained"] = round(first, 3), round(last, 3)
        figures[f"{name}, gain"] = shown(gain)
    steps = (sum(own["warm steps"]) / len(own["warm steps"]) for own in (base, trained))
    figures["steps, base to trained"] = " to ".join(f"{mean:.1f}" for mean in steps)
    return figures


def shown(gain: Interval) -> str:
    """A difference with its interval."""
    between = "" if gain.low is None or gain.high is None else f" [{gain.low:.3f}, {gain.high:.3f}]"
    return f"{gain.mean:+.3f}{between}"


if __name__ == "__main__":
    main()
