"""One step of GRPO by part, compared with TRL alone: its own trainer, a constant reward, our roll-outs, the same batch.

    python benchmarks/training.py [--model FOLDER ...] [--shape 135m ...] [--device cpu] [--quick]

A step has 8 prompts of 8 completions of at most 48 tokens, all in one pass: the goals and histories of the embedded
world, whose narrations are the corpus. A model is a folder, or random weights of the shape of the world's planner
(`2m`), SmolLM2-135M (`135m`), Qwen2.5-0.5B (`0.5b`) or Qwen2.5-3B (`3b`). What random weights write cannot be read, so
their rewards are those of the world's steps in drawn order, each with a number of its own, so that all are new to the
encoder.

The two trainers take turns; each trains from the same weights in each round, and its first step is not counted. The
learning rate is too small to change what is sampled: on a CPU both write the same completions, which is checked; on a
GPU, where sums have no fixed order, as many tokens. Times of a part leave out the parts within it; on a CPU they are
processor seconds, to be read with OMP_NUM_THREADS=1. Needs the extras `train` and, for the default encoder, `offline`.

`--device cuda` computes in bfloat16 on the first GPU.
"""

import argparse
import copy
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from common import add_json, table, write_result
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOTrainer

from recipe.artifacts import installed
from recipe.config import CorpusConfig, EncoderConfig, GRPOConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.store import Corpus
from recipe.models.checkpoints import Checkpoint
from recipe.reward.verifier import Verifier
from recipe.text import format_plan
from recipe.training.base import train_tokenizer
from recipe.training.grpo import RewardFunction, grpo_trainer
from recipe.training.loop import quiet
from recipe.training.policy import load_policy
from recipe.training.runs import open_run
from recipe.types import Example
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe.world.narrator import narrate

SHAPES: dict[str, transformers.PretrainedConfig] = {
    "tiny": transformers.Qwen2Config(
        vocab_size=2048, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=True,
    ),
    "2m": transformers.Qwen2Config(
        vocab_size=2048, hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=6,
        num_key_value_heads=3, tie_word_embeddings=True,
    ),
    "135m": transformers.LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, tie_word_embeddings=True,
    ),
    "0.5b": transformers.Qwen2Config(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
        num_key_value_heads=2, tie_word_embeddings=True,
    ),
    "3b": transformers.Qwen2Config(
        vocab_size=151936, hidden_size=2048, intermediate_size=11008, num_hidden_layers=36, num_attention_heads=16,
        num_key_value_heads=2, tie_word_embeddings=True,
    ),
}  # fmt: skip
PARTS = ("roll-out", "reward", "forward", "backward", "optimiser")
RECIPE, BARE = "recipe", "TRL alone"
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "recipe-planner")
STEPS = 2
"""Of a round: the first one warms up."""


