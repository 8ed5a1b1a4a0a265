"""Stage 1 in one pass over the corpus: dot products and the dynamic programme of A_mono, compiled with Numba."""

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray


@intrinsic  # type: ignore[untyped-decorator]
def _from_half(typing_context, bits):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """The float32 of a float16 given as its 16 bits: one machine instruction, which Numba does not offer."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]  # noqa: ARG001
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(types.uint16), generate


@numba.njit(nogil=True, fastmath={"reassoc", "contract", "nsz"}, error_model="numpy", cache=True)
def coverage(
    bits: NDArray[np.uint16],
    offsets: NDArray[np.int64],
    queries: NDArray[np.float32],
    first: int,
    last: int,
    scores: NDArray[np.float32],
) -> None:
    """Write A_mono of the steps with each of the narrations first:last into scores [N].

    bits [S, d] are the float16 embeddings as uint16, offsets [N + 1] the narrations' rows, queries [M, d] the steps.
    """
    M, d = queries.shape
    best = np.empty(M, np.float32)  # best[i] = max over the segments so far of D[i, k]
    W = np.empty(M, np.float32)
    x = np.empty(d, np.float32)
    for n in range(first, last):
        best[:] = -np.inf
        for k in range(offsets[n], offsets[n + 1]):
            for j in range(d):
                x[j] = _from_half(bits[k, j])
            for i in range(M):
                dot = np.float32(0)
                for j in range(d):
                    dot += queries[i, j] * x[j]
                W[i] = dot
            reached = np.float32(0)
            for i in range(M):
                reached = max(best[i], W[i] + reached)
                best[i] = reached
        scores[n] = best[M - 1] / np.float32(M)
