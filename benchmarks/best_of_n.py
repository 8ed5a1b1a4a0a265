"""Best of N when plans are served, rounds of training on it, or GRPO: what each buys in the world, and at what cost.

    recipe reproduce main --scale tiny --output RUN            # or any run folder with base/ and corpus/ of the world
    python benchmarks/best_of_n.py RUN [--seeds 0 1] [--prompts 40] [--plans 768] [--work DIR] [--quick]

The base of RUN plans for held-out cut points and for held-out goals. Exact validity judges all plans, and nothing else.

- served: of N = 1, 2, 4, 8, 16, 32 plans of the base, the best by the grounded reward, the paper's, R0 and the oracle
- rounds: one or two rounds of `recipe train best-of-n` by the grounded reward with N = 4, 8, 16, by exact validity,
  and on a random plan, from equally many plans a round; one plan is served, or the best of 4 by the grounded reward
- GRPO by the grounded reward for the processor time of the rounds with N = 8

Training prompts are cut points of other goals and of other places. KL is in nats a plan: of served plans the bound
ln N - (N - 1) / N, of trained ones an estimate from their plans. DIR keeps the figures that are there, to continue.
Writes benchmarks/results/best_of_n.json.
"""

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from peft import get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file

from recipe.artifacts import read_json, remove, write_json
from recipe.config import BestOfNConfig, GRPOConfig, LoraSettings, RewardConfig
from recipe.corpus.store import Corpus
from recipe.data.examples import write_examples
from recipe.models.checkpoints import Checkpoint
from recipe.progress import Advance
from recipe.prompting import PLAIN
from recipe.reward.embeddings import StepEmbeddings
from recipe.reward.scorer import PromptGroup, Scorer, score_or_raise
from recipe.reward.verifier import Verifier
from recipe.stats import mean_interval
from recipe.text import plan_steps
from recipe.training.best_of_n import train_best_of_n
from recipe.training.grpo import train_grpo
from recipe.training.loop import quiet
from recipe.training.policy import load_policy, lora_config, sample
from recipe.training.validation import divergences
from recipe.types import Example
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe.world.validity import ValidityScorer

RESULT = Path(__file__).parent / "results" / "best_of_n.json"
SPLITS = {"test_cuts": "held-out cut points", "test_goals": "held-out goals"}
SERVED = (1, 2, 4, 8, 16, 32)
LONGEST = 96
LORA = LoraSettings(
    rank=32,
    alpha=64,
    target_modules=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
)
SHARED: dict[str, Any] = {"lora": LORA, "max_completion_tokens": LONGEST, "metrics": (), "bf16": False}
ARMS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "grounded, N = 8": ("grounded", 2, {"n": 8}),
    "exact validity, N = 8": ("validity", 1, {"n": 8}),
    "random plan, N = 8": ("validity", 1, {"n": 8, "choose": "random"}),
    "grounded, N = 4": ("grounded", 1, {"n": 4}),
    "grounded, N = 16": ("grounded", 1, {"n": 16}),
}
"""What scores, rounds, and settings."""
RATE = 1e-3
GRPO = "GRPO, grounded"
SERVES = 4
"""Plans of each prompt that a trained model writes."""

Table = dict[str, np.ndarray]
"""Of some plans by name: rewards, validities and numbers of steps, each [prompts, plans]."""


class Stages:
    """A progress that calls `after` with the number of each round, or of each step of GRPO, once it is done."""

    def __init__(self, title: str, after: Callable[[int], None]) -> None:
        self._title, self._after = title, after

    @contextmanager
    def task(self, name: str, _total: int | None = None) -> Iterator[Advance]:
        """Count what the task of this title advances by."""
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if name == self._title and count == 1:
                self._after(done)

        yield advance


