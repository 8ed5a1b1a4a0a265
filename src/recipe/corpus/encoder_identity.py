"""Which encoder a corpus was built with: what its manifest records, compares and says of the licence."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from typing_extensions import TypedDict

from recipe.config.corpus import EncoderConfig
from recipe.errors import EncoderMismatch

JINA_V3 = ("jinaai/jina-embeddings-v3-hf", "jinaai/jina-embeddings-v3")
"""Two checkpoints of one model (paper, section 4): the first is read by transformers' own classes and keeps one
adapter for each task in a folder of its own; the second brings code that runs when it is loaded."""
JINA_TASK = "text-matching"
"""The adapter for both sides of a comparison; the paper names none, and steps and segments play the same role."""

_LICENCE = (
    "The vectors were made with Jina v3, whose weights are under CC BY-NC 4.0: "
    "use them, and what is derived from them, for non-commercial purposes only, and name the source."
)


class EncoderIdentity(TypedDict):
    """What makes two encoders give the same vectors; written into a corpus's manifest."""

    name: str
    revision: str | None
    """The commit that was loaded, also where the settings name a branch or none; None for what is on no hub."""
    task: str | None
    dtype: Literal["float32", "bfloat16"]
    """What was computed in, never `auto`."""
    dimension: int
    weights: str | None
    """SHA-256 over the model's files where they lie in a folder, None where name and revision say it all."""


def differences(recorded: Mapping[str, object], other: Mapping[str, object]) -> str:
    """The keys of `other` whose value differs in `recorded`, in words; empty where they agree."""
    return ", ".join(
        f"{key} {recorded.get(key)!r}, not {value!r}" for key, value in other.items() if recorded.get(key) != value
    )


def recorded_settings(recorded: EncoderIdentity, settings: EncoderConfig | None = None) -> EncoderConfig:
    """The settings that open a recorded encoder: as recorded where `settings` leave a value open.

    Left open are a revision, task or dimension that is not given, and the number format `auto`.
    """
    settings = settings or EncoderConfig(name=recorded["name"], dtype="auto")
    open_keys = [key for key in ("revision", "task") if getattr(settings, key) is None]
    filled: dict[str, object] = {key: recorded.get(key) for key in open_keys}
    if settings.dtype == "auto":
        filled["dtype"] = recorded["dtype"]
    if settings.dimension is None and not settings.name.startswith("hash:"):
        filled["dimension"] = recorded["dimension"]
    return EncoderConfig.model_validate(settings.model_dump() | filled)


def is_jina_v3(name: str) -> bool:
    """Whether a model id or folder is Jina v3, of either checkpoint; of a folder its config.json is read."""
    if name in JINA_V3:
        return True
    try:
        config = json.loads((Path(name) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    # The checkpoint with code of its own calls itself XLM-RoBERTa and lists its adapters.
    return isinstance(config, dict) and (
        config.get("model_type") == "jina_embeddings_v3" or JINA_TASK in (config.get("lora_adaptations") or ())
    )


def licence_note(identity: Mapping[str, object]) -> str | None:
    """The condition on the use of an encoder's vectors, in one sentence; None without one.

    >>> licence_note({"name": "minilm"}) is None
    True
    """
    name = str(identity["name"])
    return _LICENCE if is_jina_v3(name) or "jina-embeddings-v3" in name.lower() else None


def settings_for(corpus: Path, recorded: EncoderIdentity, asked: EncoderConfig | None) -> EncoderConfig:
    """The settings that open a corpus's encoder, as asked for or as recorded.

    Raises EncoderMismatch where another encoder is asked for than the corpus was built with.
    """
    settings = recorded_settings(recorded, asked)
    if asked is not None:
        keys = ["name", "revision", "task", "dtype"] + ["dimension"] * (settings.dimension is not None)
        values: dict[str, object] = {key: getattr(settings, key) for key in keys}
        if Path(asked.name).is_dir():
            del values["name"]  # a folder may have moved: its files are compared when it is loaded
        if difference := differences(recorded, values):
            raise EncoderMismatch(
                f"{corpus}: the corpus was built with another encoder than the one asked for: {difference}; "
                "ask for the corpus's own or build another corpus."
            )
    return settings
