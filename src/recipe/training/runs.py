"""Run folders of training: from what a run was made, whether it is finished, where it resumes, and its cards.

run.json       the record: settings, hashes of the inputs, `decoding` of the roll-outs, base model, corpus, reward and
               code, `finished`, `notes` about a finished run
checkpoints/   checkpoint-N/, complete once its `complete.json` is there, which holds the SHA-256 of each file;
               with a card, as the model
logs/          TensorBoard
metrics.jsonl  one row an optimiser step
completions/   step-NNNNN.jsonl (GRPO)
model/         the result, in the standard layout

The card of a checkpoint or model is the record again, after a step, as `card.json` and rendered as `README.md`. It
stays with a model that is moved away from its run: the next stage reads base model and prompt from it. It names no
place on this machine: files and folders are named by their hashes.
"""

import errno
import json
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData
from huggingface_hub.constants import REPOCARD_NAME as README

import recipe
from recipe.artifacts import (
    CARD,
    JsonObject,
    file_sha256,
    fingerprint,
    installed,
    read_json,
    sync,
    to_json,
    write_json,
    write_text,
)
from recipe.config.base import Settings
from recipe.config.models import SamplingConfig
from recipe.config.training import RewardTrainingSettings, TrainingSettings
from recipe.corpus.encoder_identity import licence_note
from recipe.errors import ConfigError, InputError
from recipe.models.sampling import Decoding, decoding_of, read_decoding
from recipe.models.smollm2 import HUB, NAME, smollm2_identity
from recipe.prompting import PLAIN, PlannerPrompt, open_prompt, remembered_prompt
from recipe.training import ranks

# Two: where the newest is damaged, the run goes on from the one before.
KEPT_CHECKPOINTS = 2
VERSION = 3
"""Version of `run.json`."""
PLACES = ("output", "reward_service", "reward_patience", "tracking")
"""Settings that change no result: where the run lies, where its rewards come from, and its name where metrics go."""
_COMPLETE = "complete.json"
_CHECKPOINT = re.compile(r"checkpoint-[0-9]+")
# Settings of validation and reward that name files; their content is compared among the inputs.
_NESTED_FILES: dict[str, Any] = {
    "validation": {"examples": True, "graphs": True},
    "reward": {"grounded": {"self_trained": True}},
}
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# How safetensors and torch say in words that a file could not be written to its end.
_NO_SPACE_IN_WORDS = (*(f"(os error {number})" for number in _NO_SPACE), "inline_container.cc")
_TITLES = {
    "base": "trained from scratch",
    "sft": "fine-tuned on reference continuations",
    "grpo": "trained by GRPO on the verifier's reward",
    "best-of-n": "trained on the plans of its own that the verifier rewards most",
}
_LOG = logging.getLogger(__name__)


