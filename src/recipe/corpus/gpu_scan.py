"""The scan of vectors that lie on a GPU: narrations in groups of equal length, and the kernel's launch over them."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from recipe.corpus.gpu_kernels import coverage
from recipe.corpus.gpu_plan import plan
from recipe.errors import InputError

WINDOW = 1 << 15
"""Narrations among which those of equal length are brought together: far apart in memory they cost address look-ups."""
_LARGEST = 127 * 127
"""Of the product of two codes."""
_INT32 = 2**31 - 1


class Launch(NamedTuple):
    """The shape of a program, reasoned for the 64k registers and 228 KB of shared memory of Hopper's multiprocessors.

    A tile of 128 x 128 sums and its maxima take 64 registers each of 8 x 32 threads; 16 columns of shared beginnings
    more still fit the 255 that a thread may have. A stage of the pipeline that feeds them is (128 + 144) x 128 bytes
    = 34 KB, of which four fit. Fewer columns need less of both, and several programs then share a multiprocessor.
    """

    rows: int = 128
    """Narrations of a group."""
    columns: int = 144
    """Most columns of a block."""
    depth: int = 128
    """Bytes of a vector that a stage brings: a cache line, and the widest swizzle of shared memory."""
    stages: int = 4


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
        """N."""
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


def scan(here: Segments, steps: torch.Tensor, queries: NDArray[np.int32]) -> torch.Tensor:
    """M A_mono of each query with each narration, [N, Q]: exact int32 for int8 vectors, float32 for 16-bit ones.

    steps [U, D]: the unique steps, of the vectors' kind and on their device; queries [Q, M]: rows of `steps`, -1 after
    a query's last step. Steps that several queries begin with are multiplied and aligned once a block (`gpu_plan`).
    Raises InputError where a sum may pass 32 bits.
    """
    vectors, launch = here.vectors, here.launch
    D = vectors.shape[1]
    exact = vectors.dtype == torch.int8
    if exact and queries.shape[1] * D * _LARGEST > _INT32:
        most = _INT32 // (D * _LARGEST)
        raise InputError(f"a query has {queries.shape[1]} steps, more than the {most} whose sums fit 32 bits.")
    blocks = plan(queries, launch.columns)
    heads, tails, parents, columns, copies = (torch.from_numpy(array).to(vectors.device) for array in blocks[1:])
    total = len(queries)
    kind = torch.int32 if exact else torch.float32
    sums = torch.empty((here.narrations, total), dtype=kind, device=vectors.device)
    depth = min(launch.depth // vectors.element_size(), D & -D)
    with _current(vectors.device):
        # fmt: off
        coverage[(len(here.members) * len(tails),)](
            vectors, here.offsets, here.members, steps, heads, tails, parents, columns, sums, len(tails), total, D,
            launch.rows, depth, *blocks.shape,
            **options(blocks.shape.columns, launch),
        )
        # fmt: on
    return sums if (blocks.copies == np.arange(total)).all() else sums[:, copies]


def options(columns: int, launch: Launch) -> dict[str, Any]:
    """How the kernel is compiled for blocks of so many columns."""
    return {"num_warps": 4 if columns <= 64 else 8, "num_stages": launch.stages, "enable_fp_fusion": False}


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Triton launches on the current device; without one it interprets."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
