"""The specification: the paper's alignment equations (RECIPE, section 3.2) in NumPy and float64.

W[i, k] is the cosine similarity of step i and narration segment k, shape [M steps, L segments]. Arrays here
are zero-based, so that W[i - 1, k - 1] stands where the paper writes W_{i,k}.

The functions with `offsets` are the `reference` backend: they compute a batch pair by pair, and need nothing but NumPy.

In a batch, `W` is float32 [S, C], row-major: the segments of all narrations one below the other, one column per step,
so that it is the product of stored embeddings [S, d] with step embeddings [d, C] as it comes; nothing is padded.
Narration n owns the rows `offsets[n]:offsets[n + 1]`. In a *group*, the sequences h + c_1, ..., h + c_G share the
columns of h: those are the first `bounds[0]`, and c_g owns the columns `bounds[g - 1]:bounds[g]`.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recipe.errors import InputError
from recipe.types import Alignment

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]

GAP = -0.05
"""g, the gap penalty of the paper."""

# Equation 6 clips: a negative score would turn the sign of rho in equation 7.
LOWEST, HIGHEST = 1e-6, 1.0
"""The range that A_NW is clipped to."""


class GroupAlignment(NamedTuple):
    """A_NW of h (row 0) and of h + c_g (row g) against each narration; a sequence without steps scores 0."""

    score: Float32
    """[G + 1, N], 1e-6 to 1."""
    length: NDArray[np.int32]
    """[G + 1, N], |pi*|, the number of moves on the optimal path."""


class FreeAlignment(NamedTuple):
    """What h (row 0) and each h + c_g (row g) earn against each narration where gaps are free, float64 [G + 1, N]."""

    matched: NDArray[np.float64]
    """Each step owns at most one segment, and each segment at most one step."""
    covered: NDArray[np.float64]
    """Each segment belongs to one step at most; a step may explain many."""


def monotone_coverage(W: ArrayLike) -> float:
    """A_mono: the mean similarity of the best monotone assignment of steps to segments (equation 2).

    A_mono = 1/M max over 1 <= k_1 <= ... <= k_M <= L of sum_i W[i, k_i], by the recursion
    D[i, k] = W[i, k] + max_{k' <= k} D[i-1, k'], D[0, .] = 0. W has shape [M, L]. Raises InputError.

    >>> monotone_coverage([[0.0, 1.0], [1.0, 0.5]])
    0.75
    """
    W = _similarities(W)
    M, L = W.shape
    D = np.zeros((M + 1, L))
    for i in range(1, M + 1):
        best = -np.inf
        for k in range(L):
            # D[0, .] = 0, so that the first step may begin at any segment without a price.
            best = max(best, D[i - 1, k])
            D[i, k] = W[i - 1, k] + best  # Eq. 3
    # Divided by M, so that sequences of different lengths are ranked on one scale.
    return float(D[M].max() / M)  # Eq. 4


def needleman_wunsch(W: ArrayLike, gap: float = GAP) -> Alignment:
    """A_NW and one optimal path of the global alignment (equations 5 and 6).

    F[i, k] = max(F[i-1, k-1] + W[i, k], F[i-1, k] + g, F[i, k-1] + g), F[i, 0] = i g, F[0, k] = k g;
    A_NW = clip(F[M, L] / |path|, 1e-6, 1). Ties go to the match, then to the skipped step, then to the
    skipped segment: the path's length divides the score, so the order is part of the definition. W has shape
    [M, L]; g <= 0. Raises InputError.

    >>> needleman_wunsch([[1.0, 0.0]])
    Alignment(score=0.475, path=((0, 0), (None, 1)))
    """
    W = _similarities(W)
    if not (np.isfinite(gap) and gap <= 0):
        raise InputError(f"The gap penalty is {gap}; give a finite number that is at most 0.")
    M, L = W.shape
    F = np.empty((M + 1, L + 1))
    # A global alignment: steps before the first segment, and segments before the first step, pay gaps too.
    F[:, 0] = np.arange(M + 1) * gap
    F[0, :] = np.arange(L + 1) * gap
    for i in range(1, M + 1):
        for k in range(1, L + 1):
            F[i, k] = max(F[i - 1, k - 1] + W[i - 1, k - 1], F[i - 1, k] + gap, F[i, k - 1] + gap)  # Eq. 5

    # Back from (M, L). Each cell repeats the sum that filled the table, so that equality is exact.
    i, k = M, L
    moves: list[tuple[int | None, int | None]] = []
    while i or k:
        if i and k and F[i, k] == F[i - 1, k - 1] + W[i - 1, k - 1]:
            i, k = i - 1, k - 1
            moves.append((i, k))
        elif i and (not k or F[i, k] == F[i - 1, k] + gap):
            i -= 1
            moves.append((i, None))
        else:
            k -= 1
            moves.append((None, k))
    # Divided by the moves and not by M: a long narration around a short match pays for its gaps. In the audit this
    # costs 14 to 18 points against free gaps on the same pool, which is why the grounded reward has those.
    return Alignment(float(np.clip(F[-1, -1] / len(moves), LOWEST, HIGHEST)), tuple(reversed(moves)))


def free_matching(W: ArrayLike) -> Alignment:
    """The best one-to-one monotone matching where gaps cost nothing, not normalised, and one that attains it.

    B[i, k] = max(B[i-1, k], B[i, k-1], B[i-1, k-1] + W[i, k]), B[0, .] = B[., 0] = 0. Ties go to the skipped
    segment, then to the skipped step, so that only what earns something is matched. W has shape [M, L]. Raises
    InputError.

    >>> free_matching([[0.5, 0.0], [0.0, 0.25]]).score
    0.75
    """
    W = _similarities(W)
    M, L = W.shape
    table = np.zeros((M + 1, L + 1))
    for i in range(1, M + 1):
        # B[i, k - 1] holds the greatest of the row so far, so that it enters as a running maximum. The page asks for
        # the matching of every narration of a pool at every step: a loop over k would take most of its time.
        best = np.maximum(table[i - 1, 1:], table[i - 1, :-1] + W[i - 1])
        np.maximum.accumulate(best, out=table[i, 1:])

    # Back from (M, L), through lists: a cell of an array takes ten times as long to read.
    B = table.tolist()
    i, k = M, L
    moves: list[tuple[int | None, int | None]] = []
    while i or k:
        if k and B[i][k] == B[i][k - 1]:
            k -= 1
            moves.append((None, k))
        elif i and B[i][k] == B[i - 1][k]:
            i -= 1
            moves.append((i, None))
        else:
            i, k = i - 1, k - 1
            moves.append((i, k))
    return Alignment(B[M][L], tuple(reversed(moves)))


def free_coverage(W: ArrayLike) -> float:
    """The most that monotone steps explain of the segments: a step may own many, a segment has one step at most.

    A[i, k] = max(A[i-1, k], A[i, k-1] + W[i, k]), A[0, .] = A[., 0] = 0, for W >= 0 of shape [M, L]. Raises InputError.

    >>> free_coverage([[0.5, 0.5, 0.0], [0.0, 0.0, 0.25]])
    1.25
    """
    W = _similarities(W)
    M, L = W.shape
    A = np.zeros((M + 1, L + 1))
    for i in range(1, M + 1):
        for k in range(1, L + 1):
            A[i, k] = max(A[i - 1, k], A[i, k - 1] + W[i - 1, k - 1])
    return float(A[M, L])


def narration_precedence(W: ArrayLike) -> NDArray[np.float64]:
    """How much a narration says step i before step j: N[i, j] = sum_{k < l} W[i, k] W[j, l], [M, M]. Raises InputError.

    >>> narration_precedence([[1.0, 0.0], [0.0, 0.5]]).tolist()
    [[0.0, 0.5], [0.0, 0.0]]
    """
    W = _similarities(W)
    # The sum of a row after k, without k itself: two steps in one segment say nothing of their order.
    later = np.cumsum(W[:, ::-1], axis=1)[:, ::-1] - W
    return W @ later.T


def _similarities(W: ArrayLike) -> NDArray[np.float64]:
    # In float64: this is what fast backends are compared with.
    W = np.asarray(W, dtype=np.float64)
    if W.ndim != 2:
        raise InputError(f"Similarities have shape {W.shape}; give a matrix of steps by segments.")
    if not W.shape[0] or not W.shape[1]:
        raise InputError(f"Similarities have shape {W.shape}; give at least one step and one segment.")
    if not np.isfinite(W).all():
        raise InputError("Similarities hold NaN or infinity; give finite cosine similarities.")
    return W


def grouped_monotone_coverage(W: ArrayLike, bounds: ArrayLike, offsets: ArrayLike) -> Float32:
    """A_mono of h and of each h + c_g: W [S, C], bounds [G + 1], offsets [N + 1] -> [G + 1, N].

    Row 0 is h; a sequence without steps scores 0. Raises InputError.
    """
    W, bounds, offsets = ragged(W, offsets, bounds)
    score = np.zeros((bounds.size, offsets.size - 1), np.float32)
    for row, n, similarities in _pairs(W, bounds, offsets):
        score[row, n] = monotone_coverage(similarities)
    return score


def grouped_needleman_wunsch(W: ArrayLike, bounds: ArrayLike, offsets: ArrayLike, gap: float = GAP) -> GroupAlignment:
    """A_NW of h and of each h + c_g: W [S, C], bounds [G + 1], offsets [N + 1] -> [G + 1, N].

    Raises InputError.
    """
    W, bounds, offsets = ragged(W, offsets, bounds)
    shape = bounds.size, offsets.size - 1
    result = GroupAlignment(np.zeros(shape, np.float32), np.zeros(shape, np.int32))
    for row, n, similarities in _pairs(W, bounds, offsets):
        alignment = needleman_wunsch(similarities, gap)
        result.score[row, n], result.length[row, n] = alignment.score, len(alignment.path)
    return result


def grouped_free_alignment(W: ArrayLike, bounds: ArrayLike, offsets: ArrayLike) -> FreeAlignment:
    """The two free-gap scores of h and of each h + c_g: W >= 0 [S, C], bounds [G + 1], offsets [N + 1] -> [G + 1, N].

    Raises InputError.
    """
    W, bounds, offsets = ragged(W, offsets, bounds)
    shape = bounds.size, offsets.size - 1
    result = FreeAlignment(np.zeros(shape), np.zeros(shape))
    for row, n, similarities in _pairs(W, bounds, offsets):
        result.matched[row, n] = free_matching(similarities).score
        result.covered[row, n] = free_coverage(similarities)
    return result


def precedence(W: ArrayLike, offsets: ArrayLike) -> NDArray[np.float64]:
    """The sum over narrations of how much each says step i before step j: W [S, C], offsets [N + 1] -> [C, C].

    Raises InputError.
    """
    W, _, offsets = ragged(W, offsets)
    parts = (narration_precedence(W[first:last].T) for first, last in pairwise(offsets))
    return np.asarray(sum(parts, np.zeros((W.shape[1],) * 2)))


def _pairs(W: Float32, bounds: NDArray[np.int64], offsets: NDArray[np.int64]) -> Iterator[tuple[int, int, Float32]]:
    """Each sequence with at least one step against each narration: row, narration, W [M, L]."""
    for row in range(bounds.size):
        # The columns of h come first in each row: A(h) and A(h + c) share them (SPEC, section 2).
        own = range(bounds[row - 1], bounds[row]) if row else range(0)
        steps = [*range(bounds[0]), *own]
        if steps:
            for n in range(offsets.size - 1):
                yield row, n, W[offsets[n] : offsets[n + 1], steps].T


def ragged(W: ArrayLike, offsets: ArrayLike, bounds: ArrayLike | None = None) -> tuple[Float32, Int64, Int64]:
    """W, bounds and offsets of a batch, checked, in the number formats and memory order that kernels read.

    Without `bounds` all columns are those of h. Costs O(N + G). Raises InputError.
    """
    W = np.ascontiguousarray(W, dtype=np.float32)
    if W.ndim != 2:
        raise InputError(f"Similarities have shape {W.shape}; give segments by steps.")
    rows, columns = W.shape
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    bounds = np.ascontiguousarray([columns] if bounds is None else bounds, dtype=np.int64)
    for marks, limit, rise, problem in (
        (offsets, rows, 1, f"Offsets must rise within the {rows} segments, by one or more each."),
        (bounds, columns, 0, f"Bounds must lie within the {columns} columns and must not fall."),
    ):
        inside = marks.ndim == 1 and marks.size > 0 and marks[0] >= 0 and marks[-1] <= limit
        if not inside or (np.diff(marks) < rise).any():
            raise InputError(problem)
    return W, bounds, offsets
