"""Kill training runs at random moments, resume them, and compare with runs that were never stopped.

Every command of `recipe train` at a small scale, on the embedded world: the base model, SFT, and GRPO and best-of-N
rounds against a corpus whose encoder is MiniLM in bfloat16. A run is killed with SIGKILL, as often as `--kills`, and
then ends. Its weights, tokenizer, metrics and completions must be those of the uninterrupted run, to the last bit.

    python benchmarks/killed_runs.py [--moments 10] [--kills 1] [--stages base sft grpo best-of-n] [--seed 0]

Prints one JSON line a run, and ends with exit code 1 where one differs.
"""

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from recipe.artifacts import file_sha256, read_jsonl
from recipe.config import (
    BaseModelConfig,
    BestOfNConfig,
    CorpusConfig,
    EncoderConfig,
    GRPOConfig,
    RewardConfig,
    SFTConfig,
)
from recipe.corpus.build import build_corpus
from recipe.corpus.store import Corpus
from recipe.data.examples import write_examples
from recipe.progress import Advance
from recipe.reward.verifier import Verifier
from recipe.training.base import train_base
from recipe.training.best_of_n import train_best_of_n
from recipe.training.grpo import train_grpo
from recipe.training.sft import train_sft
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe.world.narrator import narrate

Settings = BaseModelConfig | SFTConfig | GRPOConfig | BestOfNConfig


def prepare(folder: Path) -> dict[str, Settings]:
    """Examples, a corpus and a base model of two goals; the settings of a run of each stage."""
    world = load_world()
    goals = [graph.goal for graph in world.goals.values() if not graph.held_out][:2]
    examples = [e for e in draw_examples(world, "train", 200) if e.goal in goals][:24]
    write_examples(folder / "examples.jsonl", examples)
    encoder = EncoderConfig(name="minilm", dtype="auto", device="cpu")
    build_corpus(narrate(world, 8, goals=goals), folder / "corpus", CorpusConfig(encoder=encoder))
    base = BaseModelConfig(
        examples=folder / "examples.jsonl", output=folder / "base", hidden_size=32, layers=2, head_size=16,
        context=256, steps=60, learning_rate=2e-2, save_every=7,
    )  # fmt: skip
    wait(in_child(lambda: train_base(base)))
    shared = {
        "model": str(base.output / "model"),
        "examples": base.examples,
        "save_every": 2,
        "learning_rate": 1e-2,
        "metrics": (),
    }
    rounds = {"corpus": folder / "corpus", "rounds": 2, "n": 2, "prompts_per_round": 6, "max_completion_tokens": 32}
    grpo = {"corpus": folder / "corpus", "steps": 7, "prompts_per_step": 2, "max_completion_tokens": 32}
    return {
        "base": base,
        "sft": SFTConfig(**shared, output=folder / "sft", epochs=1, batch_size=2),
        "grpo": GRPOConfig(**shared, **grpo, output=folder / "grpo", reward=RewardConfig()),
        "best-of-n": BestOfNConfig(**shared, **rounds, output=folder / "rounds", epochs=1, completions_at_once=4),
    }


def in_child(work: Callable[[], object]) -> BaseProcess:
    """Run `work` in a process of its own, forked off this one, with nothing that earlier runs have cached."""
    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    return child


def wait(child: BaseProcess) -> None:
    """Wait for its end. Raises RuntimeError where it failed."""
    child.join()
    if child.exitcode:
        raise RuntimeError(f"a run ended with exit code {child.exitcode}")


class Steps:
    """A progress that leaves the number of finished steps in a file."""

    def __init__(self, file: Path) -> None:
        self._file, self._done = file, 0

    @contextmanager
    def task(self, _name: str, _total: int | None = None) -> Iterator[Advance]:
        """Count what the task advances by."""

        def advance(count: int) -> None:
            self._done += count
            self._file.write_text(str(self._done))

        yield advance


def train(settings: Settings, steps: Path) -> None:
    """One run to its end."""
    if isinstance(settings, BaseModelConfig):
        train_base(settings, Steps(steps))
    elif isinstance(settings, SFTConfig):
        train_sft(settings, Steps(steps))
    else:
        verifier = Verifier(Corpus.open(settings.corpus), settings.reward)
        if isinstance(settings, GRPOConfig):
            train_grpo(settings, verifier, Steps(steps))
        else:
            train_best_of_n(settings, verifier, Steps(steps))


def wait_for(child: BaseProcess, file: Path, step: int) -> None:
    """Wait until a run has finished a step, or ends."""
    while child.is_alive() and int(file.read_text() or 0) < step:
        time.sleep(0.002)


def outcome(run: Path) -> dict[str, Any]:
    """What must not differ between two runs."""
    rows = [row for _, row in read_jsonl(run / "metrics.jsonl")]
    return {
        "model": {file.name: file_sha256(file) for file in sorted((run / "model").iterdir())},
        "metrics": [{key: row[key] for key in row if "second" not in key and key != "reward_share"} for row in rows],
        "completions": {file.name: file_sha256(file) for file in sorted((run / "completions").glob("*"))},
    }


def main() -> int:
    """Kill, resume, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=10, help="runs of each stage")
    parser.add_argument("--kills", type=int, default=1, help="kills of each run")
    parser.add_argument("--stages", nargs="+", default=["base", "sft", "grpo", "best-of-n"])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw, different = random.Random(arguments.seed), 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        stages = prepare(folder)
        for stage in arguments.stages:
            whole = stages[stage].model_copy(update={"output": folder / f"{stage}-whole"})
            began = time.monotonic()
            wait(in_child(lambda settings=whole: train(settings, folder / "steps")))
            steps = int((folder / "steps").read_text())
            seconds, wanted = (time.monotonic() - began) / steps, outcome(whole.output)
            for number in range(arguments.moments):
                run = whole.model_copy(update={"output": folder / f"{stage}-{number}"})
                killed_at = []
                for _ in range(arguments.kills):
                    (folder / "steps").write_text("0")
                    child = in_child(lambda settings=run: train(settings, folder / "steps"))
                    wait_for(child, folder / "steps", draw.randint(0, steps))
                    time.sleep(draw.uniform(0, seconds))
                    child.kill()
                    child.join()
                    killed_at.append(int((folder / "steps").read_text() or 0))
                finished = (run.output / "model").is_dir()
                wait(in_child(lambda settings=run: train(settings, folder / "steps")))
                resumed = outcome(run.output)
                unequal = [key for key, value in wanted.items() if resumed[key] != value]
                different += bool(unequal)
                print(
                    json.dumps({
                        "stage": stage, "killed_after_step": killed_at, "had_finished": finished,
                        "equal": not unequal, "unequal": unequal,
                    }),
                    flush=True,
                )  # fmt: skip
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
