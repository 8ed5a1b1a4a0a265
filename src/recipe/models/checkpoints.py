"""Language models from disk or hub: one way to load them, for planning and for training.

Nothing here knows how large a model is: the small one of `recipe train base` and a published checkpoint
differ in their name only.
"""

import functools
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from recipe.artifacts import atomic_path, cache_folder, locked, read_json
from recipe.errors import InputError, MissingExtra, RecipeError, first_line, listed
from recipe.models.smollm2 import INSTALL, NAME, gguf_file, smollm2_identity
from recipe.text import is_thought_token, open_thought

try:
    import torch
    import transformers
    from safetensors import safe_open
    from tokenizers import pre_tokenizers
    from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
    from transformers.utils import cached_file

    from recipe.models.vision import VideoProcessor
except ModuleNotFoundError as error:
    raise MissingExtra("a language model", "encoder") from error


_LOG = logging.getLogger(__name__)

# Rises where the same GGUF file is converted otherwise.
_GGUF_FORMAT = 1
# The `model_type` in config.json of Qwen2.5-VL.
_SEEING = "qwen2_5_vl"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A causal language model and its tokenizer, which has a chat template."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    video: VideoProcessor | None = None
    """What turns frames into the patches that the model's visual tower reads; None where it has none."""

    @property
    def config(self) -> PreTrainedConfig:
        """The model's."""
        return self.model.config


@dataclass(frozen=True, slots=True)
class Reader:
    """What turns chats into a model's tokens, without its weights."""

    tokenizer: PreTrainedTokenizerBase
    """With a chat template."""
    config: PreTrainedConfig
    video: VideoProcessor | None = None
    """As in a `Checkpoint`."""


class EndOfTurn(NamedTuple):
    """The token that ends an assistant's turn."""

    id: int | None
    """None where the tokenizer has none."""
    token: str
    """The tokenizer's `eos_token` where the chat template writes no token."""
    text: str
    """What the chat template writes after the text of the turn."""

    @property
    def written(self) -> bool:
        """Whether the chat template writes the token."""
        return bool(self.token) and self.token in self.text


# Stands for the text of an assistant's turn.
_REPLY = "0123456789"


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> EndOfTurn:
    """The first special token that the chat template writes after the text of an assistant's turn.

    Whitespace before it and what follows it do not count. Where the template writes a token that the tokenizer does not
    list as special, it is the first of these. Text that is no token of its own ends nothing.
    """
    chat = [{"role": role, "content": role} for role in ("system", "user")]
    chat.append({"role": "assistant", "content": _REPLY})
    behind = ""
    for turns in (chat, chat[1:]):  # some templates refuse a system turn, some a chat without
        try:
            _, held, behind = str(tokenizer.apply_chat_template(turns, tokenize=False)).rpartition(_REPLY)
        except Exception:  # noqa: BLE001, S112 - a template may divide by zero, and raise what Python has
            continue
        if held:
            break
        behind = ""
    known = tokenizer.added_tokens_decoder
    # An unknown text may be read as a token whose name it does not hold.
    ids = tokenizer(behind, add_special_tokens=False)["input_ids"]
    named = [id for id in ids if id in known and known[id].content.strip() and known[id].content in behind]
    special = [id for id in named if known[id].special]
    for end in special or named:
        return EndOfTurn(end, known[end].content, behind)
    return EndOfTurn(tokenizer.eos_token_id, tokenizer.eos_token or "", behind)


