"""What `recipe publish` sends of a model, a checkpoint and a report, and what it refuses to send."""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hub_server import hub_server
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import Recipe

pytest.importorskip("huggingface_hub")
save = pytest.importorskip("safetensors.numpy").save

CARD = {"base_model": {"name": None, "stage": "sft", "base_model": {"name": "Qwen/Qwen2.5-3B-Instruct"}}}
README = "---\nlibrary_name: transformers\ntags:\n- recipe\n---\n\n# A planner\n\n| reward | 0.04 |\n"
WEIGHTS = save({"a": np.ones((3, 4), np.float32), "b": np.zeros(5, np.float16)})
MODEL = {
    "README.md": README.encode(),
    "card.json": json.dumps(CARD).encode(),
    "config.json": b'{"model_type": "qwen2"}',
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
}
PRIVATE = {"optimizer.pt": b"x", "training.pt": b"x", "events.out": b"x", "completions.jsonl": b"{}", "notes.txt": b"x"}


def written(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def run_folder(folder: Path, finished: bool = True) -> Path:
    written(folder / "model", MODEL | PRIVATE)
    written(folder / "logs", {"events.out": b"x"})
    return written(folder, {"run.json": json.dumps({"finished": finished}).encode(), "metrics.jsonl": b"{}"})


def checkpoint(folder: Path) -> Path:
    settings = {"base_model_name_or_path": "/home/me/runs/sft/model", "r": 32}
    files = {name: data for name, data in MODEL.items() if not name.startswith(("model", "config"))}
    files |= {"adapter_config.json": json.dumps(settings).encode(), "adapter_model.safetensors": WEIGHTS}
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return written(folder, files | PRIVATE | {"complete.json": json.dumps({"step": 8, "files": sums}).encode()})


def report(folder: Path, **more: bytes) -> Path:
    values = {
        "title": "A study",
        "summary": ["The reward went from 0.02 to 0.04, a | b."],
        "provenance": {"versions": {"recipe-planner": "0.3.0"}, "data": {"corpus": "/home/me/corpora/mine"}},
    }
    return written(folder, {"report.json": json.dumps(values).encode(), "report.html": b"<p>0.04</p>"} | more)


MINE = "hf://me/mine"


@pytest.fixture
def refused(recipe: Recipe) -> Callable[..., None]:
    """A folder is not published, and one sentence says why."""

    def check(folder: Path, named: str, *words: str, target: str = MINE) -> None:
        outcome = recipe("publish", folder, target, *(words or ["--dry-run"]))
        assert outcome.code == 1
        assert re.search(named, outcome.err.splitlines()[-1]), outcome.err

    return check


def test_a_run_is_published_as_its_model_alone(tmp_path: Path, hub: Any, recipe: Recipe) -> None:
    made = recipe.json("publish", run_folder(tmp_path / "run"), MINE, "--license", "apache-2.0")
    sent = hub.commits[-1]
    assert set(sent) == {".gitattributes", *MODEL}
    assert {name: sent[name] for name in MODEL if name != "README.md"} == {
        name: data for name, data in MODEL.items() if name != "README.md"
    }
    _, front, body = sent["README.md"].decode().split("---\n", 2)
    assert yaml.safe_load(front) == {"library_name": "transformers", "license": "apache-2.0", "tags": ["recipe"]}
    assert body.strip() == README.split("---\n", 2)[2].strip()
    assert [row["visibility"] for row in hub.made] == ["private"]
    assert {name: len(sent[name]) for name in MODEL} == made["sizes"]


def test_shards_that_a_model_has_no_more_are_removed(tmp_path: Path, hub: Any, recipe: Recipe) -> None:
    hub.commits[-1] |= {"model-00001-of-00002.safetensors": b"old", "notes.md": b"mine"}
    assert recipe("publish", run_folder(tmp_path / "run"), MINE, "--public").code == 0
    assert set(hub.commits[-1]) == {".gitattributes", "notes.md", *MODEL}
    assert len(hub.commits) == 2  # one commit: no state of half a model
    assert [row["visibility"] for row in hub.made] == ["public"]


def test_a_checkpoint_names_its_base_and_no_place(tmp_path: Path, hub: Any, recipe: Recipe) -> None:
    recipe.json("publish", checkpoint(tmp_path / "checkpoint-8"), MINE)
    sent = hub.commits[-1]
    adapter = json.loads(sent["adapter_config.json"])
    assert adapter == {"base_model_name_or_path": "Qwen/Qwen2.5-3B-Instruct", "r": 32}
    assert not sent.keys() & {*PRIVATE, "complete.json"}


def test_a_report_has_a_card_with_its_figures(tmp_path: Path, hub: Any, recipe: Recipe) -> None:
    folder = report(tmp_path / "run", **{"thesis.pdf": b"x"})
    recipe.json("publish", folder, "hf://datasets/me/mine@main", "--name", "Mine", "--license", "Ask us.")
    assert set(hub.commits[-1]) == {".gitattributes", "README.md", "report.html", "report.json"}
    card = hub.commits[-1]["README.md"].decode()
    front = yaml.safe_load(card.split("---\n")[1])
    assert (front["license"], front["license_name"], front["pretty_name"]) == ("other", "Ask us.", "Mine")
    assert "0.02 to 0.04, a \\| b" in card
    assert "| corpus | mine |" in card
    assert "/home/me" not in card


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda run: (run / "run.json").write_text('{"finished": false}'), "run"),
        (lambda run: (run / "model" / "README.md").unlink(), r"README\.md"),
        (lambda run: (run / "model" / "config.json").unlink(), r"config\.json"),
        (lambda run: (run / "model" / "model.safetensors").unlink(), r"model\.safetensors"),
        (lambda run: (run / "model" / "model.safetensors").write_bytes(b"\x02" + bytes(7) + b"[]"), "cut or damaged"),
        (lambda run: (run / "model" / "card.json").write_text('{"key": "hf_' + "a" * 34 + '"}'), r"card\.json"),
        (lambda run: (run / "model" / "tokenizer.json").write_text('{"k": "a-key-of-this-environment"}'), "tokenizer"),
        (
            lambda run: (run / "model" / "model.safetensors.index.json").write_text(
                '{"weight_map": {"a": "model-00002-of-00002.safetensors"}}'
            ),
            "model-00002",
        ),
    ],
)
def test_a_folder_that_is_not_complete_or_holds_a_key_is_refused(
    change: Any, named: str, tmp_path: Path, recipe: Recipe, refused: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "a-key-of-this-environment")
    run = run_folder(tmp_path / "run")
    recipe.json("publish", run, MINE, "--dry-run")
    change(run)
    refused(run, named)


