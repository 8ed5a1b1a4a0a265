"""Pickles of plain containers, and of nothing else: no class is looked up, nothing is called."""

import copyreg
import gc
import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from recipe.data.narrations.memory import at_most, available
from recipe.errors import InputError

_MOST = 20
"""No pickle of captions takes more bytes of memory than this for one of its own; one that asks for more is hostile."""

_BROKEN = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    LookupError,
    AttributeError,
    TypeError,
    ArithmeticError,
    RecursionError,
)
"""What the unpickler raises for bytes that are no pickle; its documentation lists them as examples."""


def load_plain(path: Path, stream: io.BufferedReader, encoding: str) -> Any:
    """The value of a pickle of dicts, lists, tuples, strings, bytes and numbers; `encoding` is for Python 2's strings.

    Raises InputError for a pickle that refers to anything else, is damaged, or is followed by more.
    """
    # Extension codes that were used before would be resolved without asking `find_class`.
    copyreg.clear_extension_cache()
    free = available()
    wanted = _MOST * path.stat().st_size + (1 << 28)
    try:
        with at_most(min(wanted, free)) if free is not None else nullcontext(), _without_collector():
            value = _Plain(stream, encoding=encoding).load()
    except _Refused as error:
        problem = f"the pickle is not plain data: it {error}"
        raise InputError.at(path, problem, "fetch it anew from its publisher; nothing of it was executed") from None
    except UnicodeDecodeError:
        problem = f"a text of Python 2 in the pickle is not {encoding.upper()}"
        raise InputError.at(path, problem, "give the encoding it has, for example latin-1") from None
    except MemoryError:
        problem = "the pickle asks for more memory than is free or than captions of its size take"
        raise InputError.at(path, problem, "fetch the file again, or read it with more memory") from None
    except _BROKEN as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
        raise InputError.at(path, f"the pickle is damaged ({reason})", "fetch the file again") from None
    if stream.read(1):
        raise InputError.at(path, "more follows after the pickle", "give a file with one pickle")
    return value


class _Refused(Exception):
    """Says what the pickle does that no plain data does."""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise _Refused(f"asks for {f'{module}.{name}'!r:.100}")

    def persistent_load(self, pid: object, /) -> NoReturn:
        raise _Refused("refers to an object outside of the file")


@contextmanager
def _without_collector() -> Iterator[None]:
    """No garbage can arise in a load, and looking for it among millions of lists takes longer than the load."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