def end_tokens(settings: GenerationConfig, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that end a completion: `end_of_turn`, those of the model's generation settings, and `eos_token`."""
    listed = settings.eos_token_id
    ends = (end_of_turn(tokenizer).id, *(listed if isinstance(listed, list) else [listed]), tokenizer.eos_token_id)
    known = [end for end in ends if end is not None]
    if wrong := [end for end in known if type(end) is not int or not 0 <= end < 1 << 31]:
        raise ValueError(f"{wrong[0]!r} is not the id of a token that ends a text")
    return list(dict.fromkeys(known))


def thought_opening(tokenizer: PreTrainedTokenizerBase, template: Mapping[str, Any] | None = None) -> str:
    """The tag with which the prompt of a turn opens a thought; empty where it opens none, or closes it.

    `template` are further arguments of the chat template. A completion does not hold the tag, and is read with it.
    """
    settings: dict[str, Any] = {"tokenize": False, "add_generation_prompt": True, **(template or {})}
    user = {"role": "user", "content": _REPLY}
    for chat in ([{"role": "system", "content": "system"}, user], [user]):  # some templates refuse a system turn
        with suppress(Exception):
            prompt = str(tokenizer.apply_chat_template(chat, **settings)).rpartition(_REPLY)[2]
            return open_thought(prompt)
    return ""


def decode_completions(
    tokenizer: PreTrainedTokenizerBase, completions: Sequence[Sequence[int]], opening: str = ""
) -> list[str]:
    """The texts of completions without special tokens, but for those that open or close a thought.

    `opening` is the tag with which their prompts open one.
    """
    special, tags = _special_tokens(tokenizer)
    if not tags:
        texts = tokenizer.batch_decode([list(tokens) for tokens in completions], skip_special_tokens=True)
    else:
        shown = [[id for id in tokens if id in tags or id not in special] for tokens in completions]
        texts = tokenizer.batch_decode(shown, skip_special_tokens=False)
    return [f"{opening}{text}" for text in texts]


@functools.lru_cache(maxsize=8)  # a stream decodes at every token
def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[frozenset[int], frozenset[int]]:
    """The ids of the special tokens, and of those among them that are tags of a thought."""
    special = {id: token.content for id, token in tokenizer.added_tokens_decoder.items() if token.special}
    tags = (id for id, content in special.items() if is_thought_token(content))
    return frozenset(special), frozenset(tags)


def load_checkpoint(
    name: str, revision: str | None = None, dtype: torch.dtype = torch.float32, attention: str | None = None
) -> Checkpoint:
    """The model and tokenizer of a hub id, of a folder in the standard layout, or `smollm2`; weights on the CPU.

    A Qwen2.5-VL comes with its video processor. The model's generation settings hold all `end_tokens`, so that trainers
    stop at them, and whoever uses a model that is saved. Code that comes with a model is not run, and transformers does
    not ask whether to. `attention` names the kernel, such as `eager`; without it transformers chooses. Raises
    InputError where there is no such model, for one without a chat template, and for one that needs its own code.
    """
    reader, place = load_reader(name, revision), location(name, revision)
    with model_errors(name), quiet_loading():
        kind = transformers.AutoModelForCausalLM if reader.video is None else transformers.AutoModelForImageTextToText
        model, loading = kind.from_pretrained(
            place,
            revision=revision,
            dtype=dtype,
            attn_implementation=attention,
            output_loading_info=True,
            trust_remote_code=False,
        )
        if lacking := sorted(loading["missing_keys"]):  # transformers draws them at random
            raise _unusable(name, f"its weights lack {listed(lacking)}")
        settings = model.generation_config
        ends = end_tokens(settings, reader.tokenizer)
    if ends not in (settings.eos_token_id, [settings.eos_token_id]):
        settings.eos_token_id = ends
    return Checkpoint(model, reader.tokenizer, reader.video)


def load_reader(name: str, revision: str | None = None) -> Reader:
    """The tokenizer, the config and the video processor of a model; raises as `load_checkpoint`."""
    place = location(name, revision)
    folder = Path(place)
    if folder.is_dir() or folder.is_absolute() or name.startswith(".") or name.count("/") > 1:
        _require_model(folder)
    with model_errors(name), quiet_loading():
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            place, revision=revision, padding_side="left", trust_remote_code=False
        )
        config = transformers.AutoConfig.from_pretrained(place, revision=revision, trust_remote_code=False)
        video = VideoProcessor.load(name, revision) if config.model_type == _SEEING else None
        if video is not None:
            # In older releases the template for messages with a video lies apart from the tokenizer's.
            apart = cached_file(
                name, "chat_template.json", revision=revision, _raise_exceptions_for_missing_entries=False
            )
            if apart is not None:
                kept = read_json(Path(apart))
                if not isinstance(kept, dict) or not isinstance(kept.get("chat_template"), str):
                    raise InputError.at(apart, "it holds no template", "restore the file of the model")
                tokenizer.chat_template = kept["chat_template"] or tokenizer.chat_template
        # Whoever asks compares lengths with the context, and raises errors in place of this warning.
        tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
        if not tokenizer.encode("a"):
            raise _unusable(name, "its tokenizer gives no tokens")
        context = getattr(config.get_text_config(), "max_position_embeddings", None)
        if type(context) is not int or context < 1:
            raise _unusable(name, "config.json gives no max_position_embeddings")
        if not tokenizer.chat_template:
            problem = "its tokenizer has no chat template"
            raise InputError.at(f"model {name!r}", problem, "give an instruction-tuned model")
        end = end_of_turn(tokenizer)
    if end.written and not tokenizer.added_tokens_decoder[end.id].special:
        # Decoded plans would hold it.
        tokenizer.add_special_tokens({"additional_special_tokens": [end.token]}, False)
    if end.text.strip() and not end.written:
        _LOG.warning(
            "model %r: its chat template ends a turn with %r, which is no token of its tokenizer; a plan ends at "
            "eos_token, %r", name, end.text.strip(), end.token,
        )  # fmt: skip
    return Reader(tokenizer, config, video)


