"""The scan of vectors on a GPU: queries as blocks of columns, the kernel's launch, and the choice among the sums.

The sums stay on the device. They are read once, for the highest estimate of every block of narrations; the choice then
reads only the few blocks that can matter.
"""

from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from triton.runtime import driver

from recipe.corpus.gpu.kernels import coverage
from recipe.errors import InputError

NARROWEST = 16
"""Columns of the narrowest tile that the matrix units take."""
BLOCK = 256
"""Narrations of a block."""
# Narrations whose sums are widened to float64 at a time: a multiple of a block.
_CHUNK = 1 << 18
# Blocks that are read at a time.
_PAIRS = 1 << 14
WINDOW = 1 << 15
"""Narrations among which those of equal length are brought together: far apart in memory they cost address look-ups."""
MOST_STEPS = 128
"""Steps of a query: more would not fit the registers with even one query a block."""
HOPPER = 227 << 10
"""Bytes of shared memory that a program may have on an H100 or H200."""
# Bytes of it through which threads exchange what is not multiplied, besides the heads' maxima.
_EXCHANGED = 8 << 10
# The largest product of two codes.
_LARGEST = 127 * 127


class BlockShape(NamedTuple):
    """The shape of a block: levels and widths of its heads and its tails, powers of two; `heads` is 0 without heads."""

    head_levels: int
    heads: int
    tail_levels: int
    tails: int

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.head_levels * self.heads + self.tail_levels * self.tails


class ScanPlan(NamedTuple):
    """B blocks of one shape; -1 stands for no step and for no query."""

    shape: BlockShape
    heads: NDArray[np.int32]
    """[B, head levels, heads]: the steps of each head."""
    tails: NDArray[np.int32]
    """[B, tail levels, tails]: the steps that follow it."""
    parents: NDArray[np.int32]
    """[B, tails]: the head of each tail."""
    queries: NDArray[np.int32]
    """[B, tails]: the query of each tail."""
    copies: NDArray[np.int64]
    """[Q]: the query that stands for each: of equal ones, the first."""

    @property
    def columns(self) -> int:
        """Columns that are multiplied in all, padding included."""
        return len(self.tails) * self.shape.columns


