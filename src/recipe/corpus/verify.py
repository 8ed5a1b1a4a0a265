"""Verification of a corpus: every file against its checksum, a sample of vectors against their texts.

Checksums find damage. A sample that is encoded again finds what checksums cannot: vectors that never belonged to the
texts, an encoder that has changed, codes whose bounds do not hold.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.corpus.layout import (
    BOUNDS,
    CODES,
    EMBEDDINGS,
    OFFSETS,
    SEGMENTS,
    SHARDS,
    damaged,
    read_table,
)
from recipe.corpus.scan import kernels
from recipe.corpus.store import Corpus
from recipe.errors import InputError
from recipe.progress import SILENT, Progress

TOLERANCE = {"float32": 1e-5, "bfloat16": 5e-3}
"""Largest cosine deviation of a vector from its text encoded again, by the encoder's number format.

Stored vectors are rounded to float16 (1e-7) and an encoder's sums differ with batch and device.
"""


class Verification(NamedTuple):
    """Counts of what was compared; it is returned only where everything agreed."""

    shards: int
    files: int
    bytes: int
    sampled: int
    """Segments whose text was encoded again."""
    deviation: float | None
    """Largest cosine deviation, 1 - cos, of a stored vector from its text encoded again; None without a sample."""
    tolerance: float


def verify_corpus(corpus: Corpus, sample: int = 0, seed: int = 0, progress: Progress = SILENT) -> Verification:
    """Hash every file again; encode `sample` random segments again; check the codes and bounds of these.

    Raises CorpusError, which names the shard and the file, for what does not agree, and what the encoder raises.
    """
    if sample < 0:
        raise InputError(f"a sample of {sample} segments cannot be drawn; give 0 or more.")
    corpus.verify(progress)
    shards = corpus.manifest["shards"]
    tolerance = TOLERANCE[corpus.manifest["encoder"]["dtype"]]

    # A random sample without repetition: the folder of each shard that has a part in it, with rows, texts and vectors.
    # Those of removed narrations are in it, because they are in the files.
    total = sum(shard["segments"] for shard in shards)
    chosen = np.sort(np.random.default_rng(seed).choice(total, min(sample, total), replace=False))
    parts: list[tuple[Path, NDArray[np.int64], list[str], NDArray[np.float64]]] = []
    for shard, end in zip(shards, np.cumsum([shard["segments"] for shard in shards]), strict=True):
        start = end - shard["segments"]
        rows = chosen[(chosen < end) & (chosen >= start)] - start
        if len(rows):
            folder = corpus.folder / SHARDS / shard["name"]
            try:
                texts = read_table(folder, SEGMENTS, ("text",))[0].take(rows).to_pylist()
                stored = np.load(folder / EMBEDDINGS, mmap_mode="r")[rows].astype(np.float64)
            except (OSError, ValueError, IndexError) as error:
                raise damaged(folder, error) from None
            parts.append((folder, rows, texts, stored))

    deviation: float | None = None
    if parts:
        encoded = corpus.encoder.encode([text for _, _, texts, _ in parts for text in texts], progress)
        first = 0
        for folder, rows, _, stored in parts:
            again = encoded[first : first + len(rows)].astype(np.float64)
            first += len(rows)
            # Cosines and not products, because rounding to float16 has changed the norms of the stored vectors.
            norms = np.linalg.norm(stored, axis=1) * np.linalg.norm(again, axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                deviations = 1 - np.sum(stored * again, axis=1) / norms
            worst = int(np.argmax(deviations))
            if not deviations[worst] <= tolerance:  # argmax finds a deviation that is not a number, too
                raise damaged(
                    folder,
                    f"row {rows[worst]} of {EMBEDDINGS} is not the vector of its text: cosine deviation "
                    f"{deviations[worst]:.2g}, where {tolerance:.0e} is allowed",
                )
            deviation = max(deviation or 0.0, float(deviations[worst]))
    for folder, rows, _, stored in parts:
        _check_codes(folder, rows, stored)
    files = [record for shard in shards for record in shard["files"].values()]
    size = sum(record["bytes"] for record in files)
    return Verification(len(shards), len(files), size, len(chosen), deviation, tolerance)


def _check_codes(folder: Path, rows: NDArray[np.int64], vectors: NDArray[np.float64]) -> None:
    """The bounds must hold in float64: ||R x - scale c|| <= residual, ||scale c|| <= norm. Raises CorpusError."""
    offsets = np.load(folder / OFFSETS)
    bounds = np.load(folder / BOUNDS).astype(np.float64)
    bounds = bounds[np.searchsorted(offsets, rows, side="right") - 1]
    decoded = np.load(folder / CODES, mmap_mode="r")[rows].astype(np.float64) * bounds[:, :1]
    residuals = np.linalg.norm(kernels("scan.quantise").rotate(vectors) - decoded, axis=1)
    for name, value, bound in (
        ("residual", residuals, bounds[:, 1]),
        ("norm", np.linalg.norm(decoded, axis=1), bounds[:, 2]),
    ):
        if (broken := ~(value <= bound)).any():
            row = rows[np.argmax(broken)]
            raise damaged(folder, f"the {name} of row {row} of {CODES} exceeds its bound in {BOUNDS}")