class Clock(TrainerCallback):  # type: ignore[misc]
    """Seconds of a trainer's parts, by step; a part within another counts for itself only."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.written: list[list[list[int]]] = []
        self.memory: int | None = None
        self._within: list[float] = []
        self._began = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        began = self._now()
        self._within.append(0.0)
        try:
            yield
        finally:
            spent = self._now() - began
            inner = self._within.pop()
            self.steps[-1][name] += spent - inner
            if self._within:
                self._within[-1] += spent

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*values: Any, **options: Any) -> Any:
            with self.part(name):
                return function(*values, **options)

        wrapped.__name__ = name
        return wrapped

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.steps.append(dict.fromkeys(PARTS, 0.0))
        self._began = self._now()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._optimiser = self._now()

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        self.steps[-1]["optimiser"] += self._now() - self._optimiser

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.steps[-1]["step"] = self._now() - self._began

    @staticmethod
    def _now() -> float:
        if not torch.cuda.is_available():
            return time.process_time()  # over all threads: others may use the machine, too
        torch.cuda.synchronize()
        return time.perf_counter()


def main() -> None:
    """Measure the models asked for, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, action="append", default=[], help="a model folder; may be repeated")
    parser.add_argument("--shape", choices=SHAPES, action="append", default=[], help="random weights; may be repeated")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16 on the CPU, too")
    parser.add_argument("--corpus", type=Path, help="a corpus folder in place of the world's narrations")
    parser.add_argument("--encoder", default="minilm", help="encoder of the world's narrations")
    parser.add_argument("--micro-batch", type=int, help="completions in a forward and backward pass; left out: all")
    parser.add_argument("--group-size", type=int, default=8, help="completions of a prompt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tiny model, one round, words hashed")
    add_json(parser, "training")
    options = parser.parse_args()
    if options.quick:
        options.shape, options.rounds, options.encoder = ["tiny"], 1, "hash:64"
    if (options.device == "cuda") != torch.cuda.is_available():
        parser.error("training uses a GPU exactly where there is one; hide it with CUDA_VISIBLE_DEVICES= for the CPU")
    models: list[Path | str] = [*options.model, *options.shape] or ["135m"]
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder, quiet():
        corpus = options.corpus or world_corpus(Path(folder) / "corpus", options.encoder)
        for model in models:
            name = model if isinstance(model, str) else model.name
            results[name] = measure(model, corpus, Path(folder) / f"{len(results)}", options)
            show(name, results[name])
    machine = {"device": options.device, "threads": torch.get_num_threads()}
    rows = {
        f"{model}, {name}": row[name] | ({"of TRL's step": row["times_TRL"]} if name == RECIPE else {})
        for model, row in results.items()
        for name in (RECIPE, BARE)
    }
    written = ", ".join(f"{row['tokens']:,} by {model}" for model, row in results.items())
    write_result(
        options.json,
        {**machine, "versions": installed(PACKAGES), "models": results},
        title="A step of GRPO by part, compared with TRL",
        guide="training.md",
        body=[
            f"8 prompts of the embedded world, {options.group_size} completions of at most 48 tokens each, passes of "
            f"{options.micro_batch or 'all'} completions; median seconds of a part. Tokens written: {written}.",
            table(rows, "model, trainer"),
        ],
        partial=options.quick,
        device=torch.cuda.get_device_name() if options.device == "cuda" else "",
    )


def world_corpus(target: Path, encoder: str) -> Path:
    """The embedded world's narrations as a corpus."""
    build_corpus(narrate(load_world(), 8), target, CorpusConfig(encoder=EncoderConfig(name=encoder, dtype="auto")))
    return target


