"""Stage 1 over codes in one pass: tiles of integer similarities and, before they leave the cache, A_mono's programme.

Sums of integers have no rounding, so that a narration's sum is the same on every path, in every tile and on every
thread: M A_mono of the codes, to be scaled by one number a narration and one a batch of queries.

Products are explicit vectors of LLVM. The type of the packed steps says which instructions are used: int32 (four 8-bit
numbers in one) and uint8 for AVX512-VNNI, int16 (two in one) for AVX2, int8 for whatever LLVM makes of plain vectors.
They stand in one module with the kernels that call them, because a compiled kernel on disk is renewed when its own
module changes.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from llvmlite.binding import llvm_version_info
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from recipe.alignment.cpu import compiled

Packed = NDArray[Any]

ROWS, STEPS = 4, 4
"""Segments and steps of a tile of `tile_dots`."""
PANEL_ROWS, PANEL_GROUPS, LANES = 8, 3, 16
"""Segments and groups of `LANES` steps of a panel of `panel_dots`."""

_LINE = 64
# Bytes between what is read and what is asked for from memory: more than arrives while a tile is computed.
_AHEAD = 16 << 10

IN_ORDER, IN_BLOCK, SCATTERED = 0, 1, 2
"""How 16 columns lie: one block of 16 from its first to its last, within one block, or anywhere."""

# Below every sum; with any similarity added still within 32 bits.
_LOWEST = -(1 << 30)

_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_SUMS = ir.VectorType(_I32, LANES)
_BYTES = ir.VectorType(_I8, 4 * LANES)


class _Flavour(NamedTuple):
    """How an instruction set multiplies: components and rows taken at once, the type of the sums, and the product."""

    width: int
    rows: int
    sums: Any
    multiply: Any


def _vector(builder: Any, address: Any, kind: Any, align: int = 1) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=align)


def _call(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    kinds = [argument.type for argument in arguments]
    return builder.call(cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, kinds), name), arguments)


def _sum_products(builder: Any, total: Any, unsigned: Any, signed: Any) -> Any:
    """Four products of bytes in each lane, added to `total`, by AVX512-VNNI."""
    if llvm_version_info < (22, 0, 0):  # takes the bytes as the 32-bit lanes that they are in
        unsigned, signed = (builder.bitcast(vector, _SUMS) for vector in (unsigned, signed))
    return _call(builder, "llvm.x86.avx512.vpdpbusd.512", _SUMS, [total, unsigned, signed])


def _vpdpbusd(builder: Any, total: Any, x: Any, step: Any) -> Any:
    """The same from signed codes, which the instruction takes as unsigned: flipping the sign bit adds 128."""
    unsigned = builder.xor(x, ir.Constant(x.type, [-128] * x.type.count))
    return _sum_products(builder, total, unsigned, step)


def _pmaddubsw(builder: Any, total: Any, x: Any, step: Any) -> Any:
    """Four products of bytes in each lane, added to `total`, by AVX2; the codes as in `_vpdpbusd`.

    Two of them are first added in 16 bits: `Queries.quantised` chooses codes of steps for which the sum fits.
    """
    unsigned = builder.xor(x, ir.Constant(x.type, [-128] * x.type.count))
    words = ir.VectorType(_I16, x.type.count // 2)
    pairs = _call(builder, "llvm.x86.avx2.pmadd.ub.sw", words, [unsigned, step])
    ones = ir.Constant(words, [1] * words.count)
    return builder.add(total, _call(builder, "llvm.x86.avx2.pmadd.wd", total.type, [pairs, ones]))


def _plain(builder: Any, total: Any, x: Any, step: Any) -> Any:
    return builder.add(total, builder.mul(builder.sext(x, total.type), builder.sext(step, total.type)))


_FLAVOURS = {
    types.int32: _Flavour(64, 4, _SUMS, _vpdpbusd),
    types.int16: _Flavour(32, 2, ir.VectorType(_I32, 8), _pmaddubsw),
    types.int8: _Flavour(8, 2, ir.VectorType(_I32, 8), _plain),
}


def _tile(typing_context: Any, kind: Any, x: Any, steps: Any, d: Any, starts: Any, w: Any) -> Any:
    """Dot products of four rows of codes with four rows of steps, added to `starts` and written to w as int32.

    kind: an array whose type chooses the instructions; x, w: four addresses each; steps: address of int8 [4, d], d a
    multiple of 64; starts: of int32 [4].
    """
    flavour = _FLAVOURS[kind.dtype]
    components = ir.VectorType(_I8, flavour.width)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, x, steps, d, starts, w = arguments
        first = _vector(builder, starts, ir.VectorType(_I32, STEPS), 4)
        # As many sums as fit the registers at once: 16 of 512 bits with VNNI, 8 of 256 without.
        for part in range(0, ROWS, flavour.rows):
            rows = [builder.extract_value(x, row) for row in range(part, part + flavour.rows)]
            # A tile of rows and steps, so that each code that is loaded is multiplied by four steps.
            sums = [
                [cgutils.alloca_once_value(builder, ir.Constant(flavour.sums, None)) for _ in range(STEPS)]
                for _ in rows
            ]
            with cgutils.for_range_slice(builder, _I64(0), d, _I64(flavour.width), intp=_I64) as (j, _):
                codes = [_vector(builder, builder.add(row, j), components) for row in rows]
                if flavour.width == _LINE:
                    _prefetch(builder, builder.add(rows[0], builder.mul(j, _I64(ROWS))))
                for step in range(STEPS):
                    at = builder.add(builder.mul(_I64(step), d), j)
                    query = _vector(builder, builder.add(steps, at), components)
                    for code, total in zip(codes, sums, strict=True):
                        builder.store(flavour.multiply(builder, builder.load(total[step]), code, query), total[step])
            products = _lane_sums(builder, [builder.load(slot) for row in sums for slot in row])
            for row in range(flavour.rows):
                pick = ir.Constant(ir.VectorType(_I32, STEPS), [row * STEPS + step for step in range(STEPS)])
                value = builder.add(builder.shuffle_vector(products, products, pick), first)
                target = builder.inttoptr(builder.extract_value(w, part + row), value.type.as_pointer())
                builder.store(value, target, align=4)
        return context.get_dummy_value()

    four = types.UniTuple(types.int64, ROWS)
    return types.void(kind, four, types.int64, types.int64, types.int64, four), generate


def _prefetch(builder: Any, address: Any) -> Any:
    """Ask for as many cache lines as a tile has rows, `_AHEAD` bytes on, in the order of memory.

    The rows of a tile are read side by side, which the processor does not take for the one stream that they are.
    """
    for line in range(ROWS):
        at = builder.inttoptr(builder.add(address, _I64(_AHEAD + line * _LINE)), _I8.as_pointer())
        hints = [_I32(0), _I32(2), _I32(1)]  # to read, into the second cache, data
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), [at, *hints])


def _lane_sums(builder: Any, vectors: list[Any]) -> Any:
    """The sum of each vector's lanes, in a vector: neighbours are added and two vectors' halves joined, repeatedly."""
    while len(vectors) > 1:
        lanes = ir.VectorType(_I32, vectors[0].type.count)
        even, odd = (ir.Constant(lanes, list(range(start, 2 * lanes.count, 2))) for start in (0, 1))
        vectors = [
            builder.add(builder.shuffle_vector(a, b, even), builder.shuffle_vector(a, b, odd))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    (sums,) = vectors
    return sums


def _panel(typing_context: Any, x: Any, d: Any, count: Any, steps: Any, excess: Any, w: Any, stride: Any) -> Any:
    """Dot products of up to eight rows of codes at x with groups of 16 steps, by AVX512-VNNI, written to w.

    steps: address of uint8 [groups, d / 4, 16, 4], the step's codes + 128; excess: of int32 [8], what those 128 add to
    each row's products; w: of int32, rows `stride` bytes apart. Rows from `count` on repeat the last.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, d, count, steps, excess, w, stride = arguments
        last = builder.sub(count, _I64(1))
        rows = [builder.select(builder.icmp_signed("<", _I64(r), last), _I64(r), last) for r in range(PANEL_ROWS)]
        addresses = [builder.add(x, builder.mul(row, d)) for row in rows]
        sums = []
        for r in range(PANEL_ROWS):
            # The steps are unsigned here: their 128 too much, times the row's codes, is taken off at the start.
            start = _splat(builder, builder.neg(_vector(builder, builder.add(excess, _I64(4 * r)), _I32, 4)))
            sums.append([cgutils.alloca_once_value(builder, start) for _ in range(PANEL_GROUPS)])
        with cgutils.for_range_slice(builder, _I64(0), d, _I64(4), intp=_I64) as (j, _):
            queries = []
            for g in range(PANEL_GROUPS):
                at = builder.mul(builder.add(builder.mul(d, _I64(g)), j), _I64(LANES))
                queries.append(_vector(builder, builder.add(steps, at), _BYTES, 64))
            for r in range(PANEL_ROWS):
                four = _splat(builder, _vector(builder, builder.add(addresses[r], j), _I32))
                same = builder.bitcast(four, _BYTES)
                for g in range(PANEL_GROUPS):
                    total = _sum_products(builder, builder.load(sums[r][g]), queries[g], same)
                    builder.store(total, sums[r][g])
        for r in range(PANEL_ROWS):
            for g in range(PANEL_GROUPS):
                at = builder.add(builder.mul(_I64(r), stride), _I64(4 * LANES * g))
                target = builder.inttoptr(builder.add(w, at), _SUMS.as_pointer())
                builder.store(builder.load(sums[r][g]), target, align=64)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), generate


