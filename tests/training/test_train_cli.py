import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import Recipe

from recipe.artifacts import read_json, read_jsonl
from recipe.config import BestOfNConfig, GRPOConfig, SFTConfig, load_config
from recipe.data.examples import read_examples, write_examples
from recipe.plan_text import plan_steps
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe.world.validity import score_plan

CONFIGS = Path(__file__).parents[2] / "configs"
PAPER = {
    "sft-qwen2.5-3b": SFTConfig,
    "grpo-qwen2.5-3b": GRPOConfig,
    "sft-qwen2.5-vl-3b": SFTConfig,
    "grpo-qwen2.5-vl-3b": GRPOConfig,
}


@pytest.mark.parametrize("name", PAPER)
def test_configs_are_the_papers_settings(name: str) -> None:
    kind = PAPER[name]
    config = load_config(CONFIGS / f"{name}.toml", kind)
    assert config.model == ("Qwen/Qwen2.5-VL-3B-Instruct" if "-vl-" in name else "Qwen/Qwen2.5-3B-Instruct")
    # Memory, not method.
    free = {"model", "examples", "output", "corpus", "gradient_checkpointing", "micro_batch", "save_every"}
    if "-vl-" in name:  # which frames is open in the paper
        free |= {"input", "videos", "frames", "max_tokens"}
    plain = kind(**{key: getattr(config, key) for key in free if hasattr(config, key)})
    assert config == plain


def test_dry_run_prints_the_resolved_settings(recipe: Recipe) -> None:
    path = str(CONFIGS / "grpo-qwen2.5-3b.toml")
    outcome = recipe("train", "grpo", path, "--dry-run", "--json")
    assert outcome.code == 1
    printed = json.loads(outcome.out)
    assert (printed["config"]["beta"], printed["config"]["seed"]) == (0.04, 0)
    missing = {finding["subject"] for finding in printed["findings"] if finding["state"] == "missing"}
    assert {"examples", "corpus"} <= missing


def test_base_and_sft_from_the_command_line(
    base_model: Path, examples_file: Path, tmp_path: Path, recipe: Recipe
) -> None:
    path = tmp_path / "sft.toml"
    path.write_text(
        f'model = "{base_model}"\nexamples = "{examples_file}"\noutput = "{tmp_path / "sft"}"\n'
        "epochs = 1\nbatch_size = 6\nmetrics = []\n"
    )
    captured = recipe("train", "sft", path, "--json")
    assert captured.code == 0, captured.err
    printed = json.loads(captured.out)
    assert Path(printed["model"]).is_dir()
    assert printed["last_step"]["step"] == 2
    assert captured.err.startswith("loading ")
    assert all(line.startswith(("loading", "SFT")) for line in captured.err.splitlines())


def test_the_positive_control_rewards_by_the_reference_into_a_folder_of_its_own(
    world_run: dict[str, Any], tmp_path: Path, recipe: Recipe
) -> None:
    goals = {example.goal for example in read_examples(world_run["examples"])}
    held_out = [example for example in draw_examples(load_world(), "test_cuts", 400) if example.goal in goals][:3]
    write_examples(tmp_path / "held-out.jsonl", held_out)
    path = tmp_path / "grpo.toml"
    path.write_text(
        f'model = "{world_run["model"]}"\nexamples = "{world_run["examples"]}"\ncorpus = "no-corpus"\n'
        f'output = "{tmp_path / "run"}"\nsteps = 2\nprompts_per_step = 2\nmax_completion_tokens = 32\nmetrics = []\n'
        f'[validation]\nexamples = "{tmp_path / "held-out.jsonl"}"\nmeasure = "validity"\n'
    )
    printed = recipe.json("train", "grpo", path, "--control", "reference")
    folder = Path(printed["model"]).parent
    assert folder == tmp_path / "run-reference"
    assert any("control" in note for note in printed["notes"])
    assert "reference" in read_json(folder / "run.json")["reward"]
    assert read_json(folder / "run.json")["corpus"] is None
    world = load_world()
    for _, record in read_jsonl(folder / "completions" / "step-00001.jsonl"):
        plan = plan_steps(record["completion"])
        assert record["reward"]["total"] == score_plan(world, record["goal"], record["history"], plan).score
    assert not (tmp_path / "run").exists()


def test_set_changes_a_key_of_the_file(recipe: Recipe) -> None:
    changes = ("--set", "lora.rank=8", "--set", "model=smollm2", "--set", "metrics=[]", "--set", 'revision="12"')
    shown = recipe("train", "sft", CONFIGS / "sft-qwen2.5-3b.toml", *changes, "--dry-run", "--json")
    printed = json.loads(shown.out)["config"]
    assert (printed["lora"]["rank"], printed["lora"]["alpha"]) == (8, 32)
    assert (printed["model"], printed["metrics"], printed["revision"]) == ("smollm2", [], "12")
    assert printed["gradient_checkpointing"]  # of the file


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("lora.rnk=8", "--set lora.rnk=8: unknown key 'lora.rnk'; did you mean 'rank'"),
        ("epochs=many", "--set epochs=many: key 'epochs'"),
        ("epochs", "--set 'epochs': give KEY=VALUE"),
        ("model.x=1", "key 'model' is a value and no table"),
    ],
)
def test_a_change_that_cannot_be_made_is_named(change: str, said: str, recipe: Recipe) -> None:
    code, _, err = recipe("train", "sft", CONFIGS / "sft-qwen2.5-3b.toml", "--set", change, "--dry-run")
    assert (code, said in err) == (1, True)


def test_pages_name_configs_that_are_there_and_make_what_configs_read() -> None:
    root = CONFIGS.parent
    pages = {page: page.read_text(encoding="utf-8") for page in (root / "README.md", *(root / "docs").glob("*.md"))}
    named = {(page.name, path) for page, text in pages.items() for path in re.findall(r"configs/[\w./-]+\.toml", text)}
    assert named
    assert [one for one in named if not (root / one[1]).is_file()] == []
    commands = pages[root / "docs" / "training.md"]
    for name, kind in {**PAPER, "best-of-n-qwen2.5-3b": BestOfNConfig}.items():
        config = load_config(CONFIGS / f"{name}.toml", kind)
        assert f"--output {config.examples}\n" in commands
        assert getattr(config, "corpus", None) is None or f"--output {config.corpus} " in commands
        assert str(config.output) == f"runs/{name}"