def location(name: str, revision: str | None = None) -> str:
    """What transformers and vLLM load a model by: the folder of the named base, any other name as it is.

    Raises MissingExtra, and InputError for a revision of the named base.
    """
    if name != NAME:
        return name
    if revision is not None:
        raise InputError.at(f"model {name!r}", "it has no revisions", "leave the revision out")
    return str(smollm2_folder())


def smollm2_folder() -> Path:
    """The folder of `smollm2` in the user's cache, named by the SHA-256 of the GGUF file that it was converted from.

    The first process that asks converts it, and others wait. Raises MissingExtra, InputError, OSError.
    """
    target = cache_folder() / "models" / f"{NAME}-{smollm2_identity()['sha256'][:16]}-{_GGUF_FORMAT}"
    if target.is_dir():
        return target
    with locked(target.parent / ".lock", wait=True):
        if not target.is_dir():
            _LOG.warning("%s: the weights are converted once, in about a minute, to %s", NAME, target)
            with atomic_path(target) as partial:
                _convert(gguf_file(), partial)
    return target


def _convert(file: Path, target: Path) -> None:
    """Write the model of a GGUF file in float32, its tokenizer and chat template to the folder `target`."""
    if find_spec("gguf") is None:  # transformers reads the file with it
        raise MissingExtra("a model in a GGUF file", NAME, INSTALL)

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


# The sampling fields of a generation_config.json with their bounds, of which top_p and repetition_penalty exclude the
# lower one. The largest float bounds the others, because JSON may hold Infinity.
_BOUNDS = {
    "temperature": (0.0, sys.float_info.max),
    "top_p": (0.0, 1.0),
    "top_k": (0, 1 << 31),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.0, sys.float_info.max),
}


def sampling_settings(name: str, revision: str | None = None) -> dict[str, int | float]:
    """The sampling fields that a model's generation_config.json sets; a `top_k` of -1 is 0, off.

    `do_sample` is not read, as by vLLM. Raises InputError where there is no such file, and for a value out of bounds.
    """
    with model_errors(name):
        file = cached_file(
            location(name, revision), "generation_config.json", revision=revision,
            _raise_exceptions_for_missing_entries=False,
        )  # fmt: skip
    if file is None:
        problem = "it has no generation_config.json whose sampling could be imitated"
        raise InputError.at(f"model {name!r}", problem, "leave sampling.imitate out")
    held = read_json(Path(file))
    settings: dict[str, int | float] = {}
    for field, (least, most) in _BOUNDS.items():
        value = held.get(field) if isinstance(held, dict) else None
        if value is None:
            continue
        value = 0 if field == "top_k" and value == -1 else value
        number = type(value) is int or (type(value) is float and field != "top_k")
        positive = field in ("top_p", "repetition_penalty")
        if not number or not least <= value <= most or (positive and value == least):
            raise InputError.at(file, f"{value!r:.60} is out of bounds", "restore the file of the model", field=field)
        settings[field] = value
    return settings


