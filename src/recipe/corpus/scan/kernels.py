"""The compiled modules of this room, imported where they are first needed: they take half a second and an extra."""

import importlib
from typing import Any

from recipe.errors import MissingExtra


def kernels(module: str) -> Any:
    """The module of this name in `recipe.corpus`. Raises MissingExtra where Numba is not installed."""
    try:
        return importlib.import_module(f"recipe.corpus.{module}")
    except ModuleNotFoundError as error:
        if error.name in ("numba", "llvmlite"):
            raise MissingExtra("the corpus index", "cpu") from None
        raise
