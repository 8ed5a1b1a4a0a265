"""A corpus on disk, opened without reading its vectors: they are mapped into memory and paged in by use."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recipe.artifacts import file_sha256
from recipe.config import EncoderConfig
from recipe.corpus.encoders import Encoder, EncoderIdentity, differences, open_encoder, recorded_settings
from recipe.corpus.index import Index
from recipe.corpus.layout import (
    SHARDS,
    damaged,
    open_manifest,
    read_narrations,
)
from recipe.corpus.scan.kernels import kernels
from recipe.corpus.searched import Searched
from recipe.errors import EncoderMismatch
from recipe.progress import SILENT, Progress
from recipe.types import Narration

_DECODED_SHARDS = 8
"""Shards whose texts stay decoded, for lookups that jump about."""


class Corpus(Searched):
    """Narrations, their embeddings and the encoder that made them; safe to share between threads.

    Open one with `Corpus.open`.
    """

    def __init__(self, index: Index, encoder: EncoderConfig) -> None:
        self.folder = index.folder
        self.manifest = index.manifest
        self.index: Index = index
        self._encoder_config = encoder
        self._first = np.array([shard.first for shard in index.shards])
        self._texts: dict[int, list[Narration]] = {}
        self._texts_lock = Lock()

    @classmethod
    def open(cls, path: Path | str, encoder: EncoderConfig | None = None, *, devices: Sequence[str] = ()) -> "Corpus":
        """The corpus in the folder `path`, with the encoder that it was built with; `devices`: GPUs to search on.

        Raises CorpusError for a folder without a finished corpus or with a damaged shard, EncoderMismatch where
        `encoder` asks for another one than the corpus was built with, ConfigError for devices that are not there.
        """
        folder = Path(path)
        recorded = open_manifest(folder)["encoder"]
        if encoder is not None:
            _check_encoder(folder, recorded, encoder)
        index = kernels("gpu.index").GpuIndex.open(folder, devices=devices) if devices else Index.open(folder)
        return cls(index, recorded_settings(recorded, encoder))

    def __len__(self) -> int:
        return len(self.index)

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Row of each narration's first segment among all segments, int64 [N + 1]."""
        counts = [np.diff(shard.offsets) for shard in self.index.shards]
        return np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts]))

    @property
    def dimension(self) -> int:
        """d, the length of the vectors."""
        return self.manifest["encoder"]["dimension"]

    @cached_property
    def encoder(self) -> Encoder:
        """The corpus's encoder, loaded on first use.

        Raises EncoderMismatch where the model found under its name is another than the corpus was built with.
        """
        encoder = open_encoder(self._encoder_config)
        found, recorded = encoder.identity, self.manifest["encoder"]
        if found["weights"] and found["weights"] == recorded["weights"]:
            found["name"] = recorded["name"]  # the same model in a folder that has moved
        if found != recorded:
            raise EncoderMismatch(
                f"{self.folder}: the encoder found as {recorded['name']!r} is not the one the corpus was "
                f"built with: {differences(recorded, found)}; restore it or build the corpus again."
            )
        return encoder

    def narration(self, index: int) -> Narration:
        """The narration at `index` in corpus order. Raises IndexError, and CorpusError for a damaged shard."""
        shard, row = self._locate(index)
        with self._texts_lock:
            if shard not in self._texts:
                if len(self._texts) >= _DECODED_SHARDS:
                    self._texts.pop(next(iter(self._texts)))
                self._texts[shard] = _read_texts(self._shard_folder(shard))
            return self._texts[shard][row]

    def embeddings(self, index: int) -> NDArray[np.float32]:
        """Unit-norm float32 [L, d] of a narration's segments: the stored float16, widened."""
        number, row = self._locate(index)
        shard = self.index.shards[number]
        return shard.embeddings.rows(shard.offsets[row], shard.offsets[row + 1]).astype(np.float32)

    def coverage(self, queries: NDArray[np.float32]) -> NDArray[np.float32]:
        """A_mono of the steps, float32 [M, d], with every narration: float32 [N]. Raises InputError."""
        return self.index.coverage(queries)

    def verify(self, progress: Progress = SILENT) -> None:
        """Compare every file with its checksum in the manifest. Raises CorpusError for one that differs."""
        with progress.task("Verify shards", len(self.manifest["shards"])) as advance:
            for shard in self.manifest["shards"]:
                folder = self.folder / SHARDS / shard["name"]
                for name, record in shard["files"].items():
                    if file_sha256(folder / name) != record["sha256"]:
                        raise damaged(folder, f"{name} differs from its checksum")
                advance(1)

    def _locate(self, index: int) -> tuple[int, int]:
        if not 0 <= index < len(self):
            raise IndexError(f"narration {index} of a corpus with {len(self)}")
        shard = int(np.searchsorted(self._first, index, side="right")) - 1
        return shard, index - int(self._first[shard])

    def _shard_folder(self, shard: int) -> Path:
        return self.folder / SHARDS / self.manifest["shards"][shard]["name"]


def _read_texts(shard: Path) -> list[Narration]:
    try:
        return list(read_narrations(shard))
    except (OSError, ValueError) as error:
        raise damaged(shard, error) from None


def _check_encoder(folder: Path, recorded: EncoderIdentity, asked: EncoderConfig) -> None:
    filled = recorded_settings(recorded, asked)
    keys = ["name", "revision", "task", "dtype"] + ["dimension"] * (filled.dimension is not None)
    wanted: dict[str, Any] = {key: getattr(filled, key) for key in keys}
    if Path(asked.name).is_dir():
        del wanted["name"]  # a folder may have moved: its files are compared when it is loaded
    if difference := differences(recorded, wanted):
        raise EncoderMismatch(
            f"{folder}: the corpus was built with another encoder than the one asked for: {difference}; "
            "ask for the corpus's own or build another corpus."
        )