class Run:
    """A run folder that belongs to one config and its inputs."""

    def __init__(self, folder: Path, config: Settings, record: JsonObject) -> None:
        self.folder, self.config, self.record = folder, config, record
        # The finished model.
        self.model = folder / "model"
        self.checkpoints = folder / "checkpoints"
        self.completions = folder / "completions"

    @property
    def finished(self) -> bool:
        """True once the model is in its place."""
        return bool(read_json(self.folder / "run.json").get("finished")) and self.model.is_dir()

    def finish(self, seconds: float, notes: Sequence[str] = ()) -> Path:
        """Record that the model is complete, with sentences about the run if there are any; returns its folder."""
        end = {"finished": True, "seconds": round(seconds, 1)} | ({"notes": list(notes)} if notes else {})
        write_json(self.folder / "run.json", self.record | end)
        return self.model

    def card(self, step: int, figures: Mapping[str, Any], notes: Sequence[str] = (), *, merged: bool) -> dict[str, str]:
        """The card after an optimiser step with the metrics of that step, as texts of files by name.

        `notes` are sentences about the run. `merged`: of a model that stands alone, and not of a checkpoint of
        adapters. What depends on the clock is left out, so that equal runs have equal cards.
        """
        card: JsonObject = {name: value for name, value in self.record.items() if name != "version"}
        card |= {"format": 1, "config": _portable(self.config), "step": step}
        card["inputs"] = {
            name: Path(identity).name if Path(identity).is_absolute() else identity
            for name, identity in self.record["inputs"].items()
            if name != "reward"  # its corpus and its verifier have fields of their own
        }
        kept = {name: value for name, value in figures.items() if "second" not in name and name != "reward_share"}
        card |= {"figures": kept} | ({"notes": list(notes)} if notes else {})
        text = json.dumps(card, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        return {CARD: text, README: _readme(card, merged=merged)}

    def keep(self, step: int, figures: Mapping[str, Any]) -> None:
        """Declare the checkpoint of a step complete, once its files are on disk, and remove those before the last two.

        `figures`, the step's metrics, go into its card. A kill at any moment leaves a complete checkpoint where there
        was one.
        """
        folder = self.checkpoints / f"checkpoint-{step}"
        for name, text in self.card(step, figures, merged=False).items():
            write_text(folder / name, text)
        # The mark comes after the files are on disk, and the old checkpoints go after the mark.
        sync(folder)
        files = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
        write_json(folder / _COMPLETE, {"step": step, "files": {name: file_sha256(folder / name) for name in files}})
        for old in self.complete()[:-KEPT_CHECKPOINTS]:
            # The mark first: a kill in between leaves a partial checkpoint, never a complete one without its files.
            (old / _COMPLETE).unlink()
            shutil.rmtree(old)

    def latest_checkpoint(self) -> Path | None:
        """The newest complete and undamaged checkpoint, None where none was completed yet.

        Those that a kill left half-written are removed, and so are damaged ones after the newest good one, with a
        warning. Raises InputError where all are damaged.
        """
        for folder in self.complete(also_partial=True):
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

    def complete(self, *, also_partial: bool = False) -> list[Path]:
        """The complete checkpoints, the newest last; anything else in their folder is not ours to remove."""
        named = (path for path in self.checkpoints.glob("checkpoint-*") if _CHECKPOINT.fullmatch(path.name))
        folders = sorted((path for path in named if path.is_dir() and not path.is_symlink()), key=step_of)
        return [folder for folder in folders if also_partial or (folder / _COMPLETE).is_file()]

    @contextmanager
    def on_disk(self) -> Iterator[None]:
        """Turns an error that comes from a full disk into an InputError; checkpoints stay as they were."""
        try:
            yield
        except Exception as error:
            # A library may raise another error while it closes the file that could not be written.
            cause: BaseException | None = error
            full = False
            while cause is not None and not full:
                full = isinstance(cause, OSError) and cause.errno in _NO_SPACE
                full = full or any(words in str(cause) for words in _NO_SPACE_IN_WORDS)
                cause = cause.__cause__ or cause.__context__
            if not full:
                raise
            checkpoint = self.latest_checkpoint()
            if checkpoint is None:
                remedy = "free some space and run the same command again; it starts over"
            else:
                size = sum(file.stat().st_size for file in checkpoint.rglob("*") if file.is_file()) / 1e6
                remedy = (
                    f"free {max(1, 2 * size):.0f} MB, two checkpoints' size, and run the same command again; it "
                    f"continues after step {step_of(checkpoint)}"
                )
            raise InputError.at(self.folder, "the disk is full", remedy) from error


def step_of(checkpoint: Path) -> int:
    """The optimiser step after which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def _damage(checkpoint: Path) -> str | None:
    """Says which file of a complete checkpoint is damaged; None where none is."""
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


def run_inputs(config: TrainingSettings) -> dict[str, Path | str | JsonObject]:
    """The inputs of every fine-tuning: examples, the model, and the prompt by the hash of its text where it is not
    the plain one. The named base counts by its hash, any other model by its place.
    """
    model: Path | str = smollm2_identity()["sha256"] if config.model == NAME else Path(config.model)
    prompt = run_prompt(config)
    named = {} if prompt is PLAIN else {"prompt": fingerprint(prompt.text)}
    return {"examples": config.examples, "model": model, **named}


def run_prompt(config: TrainingSettings) -> PlannerPrompt:
    """The prompt that the settings name, else the one that the model was trained with. Raises InputError."""
    if config.prompt:
        return open_prompt(config.prompt)
    return PLAIN if config.input == "video" else remembered_prompt(config.model)


def rollout_decoding(temperature: float, longest: int) -> Decoding:
    """How a run samples completions of `longest` tokens at most: from the policy's softmax and nothing else, because
    its log-probabilities are those of this softmax.
    """
    return decoding_of(SamplingConfig(temperature=temperature, max_tokens=longest))


def open_run(stage: str, config: Settings, output: Path, inputs: Mapping[str, Path | str | JsonObject]) -> Run:
    """The run folder of `config`, new or to be resumed.

    `inputs` are files or model folders by name, or texts or JSON. Their content is part of the run's identity, their
    place is not, and neither are settings that change no result. A run that stopped before its first checkpoint may be
    replaced by one of other settings. Raises ConfigError where the folder belongs to other settings or to something
    else, and where a machine holds other examples or another model than that of the first process.
    """
    record = ranks.from_main(lambda: _opened_record(stage, config, output, inputs))
    compared: dict[str, str] = {}
    # Every machine reads examples and model from its own disk; one process of each compares them.
    if ranks.main() or os.environ.get("LOCAL_RANK", "0") == "0":
        for name in ("examples", "model"):
            if name in inputs:
                compared[name] = record["inputs"][name] if ranks.main() else _identity(inputs[name])
    ranks.require_agreement(compared, "give every machine the same files")
    return Run(output, config, record)


def _opened_record(
    stage: str, config: Settings, output: Path, inputs: Mapping[str, Path | str | JsonObject]
) -> JsonObject:
    """The record of a run, compared with that in its folder, or written there."""
    hashes = {name: _identity(value) for name, value in inputs.items()}
    served = inputs.get("reward")
    record: JsonObject = {
        "version": VERSION,
        "stage": stage,
        "config": _compared_settings(config, hashes),
        "inputs": hashes,
        "processes": ranks.world(),
        "seed": getattr(config, "seed", None),
        "base_model": None,
        "corpus": None,
        "reward": None,
        "code": {"recipe": recipe.__version__, "commit": _commit(), "packages": installed(ranks.PACKAGES)},
    }
    if isinstance(config, TrainingSettings):
        record["base_model"] = _base_model(config.model, config.revision, hashes.get("model"))
        if (prompt := run_prompt(config)) is not PLAIN:
            record["prompt"] = {"name": prompt.name, "text": prompt.text}
    if isinstance(config, RewardTrainingSettings):
        if isinstance(served, Mapping):
            record |= {"corpus": served["corpus"], "reward": served["settings"]["verifier"]}
        else:
            record["reward"] = f"control: {config.control}" if config.control else config.reward.verifier
            try:
                manifest = {} if config.corpus is None else read_json(config.corpus / "manifest.json")
                record["corpus"] = corpus_identity(manifest)
            except (InputError, KeyError, TypeError):  # of a scorer that reads no corpus
                record["corpus"] = None
        record["decoding"] = to_json(rollout_decoding(config.temperature, config.max_completion_tokens))
    path = output / "run.json"
    if not path.is_file() and output.is_dir() and any(not held.name.startswith(".") for held in output.iterdir()):
        raise ConfigError(f"{output}: the folder is not empty and holds no run; set another `output`.")
    if path.is_file() and _has_begun(output):
        _require_same(output, {name: record[name] for name in ("stage", "config", "inputs", "processes")})
    else:
        write_json(path, {**record, "finished": False})
    return record


def held_run(stage: str, config: Settings, output: Path) -> Run | None:
    """The run that a folder holds, which `config` would resume; None where it would begin anew. Nothing is written.

    Its settings are compared; of its inputs, files and corpus are, as weights take long to read. Raises ConfigError
    where they differ, InputError for a damaged record.
    """
    if not (output / "run.json").is_file() or not _has_begun(output):
        return None
    record = _require_same(output, {"stage": stage})
    inputs = dict(record["inputs"])
    for name in {"examples", "corpus"} & inputs.keys():
        if isinstance(path := getattr(config, name, None), Path) and path.exists():
            inputs[name] = _identity(path)
    _require_same(output, {"config": _compared_settings(config, inputs), "inputs": inputs})
    return Run(output, config, record)


def _compared_settings(config: Settings, inputs: Mapping[str, Any]) -> JsonObject:
    """The settings that a resumed run must share: without places, and without inputs, whose content is compared."""
    return config.model_dump(mode="json", exclude=dict.fromkeys({*PLACES, *inputs}, True) | _NESTED_FILES)


def _has_begun(output: Path) -> bool:
    """Whether the folder holds more than the record of a run, so that its settings are no longer free."""
    return (output / "model").exists() or any((output / "checkpoints").glob("checkpoint-*"))


def _require_same(output: Path, now: Mapping[str, Any]) -> JsonObject:
    """The record in a folder, which holds what `now` does.

    Raises InputError where it is damaged, ConfigError for a record of another version and where a value differs.
    """
    record = output / "run.json"
    known = read_json(record)
    if not isinstance(known, dict) or not all(isinstance(known.get(part), dict) for part in ("config", "inputs")):
        raise InputError.at(record, "this is not the record of a run", "delete the folder to start over")
    if known.get("version") != VERSION:
        raise ConfigError(
            f"{output}: the run is of another version of recipe; "
            "set another `output`, or continue the run with the version that began it."
        )
    then: Mapping[str, Any] = {key: known.get(key) for key in now}
    if now.get("config", {}).get("input") == "text":  # which reads no frames, whatever the settings say of them
        then, now = ({**side, "config": {**side["config"], "frames": None}} for side in (then, now))
    if changed := _changes(then, now):
        raise ConfigError(
            f"{output}: the folder holds a run with other settings ({'; '.join(changed)}); "
            "give these values again, set another `output`, or delete the folder to start over."
        )
    return known


def _changes(old: Any, new: Any, name: str = "") -> list[str]:
    """Leaves in which two JSON values differ, in words."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted({*old, *new})
        return [line for key in keys for line in _changes(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))]
    short = (text if len(text := repr(value)) <= 40 else f"{text[:16]}..." for value in (old, new))
    return [] if old == new else [f"{name.removeprefix('config.')} was {next(short)}, is {next(short)}"]


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


