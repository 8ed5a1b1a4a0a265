"""Runs that are killed and started again end as ones that were never stopped."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from recipe.artifacts import read_jsonl
from recipe.config import BaseModelConfig, BestOfNConfig, GRPOConfig, SFTConfig
from recipe.errors import InputError
from recipe.training.base import train_base
from recipe.training.best_of_n import train_best_of_n, whole_records
from recipe.training.grpo import train_grpo
from recipe.training.sft import train_sft

pytestmark = pytest.mark.thorough

SAVED, KILLED, STEPS = 4, 5, 6
"""The last checkpoint, the step at whose end the run is killed, and all steps."""
ROUND = 12
"""Prompts of a round of best-of-N, all in groups of their own."""
BEST_OF_N = ("sampling", "scoring", "steps", "closing")
"""Moments at which runs of best-of-N are killed."""

# Each run is killed in a process of its own.
DOOMED = f"""
import json, os, signal, sys
from contextlib import contextmanager
from recipe.config import BaseModelConfig, BestOfNConfig, GRPOConfig, SFTConfig
from recipe.training.base import train_base
from recipe.training.best_of_n import train_best_of_n
from recipe.training.grpo import train_grpo
from recipe.training.sft import train_sft
from conftest import LengthScorer, Paintings

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Deadly:
    def __init__(self, fatal, after={KILLED}, at_work=False):
        self.fatal, self.after, self.at_work = fatal, after, at_work

    @contextmanager
    def task(self, name, total=None):
        done = []
        def advance(count):
            done.extend([count] * count)
            if self.fatal in name and len(done) >= self.after and (count == 0 or not self.at_work):
                die()
        yield advance

class DeadlyScorer(LengthScorer):
    def score_groups(self, groups):
        return die() if self.calls >= {ROUND} + 4 else super().score_groups(groups)

# Best of N, in the second round: while its second batch is written, while that is scored, in the steps; and at the end.
MOMENTS = {{
    "sampling": (LengthScorer(), Deadly("round 2: plans", 8, at_work=True)),
    "scoring": (DeadlyScorer(), Deadly("nothing")),
    "steps": (LengthScorer(), Deadly("round 2: fine-tuning", 3)),
    "closing": (LengthScorer(), Deadly("after round 2: plans", 4)),
}}

for name, text in json.loads(sys.argv[1]).items():
    child = os.fork()
    if child == 0:
        shown = Paintings() if "video" in name else None
        if "grpo" in name:
            train_grpo(GRPOConfig.model_validate_json(text), LengthScorer(), Deadly(""), shown)
        elif "base" in name:
            train_base(BaseModelConfig.model_validate_json(text), Deadly(""))
        elif "best" in name:
            train_best_of_n(BestOfNConfig.model_validate_json(text), *MOMENTS[name.split()[1]])
        else:
            train_sft(SFTConfig.model_validate_json(text), Deadly(""), shown)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL, name