def measure(model: Path | str, corpus: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each part with both trainers, medians over the rounds."""
    world = load_world()
    config = GRPOConfig(
        model=str(model), examples="none", corpus=corpus, output=folder / "run", steps=STEPS, learning_rate=1e-30,
        max_completion_tokens=48, bf16=True if options.bf16 or options.device == "cuda" else None, metrics=(),
        save_every=10 * STEPS, micro_batch=options.micro_batch, group_size=options.group_size,
    )  # fmt: skip
    examples = draw_examples(world, "train", 200)
    policy = opened(model, examples, config)
    verifier = Verifier(Corpus.open(corpus), config.reward)
    plans = None if isinstance(model, Path) else written_plans(examples)
    clocks: dict[str, list[Clock]] = {RECIPE: [], BARE: []}
    # A GPU's kernels are compiled and chosen in a round of both trainers that does not count.
    warm = 1 if options.device == "cuda" else 0
    for number in range(options.rounds + warm):
        for name, kept in clocks.items():
            output = config.model_copy(update={"output": folder / f"{name}-{number}"})
            kept.append(train(name, output, policy, examples, verifier, plans))
    clocks = {name: kept[warm:] for name, kept in clocks.items()}
    ours, theirs = ([step for clock in kept for step in clock.steps[1:]] for kept in clocks.values())
    written = [ids for step in clocks[RECIPE][0].written[1:] for ids in step]
    compared = [
        [len(ids) if options.device == "cuda" else ids for step in clock.written for ids in step]
        for kept in clocks.values()
        for clock in kept
    ]
    if any(completions != compared[0] for completions in compared):
        raise SystemExit("the trainers wrote other completions; their times cannot be compared")
    return {
        "parameters": sum(weight.numel() for weight in policy.model.parameters()),
        "bf16": bool(config.bf16),
        "completions": len(written),
        "tokens": sum(map(len, written)),
        "device_bytes": {name: kept[0].memory for name, kept in clocks.items()},
        **{name: medians(steps) for name, steps in ((RECIPE, ours), (BARE, theirs))},
        "times_TRL": statistics.median(a["step"] / b["step"] for a, b in zip(ours, theirs, strict=True)),
        "reward_share": statistics.median(step["reward"] / step["step"] for step in ours),
    }


def opened(model: Path | str, examples: Sequence[Example], config: GRPOConfig) -> Checkpoint:
    """The model of a folder, or random weights of a shape with a tokenizer of the examples' texts."""
    if isinstance(model, Path):
        return load_policy(str(model), bf16=bool(config.bf16))
    texts = ("\n".join([one.goal, *one.history, *one.continuation]) for one in examples)
    tokenizer = train_tokenizer(texts, 2048, 32768)
    torch.manual_seed(0)
    shape = copy.deepcopy(SHAPES[model])
    shape.eos_token_id, shape.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    attention = "sdpa" if torch.cuda.is_available() else "eager"
    dtype = torch.bfloat16 if config.bf16 else torch.float32
    # Drawn on the device, where billions of numbers take seconds, and held on the processor: only a trainer's copy
    # takes the device's memory.
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        weights = transformers.AutoModelForCausalLM.from_config(shape, attn_implementation=attention, dtype=dtype)
    return Checkpoint(weights.cpu(), tokenizer)


def written_plans(examples: Sequence[Example]) -> Iterator[str]:
    """Plans of steps of the world in drawn order, each step with a word of its own."""
    rng = random.Random(0)
    steps = sorted({step for example in examples for step in example.continuation})
    while True:
        drawn = rng.sample(steps, rng.randint(3, 6))
        yield format_plan([f"{step} with {rng.randrange(10**6)}" for step in drawn])


def train(
    name: str, config: GRPOConfig, policy: Checkpoint, examples: list[Example], verifier: Verifier,
    plans: Iterator[str] | None,
) -> Clock:  # fmt: skip
    """A round of one of the trainers."""
    clock = Clock()
    run = open_run("grpo", config, config.output, {})
    copied = Checkpoint(copy.deepcopy(policy.model), policy.tokenizer)
    scored = RewardFunction(config, verifier, run, lambda _: None)

    def reward(completions: list[Any], **columns: Any) -> list[float | None]:
        texts = completions if plans is None else [[{"content": next(plans)}] for _ in completions]
        return scored(completions=texts, **columns)

    timed: Any = clock.timed("reward", reward)  # all that TRL asks of a reward is a call and a name
    trainer = grpo_trainer(config, copied, examples, timed, run)
    if name == BARE:
        plain = GRPOTrainer(
            model=copy.deepcopy(policy.model), reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=trainer.args, train_dataset=trainer.train_dataset, processing_class=policy.tokenizer,
            peft_config=trainer.model.peft_config["default"], rollout_func=trainer.rollout_func,
        )  # fmt: skip
        trainer = plain
    roll_out = trainer.rollout_func

    def kept(prompts: list[Any], asking: Any) -> dict[str, Any]:
        rolled: dict[str, Any] = roll_out(prompts, asking)
        clock.written.append(rolled["completion_ids"])
        return rolled

    trainer.rollout_func = clock.timed("roll-out", kept)
    trainer._get_per_token_logps_and_entropies = clock.timed("forward", trainer._get_per_token_logps_and_entropies)
    trainer.accelerator.backward = clock.timed("backward", trainer.accelerator.backward)
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(clock)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    trainer.train()
    if torch.cuda.is_available():
        clock.memory = torch.cuda.max_memory_allocated()
    return clock


def medians(steps: Sequence[dict[str, float]]) -> dict[str, float]:
    """Median seconds of each part, of the whole step, and of what no part holds."""
    rows = [{**step, "other": step["step"] - sum(step[part] for part in PARTS)} for step in steps]
    return {name: round(statistics.median(row[name] for row in rows), 4) for name in (*PARTS, "other", "step")}


def show(model: str, figures: dict[str, Any]) -> None:
    """The figures of a model as a table."""
    print(f"{model}: {figures['completions']} completions, {figures['tokens']} tokens; seconds of a step")
    print("  ".join(["         ", *(f"{part:>9}" for part in (*PARTS, "other", "step"))]))
    for name in (RECIPE, BARE):
        print("  ".join([f"{name:9}", *(f"{figures[name][part]:9.3f}" for part in (*PARTS, "other", "step"))]))
    print(f"ratio of steps {figures['times_TRL']:.3f}, reward {figures['reward_share']:.1%} of a step")


if __name__ == "__main__":
    main()
