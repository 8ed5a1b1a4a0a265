"""The GPU's search on a machine without one: how work is divided, all cases interpreted, and kernels that compile."""

import importlib
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recipe.corpus.gpu.scan import NARROWEST, BlockShape, ScanPlan, plan
from recipe.errors import MissingExtra

CASES = Path(__file__).with_name("test_gpu_cases.py")


@pytest.fixture
def gpu_scan() -> Any:
    for needed in ("torch", "triton"):
        pytest.importorskip(needed)
    return importlib.import_module("recipe.corpus.gpu.scan")


@pytest.mark.thorough
def test_all_cases_through_the_interpreter(gpu_scan: Any) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(CASES)]
    run = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
    assert "passed" in run.stdout
    assert "skipped" not in run.stdout


def queries_of(blocks: ScanPlan) -> dict[int, list[int]]:
    """The steps of each query as the blocks have them."""
    queries = {}
    for block, place in np.argwhere(blocks.queries >= 0).tolist():
        steps = blocks.tails[block, :, place].tolist()
        if blocks.shape.heads:
            steps = blocks.heads[block, :, blocks.parents[block, place]].tolist() + steps
        queries[int(blocks.queries[block, place])] = [step for step in steps if step >= 0]
    return queries


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=11), min_size=1, max_size=20), st.sampled_from([16, 64])
)
def test_blocks_hold_every_query(queries: list[list[int]], widest: int) -> None:
    steps = np.full((len(queries), max(map(len, queries))), -1, np.int32)
    for row, query in enumerate(queries):
        steps[row, : len(query)] = query
    blocks = plan(steps, widest)
    held = queries_of(blocks)
    assert [held[copy] for copy in blocks.copies.tolist()] == queries
    shape = blocks.shape
    assert all(number & (number - 1) == 0 for number in shape)
    assert shape.tail_levels * shape.tails >= NARROWEST
    assert not shape.heads or shape.head_levels * shape.heads >= NARROWEST


def completions(prompts: int, each: int, history: int, tail: int) -> NDArray[np.int32]:
    """Queries of which `each` share the first `history` steps, in no order."""
    fresh = iter(range(1 << 20))
    rows = []
    for _ in range(prompts):
        shared = [next(fresh) for _ in range(history)]
        rows += [shared + [next(fresh) for _ in range(tail)] for _ in range(each)]
    return np.random.default_rng(0).permutation(np.array(rows, np.int32))


@pytest.mark.parametrize(
    ("queries", "columns"),
    [
        ((1, 1, 0, 8), 16),  # the matrix units take no fewer
        ((64, 1, 0, 8), 512),
        ((64, 1, 0, 12), 768),  # 8 + 4 levels, not 16
        ((1, 64, 6, 2), 144),  # 134 unique steps of 512
        ((16, 4, 6, 2), 256),
    ],
)
def test_shared_beginnings_are_multiplied_once(queries: tuple[int, int, int, int], columns: int) -> None:
    assert plan(completions(*queries), widest=144).columns == columns


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(1, 8), st.integers(1, 16))
def test_groups_hold_every_narration_once(lengths: list[int], rows: int, window: int) -> None:
    scan = pytest.importorskip("recipe.corpus.gpu.scan")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "WINDOW", window)
        members = scan.group(np.cumsum([0, *lengths]), rows).ravel()
    assert sorted(members[members >= 0]) == list(range(len(lengths)))
    for a, b in pairwise(members[members >= 0].tolist()):
        assert a // window < b // window or lengths[a] >= lengths[b]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "shape"),
    [("fp16", BlockShape(0, 0, 8, 2)), ("i8", BlockShape(8, 2, 2, 64)), ("i8", BlockShape(8, 8, 2, 32))],
    ids=["one query", "shared beginning", "two segments at a time"],
)
def test_the_kernel_compiles_for_hopper_without_one(
    gpu_scan: Any, kind: str, shape: BlockShape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To its matrix instructions and its asynchronous copies, within its shared memory or less."""
    triton = importlib.import_module("triton")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    kernel = importlib.import_module("recipe.corpus.gpu.kernels").coverage
    launch = gpu_scan.Launch()
    sums = "i32" if kind == "i8" else "fp32"
    types = {"vectors": kind, "steps": kind, "sums": sums, "offsets": "i64"}
    names = [name for name in kernel.arg_names if name.islower()]
    signature = {name: f"*{types.get(name, 'i32')}" for name in names} | dict.fromkeys(("blocks", "total"), "i32")
    signature |= {name: "constexpr" for name in kernel.arg_names if name.isupper()} | {"D": "i32"}
    depth = launch.depth // (1 if kind == "i8" else 2)
    values = (launch.rows, depth, *shape, launch.takes_pairs(shape))
    constants = dict(zip(kernel.arg_names[-len(values) :], values, strict=True))
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(kernel.arg_names)
        if signature[name].startswith("*") or name == "D"
    }
    source = triton.compiler.ASTSource(kernel, signature, constants, aligned)
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    options = launch.options(shape, gpu_scan.HOPPER)
    compiled = triton.compile(source, target=target, options=options)
    operands = "s32.s8.s8" if kind == "i8" else "f32.f16.f16"
    assert re.search(rf"wgmma\.mma_async\.sync\.aligned\.m64n\d+k\d+\.{re.escape(operands)}", compiled.asm["ptx"])
    assert "cp.async" in compiled.asm["ptx"]
    assert options["num_stages"] == 4
    assert compiled.metadata.shared <= gpu_scan.HOPPER
    if shape.heads == 8:  # the most of shared memory
        fewer = launch.options(shape, 99 << 10)
        assert triton.compile(source, target=target, options=fewer).metadata.shared <= 99 << 10


@pytest.mark.parametrize(("absent", "extra"), [("triton", "gpu"), ("torch", "gpu"), ("numba", "cpu")])
def test_absent_packages_are_named(monkeypatch: pytest.MonkeyPatch, absent: str, extra: str) -> None:
    for module in [name for name in sys.modules if name.startswith("recipe.corpus.gpu")]:
        monkeypatch.delitem(sys.modules, module)
    for module in ("recipe.corpus.scan.quantise", "recipe.alignment.cpu"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(MissingExtra, match=rf"search on a GPU are .*\[{extra}\]"):
        importlib.import_module("recipe.corpus.gpu.index")
