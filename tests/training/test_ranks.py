"""Two processes of one run against one: weights, records, resuming, and how an error of one ends both."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from recipe.artifacts import read_json, read_jsonl, write_json
from recipe.config import GRPOConfig, RewardConfig, SFTConfig
from recipe.corpus.store import Corpus
from recipe.data.examples import write_examples
from recipe.errors import ConfigError
from recipe.reward.verifier import Verifier
from recipe.training import ranks
from recipe.training.base import train_base
from recipe.training.grpo import train_grpo
from recipe.training.sft import train_sft
from recipe.world.examples import draw_examples
from recipe.world.load import load_world

# All runs in one launch. At last the second process fails while the first one waits for it.
RUNS = """
import json, shutil, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import Paintings
from recipe.artifacts import read_json, write_json
from recipe.config import GRPOConfig, SFTConfig
from recipe.corpus.store import Corpus
from recipe.errors import ComputeError
from recipe.reward.verifier import Verifier
from recipe.training import ranks
from recipe.training.grpo import train_grpo
from recipe.training.sft import train_sft

def cut(whole, part):
    shutil.copytree(whole, part)
    shutil.rmtree(part / "model")
    (part / "checkpoints" / "checkpoint-4" / "complete.json").unlink()
    write_json(part / "run.json", read_json(part / "run.json") | {"finished": False})

try:
    with ranks.distributed_run():
        for name, text in json.loads(Path(sys.argv[2]).read_text()):
            shown = Paintings() if "video" in name else None
            if "sft" in name:
                train_sft(SFTConfig.model_validate_json(text), histories=shown)
                continue
            config = GRPOConfig.model_validate_json(text)
            if name == "resumed":
                ranks.from_main(lambda: cut(config.output.with_name("whole"), config.output))
            # The second process has no corpus to open.
            scorer = Verifier(Corpus.open(config.corpus), config.reward) if ranks.main() else None
            train_grpo(config, scorer, histories=shown)
        assert ranks.gathered([ranks.rank()]) == [0, 1]
        if not ranks.main():
            raise ComputeError("the second one fails")
        ranks.barrier()
except ComputeError as error:
    Path(sys.argv[2]).with_suffix(f".{ranks.rank()}").write_text(f"{error}, {ranks.failure_reported_elsewhere()}")
"""


def launch(*words: object) -> subprocess.CompletedProcess[str]:
    """Two processes on gloo."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


Runs = dict[str, SFTConfig | GRPOConfig]


@pytest.fixture(scope="module")
def runs(
    world_run: dict[str, Any], video_model: Path, examples_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Runs:
    """Runs of two processes."""
    folder = tmp_path_factory.mktemp("ranks")
    still = {"lora": {"dropout": 0.0}}
    grpo = {**world_run, **still, "steps": 2}
    sft = {**still, "learning_rate": 1e-2, "metrics": (), "epochs": 1, "batch_size": 4, "examples": examples_file}
    seeing = {"model": str(video_model), "examples": examples_file, "input": "video", "merger_learning_rate": 1e-3}
    write_examples(folder / "held-out.jsonl", draw_examples(load_world(), "test_cuts", 5))
    held_out = {"examples": folder / "held-out.jsonl", "every": 2, "samples": 1}
    made: Runs = {
        "validated": GRPOConfig(
            **grpo, validation=held_out, output=folder / "validated",
            reward=RewardConfig(verifier="grounded"),
        ),
        "twice": GRPOConfig(
            **{**grpo, "steps": 4}, iterations=2, micro_batch=2, output=folder / "twice"
        ),
        "video": GRPOConfig(**{**grpo, **seeing}, output=folder / "video"),
        "sft": SFTConfig(**sft, model=world_run["model"], micro_batch=1, output=folder / "sft"),
        "video-sft": SFTConfig(**{**sft, **seeing}, output=folder / "video-sft"),
        "whole": GRPOConfig(**{**world_run, "steps": 4, "save_every": 2}, output=folder / "whole"),
    }  # fmt: skip
    made["resumed"] = made["whole"].model_copy(update={"output": folder / "resumed"})
    settings = folder / "runs.json"
    write_json(settings, [(name, run.model_dump_json()) for name, run in made.items()])
    script = folder / "runs.py"
    script.write_text(RUNS)
    done = launch(script, Path(__file__).parent, settings)
    assert done.returncode == 0, done.stderr
    return made


def alone(config: Any) -> Any:
    """The same run by one process."""
    return config.model_copy(update={"output": config.output.with_name(f"{config.output.name}-alone")})


def train(config: Any, histories: Any = None) -> Path:
    if isinstance(config, SFTConfig):
        return train_sft(config, histories=histories)
    return train_grpo(config, Verifier(Corpus.open(config.corpus), config.reward), histories=histories)


def completions(config: Any) -> list[Any]:
    files = sorted((config.output / "completions").glob("*"))
    return [row for file in files for _, row in read_jsonl(file)]


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["twice", "video", "sft", "video-sft"])
def test_two_processes_train_the_same_weights_as_one(name: str, runs: Runs, paintings: Any) -> None:
    config = runs[name]
    whole = load_file(train(alone(config), paintings if "video" in name else None) / "model.safetensors")
    shared = load_file(config.output / "model" / "model.safetensors")
    before = load_file(Path(config.model) / "model.safetensors")
    moved = sum((whole[key] - before[key]).square().sum() for key in whole).sqrt()
    apart = sum((whole[key] - shared[key]).square().sum() for key in whole).sqrt()
    assert moved > 0
    # Sums in another order; Adam makes of them a step of any size where a gradient is all but zero.
    assert apart / moved < 1e-2
    assert read_json(config.output / "run.json")["processes"] == 2
    ours, theirs = ([row for _, row in read_jsonl(one.output / "metrics.jsonl")] for one in (config, alone(config)))
    assert [row["loss"] for row in ours] == pytest.approx([row["loss"] for row in theirs], abs=1e-4)
    if isinstance(config, GRPOConfig):
        texts = [[row["completion"] for row in completions(one)] for one in (config, alone(config))]
        assert texts[0] == texts[1]
        assert [set(row) for row in ours] == [set(row) for row in theirs]


