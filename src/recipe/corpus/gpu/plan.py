"""How the queries of a batch become blocks of columns for the GPU's kernel: shared beginnings once, padding small."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NARROWEST = 16
"""Columns of the narrowest tile that the matrix units take."""


class Shape(NamedTuple):
    """Of a block: levels and width of its heads and of its tails, all powers of two; no heads where `heads` is 0."""

    head_levels: int
    heads: int
    tail_levels: int
    tails: int

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.head_levels * self.heads + self.tail_levels * self.tails


class Plan(NamedTuple):
    """B blocks of one shape; -1 stands for no step and for no query."""

    shape: Shape
    heads: NDArray[np.int32]
    """[B, head levels, heads]: the steps of each head."""
    tails: NDArray[np.int32]
    """[B, tail levels, tails]: the steps that follow it."""
    parents: NDArray[np.int32]
    """[B, tails]: the head of each tail."""
    queries: NDArray[np.int32]
    """[B, tails]: the query of each tail."""
    copies: NDArray[np.int64]
    """[Q]: the query that stands for each: of equal ones, the first."""

    @property
    def columns(self) -> int:
        """Columns that are multiplied in all, padding included."""
        return len(self.tails) * self.shape.columns


class Sorted(NamedTuple):
    """The unique queries in the order of their steps, so that those that begin alike are neighbours."""

    steps: NDArray[np.int32]
    """[R, M], -1 after a query's last."""
    lengths: NDArray[np.int64]
    firsts: NDArray[np.int64]
    """[R]: the first of the queries equal to each."""
    copies: NDArray[np.int64]
    """[Q]: the same for each query."""


def plan(steps: NDArray[np.int32], widest: int) -> Plan:
    """Blocks of at most `widest` columns, where one query's levels are no more, for queries [Q, M] of steps.

    -1 follows a query's last step. Of three ways to cut queries in heads and tails it takes the one of the fewest
    columns: no heads; what a query has in common with another; powers of two, for lengths between them.
    """
    unique, firsts, copies = np.unique(steps, axis=0, return_index=True, return_inverse=True)
    lengths = (unique >= 0).sum(axis=1)
    power = 1 << (int(lengths.max()).bit_length() - 1)
    cuts = [np.zeros_like(lengths), _shared(unique, lengths), np.minimum(lengths, power)]
    ordered = Sorted(unique, lengths, firsts, firsts[copies.ravel()])
    return min((_blocks(ordered, cut, widest) for cut in cuts), key=lambda candidate: candidate.columns)


def _shared(unique: NDArray[np.int32], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Steps at the beginning of each query that another begins with too: of sorted queries, a neighbour."""
    equal = np.logical_and.accumulate(unique[1:] == unique[:-1], axis=1).sum(axis=1)
    neighbours = np.maximum(np.r_[0, equal], np.r_[equal, 0])
    return np.minimum(neighbours, lengths)


def _blocks(queries: Sorted, cut: NDArray[np.int64], widest: int) -> Plan:
    """The queries in order, as many to a block as fit."""
    head_levels = _power(int(cut.max())) if cut.any() else 0
    tail_levels = _power(max(1, int((queries.lengths - cut).max())))
    heads = [tuple(row[:end]) for row, end in zip(queries.steps.tolist(), cut.tolist(), strict=True)]
    fewest = max(1, NARROWEST // tail_levels)
    tails = max(_power(len(heads)), fewest)
    while True:
        shape = Shape(head_levels, _most(heads, tails, head_levels), tail_levels, tails)
        if shape.columns <= widest or tails == fewest:
            return _fill(shape, queries, cut, heads)
        tails //= 2


def _most(heads: list[tuple[int, ...]], tails: int, levels: int) -> int:
    """Width of the heads of `levels` steps, where `tails` queries make a block."""
    if not levels:
        return 0
    most = max(len(set(heads[start : start + tails])) for start in range(0, len(heads), tails))
    return max(_power(most), NARROWEST // levels)


def _fill(shape: Shape, queries: Sorted, cut: NDArray[np.int64], keys: list[tuple[int, ...]]) -> Plan:
    count = -(-len(keys) // shape.tails)
    heads = np.full((count, shape.head_levels, shape.heads), -1, np.int32)
    tails = np.full((count, shape.tail_levels, shape.tails), -1, np.int32)
    parents = np.zeros((count, shape.tails), np.int32)
    columns = np.full((count, shape.tails), -1, np.int32)
    places: list[dict[tuple[int, ...], int]] = [{} for _ in range(count)]
    for row, key in enumerate(keys):
        block, place = divmod(row, shape.tails)
        tail = queries.steps[row, cut[row] : queries.lengths[row]]
        tails[block, : len(tail), place] = tail
        columns[block, place] = queries.firsts[row]
        if shape.heads:
            head = places[block].setdefault(key, len(places[block]))
            heads[block, : len(key), head] = key
            parents[block, place] = head
    return Plan(shape, heads, tails, parents, columns, queries.copies)


def _power(number: int) -> int:
    """The smallest power of two that is no less."""
    return 1 << (number - 1).bit_length()