def test_a_checkpoint_without_its_mark_or_with_another_file_is_refused(tmp_path: Path, refused: Any) -> None:
    folder = checkpoint(tmp_path / "checkpoint-8")
    (folder / "tokenizer.json").write_text('{"a": 1}')
    refused(folder, r"tokenizer\.json")
    refused(folder, "--name", "--name", "Mine")
    (folder / "complete.json").unlink()
    refused(folder, r"complete\.json")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, len(WEIGHTS) + 3).filter(lambda size: size != len(WEIGHTS)))
def test_weights_of_any_other_length_are_refused(
    tmp_path_factory: pytest.TempPathFactory, refused: Any, size: int
) -> None:
    cut = {"model.safetensors": (WEIGHTS + b"more")[:size]}
    refused(written(tmp_path_factory.mktemp("model"), MODEL | cut), r"model\.safetensors")


@pytest.mark.parametrize(
    ("target", "kind"), [("hf://datasets/me/mine", run_folder), ("hf://me/mine", report), ("folder", run_folder)]
)
def test_a_target_of_another_kind_is_refused(target: str, kind: Any, tmp_path: Path, hub: Any, refused: Any) -> None:
    refused(kind(tmp_path / "folder"), target, "--public", target=target)
    assert not hub.requests


def test_folders_that_are_nothing_are_refused(tmp_path: Path, refused: Any) -> None:
    refused(tmp_path, r"card\.json")
    page = report(tmp_path / "report")
    (page / "report.html").unlink()
    refused(page, "no page")


@pytest.mark.thorough
def test_the_command_asks_the_hub_that_the_environment_names(tmp_path: Path) -> None:
    run_folder(tmp_path / "run")
    command = [sys.executable, "-m", "recipe", "publish", "run", "hf://me/mine", "--license", "mit", "--json"]
    with hub_server() as server:
        own = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_TOKEN": "x", "HF_HUB_OFFLINE": "0"}
        results = []
        for words in (["--dry-run"], []):
            done = subprocess.run(
                [*command, *words], cwd=tmp_path, env=os.environ | own, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            results.append((json.loads(done.stdout), len(server.commits)))
        (dry, before), (sent, after) = results
    assert (before, after) == (1, 2)
    assert dry["sizes"] == sent["sizes"] == {name: len(server.commits[-1][name]) for name in MODEL}
    assert dry["commit"] is None


def test_the_root_of_the_disk_is_no_place_of_this_machine(
    recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = written(tmp_path / "model", MODEL | {"README.md": README.encode() + b"https://example.org, /home/me/x"})
    for home, named in (("/", False), ("/home/me", True)):
        monkeypatch.setenv("HOME", home)
        assert recipe("publish", folder, MINE, "--dry-run").code == 0
        assert ("README.md names a folder" in caplog.text) is named
