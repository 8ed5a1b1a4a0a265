"""The scan of vectors that lie on a GPU: narrations in groups of equal length, and the kernel's launch over them."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from triton.runtime import driver

from recipe.corpus.gpu.kernels import coverage
from recipe.corpus.gpu.plan import Shape, plan
from recipe.errors import InputError

WINDOW = 1 << 15
"""Narrations among which those of equal length are brought together: far apart in memory they cost address look-ups."""
LONGEST = 128
"""Steps of a query: more would not fit the registers with even one query a block."""
HOPPER = 227 << 10
"""Bytes of shared memory that a program may have on an H100 or H200."""
_EXCHANGED = 8 << 10
"""Bytes of it through which threads hand each other what is not multiplied, beside the heads' maxima."""
_LARGEST = 127 * 127
"""Of the product of two codes."""


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
    Raises InputError for queries too long (`fits`).
    """
    vectors, launch = here.vectors, here.launch
    D = vectors.shape[1]
    if not fits(queries.shape[1], D, vectors.dtype):
        raise InputError(f"a query has {queries.shape[1]} steps, too many for a GPU's sums of {D} products each.")
    blocks = plan(queries, launch.columns)
    heads, tails, parents, columns, copies = (torch.from_numpy(array).to(vectors.device) for array in blocks[1:])
    total = len(queries)
    kind = torch.int32 if vectors.dtype == torch.int8 else torch.float32
    sums = torch.empty((here.narrations, total), dtype=kind, device=vectors.device)
    depth = min(launch.depth // vectors.element_size(), D & -D)
    with _current(vectors.device):
        # fmt: off
        coverage[(len(here.members) * len(tails),)](
            vectors, here.offsets, here.members, steps, heads, tails, parents, columns, sums, len(tails), total, D,
            launch.rows, depth, *blocks.shape, paired(blocks.shape, launch),
            **options(blocks.shape, launch, _memory(vectors.device)),
        )
        # fmt: on
    return sums if (blocks.copies == np.arange(total)).all() else sums[:, copies]


def fits(steps: int, D: int, kind: torch.dtype) -> bool:
    """Whether queries of so many steps can be scanned: sums of integers must not pass 32 bits."""
    return steps <= LONGEST and (kind != torch.int8 or steps * D * _LARGEST < 2**31)


def paired(shape: Shape, launch: Launch) -> bool:
    """Whether a block's steps are multiplied with two segments at a time: where few columns wait for memory anyway."""
    return launch.narrow < shape.columns <= launch.paired


def options(shape: Shape, launch: Launch, memory: int) -> dict[str, Any]:
    """How the kernel is compiled for blocks of this shape, with so many bytes of shared memory a program."""
    stage = (launch.rows * (2 if paired(shape, launch) else 1) + shape.columns) * launch.depth
    stages = max(1, min(launch.stages, (memory - _EXCHANGED - 4 * launch.rows * shape.heads) // stage))
    return {"num_warps": 4 if shape.columns <= launch.narrow else 8, "num_stages": stages, "enable_fp_fusion": False}


def _memory(device: torch.device) -> int:
    """Bytes of shared memory that a program may have; as Hopper where kernels are interpreted."""
    if device.type == "cpu":
        return HOPPER
    memory: int = driver.active.utils.get_device_properties(device.index)["max_shared_mem"]
    return memory


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Triton launches on the current device; without one it interprets."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
