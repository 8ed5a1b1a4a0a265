"""What the machine can do at best, measured in the same run as what is compared with it."""

import math
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
import torch
from llvmlite import ir
from measure import once
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

_ACCUMULATORS = 12
"""Independent sums: enough to hide the latency of a dot product, few enough to stay in registers."""
_LANES = ir.VectorType(ir.IntType(32), 16)
_BYTES = ir.VectorType(ir.IntType(8), 64)


def measure_limits(threads: int, gigabytes: float, side: int) -> dict[str, float]:
    """GB/s read from memory; GFLOP/s and GOP/s of matrix products [side, side] and of int8 dot products.

    A limit that this processor has no instruction for is left out.
    """
    torch.set_num_threads(threads)
    limits = {"read_gb_per_s": _read_bandwidth(threads, gigabytes), **_products(threads, side)}
    if llvm.get_host_cpu_features().get("avx512vnni"):
        limits["int8_dot_gop_per_s"] = _int8_dots(threads)
    return limits


def _read_bandwidth(threads: int, gigabytes: float) -> float:
    numbers = np.ones(int(gigabytes * 1e9) // 8, dtype=np.int64)
    parts = np.array_split(numbers, threads)
    return numbers.nbytes / 1e9 / _seconds(lambda: _on_threads(_total, [(part,) for part in parts]), threads)


def _products(threads: int, side: int) -> dict[str, float]:
    floats = torch.randn(side, side)
    halves = floats.bfloat16()
    bytes_ = torch.randint(-127, 128, (side, side), dtype=torch.int8)
    operations = 2 * side**3 / 1e9
    return {
        "sgemm_gflop_per_s": operations / _seconds(lambda: torch.mm(floats, floats), threads),
        "torch_bf16_gflop_per_s": operations / _seconds(lambda: torch.mm(halves, halves), threads),
        "torch_int8_gop_per_s": operations / _seconds(lambda: torch._int_mm(bytes_, bytes_), threads),
    }


def _int8_dots(threads: int) -> float:
    turns = 20_000_000
    operations = 2 * threads * turns * _ACCUMULATORS * 64 / 1e9
    return operations / _seconds(lambda: _on_threads(_dot_products, [(turns,)] * threads), threads)


def _seconds(task: Callable[[], object], threads: int) -> float:
    once(task, threads)
    return statistics.median(once(task, threads)[0] for _ in range(5))


def _on_threads(kernel: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> None:
    with ThreadPoolExecutor(len(arguments)) as pool:
        if not all(math.isfinite(result) for result in pool.map(lambda values: kernel(*values), arguments)):
            raise AssertionError("a measuring kernel gave no number")


@numba.njit(nogil=True)
def _total(numbers: NDArray[np.int64]) -> int:
    total = 0
    for number in numbers:
        total += number
    return total


def _dots(typing_context: Any, turns: Any) -> Any:
    """`turns` times the accumulators' `vpdpbusd`, from registers alone."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pattern = builder.trunc(arguments[0], ir.IntType(8))
        seed = builder.insert_element(ir.Constant(_BYTES, None), pattern, ir.Constant(ir.IntType(32), 0))
        sums = [cgutils.alloca_once_value(builder, ir.Constant(_LANES, None)) for _ in range(_ACCUMULATORS)]
        kind = ir.FunctionType(_LANES, [_LANES, _BYTES, _BYTES])
        dot = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
        with cgutils.for_range(builder, arguments[0], intp=ir.IntType(64)):
            for total in sums:
                builder.store(builder.call(dot, [builder.load(total), seed, seed]), total)
        result = builder.load(sums[0])
        for total in sums[1:]:
            result = builder.add(result, builder.load(total))
        first = builder.extract_element(result, ir.Constant(ir.IntType(32), 0))
        return builder.sext(first, ir.IntType(64))

    return types.int64(types.int64), generate


_dots_intrinsic = intrinsic(_dots)


@numba.njit(nogil=True)
def _dot_products(turns: int) -> int:
    return _dots_intrinsic(turns)
