"""The index of a corpus on one or several GPUs: the same certified search, the scan and the ranking done there.

A device holds the 8-bit codes, or the float16 originals at twice the size, whose only errors are the rounding of the
steps and of float32 sums.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.corpus.index import Index
from recipe.corpus.layout import HeldManifest, Manifest, padded
from recipe.corpus.scan.certificate import BoundedScores
from recipe.corpus.scan.shards import Shard
from recipe.errors import ConfigError, MissingExtra

try:
    import torch
    import triton

    from recipe.corpus.gpu.scan import ErrorBounds, Estimates, Segments, fits, scan, segments
    from recipe.corpus.scan.quantise import Queries
except ModuleNotFoundError as error:
    if error.name not in ("torch", "triton", "numba", "llvmlite"):
        raise
    raise MissingExtra("search on a GPU", "cpu" if error.name in ("numba", "llvmlite") else "gpu") from None

Precision = Literal["int8", "float16"]
KINDS: dict[Precision, torch.dtype] = {"int8": torch.int8, "float16": torch.float16}

# Bytes copied to a device at a time.
_PIECE = 1 << 26
# Bytes of a device that a search needs besides the vectors and its sums.
_WORKING = 1 << 30
BATCH = 64
"""Queries of which a device holds the sums at a time."""
# What the matrix units may lose of a float32 sum at each addition: they cut off where others round.
_UNIT = 2.0**-23


class DeviceShards(NamedTuple):
    """Consecutive shards on one device; `first` is the number of their first narration."""

    segments: Segments
    known: ErrorBounds
    first: int

    @classmethod
    def place(
        cls,
        shards: Sequence[Shard],
        first: int,
        device: torch.device,
        precision: Precision,
    ) -> "DeviceShards":
        """Shards on a device, copied piece by piece. Raises ConfigError where its free memory is too small."""
        d = shards[0].embeddings.shape[1]
        starts = np.cumsum([0, *(shard.offsets[-1] for shard in shards)])
        rows, count = int(starts[-1]), sum(map(len, shards))
        kind = KINDS[precision]
        # 40: offsets, members and the bounds of a narration; 8: the sums of a query and the copy of equal queries
        needed = rows * padded(d) * kind.itemsize + count * (40 + 8 * BATCH) + _WORKING
        if device.type == "cuda" and needed > (free := torch.cuda.mem_get_info(device)[0]):
            raise ConfigError(
                f"{rows:,} segments of {d} numbers as {precision} need {needed:,} bytes on {device}, of which {free:,} "
                "are free; name more devices, open fewer shards, or choose precision 'int8'."
            )
        vectors = torch.zeros((rows, padded(d)), dtype=kind, device=device)
        row = 0
        for shard in shards:
            array = shard.codes if precision == "int8" else shard.embeddings
            step = max(1, _PIECE // (array.shape[1] * array.dtype.itemsize))
            for start in range(0, array.shape[0], step):
                # Copied, because torch takes no array that is mapped to be read only.
                piece = np.array(array.rows(start, min(array.shape[0], start + step)))
                vectors[row : row + len(piece), : piece.shape[1]] = torch.from_numpy(piece)
                row += len(piece)
        offsets = [shard.offsets[:-1] + start for shard, start in zip(shards, starts[:-1], strict=True)]
        # ||x|| is no more than the norm of x's code and its residual together.
        scale, residual, norm = np.concatenate([shard.bounds for shard in shards]).astype(np.float64).T[..., None]
        if precision == "float16":
            scale, residual, norm = np.ones_like(scale), np.zeros_like(scale), norm + residual
        known = ErrorBounds(
            *(torch.from_numpy(np.ascontiguousarray(values)).to(device) for values in (scale, residual, norm))
        )
        return cls(segments(vectors, np.concatenate([*offsets, starts[-1:]])), known, first)


def divide(shards: Sequence[Shard], devices: int) -> Iterator[range]:
    """Shards as at most so many runs of about equal numbers of segments, none empty."""
    rows = np.cumsum([0, *(shard.offsets[-1] for shard in shards)])
    cuts = rows[-1] * np.arange(devices + 1) / devices
    bounds = np.searchsorted(rows, cuts).tolist()
    return (range(a, b) for a, b in pairwise(bounds) if a < b)


def _device_steps(queries: Queries, precision: Precision) -> tuple[torch.Tensor, ErrorBounds]:
    """The unique steps [U, D] as the kernel takes them: their codes, or the steps in float16, and what they lose.

    Steps in float16 are scaled so that none overflows, and the error of their sums counts as one of theirs. Products of
    float16 are exact in float32. Each of the D + M additions of a sum loses at most 2^-23 of the absolute values that
    go into it, of which the sum is at most ||q|| ||x|| a step.
    """
    vectors: NDArray[np.int8 | np.float16]
    if precision == "int8":
        vectors, scale, residuals = queries.codes, queries.scale, queries.residuals
    else:
        U, d = queries.vectors.shape
        # A power of two: dividing by it loses nothing.
        scale = float(2.0 ** np.frexp(np.abs(queries.vectors).max())[1])
        vectors = np.zeros((U, padded(d)), np.float16)
        vectors[:, :d] = queries.vectors / np.float32(scale)
        kept = vectors[:, :d].astype(np.float64) * scale
        rounding = (padded(d) + queries.steps.shape[1] + 1) * _UNIT
        lost = np.linalg.norm(queries.vectors - kept, axis=1) + rounding * np.linalg.norm(kept, axis=1)
        residuals = np.where(queries.steps >= 0, lost[queries.steps], 0).sum(axis=1) / queries.lengths
    bounds = (scale / queries.lengths, residuals, queries.norms)
    return torch.from_numpy(vectors), ErrorBounds(*(torch.from_numpy(values[None]) for values in bounds))


class _GpuScores:
    """Scores of Q queries with the narrations of all parts: `BoundedScores`; the sums stay on their devices."""

    def __init__(self, parts: Sequence[DeviceShards], queries: Queries, precision: Precision) -> None:
        self.method: str = precision
        self._firsts = [part.first for part in parts]
        vectors, bounds = _device_steps(queries, precision)
        # All scans are started before the first result is awaited.
        sums = [scan(part.segments, vectors.to(part.segments.vectors.device), queries.steps) for part in parts]
        self._estimates = [
            Estimates.of(of, part.known, ErrorBounds(*(values.to(of.device) for values in bounds)))
            for part, of in zip(parts, sums, strict=True)
        ]

    @property
    def bounds(self) -> NDArray[np.float64]:
        """[Q]: no error is larger."""
        largest: NDArray[np.float64] = np.max([part.largest_errors().cpu().numpy() for part in self._estimates], axis=0)
        return largest

    def best(self, k: int) -> NDArray[np.int64]:
        """[Q, k]: the narrations of the k highest scores, k <= N."""
        tops = [part.best(k) for part in self._estimates]
        estimates = np.concatenate([estimates.cpu().numpy() for estimates, _ in tops])
        narrations = np.concatenate(
            [narrations.cpu().numpy() + first for (_, narrations), first in zip(tops, self._firsts, strict=True)]
        )
        order = np.argsort(-estimates, axis=0, kind="stable")[:k]
        chosen: NDArray[np.int64] = np.take_along_axis(narrations, order, 0)
        return np.ascontiguousarray(chosen.T)

    def reaching(self, thresholds: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Narrations [P] and queries [P] of all pairs whose score + bound is not below the query's threshold [Q]."""
        narrations, queries = [], []
        for part, first in zip(self._estimates, self._firsts, strict=True):
            rows, columns = part.reaching(torch.from_numpy(thresholds).to(part.sums.device))
            narrations.append(rows.cpu().numpy() + first)
            queries.append(columns.cpu().numpy())
        return np.concatenate(narrations), np.concatenate(queries)


