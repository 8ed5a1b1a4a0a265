"""Stage 1 on a GPU: similarities by the matrix units, and A_mono's programme on them before they leave the registers.

A program takes a group of narrations of about equal length in lock-step: the rows of its tile are the k-th segments
of all of them, multiplied with one block of steps. With the running maxima max_{k' <= k} D[i, k'] of every step in
registers too, D[i, k] = W[i, k] + max_{k' <= k} D[i-1, k'] is one addition and one maximum an element, without a
scan along the segments, without narrations that straddle tiles, and no similarity reaches any memory. Triton cannot
pick columns of a register tile, but it can halve one for nothing: columns are ordered by level and split by halves
into one piece a level.

A block's queries share *heads*: the steps that several queries begin with are multiplied and aligned once, and the
*tails* go on from the head's maxima. Similarities of zero leave the maximum of D as it is, so that heads and tails
are padded with steps of zeros to powers of two.
"""

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

_kernel: Callable[[Callable[..., Any]], Any] = triton.jit


@_kernel
def _lowest(ROWS: tl.constexpr, LEVELS: tl.constexpr, WIDTH: tl.constexpr, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """The maxima over no segments: LEVELS tensors [ROWS, WIDTH]."""
    if LEVELS == 1:
        return (tl.full((ROWS, WIDTH), _floor(KIND), KIND),)
    else:  # noqa: RET505  (both branches are compiled where there is no else)
        return _lowest(ROWS, LEVELS // 2, WIDTH, KIND) + _lowest(ROWS, LEVELS // 2, WIDTH, KIND)


@_kernel
def _floor(KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """No sum is lower."""
    if KIND.is_int():
        return -(2**31)
    else:  # noqa: RET505
        return float("-inf")


@_kernel
def _split(W, ROWS: tl.constexpr, LEVELS: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """W [ROWS, LEVELS * WIDTH], levels outermost, as LEVELS tensors [ROWS, WIDTH]."""
    if LEVELS == 1:
        return (W,)
    else:  # noqa: RET505
        halves = tl.permute(tl.reshape(W, (ROWS, 2, LEVELS // 2 * WIDTH)), (0, 2, 1))
        upper, lower = tl.split(halves)
        return _split(upper, ROWS, LEVELS // 2, WIDTH) + _split(lower, ROWS, LEVELS // 2, WIDTH)


@_kernel
def _align(before, W, best, active, ROWS: tl.constexpr, LEVELS: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """One more segment: the maxima `best` of LEVELS steps after it, `before` being that of the step before them."""
    pieces = _split(W, ROWS, LEVELS, WIDTH)
    after = ()
    for level in tl.static_range(LEVELS):
        reached = tl.where(active, pieces[level] + before, _floor(W.dtype))
        before = tl.maximum(best[level], reached)
        after = after + (before,)  # type: ignore[assignment]  # noqa: RUF005
    return after


@_kernel
def _segment(  # type: ignore[no-untyped-def]
    head_W,
    tail_W,
    head_best,
    tail_best,
    parent,
    active,
    ROWS: tl.constexpr,
    HEAD_LEVELS: tl.constexpr,
    HEADS: tl.constexpr,
    TAIL_LEVELS: tl.constexpr,
    TAILS: tl.constexpr,
):
    """One more segment of each narration that has one: the maxima of heads and tails after it."""
    before = tl.zeros((ROWS, TAILS), tail_W.dtype)
    if HEADS:
        none = tl.zeros((ROWS, HEADS), tail_W.dtype)
        head_best = _align(none, head_W, head_best, active, ROWS, HEAD_LEVELS, HEADS)
        before = tl.gather(head_best[HEAD_LEVELS - 1], parent, 1)
    return head_best, _align(before, tail_W, tail_best, active, ROWS, TAIL_LEVELS, TAILS)


@_kernel
def coverage(  # type: ignore[no-untyped-def]
    vectors,
    offsets,
    members,
    steps,
    heads,
    tails,
    parents,
    queries,
    sums,
    blocks,
    total,
    D,
    ROWS: tl.constexpr,
    DEPTH: tl.constexpr,
    HEAD_LEVELS: tl.constexpr,
    HEADS: tl.constexpr,
    TAIL_LEVELS: tl.constexpr,
    TAILS: tl.constexpr,
    PAIRED: tl.constexpr,
):
    """Write M A_mono of every query with every narration into sums [N, Q]; grid: groups x blocks of steps.

    vectors [S, D], int8 (sums int32) or 16-bit floats (sums float32); offsets int64 [N + 1]: the narrations' first
    rows; members int32 [groups, ROWS]: narrations, -1 for none; steps [U, D] of the vectors' kind; heads, tails int32
    [B, levels, width]: rows of `steps`, -1 for zeros; parents int32 [B, TAILS]: the head of each tail; queries int32
    [B, TAILS]: its column in sums, -1 for none; blocks = B; total = Q; D a multiple of DEPTH. PAIRED: steps that
    were brought are multiplied with two segments of each narration, which takes as many registers more.
    """
    KIND: tl.constexpr = sums.dtype.element_ty
    HEAD_COLUMNS: tl.constexpr = HEAD_LEVELS * HEADS
    TAIL_COLUMNS: tl.constexpr = TAIL_LEVELS * TAILS
    group = tl.program_id(0) // blocks  # neighbours share the segments, which the second level of cache then holds
    block = tl.program_id(0) % blocks
    narration = tl.load(members + group * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    here = narration >= 0
    begin = tl.load(offsets + narration, mask=here, other=0)
    length = (tl.load(offsets + narration + 1, mask=here, other=0) - begin).to(tl.int32)
    depth = tl.arange(0, DEPTH)
    SHAPE: tl.constexpr = (ROWS, TAIL_COLUMNS)
    HEAD_SHAPE: tl.constexpr = (ROWS, HEAD_COLUMNS if HEADS else 1)
    SPAN: tl.constexpr = 2 if PAIRED else 1
    tail_steps = tl.load(tails + block * TAIL_COLUMNS + tl.arange(0, TAIL_COLUMNS))
    tail_best = _lowest(ROWS, TAIL_LEVELS, TAILS, KIND)
    tail_W, tail_next = tl.zeros(SHAPE, KIND), tl.zeros(SHAPE, KIND)
    head_W, head_next = tl.zeros(HEAD_SHAPE, KIND), tl.zeros(HEAD_SHAPE, KIND)
    head_best, parent = (), 0
    if HEADS:
        head_steps = tl.load(heads + block * HEAD_COLUMNS + tl.arange(0, HEAD_COLUMNS))
        parent = tl.load(parents + block * TAILS + tl.arange(0, TAILS))[None, :] + tl.zeros((ROWS, TAILS), tl.int32)
        head_best = _lowest(ROWS, HEAD_LEVELS, HEADS, KIND)
    parts = D // DEPTH
    for turn in range(tl.cdiv(tl.max(length, 0), SPAN) * parts):  # one loop: loads never wait for a segment's end
        k = turn // parts * SPAN
        j = turn % parts * DEPTH
        active, following = (k < length)[:, None], (k + 1 < length)[:, None]
        place = vectors + (begin + k)[:, None] * D + (j + depth)[None, :]
        x = tl.load(place, mask=active, other=0)
        q = tl.load(steps + tail_steps[None, :] * D + (j + depth)[:, None], mask=tail_steps[None, :] >= 0, other=0)
        tail_W = tl.dot(x, q, tail_W, out_dtype=KIND)
        if PAIRED:
            y = tl.load(place + D, mask=following, other=0)
            tail_next = tl.dot(y, q, tail_next, out_dtype=KIND)
        if HEADS:
            h = tl.load(steps + head_steps[None, :] * D + (j + depth)[:, None], mask=head_steps[None, :] >= 0, other=0)
            head_W = tl.dot(x, h, head_W, out_dtype=KIND)
            if PAIRED:
                head_next = tl.dot(y, h, head_next, out_dtype=KIND)
        if j == D - DEPTH:
            # fmt: off
            head_best, tail_best = _segment(
                head_W, tail_W, head_best, tail_best, parent, active, ROWS, HEAD_LEVELS, HEADS, TAIL_LEVELS, TAILS
            )
            head_W, tail_W = tl.zeros(HEAD_SHAPE, KIND), tl.zeros(SHAPE, KIND)
            if PAIRED:
                head_best, tail_best = _segment(
                    head_next, tail_next, head_best, tail_best, parent, following,
                    ROWS, HEAD_LEVELS, HEADS, TAIL_LEVELS, TAILS,
                )
                head_next, tail_next = tl.zeros(HEAD_SHAPE, KIND), tl.zeros(SHAPE, KIND)
            # fmt: on
    query = tl.load(queries + block * TAILS + tl.arange(0, TAILS))
    where = sums + narration[:, None] * total + query[None, :]
    tl.store(where, tail_best[TAIL_LEVELS - 1], mask=here[:, None] & (query[None, :] >= 0))
