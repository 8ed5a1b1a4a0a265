"""Kill runs at random moments, resume them, and compare with runs that were never stopped.

    python benchmarks/killed_runs.py training [--moments 10] [--kills 1] [--stages base sft grpo best-of-n] [--seed 0]
    python benchmarks/killed_runs.py study [--moments 10] [--longest 12] [--seed 0]

`training`: every command of `recipe train` at a small scale, on the embedded world: the base model, SFT, and GRPO and
best-of-N rounds against a corpus whose encoder is MiniLM in bfloat16. A run is killed with SIGKILL, as often as
`--kills`, and then ends; so for each of `--moments`. Its weights, tokenizer, metrics and completions must be those of
the uninterrupted run, to the last bit.

`study`: `recipe reproduce` with a few thousand parameters on the embedded world: base, SFT-Annotated, SFT-HT100M and
RL. Its process is killed `--moments` times, and then ends. Weights, plans, scores and figures must be those of the
uninterrupted study, to the last bit, and no stage that was done may have been done again.

Prints one JSON line a run or study, and ends with exit code 1 where one differs.
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
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from common import add_json, table, write_result

from recipe.artifacts import file_sha256, read_json, read_jsonl
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
from recipe.progress import SILENT, Advance
from recipe.reward.verifier import Verifier
from recipe.training.base import train_base
from recipe.training.best_of_n import train_best_of_n
from recipe.training.grpo import train_grpo
from recipe.training.sft import train_sft
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe.world.narrator import narrate
from recipe_studies.experiments.schedule import RECORDS
from recipe_studies.reproduce import study as studies
from recipe_studies.reproduce.expand import expand
from recipe_studies.reproduce.run import reproduce
from recipe_studies.reproduce.study import PaperStudy

Settings = BaseModelConfig | SFTConfig | GRPOConfig | BestOfNConfig
TRAINING, STUDY = "training", "study"
STAGES = ("base", "sft", "grpo", "best-of-n")
SCALE = """
title = "a few thousand parameters"
world = { narrations = 60, documents = 200, train = 16, test = 4 }
corpus = { encoder = { name = "minilm", dtype = "auto" } }
sampling = { max_tokens = 24, batch_size = 64 }
base = { steps = 30, hidden_size = 32, layers = 1, bf16 = false, save_every = 10 }
sft = { epochs = 1, bf16 = false, save_every = 2, metrics = [] }
grpo = { steps = 4, prompts_per_step = 2, max_completion_tokens = 16, bf16 = false, save_every = 1, metrics = [] }
cost = { source = "none", sft_step_seconds = 1, grpo_step_seconds = 1, plan_seconds = 1, memory_gb = 1, model_gb = 1 }
"""
REGIMES = ("base", "sft-annotated", "sft-ht100m", "rl")


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
        assert settings.corpus is not None
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


def killed_training(folder: Path, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Each stage once without a kill, and then as often as `moments` with kills: what is unequal."""
    draw, stages = random.Random(arguments.seed), prepare(folder)
    for stage in arguments.stages:
        whole = stages[stage].model_copy(update={"output": folder / f"{stage}-whole"})
        began = time.monotonic()
        wait(in_child(partial(train, whole, folder / "steps")))
        steps = int((folder / "steps").read_text())
        seconds, wanted = (time.monotonic() - began) / steps, outcome(whole.output)
        for number in range(arguments.moments):
            run = whole.model_copy(update={"output": folder / f"{stage}-{number}"})
            killed_at = []
            for _ in range(arguments.kills):
                (folder / "steps").write_text("0")
                child = in_child(partial(train, run, folder / "steps"))
                wait_for(child, folder / "steps", draw.randint(0, steps))
                time.sleep(draw.uniform(0, seconds))
                child.kill()
                child.join()
                killed_at.append(int((folder / "steps").read_text() or 0))
            finished = (run.output / "model").is_dir()
            wait(in_child(partial(train, run, folder / "steps")))
            resumed = outcome(run.output)
            unequal = [key for key, value in wanted.items() if resumed[key] != value]
            yield {
                "stage": stage, "killed_after_step": killed_at, "had_finished": finished,
                "equal": not unequal, "unequal": unequal,
            }  # fmt: skip


