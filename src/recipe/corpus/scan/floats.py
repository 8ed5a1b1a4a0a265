"""A_mono in one pass over the stored float16 vectors, and the choice among approximate scores, by Numba.

The vectors are widened in registers to the type of the steps, float32 for a scan of everything or float64 for a few
narrations: half the bytes of a float32 copy are read and no copy is needed. Dot products are explicit vectors of eight
lanes, two segments by four steps at a time. Each is the same chain of fused multiply-adds wherever its row lies, so
equal rows score equally.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from recipe.alignment.cpu import compiled

Steps = NDArray[np.float32] | NDArray[np.float64]

LANES = 8
STEPS = 4
"""Steps in a tile: the caller pads the queries with zero rows to a multiple of it."""
# Segments whose similarities are held, in the first cache, until the dynamic programme takes them.
_SEGMENTS_AT_ONCE = 32

_INT = ir.IntType(64)
_HALVES = ir.VectorType(ir.HalfType(), LANES)
# LLVM's type, its short name and its size.
_NUMBERS = {types.float32: (ir.FloatType(), "f32", 4), types.float64: (ir.DoubleType(), "f64", 8)}


def _tile(typing_context: Any, steps: Any, x0: Any, x1: Any, first: Any, d: Any, w0: Any, w1: Any) -> Any:
    """Dot products of float16 rows at x0 and x1 with four rows of `steps` from the address `first`, to w0 and w1.

    `steps` gives the type of the sums; all but `d` are addresses; the first d - d % 8 dimensions count.
    """
    number, short, size = _NUMBERS[steps.dtype]
    vector = ir.VectorType(number, LANES)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, x0, x1, first, d, w0, w1 = arguments
        rows = [builder.inttoptr(x, ir.IntType(16).as_pointer()) for x in (x0, x1)]
        queries = builder.inttoptr(first, number.as_pointer())
        sums = [[cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for _ in range(STEPS)] for _ in rows]
        # Fused, in a fixed order of lanes: a score depends on its own rows alone, whatever the threads.
        fma = _llvm(builder, f"llvm.fma.v{LANES}{short}", vector, [vector] * 3)
        whole = builder.sub(d, builder.urem(d, _INT(LANES)))
        with cgutils.for_range_slice(builder, _INT(0), whole, _INT(LANES), intp=_INT) as (j, _):
            wide = [builder.fpext(_load(builder, row, j, _HALVES, 2), vector) for row in rows]
            for step in range(STEPS):
                at = builder.add(builder.mul(_INT(step), d), j)
                query = _load(builder, queries, at, vector, size)
                for row, x in enumerate(wide):
                    total = builder.call(fma, [x, query, builder.load(sums[row][step])])
                    builder.store(total, sums[row][step])
        add = _llvm(builder, f"llvm.vector.reduce.fadd.v{LANES}{short}", number, [number, vector])
        for row, address in enumerate((w0, w1)):
            target = builder.inttoptr(address, number.as_pointer())
            for step in range(STEPS):
                lanes = builder.load(sums[row][step])
                # -0.0 + x is x for every x; pairs of lanes may be joined in any order, which is fixed once compiled.
                total = builder.call(add, [ir.Constant(number, -0.0), lanes], fastmath=("reassoc",))
                builder.store(total, builder.gep(target, [_INT(step)]))
        return context.get_dummy_value()

    return types.void(steps, *[types.int64] * 6), generate


def _load(builder: Any, pointer: Any, index: Any, kind: Any, align: int) -> Any:
    return builder.load(builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer()), align=align)


def _llvm(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


def _widen(typing_context: Any, bits: Any) -> Any:
    """The float32 of a float16 given as its 16 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


_tile_dots = intrinsic(_tile)
_from_half = intrinsic(_widen)


@compiled
def products(bits: NDArray[np.uint16], first: int, last: int, queries: Steps, W: Steps) -> None:
    """Write the dot products of the rows first:last of bits [S, d] with those of queries [n, d] to W [>= S, n].

    n is a multiple of `STEPS`; all are contiguous.
    """
    padded, d = queries.shape
    size = queries.itemsize
    x, q, w = bits.ctypes.data, queries.ctypes.data, W.ctypes.data
    for k in range(first, last, 2):
        pair = min(k + 1, last - 1)
        x0, x1 = x + k * d * 2, x + pair * d * 2
        for i in range(0, padded, STEPS):
            w0, w1 = w + ((k - first) * padded + i) * size, w + ((pair - first) * padded + i) * size
            _tile_dots(queries, x0, x1, q + i * d * size, d, w0, w1)
    for k in range(first, last):
        for j in range(d - d % LANES, d):
            component = _from_half(bits[k, j])
            for i in range(padded):
                W[k - first, i] += queries[i, j] * component