def corpus_identity(manifest: Mapping[str, Any]) -> JsonObject | None:
    """Id, size and encoder of a corpus; None without a manifest. Raises KeyError, TypeError for what is none."""
    if not manifest:
        return None
    name = manifest["encoder"]["name"]
    encoder = {**manifest["encoder"], "name": Path(name).name if Path(name).is_absolute() else name}
    return {"id": manifest.get("id"), "narrations": manifest.get("narrations"), "encoder": encoder}


def _base_model(name: str, revision: str | None, weights: str | None) -> JsonObject:
    """A model on the hub by name and revision, the named base by its package, and a folder by its weights and card."""
    if name == NAME:
        return {**smollm2_identity(), "name": HUB}
    if not _in_folder(name):
        return {"name": name, "revision": revision}
    if weights and Path(weights).is_absolute():  # a folder without weights stands for itself
        weights = Path(weights).name
    base: JsonObject = {"name": None, "weights": weights}
    try:
        earlier = read_json(Path(name) / CARD)
    except InputError:
        return base
    if isinstance(earlier, dict):
        base |= {key: earlier.get(key) for key in ("stage", "step", "base_model", "seed", "code", "inputs")}
    return base


def _in_folder(model: str) -> bool:
    return model != NAME and (Path(model).is_absolute() or Path(model).is_dir() or model.count("/") > 1)


