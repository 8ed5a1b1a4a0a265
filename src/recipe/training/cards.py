"""Cards: from what a checkpoint or a model was made, for programs (`card.json`) and as a model card (`README.md`).

A card names no place on this machine: files and folders are told by their hashes.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

import recipe
from recipe.artifacts import CARD, installed, read_json, to_json
from recipe.config import RewardTrainingSettings, SamplingConfig, Settings, TrainingSettings
from recipe.corpus.encoders import licence_note
from recipe.errors import InputError
from recipe.models.sampling import Decoding, decoding_of, read_decoding
from recipe.models.smollm2 import HUB, NAME, smollm2_identity
from recipe.prompting import PLAIN, PlannerPrompt, open_prompt, remembered_prompt

README = "README.md"
PLACES = ("output", "reward_service", "reward_patience")
"""Settings that change no result: where the run lies, and where its rewards come from."""
_PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate")
_GOALS = {
    "base": "trained from scratch",
    "sft": "fine-tuned on reference continuations",
    "grpo": "trained by GRPO on the verifier's reward",
    "best-of-n": "trained on the plans of its own that the verifier rewards most",
}

Card = dict[str, Any]


def run_card(stage: str, config: Settings, inputs: Mapping[str, Any]) -> Card:
    """What all checkpoints of a run and its model share; `inputs` are the hashes of the run's inputs.

    One of them may be the reward that a service gives (`recipe.training.served`), as JSON.
    """
    served = inputs.get("reward")
    hashes = {name: text for name, text in inputs.items() if name != "reward"}
    card: Card = {
        "format": 1,
        "stage": stage,
        "base_model": None,
        "corpus": None,
        "reward": None,
        "code": {"recipe": recipe.__version__, "commit": _commit(), "packages": installed(_PACKAGES)},
        "config": _portable(config),
        "seed": getattr(config, "seed", None),
        "inputs": {name: Path(text).name if Path(text).is_absolute() else text for name, text in hashes.items()},
    }
    if isinstance(config, TrainingSettings):
        card["base_model"] = _base_model(config.model, config.revision, card["inputs"].get("model"))
        if (prompt := run_prompt(config)) is not PLAIN:
            card["prompt"] = {"name": prompt.name, "text": prompt.text}
    if isinstance(config, RewardTrainingSettings):
        card["corpus"] = served["corpus"] if served else _corpus(config.corpus)
        card["reward"] = served["settings"]["verifier"] if served else config.reward.verifier
        card["decoding"] = to_json(rollout_decoding(config.temperature, config.max_completion_tokens))
    return card


def rollout_decoding(temperature: float, longest: int) -> Decoding:
    """How a run samples completions of `longest` tokens at most: from the policy's softmax and nothing else, because
    its log-probabilities are those of this softmax.
    """
    return decoding_of(SamplingConfig(temperature=temperature, max_tokens=longest))


def run_prompt(config: TrainingSettings) -> PlannerPrompt:
    """The prompt of a run: that of its settings, else that of its model. Raises InputError."""
    if config.prompt:
        return open_prompt(config.prompt)
    return PLAIN if config.input == "video" else remembered_prompt(config.model)


def card_files(
    card: Card, step: int, figures: Mapping[str, Any], notes: Sequence[str] = (), *, merged: bool
) -> dict[str, str]:
    """The card after an optimiser step with the metrics of that step, as texts of files by name.

    `notes` are sentences about the run. `merged`: of a model that stands alone, and not of a checkpoint of adapters.
    What depends on the clock is left out, so that equal runs have equal cards.
    """
    kept = {name: value for name, value in figures.items() if "second" not in name and name != "reward_share"}
    whole = {**card, "step": step, "figures": kept} | ({"notes": list(notes)} if notes else {})
    text = json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    return {CARD: text, README: _readme(whole, merged=merged)}


def _portable(config: Settings) -> Card:
    """The settings without places: of a file or folder only its name is left, and `PLACES` are dropped; tables too."""
    values: Card = config.model_dump(mode="json", exclude=set(PLACES))
    for name, value in values.items():
        raw = getattr(config, name)
        if isinstance(raw, Settings):
            values[name] = _portable(raw)
        elif (
            isinstance(raw, Path)
            or (name in ("model", "encoder") and isinstance(raw, str) and _local(raw))
            or (name == "prompt" and raw)
        ):
            values[name] = Path(value).name
    return values


def _local(model: str) -> bool:
    return model != NAME and (Path(model).is_absolute() or Path(model).is_dir() or model.count("/") > 1)


def _base_model(name: str, revision: str | None, weights: str | None) -> Card:
    """A model on the hub by name and revision, the named base by its package, one in a folder by its weights and its
    own card.
    """
    if name == NAME:
        return {**smollm2_identity(), "name": HUB}
    if not _local(name):
        return {"name": name, "revision": revision}
    base: Card = {"name": None, "weights": weights}
    try:
        earlier = read_json(Path(name) / CARD)
    except InputError:
        return base
    if isinstance(earlier, dict):
        base |= {key: earlier.get(key) for key in ("stage", "step", "base_model", "seed", "code", "inputs")}
    return base


def _corpus(folder: Path | None) -> Card | None:
    """The card of the corpus in a folder; None where the scorer reads none."""
    try:
        return None if folder is None else corpus_card(read_json(folder / "manifest.json"))
    except (InputError, KeyError, TypeError):
        return None


def corpus_card(manifest: Mapping[str, Any]) -> Card:
    """Id, size and encoder of a corpus. Raises KeyError, TypeError for what is no manifest of one."""
    name = manifest["encoder"]["name"]
    encoder = {**manifest["encoder"], "name": Path(name).name if Path(name).is_absolute() else name}
    return {"id": manifest.get("id"), "narrations": manifest.get("narrations"), "encoder": encoder}


def _commit() -> str | None:
    """The commit of the checkout that this package lies in, `-dirty` where files were changed; None without one."""
    root = Path(recipe.__file__).parents[2]
    if not (root / ".git").exists() or not (root / "pyproject.toml").is_file():
        return None
    try:
        described = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            check=True, capture_output=True, text=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None


def _beginning(card: Card) -> Card:
    """The entry of the model that all training began with, empty where there is none."""
    base: Card = card
    while base.get("base_model"):
        base = base["base_model"]
    return {} if base is card else base


def _folder(base: Card) -> str:
    """A model in a folder, in words."""
    made = base.get("stage")
    return f"a model of `recipe train {made}`" if made else "a model in a folder"


def _readme(card: Card, *, merged: bool) -> str:
    """The model card, with the fields that the hub reads at its head."""
    stage, config, base = card["stage"], card["config"], _beginning(card)
    hub = base.get("name")
    alone = merged or stage == "base"
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
        "Base model": hub or (_folder(card["base_model"]) if card["base_model"] else "none"),
        "Prompt": card["prompt"]["name"] if "prompt" in card else None,
        "Weights": base.get("package"),
        "Corpus": card["corpus"] and f"`{card['corpus']['id']}`, encoder {card['corpus']['encoder']['name']}",
        "Reward": card["reward"],
        "Roll-outs": read_decoding(card["decoding"]).in_words() if "decoding" in card else None,
        "Seed": card["seed"],
        "Processes": card.get("processes"),
        "Code": f"recipe {card['code']['recipe']}, commit {card['code']['commit'] or 'unknown'}",
        **{f"SHA-256 of the {name}": f"`{value}`" for name, value in card["inputs"].items()},
    }
    figures = {name: f"{value:.4g}" for name, value in card["figures"].items() if isinstance(value, int | float)}
    licence = licence_note(card["corpus"]["encoder"]) if card["corpus"] else None
    parts = [
        f"---\n{front.strip()}\n---",
        f"# A planner of procedures, {_GOALS[stage]}",
        f"Given a goal and the steps that are done, the model writes the steps that follow. {weights}".strip(),
        *([licence] if licence else []),
        *card.get("notes", ()),
        *(["```\nrecipe plan --model FOLDER --examples examples.jsonl --output plans.jsonl\n```"] if merged else []),
        "## Training\n\n" + _table(rows),
        f"## Figures after step {card['step']}\n\n" + _table(figures),
        "## Settings\n\n```json\n" + json.dumps(config, indent=2, ensure_ascii=False) + "\n```",
        f"`{CARD}` holds the same for programs.",
    ]
    return "\n\n".join(parts) + "\n"


def _table(rows: Mapping[str, Any]) -> str:
    lines = [f"| {name} | {value} |" for name, value in rows.items() if value is not None]
    return "\n".join(["| | |", "| --- | --- |", *lines])
