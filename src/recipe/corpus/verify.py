"""Verification of a corpus: every file against its checksum, a sample of vectors against their texts.

Checksums find damage. A sample that is encoded again finds what checksums cannot: vectors that never belonged to the
texts, an encoder that has changed, codes whose bounds do not hold.
"""

from collections.abc import Iterator
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


class _Sample(NamedTuple):
    """Sampled segments of one shard."""

    folder: Path
    rows: NDArray[np.int64]
    texts: list[str]
    embeddings: NDArray[np.float64]


def verify_corpus(corpus: Corpus, sample: int = 0, seed: int = 0, progress: Progress = SILENT) -> Verification:
    """Hash every file again; encode `sample` random segments again; check the codes and bounds of these.

    Raises CorpusError, which names the shard and the file, for what does not agree, and what the encoder raises.
    """
    if sample < 0:
        raise InputError(f"a sample of {sample} segments cannot be drawn; give 0 or more.")
    corpus.verify(progress)
    manifest = corpus.manifest
    tolerance = TOLERANCE[manifest["encoder"]["dtype"]]
    drawn = list(_draw(corpus, sample, seed))
    deviation = _check_vectors(corpus, drawn, tolerance, progress) if drawn else None
    for rows in drawn:
        _check_codes(rows)
    files = [record for shard in manifest["shards"] for record in shard["files"].values()]
    size = sum(record["bytes"] for record in files)
    sampled = sum(len(rows.rows) for rows in drawn)
    return Verification(len(manifest["shards"]), len(files), size, sampled, deviation, tolerance)


def _draw(corpus: Corpus, sample: int, seed: int) -> Iterator[_Sample]:
    """A random sample without repetition, by shard."""
    total = corpus.manifest["segments"]
    chosen = np.sort(np.random.default_rng(seed).choice(total, min(sample, total), replace=False))
    ends = np.cumsum([shard["segments"] for shard in corpus.manifest["shards"]])
    for shard, end in zip(corpus.manifest["shards"], ends, strict=True):
        rows = chosen[(chosen < end) & (chosen >= end - shard["segments"])] - (end - shard["segments"])
        if len(rows):
            folder = corpus.folder / SHARDS / shard["name"]
            try:
                texts = read_table(folder, SEGMENTS, ("text",))[0].take(rows).to_pylist()
                embeddings = np.load(folder / EMBEDDINGS, mmap_mode="r")[rows].astype(np.float64)
            except (OSError, ValueError, IndexError) as error:
                raise damaged(folder, error) from None
            yield _Sample(folder, rows, texts, embeddings)


def _check_vectors(corpus: Corpus, drawn: list[_Sample], tolerance: float, progress: Progress) -> float:
    """The largest cosine deviation."""
    encoded = corpus.encoder.encode([text for rows in drawn for text in rows.texts], progress).astype(np.float64)
    largest, first = 0.0, 0
    for rows in drawn:
        again = encoded[first : first + len(rows.rows)]
        first += len(rows.rows)
        norms = np.linalg.norm(rows.embeddings, axis=1) * np.linalg.norm(again, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            deviations = 1 - np.sum(rows.embeddings * again, axis=1) / norms
        worst = int(np.argmax(deviations))
        if not deviations[worst] <= tolerance:  # argmax finds a deviation that is not a number, too
            raise damaged(
                rows.folder,
                f"row {rows.rows[worst]} of {EMBEDDINGS} is not the vector of its text: cosine deviation "
                f"{deviations[worst]:.2g}, where {tolerance:.0e} is allowed",
            )
        largest = max(largest, float(deviations[worst]))
    return largest


def _check_codes(rows: _Sample) -> None:
    """The bounds must hold in float64: ||R x - scale c|| <= residual, ||scale c|| <= norm."""
    offsets = np.load(rows.folder / OFFSETS)
    bounds = np.load(rows.folder / BOUNDS).astype(np.float64)
    bounds = bounds[np.searchsorted(offsets, rows.rows, side="right") - 1]
    decoded = np.load(rows.folder / CODES, mmap_mode="r")[rows.rows].astype(np.float64) * bounds[:, :1]
    residuals = np.linalg.norm(kernels("scan.quantise").rotate(rows.embeddings) - decoded, axis=1)
    for name, value, bound in (
        ("residual", residuals, bounds[:, 1]),
        ("norm", np.linalg.norm(decoded, axis=1), bounds[:, 2]),
    ):
        if (broken := ~(value <= bound)).any():
            row = rows.rows[np.argmax(broken)]
            raise damaged(rows.folder, f"the {name} of row {row} of {CODES} exceeds its bound in {BOUNDS}")
