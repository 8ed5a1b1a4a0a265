"""Run folders: which checkpoint a run resumes from, and records of other versions."""

import errno
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from recipe.artifacts import read_json, write_json
from recipe.config import BaseModelConfig, BestOfNConfig, SFTConfig, parse_config
from recipe.errors import ConfigError, InputError
from recipe.reward.self_trained import CARD
from recipe.training import runs
from recipe.training.runs import Run, held_run, open_run


def checkpoint(run: Run, step: int) -> Path:
    return run.checkpoints / f"checkpoint-{step}"


def saved(run: Run, step: int) -> Path:
    """A checkpoint whose files are written and that is not declared complete."""
    folder = checkpoint(run, step)
    (folder / "inner").mkdir(parents=True)
    (folder / "weights.safetensors").write_bytes(bytes([step]) * 50)
    (folder / "inner" / "state.json").write_text("{}")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = open_run("base", BaseModelConfig(examples=Path("e"), output=tmp_path / "run"), tmp_path / "run", {})
    for step in (2, 4):
        saved(run, step)
        run.keep(step, {})
    return run


def test_a_kill_at_any_moment_leaves_a_complete_checkpoint(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        pass

    for number, doomed in enumerate(("sync", "write_json", "file_sha256", "shutil.rmtree")):
        step = 6 + 2 * number
        saved(run, step)

        def die(*_: Any, **__: Any) -> None:
            raise Killed

        with monkeypatch.context() as patched:
            owner, name = (shutil, "rmtree") if "." in doomed else (runs, doomed)
            patched.setattr(owner, name, die)
            with pytest.raises(Killed):
                run.keep(step, {})
        resumed = run.latest_checkpoint()
        assert resumed is not None
        assert resumed.name == ("checkpoint-12" if doomed == "shutil.rmtree" else "checkpoint-4")
    # The one that was being removed is no longer complete, and goes.
    assert sorted(folder.name for folder in run.checkpoints.iterdir()) == ["checkpoint-12", "checkpoint-4"]


@pytest.mark.parametrize("name", ["weights.safetensors", "inner/state.json", "complete.json"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    run: Run, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = checkpoint(run, 4) / name
    file.write_bytes(file.read_bytes()[:-3]) if damage == "cut" else file.unlink()
    assert run.latest_checkpoint() == checkpoint(run, 2)
    assert not checkpoint(run, 4).exists()
    if (name, damage) != ("complete.json", "gone"):  # then it is a half-written one, as after any kill
        assert name in caplog.text
        assert "checkpoint-2" in caplog.text


def test_without_a_good_checkpoint_the_run_is_refused_and_nothing_is_removed(run: Run) -> None:
    for step in (2, 4):
        (checkpoint(run, step) / "weights.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=r"checkpoint-4: weights.safetensors is damaged"):
        run.latest_checkpoint()
    assert checkpoint(run, 4).is_dir()
    assert checkpoint(run, 2).is_dir()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        ValueError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"),
    ],
)
def test_a_full_disk_is_one_sentence_and_leaves_the_last_checkpoint(run: Run, error: Exception) -> None:
    saved(run, 6)
    later = RuntimeError("what a library raises while it closes the file")
    later.__context__ = error
    with pytest.raises(InputError, match=r"disk is full; free 1 MB.* after step 4") as caught, run.on_disk():
        raise later
    assert "\n" not in str(caught.value)
    assert run.latest_checkpoint() == checkpoint(run, 4)
    assert not checkpoint(run, 6).exists()
    with pytest.raises(ZeroDivisionError), run.on_disk():
        raise ZeroDivisionError


@pytest.fixture
def config(tmp_path: Path) -> SFTConfig:
    return SFTConfig(model="some/model", examples=Path("e"), output=tmp_path / "run")


def begun(config: SFTConfig, **changes: Any) -> None:
    """A run with a model and `changes` in its record; None removes a key."""
    open_run("sft", config, config.output, {})
    record = read_json(config.output / "run.json") | changes
    write_json(config.output / "run.json", {key: value for key, value in record.items() if value is not None})
    (config.output / "model").mkdir()


@pytest.mark.parametrize("version", [None, 2, 99])
@pytest.mark.parametrize("finished", [True, False])
def test_a_run_of_another_version_is_refused(config: SFTConfig, version: int | None, finished: bool) -> None:
    begun(config, version=version, finished=finished)
    before = {path: path.read_bytes() for path in config.output.rglob("*") if path.is_file()}
    for opened in (open_run, held_run):
        with pytest.raises(ConfigError, match="another version") as caught:
            opened("sft", config, config.output, *([{}] if opened is open_run else []))
        assert str(config.output) in str(caught.value)
        assert "\n" not in str(caught.value)
    assert {path: path.read_bytes() for path in config.output.rglob("*") if path.is_file()} == before


def test_a_run_of_this_version_resumes_with_the_same_settings_only(config: SFTConfig) -> None:
    begun(config)
    assert not open_run("sft", config, config.output, {}).finished
    assert held_run("sft", config, config.output) is not None
    with pytest.raises(ConfigError, match="epochs was 3, is 4"):
        open_run("sft", config.model_copy(update={"epochs": 4}), config.output, {})
    write_json(config.output / "run.json", read_json(config.output / "run.json") | {"processes": 2})
    with pytest.raises(ConfigError, match="processes was 2, is 1"):
        open_run("sft", config, config.output, {})


def test_a_self_trained_reward_counts_by_what_it_holds_and_not_by_its_place(tmp_path: Path) -> None:
    def opened(place: str, content: str) -> Run:
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / CARD).write_text(content)
        reward = {"verifier": "grounded", "grounded": {"self_trained": str(tmp_path / place)}}
        values = {"model": "some/model", "examples": "e", "corpus": "c", "output": tmp_path / "run", "reward": reward}
        config = parse_config(values, BestOfNConfig, "test")
        return open_run("best-of-n", config, config.output, {"self-trained reward": tmp_path / place / CARD})

    opened("one", "net")
    (tmp_path / "run" / "model").mkdir()
    assert not opened("another", "net").finished
    with pytest.raises(ConfigError, match="self-trained reward"):
        opened("another", "another net")


def test_a_run_that_has_not_begun_is_replaced(config: SFTConfig) -> None:
    open_run("sft", config, config.output, {})
    write_json(config.output / "run.json", {"stage": "sft", "config": {}})
    assert held_run("sft", config, config.output) is None
    assert not open_run("sft", config, config.output, {}).finished


def test_a_record_of_something_else_is_refused(config: SFTConfig) -> None:
    begun(config)
    (config.output / "run.json").write_text(json.dumps([1]))
    with pytest.raises(InputError, match="not the record of a run"):
        open_run("sft", config, config.output, {})


@pytest.mark.parametrize(
    "mark",
    ["", "[]", '{"step": 4}', '{"files": {}}',
     "7", "null", "{", '{"files": []}', '{"files": "weights.safetensors"}', '{"files": null}',
     '{"files": {"weights.safetensors": 7}}', '{"files": {"../../../x": "y"}}', '{"files": {"": "y"}}', "\udcff"],
)  # fmt: skip
def test_a_mark_that_cannot_be_read_is_a_damaged_checkpoint(run: Run, mark: str) -> None:
    (checkpoint(run, 4) / "complete.json").write_bytes(mark.encode("utf-8", "surrogateescape"))
    assert run.latest_checkpoint() == checkpoint(run, 2)


def test_what_is_no_checkpoint_is_left_alone(run: Run, tmp_path: Path) -> None:
    """A file, a link to nowhere, a link to a folder elsewhere, and a folder of another name."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").write_text("x")
    (run.checkpoints / "checkpoint-9").write_text("x")
    (run.checkpoints / "checkpoint-10").symlink_to(tmp_path / "nowhere")
    (run.checkpoints / "checkpoint-11").symlink_to(tmp_path / "elsewhere")
    shutil.copytree(checkpoint(run, 4), run.checkpoints / "checkpoint-best")
    assert run.latest_checkpoint() == checkpoint(run, 4)
    saved(run, 6)
    run.keep(6, {})
    assert run.latest_checkpoint() == checkpoint(run, 6)
    assert (tmp_path / "elsewhere" / "kept").read_text() == "x"
    assert (run.checkpoints / "checkpoint-best").is_dir()


@pytest.mark.parametrize("lost", ["finished", "inputs", "stage", "processes", "version"])
def test_a_record_that_lacks_a_key_is_no_traceback(config: SFTConfig, lost: str) -> None:
    begun(config, finished=True)
    record = read_json(config.output / "run.json")
    record.pop(lost, None)
    write_json(config.output / "run.json", record)
    with suppress(ConfigError, InputError):
        assert isinstance(open_run("sft", config, config.output, {}).finished, bool)
