"""Run folders of training: what a run was made from, whether it is finished, and where it resumes.

run.json       settings, hashes of the inputs, `decoding` of the roll-outs, `finished`, `notes` about a finished run
checkpoints/   checkpoint-N/, complete once its `complete.json` is there, which holds the SHA-256 of each file;
               with a card, as the model
logs/          TensorBoard
metrics.jsonl  one row an optimiser step
completions/   step-NNNNN.jsonl (GRPO)
model/         the result, in the standard layout
"""

import errno
import logging
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recipe.artifacts import JsonObject, file_sha256, fingerprint, read_json, sync, write_json, write_text
from recipe.config import Settings
from recipe.errors import ConfigError, InputError
from recipe.models.smollm2 import NAME, smollm2_identity
from recipe.prompting import PLAIN, PlannerPrompt
from recipe.training import ranks
from recipe.training.cards import PLACES, Card, card_files, run_card

KEPT_CHECKPOINTS = 2
VERSION = 3
"""Version of `run.json`."""
_COMPLETE = "complete.json"
_CHECKPOINT = re.compile(r"checkpoint-[0-9]+")
_VALIDATION_FILES: dict[str, Any] = {"validation": {"examples": True, "graphs": True}}
"""Settings of validation whose content stands among the inputs."""
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_SPACE_IN_WORDS = (*(f"(os error {number})" for number in _NO_SPACE), "inline_container.cc")
"""In what safetensors and torch raise where a file cannot be written to its end."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder that belongs to one config and its inputs."""

    folder: Path
    manifest: dict[str, Any]
    card: Card = field(default_factory=dict)
    """What the cards of all its checkpoints and of its model share."""

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
        return bool(read_json(self.folder / "run.json").get("finished")) and self.model.is_dir()

    def finish(self, seconds: float, notes: Sequence[str] = ()) -> Path:
        """Record that the model is complete, with sentences about the run if there are any; returns its folder."""
        said = {"notes": list(notes)} if notes else {}
        write_json(self.folder / "run.json", {**self.manifest, "finished": True, "seconds": round(seconds, 1), **said})
        return self.model

    def checkpoint(self, step: int) -> Path:
        """Folder of the checkpoint after an optimiser step."""
        return self.checkpoints / f"checkpoint-{step}"

    def keep(self, step: int, figures: Mapping[str, Any]) -> None:
        """Declare the checkpoint of a step complete, once its files are on disk, and remove those before the last two.

        `figures`, the step's metrics, go into its card. A kill at any moment leaves a complete checkpoint where there
        was one.
        """
        folder = self.checkpoint(step)
        for name, text in card_files(self.card, step, figures, merged=False).items():
            write_text(folder / name, text)
        sync(folder)
        files = {name: file_sha256(folder / name) for name in sorted(_files(folder))}
        write_json(folder / _COMPLETE, {"step": step, "files": files})
        for old in self.complete()[:-KEPT_CHECKPOINTS]:
            (old / _COMPLETE).unlink()
            shutil.rmtree(old)

    def latest_checkpoint(self) -> Path | None:
        """The newest complete and undamaged checkpoint, None where none was completed yet.

        Those that a kill left half-written are removed, and so are damaged ones after the newest good one, with a
        warning. Raises InputError where all are damaged.
        """
        for folder in self._folders():
            if not (folder / _COMPLETE).is_file():
                shutil.rmtree(folder)
        damaged: list[tuple[Path, str]] = []
        for folder in reversed(self.complete()):
            if (fault := _damage(folder)) is None:
                for later, reason in damaged:
                    _LOG.warning("%s: %s; the run continues from %s instead", later, reason, folder.name)
                    shutil.rmtree(later)
                return folder
            damaged.append((folder, fault))
        if damaged:
            raise InputError.at(*damaged[0], "restore its files, or delete the run's folder to start over")
        return None

    def complete(self) -> list[Path]:
        """The complete checkpoints, the newest last."""
        return [folder for folder in self._folders() if (folder / _COMPLETE).is_file()]

    def _folders(self) -> list[Path]:
        """All checkpoints, the newest last; what else lies beside them is not ours to remove."""
        named = (path for path in self.checkpoints.glob("checkpoint-*") if _CHECKPOINT.fullmatch(path.name))
        return sorted((path for path in named if path.is_dir() and not path.is_symlink()), key=step_of)

    @contextmanager
    def on_disk(self) -> Iterator[None]:
        """Raises InputError in place of what is raised within where the disk is full; checkpoints stay as they were."""
        try:
            yield
        except Exception as error:
            if not _disk_is_full(error):
                raise
            checkpoint = self.latest_checkpoint()
            if checkpoint is None:
                remedy = "free some space and run the same command again; it starts over"
            else:
                size = sum((checkpoint / name).stat().st_size for name in _files(checkpoint)) / 1e6
                remedy = (
                    f"free {max(1, 2 * size):.0f} MB, two checkpoints' size, and run the same command again; it "
                    f"continues after step {step_of(checkpoint)}"
                )
            raise InputError.at(self.folder, "the disk is full", remedy) from error


