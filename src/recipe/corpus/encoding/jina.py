"""Jina v3, the encoder of the paper (section 4): how its checkpoints are told apart, its task, its licence.

Two checkpoints hold the same model. `jinaai/jina-embeddings-v3-hf` is read by transformers' own classes and keeps
one adapter for each task in a folder of its own; `jinaai/jina-embeddings-v3` brings code that runs when it is loaded.
"""

import json
from collections.abc import Mapping
from pathlib import Path

MODELS = ("jinaai/jina-embeddings-v3-hf", "jinaai/jina-embeddings-v3")
TASK = "text-matching"
"""The adapter for both sides of a comparison; the paper names none, and steps and segments play like parts."""

_LICENCE = (
    "The vectors were made with Jina v3, whose weights are under CC BY-NC 4.0: "
    "use them, and what is derived from them, for non-commercial purposes only, and name the source."
)


def is_jina_v3(name: str) -> bool:
    """Whether a model id or folder is Jina v3, of either checkpoint; a folder is asked for its config.json."""
    if name in MODELS:
        return True
    try:
        config = json.loads((Path(name) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    # The checkpoint with code of its own calls itself XLM-RoBERTa and lists its adapters.
    return isinstance(config, dict) and (
        config.get("model_type") == "jina_embeddings_v3" or TASK in (config.get("lora_adaptations") or ())
    )


def licence_note(identity: Mapping[str, object]) -> str | None:
    """What a recorded encoder's licence asks of whoever uses its vectors, in one sentence; None where nothing.

    >>> licence_note({"name": "minilm"}) is None
    True
    """
    name = str(identity["name"])
    return _LICENCE if is_jina_v3(name) or "jina-embeddings-v3" in name.lower() else None
