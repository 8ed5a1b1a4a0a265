"""Exact search of stored vectors: an approximate scan, and a certificate that excludes the rest."""

import importlib
from typing import Any

from recipe.errors import MissingExtra


def kernels(module: str) -> Any:
    """The compiled module of this name in `recipe.corpus`, imported on first use: it needs an extra and half a second.

    Raises MissingExtra where Numba is not installed.
    """
    try:
        return importlib.import_module(f"recipe.corpus.{module}")
    except ModuleNotFoundError as error:
        if error.name in ("numba", "llvmlite"):
            raise MissingExtra("the corpus index", "cpu") from None
        raise
