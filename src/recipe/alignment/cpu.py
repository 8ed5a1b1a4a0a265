"""Both alignment stages on the CPU with Numba, over batches (layout: `recipe.alignment.reference`).

Similarities are read as float32; sums run in float64 in the order of the reference, so that every score is
the reference's, rounded once, and every tie falls as there. A kernel uses one core and holds no interpreter
lock: callers with many cores give each thread a range of narrations.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from recipe.alignment.reference import Float32, FreeAlignment, GroupAlignment, Int64, ragged
from recipe.errors import InputError

Row = NDArray[np.float64]
Scores = NDArray[np.float64]
Moves = NDArray[np.int32]
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(function: Kernel) -> Kernel:
    """A kernel that holds no interpreter lock, compiled on its first call.

    The machine code is kept in this or the user's cache folder, whichever can be written.
    """
    try:
        # The numpy model divides without a check for 0, whose branch would keep loops from being vectorised.
        return cast(Kernel, numba.njit(nogil=True, error_model="numpy", cache=True)(function))
    except RuntimeError:  # Numba's answer to a read-only installation without a writable home.
        return cast(Kernel, numba.njit(nogil=True, error_model="numpy")(function))


def grouped_monotone_coverage(W: ArrayLike, bounds: ArrayLike, offsets: ArrayLike) -> Float32:
    """A_mono of h and of each h + c_g: W [S, C], bounds [G + 1], offsets [N + 1] -> [G + 1, N].

    Row 0 is h; a sequence without steps scores 0. Raises InputError.
    """
    W, bounds, offsets = ragged(W, offsets, bounds)
    score = np.zeros((bounds.size, offsets.size - 1), np.float32)
    _coverage(W, bounds, offsets, _longest(offsets), score)
    return score


def grouped_needleman_wunsch(W: ArrayLike, bounds: ArrayLike, offsets: ArrayLike, gap: float = -0.05) -> GroupAlignment:
    """A_NW of h and of each h + c_g: W [S, C], bounds [G + 1], offsets [N + 1] -> [G + 1, N].

    One dynamic programme: row |h| of the table is kept and each completion goes on from there. The length of
    the path is carried with the score, by the tie order of the reference, instead of a traceback. Raises
    InputError.
    """
    if not (np.isfinite(gap) and gap <= 0):
        raise InputError(f"The gap penalty is {gap}; give a finite number that is at most 0.")
    W, bounds, offsets = ragged(W, offsets, bounds)
    shape = bounds.size, offsets.size - 1
    result = GroupAlignment(np.zeros(shape, np.float32), np.zeros(shape, np.int32))
    _needleman_wunsch(W, bounds, offsets, _longest(offsets), gap, result.score, result.length)
    return result


def grouped_free_alignment(W: ArrayLike, bounds: ArrayLike, offsets: ArrayLike) -> FreeAlignment:
    """The two free-gap scores of h and of each h + c_g: W >= 0 [S, C], bounds [G + 1], offsets [N + 1] -> [G + 1, N].

    One dynamic programme: row |h| of both tables is kept and each completion goes on from there. Raises InputError.
    """
    W, bounds, offsets = ragged(W, offsets, bounds)
    shape = bounds.size, offsets.size - 1
    result = FreeAlignment(np.zeros(shape), np.zeros(shape))
    _free_alignment(W, bounds, offsets, _longest(offsets), result.matched, result.covered)
    return result


def precedence(W: ArrayLike, offsets: ArrayLike) -> NDArray[np.float64]:
    """The sum over narrations of how much each says step i before step j: W [S, C], offsets [N + 1] -> [C, C].

    Raises InputError.
    """
    W, _, offsets = ragged(W, offsets)
    total = np.zeros((W.shape[1],) * 2)
    _precedence(W, offsets, total)
    return total


def _longest(offsets: Int64) -> int:
    """Segments of the longest narration."""
    return int(np.diff(offsets).max(initial=0))


@compiled
def _coverage(W: Float32, bounds: Int64, offsets: Int64, longest: int, score: Float32) -> None:
    shared, own = np.empty(longest), np.empty(longest)
    steps = bounds[0]
    for n in range(offsets.size - 1):
        start, segments = offsets[n], offsets[n + 1] - offsets[n]
        for k in range(segments):
            # D[0, .] = 0: before any step all segments are as good a place to begin.
            shared[k] = 0.0
        _cover_steps(W, start, segments, 0, steps, shared)
        if steps:
            score[0, n] = shared[segments - 1] / steps
        for g in range(1, bounds.size):
            total = steps + bounds[g] - bounds[g - 1]
            for k in range(segments):
                # Each completion goes on from the row of h, which is computed once for the group.
                own[k] = shared[k]
            _cover_steps(W, start, segments, bounds[g - 1], bounds[g], own)
            if total:
                score[g, n] = own[segments - 1] / total


@compiled
def _cover_steps(W: Float32, start: int, segments: int, first: int, last: int, best: Row) -> None:
    """Take best[k] = max_{k' <= k} D[i, k'] on by first:last, four steps at a time to stay in registers."""
    i = first
    while i + 4 <= last:
        a = b = c = d = -np.inf
        for k in range(segments):
            value = W[start + k, i] + best[k]
            a = value if value > a else a
            value = W[start + k, i + 1] + a
            b = value if value > b else b
            value = W[start + k, i + 2] + b
            c = value if value > c else c
            value = W[start + k, i + 3] + c
            d = value if value > d else d
            best[k] = d
        i += 4
    for j in range(i, last):
        a = -np.inf
        for k in range(segments):
            value = W[start + k, j] + best[k]
            a = value if value > a else a
            best[k] = a


@compiled
def _needleman_wunsch(
    W: Float32, bounds: Int64, offsets: Int64, longest: int, gap: float, score: Float32, length: Moves
) -> None:
    shared, own = np.empty(longest + 1), np.empty(longest + 1)
    shared_moves, own_moves = np.empty(longest + 1), np.empty(longest + 1)
    steps = bounds[0]
    for n in range(offsets.size - 1):
        start, segments = offsets[n], offsets[n + 1] - offsets[n]
        for k in range(segments + 1):
            # F[0, k] = k g: segments before the first step are skipped, a move each.
            shared[k], shared_moves[k] = k * gap, float(k)
        _align_steps(W, start, segments, 0, steps, 0, gap, shared, shared_moves)
        if steps:
            _finish(shared[segments], shared_moves[segments], 0, n, score, length)
        for g in range(1, bounds.size):
            for k in range(segments + 1):
                own[k], own_moves[k] = shared[k], shared_moves[k]
            _align_steps(W, start, segments, bounds[g - 1], bounds[g], steps, gap, own, own_moves)
            if steps + bounds[g] - bounds[g - 1]:
                _finish(own[segments], own_moves[segments], g, n, score, length)


@compiled
def _align_steps(
    W: Float32, start: int, segments: int, first: int, last: int, done: int, gap: float, F: Row, moves: Row
) -> None:
    """Take row `done` of the table, and the path lengths to its cells, on by the steps first:last."""
    for j in range(first, last):
        done += 1
        diagonal, diagonal_moves = F[0], moves[0]
        # F[i, 0] = i g: all steps so far are skipped, a move each.
        left, left_moves = done * gap, float(done)
        F[0], moves[0] = left, left_moves
        for k in range(1, segments + 1):
            up, up_moves = F[k], moves[k]
            value, count = diagonal + W[start + k - 1, j], diagonal_moves
            skip_step, skip_segment = up + gap, left + gap
            # Strict comparisons keep the earlier choice on a tie: match, skipped step, skipped segment. Path
            # lengths are floats so that these choices compile to blends; integers give mispredicted branches.
            count = up_moves if skip_step > value else count
            value = skip_step if skip_step > value else value
            count = left_moves if skip_segment > value else count
            value = skip_segment if skip_segment > value else value
            diagonal, diagonal_moves = up, up_moves
            left, left_moves = value, count + 1.0
            F[k], moves[k] = left, left_moves


@compiled
def _finish(value: float, moves: float, row: int, n: int, score: Float32, length: Moves) -> None:
    # Equation 6; the reference names the two bounds.
    score[row, n] = min(max(value / moves, 1e-6), 1.0)
    length[row, n] = moves


@compiled
def _free_alignment(W: Float32, bounds: Int64, offsets: Int64, longest: int, matched: Scores, covered: Scores) -> None:
    shared_B, shared_A = np.empty(longest + 1), np.empty(longest + 1)
    B, A = np.empty(longest + 1), np.empty(longest + 1)
    for n in range(offsets.size - 1):
        start, segments = offsets[n], offsets[n + 1] - offsets[n]
        for k in range(segments + 1):
            shared_B[k] = shared_A[k] = 0.0
        _align_freely(W, start, segments, 0, bounds[0], shared_B, shared_A)
        matched[0, n], covered[0, n] = shared_B[segments], shared_A[segments]
        for g in range(1, bounds.size):
            for k in range(segments + 1):
                B[k], A[k] = shared_B[k], shared_A[k]
            _align_freely(W, start, segments, bounds[g - 1], bounds[g], B, A)
            matched[g, n], covered[g, n] = B[segments], A[segments]


@compiled
def _align_freely(W: Float32, start: int, segments: int, first: int, last: int, B: Row, A: Row) -> None:
    """Take a row of both tables on by the steps first:last."""
    for j in range(first, last):
        diagonal, left_B, left_A = B[0], B[0], A[0]
        for k in range(1, segments + 1):
            w = float(W[start + k - 1, j])
            # No price for gaps, so that the length of the path does not matter and is not carried.
            match, up = diagonal + w, B[k]
            diagonal = up
            left_B = max(up, left_B, match)
            left_A = max(A[k], left_A + w)
            B[k], A[k] = left_B, left_A


@compiled
def _precedence(W: Float32, offsets: Int64, total: Scores) -> None:
    steps = W.shape[1]
    later = np.empty(steps)
    for n in range(offsets.size - 1):
        later[:] = 0.0
        # From the last segment, so that `later` holds each step's sum behind k: linear in segments where the double sum
        # of N is quadratic.
        for k in range(offsets[n + 1] - 1, offsets[n] - 1, -1):
            for i in range(steps):
                w = float(W[k, i])
                if w != 0.0:  # a segment matches few of the steps
                    for j in range(steps):
                        total[i, j] += w * later[j]
            for j in range(steps):
                later[j] += W[k, j]