class GpuIndex(Index):
    """Shards of a corpus, searched exactly on GPUs; safe to share between threads. Open one with `GpuIndex.open`."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        shards: Sequence[Shard],
        devices: Sequence[str] = ("cuda",),
        precision: Precision = "int8",
        threads: int | None = None,
        held: HeldManifest | None = None,
    ) -> None:
        # A GPU multiplies all codes of 8 bits, as the portable instructions do.
        super().__init__(folder, manifest, shards, isa="portable", threads=threads, held=held)
        self.precision = precision
        placed = [_device(name) for name in devices]
        self._parts = [
            DeviceShards.place(shards[run.start : run.stop], int(self._starts[run.start]), device, precision)
            for run, device in zip(divide(shards, len(placed)), placed, strict=False)
        ]

    @classmethod
    def open(  # type: ignore[override]  # what a processor's instructions are there, devices are here
        cls,
        folder: Path | str,
        shards: Sequence[int] | None = None,
        *,
        devices: Sequence[str] = ("cuda",),
        precision: Precision = "int8",
        streamed: bool | None = None,
        threads: int | None = None,
    ) -> "GpuIndex":
        """The index as `Index.open`, its vectors copied to the devices, consecutive shards to each.

        precision: `int8` for the codes, or `float16` for the originals, twice the size and of fewer survivors;
        streamed and threads: for the scores in float64, from the originals on disk. Raises as `Index.open`, and
        ConfigError for a device that is not there or whose memory is too small.
        """
        opened = Index.open(folder, shards, streamed=streamed)
        where = (opened.folder, opened.manifest, opened.shards)
        return cls(*where, devices, precision, threads, held=opened.held)

    def _scores(self, queries: Queries) -> BoundedScores | None:
        if not fits(queries.steps.shape[1], queries.codes.shape[1], KINDS[self.precision]):
            return None
        return _GpuScores(self._parts, queries, self.precision)


def _device(name: str) -> torch.device:
    """The device of this name, with its number. Raises ConfigError where it is not there."""
    try:
        device = torch.device(name)
    except RuntimeError:  # no name of any device
        device = torch.device("meta")
    if device.type == "cpu" and triton.knobs.runtime.interpret:
        return device
    if device.type != "cuda" or (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"there is no GPU {name!r} here, of {torch.cuda.device_count()} that torch {torch.__version__} can use; "
            "name one of these, or search without a device."
        )
    return torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