def study(configs: Path, output: Path) -> None:
    """The study, in a process of its own."""
    studies.configs = lambda: configs
    study = PaperStudy(("main", "regimes"), ("micro",), None, seeds=(0,), regimes=REGIMES)
    reproduce(study, [expand(study, "micro")], output, 2, SILENT)


def study_outcome(output: Path) -> dict[str, Any]:
    """What must not differ between two studies."""
    folder = output / "micro"
    files = [*folder.glob("**/model/*.safetensors"), *folder.glob("plans/*"), *folder.glob("scores/*")]
    results = read_json(output / "results.json")
    figures = [[{**made, "seconds": 0} for made in scale["tables"]] for scale in results["scales"]]
    return {"files": {str(file.relative_to(folder)): file_sha256(file) for file in sorted(files)}, "figures": figures}


def finished_stages(output: Path) -> dict[str, Any]:
    """The records of finished stages: with the time that each took."""
    records = {file.stem: read_json(file) for file in (output / "micro" / RECORDS).glob("*.json")}
    return {name: record for name, record in records.items() if record["done"]}


def killed_study(folder: Path, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A study without a kill and one with them: what is unequal, and what was done again."""
    draw, context = random.Random(arguments.seed), multiprocessing.get_context("spawn")
    configs = folder / "configs"
    (configs / "scales").mkdir(parents=True)
    (configs / "scales" / "micro.toml").write_text(SCALE)
    (configs / "regimes").symlink_to(studies.configs() / "regimes")
    whole, killed = folder / "whole", folder / "killed"
    first = context.Process(target=study, args=(configs, whole))
    first.start()
    first.join()
    kills, again = 0, list[str]()
    done: dict[str, Any] = {}
    while True:
        process = context.Process(target=study, args=(configs, killed))
        process.start()
        process.join(draw.uniform(1, arguments.longest) if kills < arguments.moments else None)
        ended = process.exitcode is not None
        if not ended:
            process.kill()
            process.join()
            kills += 1
            time.sleep(2)  # the workers end with their parent
        now = finished_stages(killed)
        again += [name for name, record in done.items() if now.get(name) != record]
        done = now
        if ended:
            break
    one, other = study_outcome(whole), study_outcome(killed)
    unequal = [key for key in one if one[key] != other[key]]
    yield {
        "stage": STUDY, "kills": kills, "stages": len(done), "done_again": again, "equal": not unequal,
        "unequal": unequal,
    }  # fmt: skip


def main() -> int:
    """Kill, resume, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=(TRAINING, STUDY), default=TRAINING)
    parser.add_argument("--moments", type=int, default=10, help="runs of each stage; kills of the study")
    parser.add_argument("--kills", type=int, default=1, help="kills of each run")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, help="of training")
    parser.add_argument("--longest", type=float, default=12.0, help="seconds between two kills of the study, at most")
    parser.add_argument("--seed", type=int, default=0)
    add_json(parser, "reliability-killed_runs")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        killed = killed_training if arguments.what == TRAINING else killed_study
        for row in killed(Path(place), arguments):
            rows.append(row)
            print(json.dumps(row), flush=True)
    stages = dict.fromkeys(row["stage"] for row in rows)
    counts = {
        stage: {
            "runs": sum(row["stage"] == stage for row in rows),
            "equal to the last bit": sum(row["stage"] == stage and row["equal"] for row in rows),
        }
        for stage in stages
    }
    write_result(
        arguments.json,
        rows,
        title="Runs that are killed and resumed",
        guide="reliability.md",
        body=[
            f"SIGKILL at {arguments.moments} random moments; weights, metrics, completions and figures compared "
            "with those of runs that were never stopped.",
            table(counts, "stage"),
        ],
        partial=arguments.moments < parser.get_default("moments"),
    )
    return int(any(row["unequal"] or row.get("done_again") for row in rows))


if __name__ == "__main__":
    sys.exit(main())