@compiled
def products_of_narrations(
    bits: NDArray[np.uint16],
    offsets: NDArray[np.int64],
    narrations: NDArray[np.int64],
    starts: NDArray[np.int64],
    queries: Steps,
    W: Steps,
) -> None:
    """The same for all segments of the narrations [P], with rows in W from starts [P] on; offsets: as of `coverage`."""
    for p in range(len(narrations)):
        n = narrations[p]
        products(bits, offsets[n], offsets[n + 1], queries, W[starts[p] :])


@compiled
def coverage(
    bits: NDArray[np.uint16],
    offsets: NDArray[np.int64],
    queries: Steps,
    steps: int,
    first: int,
    last: int,
    scores: Steps,
) -> None:
    """Write A_mono of the steps with the narrations first:last into scores [N].

    bits: the float16 vectors of these narrations as uint16 [S, d]; offsets [N + 1]: the narrations' rows, none empty,
    of which bits begins at offsets[first]; queries [>= steps, d]: the steps, padded with zero rows to a multiple of
    `STEPS`, float32 or float64 as the scores; all contiguous.
    """
    padded = len(queries)
    zero = queries.dtype.type(0)
    best = np.full(padded, -np.inf, queries.dtype)  # best[i]: the maximum of D[i, k] over the segments so far
    W = np.empty((_SEGMENTS_AT_ONCE, padded), queries.dtype)
    n, origin, end = first, offsets[first], offsets[last]
    for start in range(origin, end, _SEGMENTS_AT_ONCE):
        stop = min(start + _SEGMENTS_AT_ONCE, end)
        products(bits, start - origin, stop - origin, queries, W)
        for k in range(start, stop):
            reached = zero
            # Eq. 3 with segments outermost: `reached` is max_{k' <= k} D[i - 1, k'], of no step at first.
            for i in range(steps):
                reached = max(best[i], W[k - start, i] + reached)
                best[i] = reached
            if k + 1 == offsets[n + 1]:
                scores[n] = reached / queries.dtype.type(steps)
                # Similarities may be negative, so that 0 is no start for a maximum.
                best[:] = -np.inf
                n += 1


@compiled
def coverage_of_pairs(
    bits: NDArray[np.uint16],
    offsets: NDArray[np.int64],
    queries: NDArray[np.float64],
    lengths: NDArray[np.int64],
    narrations: NDArray[np.int64],
    owners: NDArray[np.int64],
    scores: NDArray[np.float64],
) -> None:
    """Write A_mono of the queries `owners` [P] with the narrations [P] to scores [P].

    bits, offsets: as of `coverage`, from the first narration on; queries [Q, >= M, d], zero beyond their lengths [Q].
    """
    score = np.empty(len(offsets) - 1)
    for p in range(len(narrations)):
        n, q = narrations[p], owners[p]
        rows = bits[offsets[n] : offsets[n + 1]]
        coverage(rows, offsets, queries[q], lengths[q], n, n + 1, score)
        scores[p] = score[n]


@compiled
def best(sums: NDArray[np.int32] | NDArray[np.float32], scales: NDArray[np.float64], chosen: NDArray[np.int64]) -> None:
    """Write to chosen [Q, k] the narrations of the highest sums [N, >= Q] times scales [N], k <= N."""
    queries, k = chosen.shape
    values = np.full((queries, k), -np.inf)
    for n in range(len(scales)):
        for q in range(queries):
            value = sums[n, q] * scales[n]
            # By insertion: k is small, and few of millions get so far.
            if value > values[q, k - 1]:
                i = k - 1
                while i > 0 and values[q, i - 1] < value:
                    values[q, i], chosen[q, i] = values[q, i - 1], chosen[q, i - 1]
                    i -= 1
                values[q, i], chosen[q, i] = value, n


@compiled
def reaching(
    sums: NDArray[np.int32] | NDArray[np.float32],
    scales: NDArray[np.float64],
    factors: NDArray[np.float64],
    bounds: NDArray[np.float64],
    weights: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    narrations: NDArray[np.int64],
    queries: NDArray[np.int64],
) -> int:
    """Count the pairs whose sum * scale [N] * factor [Q] + bounds [N, 2] . weights [Q, 2] reaches its threshold [Q].

    As many as fit are written to narrations and queries, narration by narration.
    """
    count = 0
    for n in range(len(scales)):
        for q in range(len(factors)):
            reach = sums[n, q] * scales[n] * factors[q] + bounds[n, 0] * weights[q, 0] + bounds[n, 1] * weights[q, 1]
            if reach >= thresholds[q]:
                # Counted beyond what fits: the caller then knows the room that it needs.
                if count < len(narrations):
                    narrations[count], queries[count] = n, q
                count += 1
    return count