def _splat(builder: Any, value: Any) -> Any:
    none = ir.Constant(_SUMS, ir.Undefined)
    first = builder.insert_element(none, value, _I32(0))
    return builder.shuffle_vector(first, none, ir.Constant(_SUMS, [0] * LANES))


def _advance(
    typing_context: Any, steps: Any, w: Any, columns: Any, kinds: Any, count: Any, best: Any, fresh: Any, out: Any
) -> Any:
    """Take one segment into the programme of A_mono of 16 queries, in integers.

    steps: the array of packed steps, whose type chooses the instructions; w: address of the segment's similarities,
    int32; columns: of int32 [count, 16], where in w each query's steps are; kinds: of int32 [count], how the 16 lie;
    best: of int32 [count, 16], the maximum of D[i, k] over the segments so far, updated; fresh: not 0 at a narration's
    first segment, where best holds nothing yet; out: of int32 [16], the last row of best.
    """
    permutes = steps.dtype == types.uint8

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, w, columns, kinds, count, best, fresh, out = arguments
        zero = ir.Constant(_SUMS, None)
        begins = builder.icmp_signed("!=", fresh, _I64(0))
        reached = cgutils.alloca_once_value(builder, zero)
        similarities = cgutils.alloca_once_value(builder, zero)
        with cgutils.for_range(builder, count, intp=_I64) as loop:
            at = builder.mul(loop.index, _I64(4 * LANES))
            places = _vector(builder, builder.add(columns, at), _SUMS, 64)
            kind = _vector(builder, builder.add(kinds, builder.mul(loop.index, _I64(4))), _I32, 4)
            whole = builder.icmp_signed("<", kind, _I32(SCATTERED if permutes else IN_BLOCK))
            with builder.if_else(whole, likely=True) as (together, apart):
                with together:
                    first = builder.and_(builder.extract_element(places, _I32(0)), _I32(-LANES))
                    here = builder.add(w, builder.shl(builder.zext(first, _I64), _I64(2)))
                    block = _vector(builder, here, _SUMS, 64)
                    if permutes:
                        block = _call(builder, "llvm.x86.avx512.permvar.si.512", _SUMS, [block, places])
                    builder.store(block, similarities)
                with apart:
                    builder.store(_gathered(builder, w, places), similarities)
            slot = builder.inttoptr(builder.add(best, at), _SUMS.as_pointer())
            reach = builder.add(builder.load(reached), builder.load(similarities))
            # D of the narration before must not reach into this one; a select costs less than clearing the array.
            before = builder.select(begins, ir.Constant(_SUMS, [_LOWEST] * LANES), builder.load(slot, align=64))
            highest = _call(builder, f"llvm.smax.v{LANES}i32", _SUMS, [before, reach])
            builder.store(highest, slot, align=64)
            builder.store(highest, reached)
        builder.store(builder.load(reached), builder.inttoptr(out, _SUMS.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(steps, *[types.int64] * 7), generate


def _advance_single(typing_context: Any, w: Any, columns: Any, steps: Any, best: Any, fresh: Any) -> Any:
    """The same for one query, its last row returned; columns: address of int32 [steps]; best: of int32 [steps, 4].

    Only the first of four lanes counts, and three numbers after a column are read, too: the maximum of vectors is one
    instruction, where that of numbers would become a branch, which the processor mispredicts.
    """
    lanes = ir.VectorType(_I32, 4)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        w, columns, steps, best, fresh = arguments
        begins = builder.icmp_signed("!=", fresh, _I64(0))
        reached = cgutils.alloca_once_value(builder, ir.Constant(lanes, None))
        with cgutils.for_range(builder, steps, intp=_I64) as loop:
            column = _vector(builder, builder.add(columns, builder.mul(loop.index, _I64(4))), _I32, 4)
            place = builder.add(w, builder.shl(builder.zext(column, _I64), _I64(2)))
            slot = builder.inttoptr(builder.add(best, builder.mul(loop.index, _I64(16))), lanes.as_pointer())
            reach = builder.add(builder.load(reached), _vector(builder, place, lanes, 4))
            before = builder.select(begins, ir.Constant(lanes, [_LOWEST] * 4), builder.load(slot, align=4))
            highest = _call(builder, "llvm.smax.v4i32", lanes, [before, reach])
            builder.store(highest, slot, align=4)
            builder.store(highest, reached)
        return builder.extract_element(builder.load(reached), _I32(0))

    return types.int32(*[types.int64] * 5), generate


def _gathered(builder: Any, w: Any, places: Any) -> Any:
    values = ir.Constant(_SUMS, ir.Undefined)
    for lane in range(LANES):
        place = builder.shl(builder.zext(builder.extract_element(places, _I32(lane)), _I64), _I64(2))
        values = builder.insert_element(values, _vector(builder, builder.add(w, place), _I32, 4), _I32(lane))
    return values


tile_dots = intrinsic(_tile)
panel_dots = intrinsic(_panel)
advance = intrinsic(_advance)
advance_single = intrinsic(_advance_single)

TILE = 32
"""Segments whose similarities are held until the dynamic programme takes them."""


@compiled
def scan_single(
    codes: NDArray[np.int8],
    offsets: NDArray[np.int64],
    packed: Packed,
    starts: NDArray[np.int32],
    columns: NDArray[np.int32],
    first: int,
    last: int,
    sums: NDArray[np.int32],
) -> None:
    """Write the sums of few queries with the narrations first:last into sums [N, Q].

    codes int8 [S, D], row 0 being the first segment of narration `first`; offsets [N + 1], none empty; packed: rows of
    steps (`scores.prepare`); columns int32 [Q, M]: the row of each query's steps.
    """
    queries, steps = columns.shape
    # Similarities stay in the first cache: the whole W of a corpus would be written to memory and read back.
    W = np.empty((TILE + 1, len(packed)), np.int32)  # a row more, for what is read beyond the last column
    best = np.empty((queries, steps, 4), np.int32)
    w, c, b = W.ctypes.data, columns.ctypes.data, best.ctypes.data
    width, size, state = W.strides[0], columns.strides[0], best.strides[0]
    n, origin, end = first, offsets[first], offsets[last]
    for start in range(origin, end, TILE):
        stop = min(start + TILE, end)
        _dot_rows(codes, packed, starts, start - origin, stop - origin, W)
        for k in range(start, stop):
            for q in range(queries):
                row = w + (k - start) * width
                sums[n, q] = advance_single(row, c + q * size, steps, b + q * state, k == offsets[n])
            if k + 1 == offsets[n + 1]:
                n += 1


@compiled
def scan_batch(
    codes: NDArray[np.int8],
    offsets: NDArray[np.int64],
    packed: Packed,
    starts: NDArray[np.int32],
    columns: NDArray[np.int32],
    kinds: NDArray[np.int32],
    W: NDArray[np.int32],
    best: NDArray[np.int32],
    first: int,
    last: int,
    sums: NDArray[np.int32],
) -> None:
    """The same for many queries: sums [N, 16 B], columns int32 [B, M, 16] and kinds int32 [B, M] as of `advance`.

    packed: rows or panels of steps (`scores.prepare`); W int32 [TILE, columns] and best int32 [B, M, 16] are scratch on
    cache lines.
    """
    groups, steps = columns.shape[:2]
    width = steps * LANES * 4
    n, origin, end = first, offsets[first], offsets[last]
    for start in range(origin, end, TILE):
        stop = min(start + TILE, end)
        if packed.ndim == 4:
            _dot_panels(codes, packed, start - origin, stop - origin, W)
        else:
            _dot_rows(codes, packed, starts, start - origin, stop - origin, W)
        for k in range(start, stop):
            w, out = W[k - start :].ctypes.data, sums[n:].ctypes.data
            c, f, b, fresh = columns.ctypes.data, kinds.ctypes.data, best.ctypes.data, k == offsets[n]
            for _ in range(groups):
                advance(packed, w, c, f, steps, b, fresh, out)
                c, f, b, out = c + width, f + steps * 4, b + width, out + LANES * 4
            if k + 1 == offsets[n + 1]:
                n += 1


@compiled
def _dot_rows(
    codes: NDArray[np.int8], packed: Packed, starts: NDArray[np.int32], first: int, last: int, W: NDArray[np.int32]
) -> None:
    d = codes.shape[1]
    x, q, s, w = codes.ctypes.data, packed.ctypes.data, starts.ctypes.data, W.ctypes.data
    size, width = packed.strides[0], W.strides[0]
    for k in range(first, last, ROWS):
        # Rows beyond the last repeat it: a tile has no branch for its end, and the results are written to the same
        # place.
        k1, k2, k3 = min(k + 1, last - 1), min(k + 2, last - 1), min(k + 3, last - 1)
        rows = (x + k * d, x + k1 * d, x + k2 * d, x + k3 * d)
        for i in range(0, len(packed), STEPS):
            to = w + i * 4 - first * width
            out = (to + k * width, to + k1 * width, to + k2 * width, to + k3 * width)
            tile_dots(packed, rows, q + i * size, d, s + i * 4, out)


@compiled
def _dot_panels(codes: NDArray[np.int8], packed: Packed, first: int, last: int, W: NDArray[np.int32]) -> None:
    d = codes.shape[1]
    x, q, w = codes.ctypes.data, packed.ctypes.data, W.ctypes.data
    stride = W.strides[0]
    excess = np.empty(TILE, np.int32)
    for k in range(first, last):
        total = np.int32(0)
        for j in range(d):
            total += np.int32(codes[k, j])
        excess[k - first] = 128 * total
    e = excess.ctypes.data
    for group in range(0, len(packed), PANEL_GROUPS):
        steps, out = q + group * LANES * d, w + group * LANES * 4
        for row in range(0, last - first, PANEL_ROWS):
            rows = min(PANEL_ROWS, last - first - row)
            panel_dots(x + (first + row) * d, d, rows, steps, e + row * 4, out + row * stride, stride)