def step_of(checkpoint: Path) -> int:
    """The optimiser step after which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def _files(folder: Path) -> list[str]:
    """Names of all files in a folder and its folders."""
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]


def _damage(checkpoint: Path) -> str | None:
    """What is wrong with a complete checkpoint, None for nothing."""
    try:
        files = read_json(checkpoint / _COMPLETE)["files"]
    except (InputError, KeyError, TypeError):
        files = None
    if not isinstance(files, dict) or not files:
        return f"{_COMPLETE} is damaged"
    for name, sha in files.items():
        if not (checkpoint / name).is_file():
            return f"{name} is missing"
        if file_sha256(checkpoint / name) != sha:
            return f"{name} is damaged"
    return None


def _disk_is_full(error: BaseException | None) -> bool:
    """Whether an error, or one that it arose from, says so."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
            return True
        if any(words in str(error) for words in _NO_SPACE_IN_WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def model_input(name: str) -> Path | str:
    """The model that a run begins with, as one of its inputs: of the named base the hash, of any other its place."""
    return smollm2_identity()["sha256"] if name == NAME else Path(name)


def prompt_input(prompt: PlannerPrompt) -> dict[str, str]:
    """The prompt of a run among its inputs, by the hash of its text; nothing for the plain one."""
    return {} if prompt is PLAIN else {"prompt": fingerprint(prompt.text)}


def open_run(stage: str, config: Settings, output: Path, inputs: Mapping[str, Path | str | JsonObject]) -> Run:
    """The run folder of `config`, new or to be resumed.

    `inputs` are files or model folders by name, or texts or JSON. Their content is part of the run's identity, their
    place is not, and neither are settings that change no result. A run that stopped before its first checkpoint may be
    replaced by one of other settings. Raises ConfigError where the folder belongs to other settings or to something
    else, and where a machine holds other examples or another model than that of the first process.
    """
    run = ranks.from_main(lambda: _opened(stage, config, output, inputs))
    read = {name: path for name, path in inputs.items() if name in ("examples", "model")}
    if ranks.main():
        held = {name: run.manifest["inputs"][name] for name in read}
    else:
        held = {name: _identity(path) for name, path in read.items()} if ranks.reads_files() else {}
    ranks.require_agreement(held, "give every machine the same files")
    return run


def held_run(stage: str, config: Settings, output: Path) -> Run | None:
    """The run that a folder holds, which `config` would resume; None where it would begin anew. Nothing is written.

    Its settings are compared; of its inputs, files and corpus are, as weights take long to read. Raises ConfigError
    where they differ, InputError for a damaged record.
    """
    if not (output / "run.json").is_file() or not _has_begun(output):
        return None
    run = Run(output, _read_record(output))
    inputs = run.manifest["inputs"]
    settings = config.model_dump(mode="json", exclude=dict.fromkeys({*PLACES, *inputs}, True) | _VALIDATION_FILES)
    held = dict(inputs)
    for name in {"examples", "corpus"} & inputs.keys():
        if isinstance(path := getattr(config, name, None), Path) and path.exists():
            held[name] = _identity(path)
    _require_same(output, run.manifest, {"stage": stage, "config": settings, "inputs": held})
    return run


def _has_begun(output: Path) -> bool:
    """Whether the folder holds more than the record of a run, so that its settings are no longer free."""
    return (output / "model").exists() or any((output / "checkpoints").glob("checkpoint-*"))


def _read_record(output: Path) -> dict[str, Any]:
    """The record of the run in a folder. Raises InputError where it is damaged, ConfigError for another version's."""
    record = output / "run.json"
    known = read_json(record)
    if not isinstance(known, dict) or not all(isinstance(known.get(part), dict) for part in ("config", "inputs")):
        raise InputError.at(record, "this is not the record of a run", "delete the folder to start over")
    if known.get("version") != VERSION:
        raise ConfigError(
            f"{output}: the run is of another version of recipe; "
            "set another `output`, or continue the run with the version that began it."
        )
    return known


def _require_same(output: Path, known: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises ConfigError where the record of a run differs in what `now` holds."""
    held: Mapping[str, Any] = {key: known.get(key) for key in now}
    if now["config"].get("input") == "text":  # which reads no frames, whatever the settings say of them
        held, now = ({**one, "config": {**one["config"], "frames": None}} for one in (held, now))
    if changed := _changes(held, now):
        raise ConfigError(
            f"{output}: the folder holds a run with other settings ({'; '.join(changed)}); "
            "set another `output`, or delete the folder to start over."
        )


def _opened(stage: str, config: Settings, output: Path, inputs: Mapping[str, Path | str | JsonObject]) -> Run:
    settings = config.model_dump(mode="json", exclude=dict.fromkeys({*PLACES, *inputs}, True) | _VALIDATION_FILES)
    hashes = {name: _identity(path) for name, path in inputs.items()}
    manifest = {
        "stage": stage,
        "config": settings,
        "inputs": hashes,
        "processes": ranks.world(),
        "version": VERSION,
    }
    card = run_card(stage, config, hashes) | {"processes": ranks.world()}
    if "decoding" in card:
        manifest["decoding"] = card["decoding"]
    record = output / "run.json"
    if not record.is_file() and output.is_dir() and any(not path.name.startswith(".") for path in output.iterdir()):
        raise ConfigError(f"{output}: the folder is not empty and holds no run; set another `output`.")
    if not record.is_file() or not _has_begun(output):
        write_json(record, {**manifest, "finished": False})
    else:
        _require_same(output, _read_record(output), manifest)
    return Run(output, manifest, card)


def _identity(path: Path | str | JsonObject) -> Any:
    """A hash of a file, of a model folder's weights, or of a corpus folder's manifest; a hub id, a text or JSON stands
    for itself.
    """
    if not isinstance(path, Path):
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