def _commit() -> str | None:
    """The commit of the checkout that this package lies in, `-dirty` where files were changed; None without one."""
    root = Path(recipe.__file__).parents[2]
    if not (root / ".git").exists() or not (root / "pyproject.toml").is_file():
        return None
    try:
        described = subprocess.run(
            # No tags, so that the answer is a commit in every clone.
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],  # noqa: S607
            check=True, capture_output=True, text=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None


def _portable(config: Settings) -> JsonObject:
    """The settings without places: of a file or folder only its name is left, and `PLACES` are dropped; tables too."""
    values: JsonObject = config.model_dump(mode="json", exclude=set(PLACES))
    for name, value in values.items():
        raw = getattr(config, name, value)  # a key that is fixed has its value alone
        is_model = name in ("model", "encoder") and isinstance(raw, str) and _in_folder(raw)
        if isinstance(raw, Settings):
            values[name] = _portable(raw)
        elif isinstance(raw, Path) or is_model or (name == "prompt" and raw):
            values[name] = Path(value).name
    return values


def _readme(card: JsonObject, *, merged: bool) -> str:
    """The model card, with the fields that the hub reads at its head."""
    stage, config, corpus, first = card["stage"], card["config"], card["corpus"], card["base_model"] or {}
    alone = merged or stage == "base"
    base = "a model in a folder"
    if first.get("stage"):
        base = f"a model of `recipe train {first['stage']}`"
    while first.get("base_model"):  # the model that all training began with has a name on the hub, or none
        first = first["base_model"]
    hub = first.get("name")
    front = ModelCardData(
        base_model=hub,
        library_name="transformers" if alone else "peft",
        pipeline_tag="video-text-to-text" if config.get("input") == "video" else "text-generation",
        tags=["procedural-planning", "recipe", stage],
    ).to_yaml()
    weights = "The adapters are merged." if merged and stage != "base" else ""
    if not merged:
        weights = f"This is a checkpoint after step {card['step']}, from which the run resumes."
    rows = {
        "Base model": hub or (base if card["base_model"] else "none"),
        "Prompt": card["prompt"]["name"] if "prompt" in card else None,
        "Weights": first.get("package"),
        "Corpus": corpus and f"`{corpus['id']}`, encoder {corpus['encoder']['name']}",
        "Reward": card["reward"],
        "Roll-outs": read_decoding(card["decoding"]).in_words() if "decoding" in card else None,
        "Seed": card["seed"],
        "Processes": card["processes"],
        "Code": f"recipe {card['code']['recipe']}, commit {card['code']['commit'] or 'unknown'}",
        **{f"SHA-256 of the {name}": f"`{value}`" for name, value in card["inputs"].items()},
    }
    figures = {name: f"{value:.4g}" for name, value in card["figures"].items() if isinstance(value, int | float)}
    tables = []
    for table in (rows, figures):
        lines = [f"| {name} | {value} |" for name, value in table.items() if value is not None]
        tables.append("\n".join(["| | |", "| --- | --- |", *lines]))
    licence = licence_note(corpus["encoder"]) if corpus else None
    parts = [
        f"---\n{front.strip()}\n---",
        f"# A planner of procedures, {_TITLES.get(stage, 'trained by ' + stage)}",
        f"Given a goal and the steps that are done, the model writes the steps that follow. {weights}".strip(),
        *([licence] if licence else []),
        *card.get("notes", ()),
        *(["```\nrecipe plan --model FOLDER --examples examples.jsonl --output plans.jsonl\n```"] if merged else []),
        f"## Training\n\n{tables[0]}",
        f"## Figures after step {card['step']}\n\n{tables[1]}",
        "## Settings\n\n```json\n" + json.dumps(config, indent=2, ensure_ascii=False) + "\n```",
        f"`{CARD}` holds the same for programs.",
    ]
    return "\n\n".join(parts) + "\n"