@pytest.mark.thorough
def test_two_processes_validate_as_one(runs: Runs) -> None:
    config = runs["validated"]
    train(alone(config))
    fields = {"metrics": ("kl_plan",), "validation": ("step", "reward", "steps", "kl_plan", "prompts")}
    for file, names in fields.items():
        ours, theirs = ([row for _, row in read_jsonl(run.output / f"{file}.jsonl")] for run in (config, alone(config)))
        assert len(ours) == 2
        for name in names:
            assert [row[name] for row in ours] == [pytest.approx(row[name], rel=1e-3, abs=1e-5) for row in theirs]
    assert ours[-1]["kl_plan"] > 0
    kept = [[folder.name for folder in (one.output / "best").iterdir()] for one in (config, alone(config))]
    assert kept[0] == kept[1]


@pytest.mark.thorough
def test_a_run_of_two_that_is_cut_ends_with_the_same_result(runs: Runs) -> None:
    whole, resumed = runs["whole"], runs["resumed"]
    assert len(list((resumed.output / "checkpoints").glob("checkpoint-*/rng_state_1.pth"))) == 2
    weights = [load_file(one.output / "model" / "model.safetensors") for one in (whole, resumed)]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
    assert completions(whole) == completions(resumed)
    kept = [[{k: v for k, v in row.items() if "second" not in k and k != "reward_share"}
             for _, row in read_jsonl(one.output / "metrics.jsonl")] for one in (whole, resumed)]  # fmt: skip
    assert kept[0] == kept[1]
    assert len(kept[0]) == 4


@pytest.mark.thorough
def test_an_error_of_one_process_ends_all_with_the_same_error(runs: Runs) -> None:
    told = [(runs["twice"].output.parent / f"runs.{rank}").read_text() for rank in (0, 1)]
    assert told == ["the second one fails, False", "the second one fails, True"]


def test_processes_that_differ_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def described(rows: Any) -> Any:
        return [*rows, ("host-1", {}), ("host-2", {"examples": "f" * 64})]

    monkeypatch.setattr(ranks, "gathered", described)
    with pytest.raises(ConfigError, match=r"Process 2 on host-2 has examples f{16}, process 0 on .* has e{16}; copy"):
        ranks.require_agreement({"examples": "e" * 64, "model": "m"}, "copy them")


def test_what_runs_in_one_process_or_whole_says_so(base_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="in one process, not in 2"):
        train_base(base_config)
    with pytest.raises(ConfigError, match="batch_size, 5, is not a multiple of the 2 processes"):
        ranks.passes(5, None, "batch_size")
    with pytest.raises(ConfigError, match="micro_batch 4 does not divide the 6 rows"):
        ranks.passes(12, 4, "batch_size")
    assert ranks.passes(12, 3, "batch_size") == (3, 2)
    monkeypatch.delenv("WORLD_SIZE")
    for variable in ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"):
        with monkeypatch.context() as sharded:
            sharded.setenv(variable, "true")
            with pytest.raises(ConfigError, match=f"{variable}.*one training on each GPU"):
                train_sft(SFTConfig(model="m", examples=base_config.examples, output=base_config.output))