class _SortedQueries(NamedTuple):
    """The unique queries in the order of their steps, so that those that begin alike are neighbours."""

    steps: NDArray[np.int32]
    """[R, M], -1 after a query's last."""
    lengths: NDArray[np.int64]
    firsts: NDArray[np.int64]
    """[R]: the first of the queries equal to each."""
    copies: NDArray[np.int64]
    """[Q]: the same for each query."""

    def blocks(self, cut: NDArray[np.int64], widest: int) -> ScanPlan:
        """The queries in order, as many to a block as fit, where the first `cut` [R] steps of each are its head."""
        head_levels = _power(int(cut.max())) if cut.any() else 0
        tail_levels = _power(max(1, int((self.lengths - cut).max())))
        keys = [tuple(row[:end]) for row, end in zip(self.steps.tolist(), cut.tolist(), strict=True)]
        fewest = max(1, NARROWEST // tail_levels)
        tails = max(_power(len(keys)), fewest)
        while True:  # half as many queries a block until its columns are few enough
            width = 0
            if head_levels:
                most = max(len(set(keys[start : start + tails])) for start in range(0, len(keys), tails))
                width = max(_power(most), NARROWEST // head_levels)
            shape = BlockShape(head_levels, width, tail_levels, tails)
            if shape.columns <= widest or tails == fewest:
                break
            tails //= 2

        count = -(-len(keys) // shape.tails)
        head_steps = np.full((count, shape.head_levels, shape.heads), -1, np.int32)
        tail_steps = np.full((count, shape.tail_levels, shape.tails), -1, np.int32)
        parents = np.zeros((count, shape.tails), np.int32)
        columns = np.full((count, shape.tails), -1, np.int32)
        numbers: list[dict[tuple[int, ...], int]] = [{} for _ in range(count)]
        for row, key in enumerate(keys):
            block, column = divmod(row, shape.tails)
            tail = self.steps[row, cut[row] : self.lengths[row]]
            tail_steps[block, : len(tail), column] = tail
            columns[block, column] = self.firsts[row]
            if shape.heads:
                head = numbers[block].setdefault(key, len(numbers[block]))
                head_steps[block, : len(key), head] = key
                parents[block, column] = head
        return ScanPlan(shape, head_steps, tail_steps, parents, columns, self.copies)


def plan(steps: NDArray[np.int32], widest: int) -> ScanPlan:
    """Blocks of at most `widest` columns, where one query's levels are no more, for queries [Q, M] of steps.

    -1 follows a query's last step. Of three ways to cut queries in heads and tails it takes the one of the fewest
    columns: no heads; what a query has in common with another; powers of two, for lengths between them.
    """
    unique, firsts, copies = np.unique(steps, axis=0, return_index=True, return_inverse=True)
    lengths = (unique >= 0).sum(axis=1)
    # The largest power of two up to the longest query: 12 levels as 8 and 4 leave none empty, as 16 a quarter.
    power = 1 << (int(lengths.max()).bit_length() - 1)
    # Steps at the beginning of each query that another begins with too: of sorted queries, a neighbour.
    equal = np.logical_and.accumulate(unique[1:] == unique[:-1], axis=1).sum(axis=1)
    shared = np.minimum(np.maximum(np.r_[0, equal], np.r_[equal, 0]), lengths)
    cuts = [np.zeros_like(lengths), shared, np.minimum(lengths, power)]
    ordered = _SortedQueries(unique, lengths, firsts, firsts[copies.ravel()])
    return min((ordered.blocks(cut, widest) for cut in cuts), key=lambda candidate: candidate.columns)


def _power(number: int) -> int:
    """The smallest power of two that is no less."""
    return 1 << (number - 1).bit_length()


class ErrorBounds(NamedTuple):
    """What bounds the error of narrations' vectors, float64 [N, 1] each, or of queries' steps, [1, Q], on their device.

    With x a vector of a narration and c its copy on the device: ||x - scale c|| <= residual, ||scale c|| <= norm. Of a
    query these are means over its steps, and `scale` also makes A_mono of the sum over M steps.
    """

    scale: torch.Tensor
    residual: torch.Tensor
    norm: torch.Tensor

    def errors(self, other: "ErrorBounds") -> torch.Tensor:
        """How far A_mono of these and those can be off at most; by Cauchy and Schwarz, as in `integer_scores`."""
        return self.residual * other.norm + self.norm * other.residual


class Estimates(NamedTuple):
    """A_mono of Q queries with N narrations as the scan has it, and what bounds its error.

    An estimate is off by at most norm(q) residual(x) + residual(q) norm(x) (`ErrorBounds.errors`).
    """

    sums: torch.Tensor
    """[N, Q], of a scan."""
    maxima: torch.Tensor
    """float64 [blocks, Q]: the highest estimate of each block of narrations."""
    known: ErrorBounds
    queries: ErrorBounds

    @classmethod
    def of(cls, sums: torch.Tensor, known: ErrorBounds, queries: ErrorBounds) -> "Estimates":
        """The sums [N, Q] of a scan with their bounds, read once for the highest estimate of each block."""
        maxima = []
        for start in range(0, len(sums), _CHUNK):
            rows = slice(start, start + _CHUNK)
            maxima.append(_blockwise(sums[rows] * (known.scale[rows] * queries.scale)))
        return cls(sums, torch.cat(maxima), known, queries)

    def largest_errors(self) -> torch.Tensor:
        """[Q]: no narration's estimate is off by more."""
        return ErrorBounds(*(values.max() for values in self.known)).errors(self.queries)[0]

    def best(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The k highest estimates of each query and whose they are, best first, [k, Q] each; all where there are fewer.

        k blocks of the highest maxima hold them: a narration outside of these has k others at least as high.
        """
        blocks = self.maxima.topk(min(k, len(self.maxima)), dim=0).indices
        queries = torch.arange(blocks.shape[1], device=blocks.device).expand_as(blocks)
        estimates, rows = (
            values.movedim(2, 1).flatten(0, 1) for values in self._block_rows(blocks, queries, bounds=False)
        )
        top = estimates.topk(min(k, len(self.sums)), dim=0)
        return top.values, rows.gather(0, top.indices)

    def reaching(self, thresholds: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Narrations and queries, int64 [P] each, of the pairs whose A_mono may reach the query's threshold [Q]."""
        upper = self.maxima + ErrorBounds(*map(_blockwise, self.known)).errors(self.queries)
        blocks, queries = (upper >= thresholds).nonzero(as_tuple=True)
        narrations, owners = [blocks[:0]], [queries[:0]]
        for part, of in zip(blocks.split(_PAIRS), queries.split(_PAIRS), strict=True):
            bounds, rows = self._block_rows(part, of, bounds=True)
            pairs, columns = (bounds >= thresholds[of, None]).nonzero(as_tuple=True)
            narrations.append(rows[pairs, columns])
            owners.append(of[pairs])
        return torch.cat(narrations), torch.cat(owners)

    def _block_rows(
        self, blocks: torch.Tensor, queries: torch.Tensor, bounds: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Estimates of narrations of blocks with their queries, or upper bounds, and the narrations: [..., BLOCK]."""
        rows = blocks[..., None] * BLOCK + torch.arange(BLOCK, device=blocks.device)
        there = rows < len(self.sums)
        rows = rows.clamp_max(len(self.sums) - 1)
        of = ErrorBounds(*(values[0, queries][..., None] for values in self.queries))
        known = ErrorBounds(*(values[rows, 0] for values in self.known))
        values = self.sums[rows, queries[..., None]] * (known.scale * of.scale)
        if bounds:
            values += known.errors(of)
        return values.where(there, -torch.inf), rows


def _blockwise(values: torch.Tensor) -> torch.Tensor:
    """The maxima [blocks, ...] of values [n, ...] over blocks of rows."""
    missing = -len(values) % BLOCK
    padded = torch.nn.functional.pad(values, (0, 0, 0, missing), value=-torch.inf)
    return padded.unflatten(0, (-1, BLOCK)).amax(dim=1)


class Launch(NamedTuple):
    """The shape of a program, reasoned for the 64k registers and 228 KB of shared memory of Hopper's multiprocessors.

    A tile of 128 x 128 sums and its maxima take 64 registers each of 8 x 32 threads; 16 columns of shared beginnings
    more still fit the 255 that a thread may have. A stage of the pipeline that feeds them is (128 + 144) x 128 bytes
    = 34 KB, of which four fit; other devices take as many as fit theirs. Fewer columns need less of both, and several
    programs then share a multiprocessor.
    """

    rows: int = 128
    """Narrations of a group."""
    columns: int = 144
    """Most columns of a block."""
    depth: int = 128
    """Bytes of a vector that a stage brings: a cache line, and the widest swizzle of shared memory."""
    stages: int = 4
    """At most."""
    narrow: int = 64
    """Columns up to which four warps do, and segments are read no faster than memory brings them."""
    paired: int = 128
    """Columns up to which the registers hold two segments' sums."""

    def takes_pairs(self, shape: BlockShape) -> bool:
        """Whether a block's steps are multiplied with two segments at a time: with few columns memory sets the pace."""
        return self.narrow < shape.columns <= self.paired

    def options(self, shape: BlockShape, memory: int) -> dict[str, Any]:
        """How the kernel is compiled for blocks of this shape, with so many bytes of shared memory a program."""
        stage = (self.rows * (2 if self.takes_pairs(shape) else 1) + shape.columns) * self.depth
        stages = max(1, min(self.stages, (memory - _EXCHANGED - 4 * self.rows * shape.heads) // stage))
        return {"num_warps": 4 if shape.columns <= self.narrow else 8, "num_stages": stages, "enable_fp_fusion": False}


class Segments(NamedTuple):
    """The vectors of N narrations on one device, with what the kernel needs to know of them."""

    vectors: torch.Tensor
    """[S, D]: int8 codes or 16-bit floats, D a multiple of 64."""
    offsets: torch.Tensor
    """int64 [N + 1]: the first row of each narration, none empty."""
    members: torch.Tensor
    """int32 [groups, rows]: the narrations that are taken in lock-step, -1 for none."""
    launch: Launch

    @property
    def narrations(self) -> int:
        """N, the number of narrations."""
        return len(self.offsets) - 1


def group(offsets: NDArray[np.int64], rows: int) -> NDArray[np.int32]:
    """Groups [G, rows] of narrations of about equal length, for narrations that begin at the rows offsets [N + 1].

    A group takes as long as its longest member: narrations of a window are ordered by length, longest first. -1 fills
    the last group.

    >>> group(np.array([0, 2, 3, 8, 9, 11]), rows=2)
    array([[ 2,  0],
           [ 4,  1],
           [ 3, -1]], dtype=int32)
    """
    lengths = np.diff(offsets)
    order = np.lexsort((-lengths, np.arange(len(lengths)) // WINDOW))
    members = np.full((-(-len(lengths) // rows), rows), -1, np.int32)
    members.reshape(-1)[: len(order)] = order
    return members


def segments(vectors: torch.Tensor, offsets: NDArray[np.int64], launch: Launch | None = None) -> Segments:
    """Vectors [S, D] on a device, of narrations that begin at the rows offsets [N + 1], none empty, made ready."""
    launch = launch or Launch()
    rows, members = (torch.from_numpy(array).to(vectors.device) for array in (offsets, group(offsets, launch.rows)))
    return Segments(vectors, rows, members, launch)


def scan(narrations: Segments, steps: torch.Tensor, queries: NDArray[np.int32]) -> torch.Tensor:
    """M A_mono of each query with each narration, [N, Q]: exact int32 for int8 vectors, float32 for 16-bit ones.

    steps [U, D]: the unique steps, of the vectors' kind and on their device; queries [Q, M]: rows of `steps`, -1 after
    a query's last step. Steps that several queries begin with are multiplied and aligned once a block (`plan`).
    Raises InputError for queries too long (`fits`).
    """
    vectors, launch = narrations.vectors, narrations.launch
    D = vectors.shape[1]
    if not fits(queries.shape[1], D, vectors.dtype):
        raise InputError(f"a query has {queries.shape[1]} steps, too many for a GPU's sums of {D} products each.")
    blocks = plan(queries, launch.columns)
    heads, tails, parents, columns, copies = (torch.from_numpy(array).to(vectors.device) for array in blocks[1:])
    total = len(queries)
    kind = torch.int32 if vectors.dtype == torch.int8 else torch.float32
    sums = torch.empty((len(narrations.offsets) - 1, total), dtype=kind, device=vectors.device)
    # The largest power of two that divides D: the kernel reads no part of a stage.
    depth = min(launch.depth // vectors.element_size(), D & -D)
    # Triton launches on the current device; without one it interprets.
    with torch.cuda.device(vectors.device) if vectors.device.type == "cuda" else nullcontext():
        # fmt: off
        coverage[(len(narrations.members) * len(tails),)](
            vectors, narrations.offsets, narrations.members, steps, heads, tails, parents, columns, sums,
            len(tails), total, D,
            launch.rows, depth, *blocks.shape, launch.takes_pairs(blocks.shape),
            **launch.options(blocks.shape, _memory(vectors.device)),
        )
        # fmt: on
    return sums if (blocks.copies == np.arange(total)).all() else sums[:, copies]


def fits(steps: int, D: int, kind: torch.dtype) -> bool:
    """Whether queries of so many steps can be scanned: sums of integers must not pass 32 bits."""
    return steps <= MOST_STEPS and (kind != torch.int8 or steps * D * _LARGEST < 2**31)


def _memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may have; as Hopper where kernels are interpreted."""
    if device.type == "cpu":
        return HOPPER
    memory: int = driver.active.utils.get_device_properties(device.index)["max_shared_mem"]
    return memory