@contextmanager
def model_errors(name: str, unusable: Callable[[BaseException], RecipeError] | None = None) -> Iterator[None]:
    """Raises InputError, or what `unusable` makes, in place of what libraries raise for a model that cannot be loaded.

    For a damaged file that is any exception: tokenizers raise `Exception` itself, and one that is none in a panic.
    """
    try:
        yield
    except RecipeError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        reason = first_line(error)
        if "ignore_mismatched_sizes" in reason:  # advice for programmers
            reason = "its weights have other shapes than config.json says"
        raise (_unusable(name, reason) if unusable is None else unusable(error)) from error


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Without the progress bars and reports of transformers, which would run through ours."""
    shown, verbosity = transformers.logging.is_progress_bar_enabled(), transformers.logging.get_verbosity()
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        if shown:
            transformers.logging.enable_progress_bar()


def _require_model(folder: Path) -> None:
    if not folder.is_dir():
        raise InputError.at(folder, "the model folder does not exist", "check the path, or train the model first")
    if not (folder / "config.json").is_file():
        inner = folder / "model"
        remedy = f"give {inner}" if (inner / "config.json").is_file() else _LAYOUT
        raise InputError.at(folder, "there is no model in this folder", remedy)
    index = folder / "model.safetensors.index.json"
    files = sorted(folder.glob("model.safetensors"))
    if not files and index.is_file():
        kept = read_json(index)
        named = kept.get("weight_map") if isinstance(kept, dict) else None
        if not isinstance(named, dict) or not named:
            raise InputError.at(index, "it lists no weights", "restore the files of the model", field="weight_map")
        for name in sorted({*map(str, named.values())}):
            if Path(name).name != name or not (folder / name).is_file():
                problem = f"it names {name!r}, which is no file of this folder"
                raise InputError.at(index, problem, "restore the files of the model", field="weight_map")
            files.append(folder / name)
    with model_errors(str(folder)):
        tensors = 0
        for file in files:
            names: list[str] = safe_open(file, "pt").keys()  # type: ignore[no-untyped-call]
            tensors += len(names)
        _require_layers(folder / "config.json", read_json(folder / "config.json"), tensors or _LAYERS)


def _require_layers(config: Path, values: object, tensors: int) -> None:
    """Raises InputError for more layers than there are weights: they are built before weights are compared."""
    if not isinstance(values, dict):
        raise InputError.at(config, "these are no settings of a model", "restore the file of the model")
    for name, value in values.items():
        if isinstance(value, dict):
            _require_layers(config, value, tensors)
        elif _COUNTED.fullmatch(name) and isinstance(value, int | float) and value > tensors:
            problem = f"{value!r} is more than the {tensors:,} weights that there are"
            raise InputError.at(config, problem, "restore the file of the model", field=name)


# Layers at most of a model whose weights are not in safetensors, so that nothing can be counted.
_LAYERS = 10_000
# Names in config.json of numbers of layers.
_COUNTED = re.compile("(num|n)_(hidden_|encoder_|decoder_)?layers?|depth")
_LAYOUT = "give a folder with config.json, model.safetensors and the tokenizer's files"


def _unusable(name: str, reason: str) -> InputError:
    place = f"model {name!r}"
    if Path(name).is_dir():
        return InputError.at(place, f"the folder holds no complete model ({reason})", _LAYOUT)
    problem = f"it cannot be loaded from the hub ({reason})"
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        problem = "the hub is switched off by HF_HUB_OFFLINE and the model is not in the local cache"
    remedy = "give a model folder, check the id, or download the model once while online"
    return InputError.at(place, problem, remedy)


def add_adapter(model: PreTrainedModel, folder: str) -> None:
    """Put the adapters of LoRA in a folder into a model, where they then act.

    PEFT does it itself: `load_adapter` of transformers 5.24 asks for a PEFT that is not released.
    """
    from peft import PeftModel  # noqa: PLC0415 - optional

    PeftModel.from_pretrained(model, folder, autocast_adapter_dtype=False)


def chat_text(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], *, ask: bool = False) -> str:
    """A conversation as the model reads it; `ask` opens the assistant's turn at the end."""
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask))
