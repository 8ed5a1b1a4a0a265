"""Kill `recipe reproduce` at random moments, resume it, and compare with a study that was never stopped.

A study of a few thousand parameters on the embedded world, whose encoder is MiniLM in bfloat16: base, SFT-Annotated,
SFT-HT100M and RL. Its process is killed with SIGKILL, again and again, and then ends. Weights, plans, scores and
figures must be those of the uninterrupted study, to the last bit, and no stage that was done may have been done again.

    python benchmarks/killed_study.py [--moments 10] [--longest 12] [--seed 0]

Prints one JSON line, and ends with exit code 1 where something differs.
"""

import argparse
import json
import multiprocessing
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from recipe.artifacts import file_sha256, read_json
from recipe.progress import SILENT
from recipe_studies.experiments.schedule import RECORDS
from recipe_studies.reproduce import study as studies
from recipe_studies.reproduce.expand import expand
from recipe_studies.reproduce.run import reproduce
from recipe_studies.reproduce.study import PaperStudy

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


def run(configs: Path, output: Path) -> None:
    """The study, in a process of its own."""
    studies.configs = lambda: configs
    study = PaperStudy(("main", "regimes"), ("micro",), None, seeds=(0,), regimes=REGIMES)
    reproduce(study, [expand(study, "micro")], output, 2, SILENT)


def outcome(output: Path) -> dict[str, Any]:
    """What must not differ between two studies."""
    folder = output / "micro"
    files = [*folder.glob("**/model/*.safetensors"), *folder.glob("plans/*"), *folder.glob("scores/*")]
    results = read_json(output / "results.json")
    figures = [[{**table, "seconds": 0} for table in scale["tables"]] for scale in results["scales"]]
    return {"files": {str(file.relative_to(folder)): file_sha256(file) for file in sorted(files)}, "figures": figures}


def done(output: Path) -> dict[str, Any]:
    """The records of finished stages: with the time that each took."""
    records = {file.stem: read_json(file) for file in (output / "micro" / RECORDS).glob("*.json")}
    return {name: record for name, record in records.items() if record["done"]}


def main() -> int:
    """Kill, resume, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=10, help="kills")
    parser.add_argument("--longest", type=float, default=12.0, help="seconds between two kills, at most")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw, context = random.Random(arguments.seed), multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as place:
        configs = Path(place) / "configs"
        (configs / "scales").mkdir(parents=True)
        (configs / "scales" / "micro.toml").write_text(SCALE)
        (configs / "regimes").symlink_to(studies.configs() / "regimes")
        whole, killed = Path(place) / "whole", Path(place) / "killed"
        first = context.Process(target=run, args=(configs, whole))
        first.start()
        first.join()
        kills, again = 0, list[str]()
        finished: dict[str, Any] = {}
        while True:
            process = context.Process(target=run, args=(configs, killed))
            process.start()
            process.join(draw.uniform(1, arguments.longest) if kills < arguments.moments else None)
            ended = process.exitcode is not None
            if not ended:
                process.kill()
                process.join()
                kills += 1
                time.sleep(2)  # the workers end with their parent
            now = done(killed)
            again += [name for name, record in finished.items() if now.get(name) != record]
            finished = now
            if ended:
                break
        same = outcome(whole) == outcome(killed)
    print(json.dumps({"kills": kills, "stages": len(finished), "same": same, "done_again": again}))
    return 0 if same and not again else 1


if __name__ == "__main__":
    raise SystemExit(main())
