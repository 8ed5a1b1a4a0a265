"""Which instructions the integer scan uses, and what they want packed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.core.registry import cpu_target
from numpy.typing import NDArray

from recipe.corpus.scan.integers import LANES, STEPS
from recipe.corpus.scan.queries import Queries, cache_lines, lay_out
from recipe.errors import ConfigError

_FEATURES = {
    "vnni": ("avx512f", "avx512bw", "avx512vl", "avx512vnni"),
    "avx2": ("avx2",),
    "portable": (),
}
PATHS = tuple(_FEATURES)
"""Best first; every processor has the last."""
SINGLE_COLUMNS = 12
"""Unique steps up to which queries are taken one by one; a panel of 16 columns would be multiplied in vain."""
SINGLE_QUERIES = 3


class Prepared(NamedTuple):
    """Queries as a kernel of `integers` takes them."""

    packed: NDArray[Any]
    starts: NDArray[np.int32]
    """What the sums begin at: less 128 times a step's codes, where the codes of segments count as that much more."""
    columns: NDArray[np.int32]
    kinds: NDArray[np.int32] | None
    """How the columns lie; None where queries are taken one by one."""


def available() -> tuple[str, ...]:
    """The paths that the code which Numba makes on this machine may use, best first."""
    features = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
    return tuple(path for path, needs in _FEATURES.items() if all(f"+{need}" in features for need in needs))


def choose(path: str | None) -> str:
    """`path`, or the best there is. Raises ConfigError for one that does not exist here."""
    found = available()
    if path is not None and path not in found:
        raise ConfigError(f"search path {path!r} does not run on this processor; choose one of {', '.join(found)}.")
    return path or found[0]


def prepare(queries: Queries, path: str) -> Prepared:
    """Pack the steps for `path`."""
    pack = _PACK[path]
    unique = len(queries.codes)
    if unique <= SINGLE_COLUMNS and len(queries.steps) <= SINGLE_QUERIES:
        zeros = int((queries.steps < 0).any())  # a row of them, for what follows a query's last step
        rows = np.zeros((-(-(unique + zeros) // STEPS) * STEPS, queries.codes.shape[1]), np.int16)
        rows[:unique] = queries.codes
        packed = _rows_of_four(rows) if path == "vnni" else pack(rows)
        columns = np.where(queries.steps < 0, unique, queries.steps)
        return Prepared(packed, _starts(rows, packed), np.ascontiguousarray(columns, np.int32), None)
    layout = lay_out(queries)
    rows = np.zeros((layout.width, queries.codes.shape[1]), np.int16)
    rows[layout.positions] = queries.codes
    packed = pack(rows)
    return Prepared(packed, _starts(rows, packed), layout.columns, layout.kinds)


def _starts(rows: NDArray[np.int16], packed: NDArray[Any]) -> NDArray[np.int32]:
    added = -128 if packed.dtype == np.int32 else 0
    starts: NDArray[np.int32] = (added * rows.sum(axis=1, dtype=np.int64)).astype(np.int32)
    return starts


def _panels(rows: NDArray[np.int16]) -> NDArray[Any]:
    """uint8 [columns / 16, D / 4, 16, 4], codes + 128, for `panel_dots`."""
    unsigned = (rows + 128).astype(np.uint8)
    return cache_lines(unsigned.reshape(len(rows) // LANES, LANES, -1, 4).swapaxes(1, 2))


def _rows_of_four(rows: NDArray[np.int16]) -> NDArray[Any]:
    """int32 [columns, D / 4], four codes in one number, for the VNNI tiles of `tile_dots`."""
    return cache_lines(rows.astype(np.int8)).view(np.int32)


def _rows16(rows: NDArray[np.int16]) -> NDArray[Any]:
    return cache_lines(rows)


def _rows8(rows: NDArray[np.int16]) -> NDArray[Any]:
    return cache_lines(rows.astype(np.int8))


_PACK: dict[str, Callable[[NDArray[np.int16]], NDArray[Any]]] = {"vnni": _panels, "avx2": _rows16, "portable": _rows8}