class Bench:
    """Prompts, scorers and the base, and figures of what they give."""

    def __init__(self, run: Path, prompts: int, plans: int, work: Path) -> None:
        world = load_world()
        self.work, self.plans, self.base = work, plans, str(run / "base" / "model")
        self.tested = [e for split in SPLITS for e in draw_examples(world, split, prompts, seed=1)]
        self.examples = work / "train.jsonl"
        write_examples(self.examples, draw_examples(world, "train", 4 * plans // 8, seed=1))
        self.corpus = run / "corpus"
        corpus = Corpus.open(self.corpus)
        embeddings = StepEmbeddings(corpus.encoder)
        verifiers = {
            n: Verifier(corpus, RewardConfig(verifier=n), embeddings=embeddings) for n in ("grounded", "paper", "r0")
        }
        self.scorers: dict[str, Scorer] = {**verifiers, "validity": ValidityScorer(world)}

    def served(self) -> dict[str, Any]:
        """The base: for each N and each scorer the plans that it would serve."""
        policy = load_policy(self.base)
        began = time.process_time()
        texts, _ = write(policy, policy.model, self.tested, max(SERVED), "served")
        seconds = (time.process_time() - began) / (len(self.tested) * max(SERVED))
        plans = [[plan_steps(text) for text in own] for own in texts]
        scored, costs = {}, {}
        for name in self.scorers:
            began = time.process_time()
            scored[name] = self._rewards(name, plans)
            costs[name] = (time.process_time() - began) / scored[name].size
        lengths = np.array([[len(plan) for plan in own] for own in plans], dtype=float)
        cells = []
        for n in SERVED:
            for name in self.scorers if n > 1 else ("grounded",):
                # All disjoint groups of n plans, for a smaller error.
                blocks = scored[name].reshape(len(plans), -1, n).argmax(-1)
                places = blocks + np.arange(blocks.shape[1]) * n
                chosen = {
                    key: np.take_along_axis(value, places, 1)
                    for key, value in (("validity", scored["validity"]), ("steps", lengths))
                }
                named = {"by": name if n > 1 else "none", "n": n, "kl": math.log(n) - (n - 1) / n}
                cells.append(named | self._figures(chosen))
        return {"plan_seconds": seconds, "score_seconds": costs, "cells": cells}

    def rounds(self, name: str, seed: int, quick: bool) -> list[dict[str, Any]]:
        """The figures after each round of an arm."""
        by, count, settings = ARMS[name]
        config = BestOfNConfig(
            model=self.base, examples=self.examples, corpus=self.corpus, output=self.work / f"rounds-{seed}",
            reward=RewardConfig(verifier="grounded"), prompts_per_round=self.plans // settings["n"],
            rounds=1 if quick else count, epochs=3, batch_size=8, learning_rate=RATE, save_every=1000, seed=seed,
            **SHARED, **settings,
        )  # fmt: skip
        remove(config.output)
        found: list[dict[str, Any]] = []
        spent, began = 0.0, time.process_time()

        def after(number: int) -> None:
            nonlocal spent, began
            spent += time.process_time() - began
            newest = max(config.output.glob("checkpoints/checkpoint-*"), key=lambda one: one.stat().st_mtime)
            found.append({"arm": name, "seed": seed, "rounds": number, "train_seconds": spent} | self._trained(newest))
            print(found[-1], flush=True)
            began = time.process_time()

        train_best_of_n(config, self.scorers[by], Stages("best of N", after))
        return found

    def grpo(self, seed: int, steps: int) -> list[dict[str, Any]]:
        """The figures after some steps of GRPO."""
        config = GRPOConfig(
            model=self.base, examples=self.examples, corpus=self.corpus, output=self.work / f"grpo-{seed}",
            reward=RewardConfig(verifier="grounded"), learning_rate=RATE, steps=steps, save_every=steps, seed=seed,
            **SHARED,
        )  # fmt: skip
        remove(config.output)
        began = time.process_time()
        train_grpo(config, self.scorers["grounded"])
        spent = time.process_time() - began
        row = {"arm": GRPO, "seed": seed, "steps_trained": steps, "train_seconds": spent}
        return [row | self._trained(config.output / f"checkpoints/checkpoint-{steps}")]

    def _trained(self, checkpoint: Path) -> dict[str, Any]:
        """Figures of the adapter of a checkpoint: one plan served, and the best of several by the grounded reward."""
        with quiet():
            policy = load_policy(self.base)
            model = get_peft_model(policy.model, lora_config(LORA, policy.model))
            set_peft_model_state_dict(model, load_file(checkpoint / "adapter_model.safetensors"))
            texts, tokens = write(policy, model.get_base_model(), self.tested, SERVES, "trained")
            kl = fmean(divergences(model, rendered(policy, self.tested), [own[0] for own in tokens], 1.0))
        plans = [[plan_steps(text) for text in own] for own in texts]
        steps = np.array([[len(plan) for plan in own] for own in plans], dtype=float)
        validity, rewards = self._rewards("validity", plans), self._rewards("grounded", plans)
        best = rewards.argmax(-1)[:, None]
        chosen = {"validity": np.take_along_axis(validity, best, 1), "steps": np.take_along_axis(steps, best, 1)}
        return {"kl": kl, "best_of_4": self._figures(chosen)} | self._figures({"validity": validity, "steps": steps})

    def _rewards(self, name: str, plans: Sequence[Sequence[tuple[str, ...]]]) -> np.ndarray:
        groups = [PromptGroup.of(one.goal, one.history, own) for one, own in zip(self.tested, plans, strict=True)]
        return np.array([[reward.total for reward in own] for own in score_or_raise(self.scorers[name], groups)])

    def _figures(self, table: Table) -> dict[str, Any]:
        """Mean validity and length on each split, and each prompt's own validity."""
        found: dict[str, Any] = {"prompts": table["validity"].mean(-1).round(5).tolist()}
        for split, title in SPLITS.items():
            places = [place for place, one in enumerate(self.tested) if one.split == split]
            found[title] = {name: round(float(values[places].mean()), 4) for name, values in table.items()}
        return found


def write(
    policy: Checkpoint, model: Any, examples: Sequence[Example], count: int, name: str
) -> tuple[list[list[str]], list[list[list[int]]]]:
    """`count` plans of each example, as texts and as tokens."""
    read = rendered(policy, examples)
    ends = [policy.tokenizer.eos_token_id, policy.tokenizer.pad_token_id]
    tokens: list[list[list[int]]] = []
    for first in range(0, len(examples), max(1, 400 // count)):
        part = range(first, min(len(examples), first + max(1, 400 // count)))
        keys = [f"{name} {place} {number}" for place in part for number in range(count)]
        asked = [read[place] for place in part for _ in range(count)]
        said = sample(model, asked, keys, temperature=1.0, longest=LONGEST, ends=ends)
        tokens += [said[place : place + count] for place in range(0, len(said), count)]
    texts = [policy.tokenizer.batch_decode(own, skip_special_tokens=True) for own in tokens]
    return texts, tokens


def rendered(policy: Checkpoint, examples: Sequence[Example]) -> list[list[int]]:
    """The prompts of examples as tokens."""
    chats = [PLAIN.training_chat(example) for example in examples]
    return list(policy.tokenizer.apply_chat_template(chats, add_generation_prompt=True, return_dict=True)["input_ids"])


def gains(rows: Sequence[dict[str, Any]], base: Sequence[float], examples: Sequence[Example]) -> dict[str, Any]:
    """Validity minus that of the base, paired by prompt, over seeds; intervals over goals."""
    means = np.mean([row["prompts"] for row in rows], axis=0) - np.asarray(base)
    found = {}
    for split, title in SPLITS.items():
        places = [place for place, one in enumerate(examples) if one.split == split]
        gain = mean_interval(means[places], [examples[place].goal for place in places])
        found[title] = {"mean": gain.mean, "low": gain.low, "high": gain.high}
    return found


def main() -> None:
    """Measure what is not measured yet, and write."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as place:
        work = arguments.work or Path(place)
        work.mkdir(parents=True, exist_ok=True)
        bench = Bench(arguments.run, arguments.prompts, arguments.plans, work)
        known = work / "figures.json"
        figures: dict[str, Any] = read_json(known) if known.is_file() else {}

        def cell(name: str, measure: Callable[[], Any]) -> Any:
            if name not in figures:
                figures[name] = measure()
                write_json(known, figures)
            return figures[name]

        served = cell("served", bench.served)
        base = served["cells"][0]
        trained: list[dict[str, Any]] = []
        for seed in arguments.seeds:
            for name in (name for name in ARMS if name in arguments.arms):
                trained += cell(
                    f"{name}, {seed}", lambda name=name, seed=seed: bench.rounds(name, seed, arguments.quick)
                )
            if GRPO in arguments.arms:
                spent = [row["train_seconds"] for row in trained if row["arm"] == next(iter(ARMS))][-1]
                steps = max(2, round(spent / arguments.step_seconds))
                trained += cell(f"{GRPO}, {seed}", lambda seed=seed, steps=steps: bench.grpo(seed, steps))
            record(arguments, served, trained, base, bench.tested)


def record(
    arguments: argparse.Namespace,
    served: dict[str, Any],
    trained: list[dict[str, Any]],
    base: dict[str, Any],
    tested: Sequence[Example],
) -> None:
    """Write the result and print it as tables."""
    rows = []
    for cell in served["cells"]:
        # Scoring with the encoding of the steps, which the grounded reward, the first, does for all.
        score = served["score_seconds"]["grounded"] if cell["n"] > 1 else 0.0
        cost = {"plan_seconds": cell["n"] * (served["plan_seconds"] + score)}
        rows.append(_row(f"best of {cell['n']} by {cell['by']}", [cell | cost], base, tested))
    for key in dict.fromkeys((row["arm"], row.get("rounds")) for row in trained):
        own = [row for row in trained if (row["arm"], row.get("rounds")) == key]
        rows.append(
            _row(f"{key[0]}" + (f", round {key[1]}" if key[1] else ""), own, base, tested)
            | {"plan_seconds": served["plan_seconds"]}
        )
        best = [row["best_of_4"] | {name: row[name] for name in ("kl", "train_seconds")} for row in own]
        rows.append(
            _row(f"{rows[-1]['what']}, best of 4", best, base, tested)
            | {"plan_seconds": 4 * (served["plan_seconds"] + served["score_seconds"]["grounded"])}
        )
    write_json(RESULT if arguments.output is None else arguments.output, {
        "prompts": len(tested), "plans": arguments.plans, "seeds": arguments.seeds,
        "plan_seconds": served["plan_seconds"], "score_seconds": served["score_seconds"], "rows": rows,
    })  # fmt: skip
    for row in rows:
        cells = [f"{row['what']:44} kl {row['kl']:5.2f}  train {row.get('train_seconds', 0):4.0f} s"]
        cells.append(f"plan {1000 * row['plan_seconds']:4.0f} ms")
        for title in SPLITS.values():
            gain = row[title]["gain"]
            cells.append(f"{row[title]['validity']:.3f} {gain['mean']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]")
            cells.append(f"{row[title]['steps']:.1f} steps")
        print("  ".join(cells))


def _row(what: str, own: Sequence[dict[str, Any]], base: dict[str, Any], tested: Sequence[Example]) -> dict[str, Any]:
    """One row of the tables: means over seeds."""
    gain = gains(own, base["prompts"], tested)
    row: dict[str, Any] = {"what": what, "seeds": len(own)}
    row |= {name: fmean(one[name] for one in own) for name in ("kl", "train_seconds", "plan_seconds") if name in own[0]}
    for title in SPLITS.values():
        means = {name: fmean(one[title][name] for one in own) for name in ("validity", "steps")}
        row[title] = means | {"gain": gain[title]}
    return row


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder with base/ and corpus/ of the world")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--prompts", type=int, default=40, help="test prompts of each split")
    parser.add_argument("--plans", type=int, default=768, help="plans of a round: N times its prompts")
    parser.add_argument(
        "--step-seconds", type=float, default=3.0, help="processor seconds of a step of GRPO, for its steps"
    )
    parser.add_argument("--arms", nargs="+", default=[*ARMS, GRPO], help="what is trained; by default everything")
    parser.add_argument("--work", type=Path, help="folder for the training runs, kept to continue")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--quick", action="store_true", help="one round of each")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
