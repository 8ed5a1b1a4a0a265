"""Run folders of training: what a run was made from, whether it is finished, and where it resumes.

run.json       settings, hashes of the inputs, `finished`
checkpoints/   checkpoint-N/, complete once its `complete.json` is there
logs/          TensorBoard
metrics.jsonl  one row an optimiser step
completions/   step-NNNNN.jsonl (GRPO)
model/         the result, in the standard layout
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe.artifacts import file_sha256, read_json, write_json
from recipe.config import Settings
from recipe.errors import ConfigError, InputError

_COMPLETE = "complete.json"


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder that belongs to one config and its inputs."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def model(self) -> Path:
        """The finished model."""
        return self.folder / "model"

    @property
    def checkpoints(self) -> Path:
        """Folder of the resumable checkpoints."""
        return self.folder / "checkpoints"

    @property
    def completions(self) -> Path:
        """Folder of the logged completions."""
        return self.folder / "completions"

    @property
    def finished(self) -> bool:
        """True once the model stands in its place."""
        return bool(read_json(self.folder / "run.json")["finished"]) and self.model.is_dir()

    def finish(self, seconds: float) -> Path:
        """Record that the model is complete; returns its folder."""
        write_json(self.folder / "run.json", {**self.manifest, "finished": True, "seconds": round(seconds, 1)})
        return self.model

    def latest_checkpoint(self) -> Path | None:
        """The newest complete checkpoint; those that a kill left half-written are removed."""
        complete = []
        for folder in self.checkpoints.glob("checkpoint-*"):
            if (folder / _COMPLETE).is_file():
                complete.append(folder)
            else:
                shutil.rmtree(folder)
        return max(complete, key=step_of, default=None)


def step_of(checkpoint: Path) -> int:
    """The optimiser step after which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def mark_complete(checkpoint: Path) -> None:
    """Declare a checkpoint whole; the last thing written into it."""
    write_json(checkpoint / _COMPLETE, {"step": step_of(checkpoint)})


def open_run(stage: str, config: Settings, output: Path, inputs: Mapping[str, Path | str]) -> Run:
    """The run folder of `config`, new or to be resumed.

    `inputs` are files or model folders by name, or texts. Their content is part of the run's identity, their place is
    not. A run that stopped before its first checkpoint may be replaced by one of other settings. Raises ConfigError
    where the folder belongs to other settings or to something else.
    """
    settings = config.model_dump(mode="json", exclude={"output", *inputs})
    hashes = {name: _identity(path) for name, path in inputs.items()}
    manifest = {"stage": stage, "config": settings, "inputs": hashes}
    record = output / "run.json"
    if not record.is_file() and output.is_dir() and any(not path.name.startswith(".") for path in output.iterdir()):
        raise ConfigError(f"{output}: the folder is not empty and holds no run; set another `output`.")
    begun = (output / "model").exists() or any((output / "checkpoints").glob("checkpoint-*"))
    if not record.is_file() or not begun:
        write_json(record, {**manifest, "finished": False})
        return Run(output, manifest)
    known = read_json(record)
    if not isinstance(known, dict):
        raise InputError.at(record, "this is not the record of a run", "delete the folder to start over")
    changed = _changes({key: known.get(key) for key in manifest}, manifest)
    if changed:
        raise ConfigError(
            f"{output}: the folder holds a run with other settings ({'; '.join(changed)}); "
            "set another `output`, or delete the folder to start over."
        )
    return Run(output, manifest)


def _identity(path: Path | str) -> str:
    """A hash of a file, of a model folder's weights, or of a corpus folder's manifest; a hub id or a text stands
    for itself.
    """
    if isinstance(path, str):
        return path
    if path.is_file():
        return file_sha256(path)
    held = sorted(path.glob("*.safetensors")) or sorted(path.glob("manifest.json"))
    return " ".join(file_sha256(file) for file in held) or str(path)


def _changes(old: Any, new: Any, name: str = "") -> list[str]:
    """Leaves in which two JSON values differ, in words."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted({*old, *new})
        return [line for key in keys for line in _changes(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))]
    short = (text if len(text := repr(value)) <= 40 else f"{text[:16]}..." for value in (old, new))
    return [] if old == new else [f"{name.removeprefix('config.')} was {next(short)}, is {next(short)}"]
