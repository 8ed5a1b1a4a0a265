"""Stage 1 in one pass over the stored float16 vectors: dot products and the programme of A_mono, by Numba.

The vectors are widened to float32 in registers, so that a scan reads half the bytes of a float32 copy and
needs none. Dot products are written as explicit vectors of eight lanes, two segments by four steps at a
time, which LLVM maps to whatever the machine has. Each is the same chain of fused multiply-adds wherever
its row lies: equal rows score equally.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from recipe.alignment.compilation import compiled

LANES = 8
STEPS = 4
"""Steps in a tile: the caller pads the queries with zero rows to a multiple of it."""
_ROWS = 32
"""Segments whose similarities are held, in the first cache, until the dynamic programme takes them."""

_INT = ir.IntType(64)
_FLOAT = ir.FloatType()
_FLOATS = ir.VectorType(_FLOAT, LANES)
_HALVES = ir.VectorType(ir.HalfType(), LANES)


def _tile(typing_context: Any, x0: Any, x1: Any, steps: Any, d: Any, w0: Any, w1: Any) -> Any:
    """Dot products of float16 rows at x0 and x1 with four float32 rows at `steps`, written to w0 and w1.

    All but `d` are addresses; the first d - d % 8 dimensions count.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x0, x1, steps, d, w0, w1 = arguments
        rows = [builder.inttoptr(x, ir.IntType(16).as_pointer()) for x in (x0, x1)]
        queries = builder.inttoptr(steps, _FLOAT.as_pointer())
        zero = ir.Constant(_FLOATS, None)
        sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(STEPS)] for _ in rows]
        fma = _llvm(builder, f"llvm.fma.v{LANES}f32", _FLOATS, [_FLOATS] * 3)
        whole = builder.sub(d, builder.urem(d, _INT(LANES)))
        with cgutils.for_range_slice(builder, _INT(0), whole, _INT(LANES), intp=_INT) as (j, _):
            wide = [builder.fpext(_load(builder, row, j, _HALVES, 2), _FLOATS) for row in rows]
            for step in range(STEPS):
                at = builder.add(builder.mul(_INT(step), d), j)
                query = _load(builder, queries, at, _FLOATS, 4)
                for row, x in enumerate(wide):
                    total = builder.call(fma, [x, query, builder.load(sums[row][step])])
                    builder.store(total, sums[row][step])
        add = _llvm(builder, f"llvm.vector.reduce.fadd.v{LANES}f32", _FLOAT, [_FLOAT, _FLOATS])
        for row, address in enumerate((w0, w1)):
            target = builder.inttoptr(address, _FLOAT.as_pointer())
            for step in range(STEPS):
                lanes = builder.load(sums[row][step])
                total = builder.call(add, [ir.Constant(_FLOAT, -0.0), lanes], fastmath=("reassoc",))
                builder.store(total, builder.gep(target, [_INT(step)]))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), generate


def _load(builder: Any, pointer: Any, index: Any, kind: Any, align: int) -> Any:
    return builder.load(builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer()), align=align)


def _llvm(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


def _widen(typing_context: Any, bits: Any) -> Any:
    """The float32 of a float16 given as its 16 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), _FLOAT)

    return types.float32(types.uint16), generate


_tile_dots = intrinsic(_tile)
_from_half = intrinsic(_widen)


@compiled
def coverage(
    bits: NDArray[np.uint16],
    offsets: NDArray[np.int64],
    queries: NDArray[np.float32],
    steps: int,
    first: int,
    last: int,
    scores: NDArray[np.float32],
) -> None:
    """Write A_mono of the steps with each of the narrations first:last into scores [N].

    bits [S, d]: the float16 vectors as uint16; offsets [N + 1]: the narrations' rows, none empty; queries
    [>= steps, d]: the steps, padded with zero rows to a multiple of `STEPS`; all contiguous.
    """
    padded, d = queries.shape
    best = np.full(padded, -np.inf, np.float32)  # best[i]: the maximum of D[i, k] over the segments so far
    W = np.empty((_ROWS, padded), np.float32)
    x, q, w = bits.ctypes.data, queries.ctypes.data, W.ctypes.data
    n, end = first, offsets[last]
    for start in range(offsets[first], end, _ROWS):
        stop = min(start + _ROWS, end)
        for k in range(start, stop, 2):
            pair = min(k + 1, stop - 1)
            for i in range(0, padded, STEPS):
                w0, w1 = w + ((k - start) * padded + i) * 4, w + ((pair - start) * padded + i) * 4
                _tile_dots(x + k * d * 2, x + pair * d * 2, q + i * d * 4, d, w0, w1)
        for k in range(start, stop):
            for j in range(d - d % LANES, d):
                component = _from_half(bits[k, j])
                for i in range(steps):
                    W[k - start, i] += queries[i, j] * component
            if k == offsets[n + 1]:
                scores[n] = best[steps - 1] / np.float32(steps)
                best[:] = -np.inf
                n += 1
            reached = np.float32(0)
            for i in range(steps):
                reached = max(best[i], W[k - start, i] + reached)
                best[i] = reached
    scores[n] = best[steps - 1] / np.float32(steps)