"""


@pytest.fixture(scope="module")
def killed(
    in_child: Any,
    base_model: Path,
    base_config: BaseModelConfig,
    video_model: Path,
    examples_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Any]:
    """The settings of runs that were killed after a checkpoint and a step."""
    folder = tmp_path_factory.mktemp("killed")
    shared = {"examples": examples_file, "save_every": 2, "learning_rate": 1e-2, "metrics": ()}
    seeing = {**shared, "model": str(video_model), "input": "video", "merger_learning_rate": 1e-3}
    sft = {"epochs": 2, "batch_size": 4}
    grpo = {"corpus": folder / "none", "steps": STEPS, "prompts_per_step": 2, "max_completion_tokens": 12}
    runs = {
        "base": base_config.model_copy(update={"steps": STEPS, "save_every": 2, "output": folder / "base"}),
        "sft": SFTConfig(**shared, **sft, model=str(base_model), output=folder / "sft"),
        "grpo": GRPOConfig(
            **{**shared, "metrics": ("tensorboard",)}, **grpo, model=str(base_model), output=folder / "grpo"
        ),
        **{f"best {moment}": best_of_n(shared, base_model, folder / f"best-{moment}") for moment in BEST_OF_N},
        "video-sft": SFTConfig(**seeing, **sft, output=folder / "video-sft"),
        "video-grpo": GRPOConfig(**seeing, **grpo, output=folder / "video-grpo"),
    }
    assert in_child(DOOMED, json.dumps({name: run.model_dump_json() for name, run in runs.items()})) == 0
    return runs


def best_of_n(shared: dict[str, Any], model: Path, output: Path) -> BestOfNConfig:
    """Two rounds of two epochs of three steps, in batches of four prompts."""
    return BestOfNConfig(
        **shared, model=str(model), output=output, corpus=output.parent / "none", rounds=2, n=2, epochs=2, batch_size=4,
        completions_at_once=8, max_completion_tokens=12,
    )  # fmt: skip


def metrics(config: BaseModelConfig | SFTConfig | GRPOConfig) -> list[dict[str, Any]]:
    """The rows of a run without what depends on the clock."""
    rows = [row for _, row in read_jsonl(config.output / "metrics.jsonl")]
    return [{key: row[key] for key in row if "second" not in key and key != "reward_share"} for row in rows]


def trained(config: BaseModelConfig | SFTConfig | GRPOConfig, scorer: Any, shown: Any) -> Path:
    if isinstance(config, BaseModelConfig):
        return train_base(config)
    if isinstance(config, SFTConfig):
        return train_sft(config, histories=shown)
    return train_grpo(config, scorer, histories=shown)


@pytest.mark.parametrize("name", ["base", "sft", "grpo", "video-sft", "video-grpo"])
def test_a_killed_run_resumes_to_the_same_result(
    name: str, killed: dict[str, Any], scorer: Any, paintings: Any
) -> None:
    config = killed[name]
    assert (config.output / f"checkpoints/checkpoint-{SAVED}/complete.json").is_file()
    if name != "base":  # whose rows are written at the end
        assert [row["step"] for row in metrics(config)] == list(range(1, KILLED))
    assert not (config.output / "model").exists()
    whole = config.model_copy(update={"output": config.output.with_name(f"{name}-whole")})
    shown = paintings if "video" in name else None
    models = [trained(one, scorer, shown) for one in (config, whole)]
    weights = [load_file(model / "model.safetensors") for model in models]
    assert all(torch.equal(weight, weights[1][place]) for place, weight in weights[0].items())
    assert (models[0] / "tokenizer.json").read_bytes() == (models[1] / "tokenizer.json").read_bytes()
    assert metrics(config) == metrics(whole)
    assert len(metrics(config)) == STEPS
    written = [sorted((one.output / "completions").glob("*")) for one in (config, whole)]
    assert [file.name for file in written[0]] == [file.name for file in written[1]]
    assert [file.read_text() for file in written[0]] == [file.read_text() for file in written[1]]
    assert len(written[0]) == (STEPS if name.endswith("grpo") else 0)


def left_behind(config: BestOfNConfig) -> dict[str, Any]:
    completions = sorted((config.output / "completions").iterdir())
    return {
        "weights": (config.output / "model/model.safetensors").read_bytes(),
        "metrics": metrics(config),
        "completions": {file.name: file.read_text() for file in completions},
    }


@pytest.mark.parametrize("moment", BEST_OF_N)
def test_rounds_that_are_killed_end_as_others(moment: str, killed: dict[str, Any], scorer: Any) -> None:
    config = killed[f"best {moment}"]
    files = {file.name for file in (config.output / "completions").iterdir()}
    begun = {"sampling": 2, "scoring": 2, "steps": 2, "closing": 3}[moment]
    suffix = "jsonl" if moment == "steps" else "partial"
    assert files == {f"round-{number:02d}.jsonl" for number in range(1, begun)} | {f"round-{begun:02d}.{suffix}"}
    train_best_of_n(config, scorer)
    again = scorer.calls
    whole = config.model_copy(update={"output": config.output.with_name("best-whole")})
    train_best_of_n(whole, scorer)  # the first test trains it
    assert left_behind(config) == left_behind(whole)
    # Of 12 prompts in each of three rounds, those that were scored before the kill are not scored again.
    assert again == {"sampling": 20, "scoring": 20, "steps": 12, "closing": 4}[moment]


# What a run left is damaged, after it was stopped between its end and its model.

DAMAGES = {"cut": lambda data: data[: len(data) // 2], "other": lambda data: b"{}\n"}


@pytest.fixture(scope="module")
def stopped(
    base_model: Path,
    examples_file: Path,
    held_out: Path,
    other_corpus: Path,
    new_scorer: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, tuple[Any, dict[str, Any]]]:
    """The settings of runs that lack their model, and what they end with."""
    folder = tmp_path_factory.mktemp("stopped")
    shared = {"examples": examples_file, "save_every": 2, "learning_rate": 1e-2, "metrics": ()}
    validation = {"examples": held_out, "every": 1, "samples": 1}
    runs = {
        "grpo": GRPOConfig(
            **shared, model=str(base_model), output=folder / "grpo", corpus=other_corpus, steps=3,
            prompts_per_step=2, max_completion_tokens=12, validation=validation,
        ),
        "best": best_of_n(shared, base_model, folder / "best").model_copy(update={"epochs": 1}),
    }  # fmt: skip
    found = {}
    for name, config in runs.items():
        model = trained_by(config, new_scorer())
        found[name] = (config, load_file(model / "model.safetensors"))
        shutil.rmtree(model)
    return found


def trained_by(config: Any, scorer: Any) -> Path:
    return train_grpo(config, scorer) if isinstance(config, GRPOConfig) else train_best_of_n(config, scorer)


def files_of(config: Any) -> list[Path]:
    """What a run left, but for what it only shows to people; of checkpoints, all of whose files are hashed, one."""
    shown = ("README.md", "metrics.jsonl", "run.json", "adapter_config.json")
    files = (path.relative_to(config.output) for path in config.output.rglob("*") if path.is_file())
    return sorted(
        path
        for path in files
        if path.name not in shown and (path.parts[0] != "checkpoints" or path.suffix == ".safetensors")
    )


@pytest.mark.parametrize("name", ["grpo", "best"])
def test_what_a_run_left_damaged_is_named_or_made_again(
    name: str, stopped: dict[str, Any], new_scorer: Any, tmp_path: Path
) -> None:
    """Each kind of file once: the run ends as before, from an earlier checkpoint or not, or names the file."""
    config, right = stopped[name]
    tried = set()
    for file in reversed(files_of(config)):  # of the newest checkpoint and record
        if (kind := re.sub(r"\d+", "", str(file))) in tried:
            continue
        tried.add(kind)
        copy = config.model_copy(update={"output": tmp_path / str(len(tried))})
        shutil.copytree(config.output, copy.output)
        target = copy.output / file
        damage = DAMAGES["cut" if len(tried) % 2 else "other"]
        target.write_bytes(damage(target.read_bytes()))
        try:
            found = load_file(trained_by(copy, new_scorer()) / "model.safetensors")
        except InputError as error:
            named = str(error)
            assert str(target) in named or target.parent.name in named
        else:
            assert all(torch.equal(weight, right[place]) for place, weight in found.items()), file


@pytest.mark.parametrize(
    "line", [bytes(40), b"\xff", b"{}", b"[1]", b"", b"[" * 100_000, b'{"step": 1e999}', b"9" * 5000]
)
def test_a_record_that_a_machine_without_power_left_is_read_to_its_fault(
    line: bytes, stopped: dict[str, Any], tmp_path: Path
) -> None:
    """Of what a round of best-of-N had written, whole batches before the damaged line count."""
    config, _ = stopped["best"]
    rows = (config.output / "completions" / "round-01.jsonl").read_bytes().split(b"\n")
    partial = tmp_path / "round-01.partial"
    partial.write_bytes(b"\n".join([*rows[:9], line, *rows[9:]]))
    assert [record.row for record in whole_records(partial, 4, len(rows))] == [json.loads(row) for row in rows[:8]]
