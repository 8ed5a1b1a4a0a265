"""What a training run needs, looked for before it starts: files, packages, model, corpus, folder, disk, memory, time.

Nothing is written and no weights are loaded. All that is missing is found at once. Figures of time and memory are
estimates (`recipe.training.cost`), with the rate of a matrix product measured here on a CPU and assumed on a GPU.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Literal

from recipe.artifacts import cache_folder, not_a_file
from recipe.config import (
    BaseModelConfig,
    BestOfNConfig,
    GRPOConfig,
    RewardTrainingSettings,
    SFTConfig,
    TrainingSettings,
)
from recipe.config.training import AnyTraining, Stage
from recipe.corpus.encoders import encoder_extra
from recipe.data.examples import read_examples, read_training_examples
from recipe.errors import ConfigError, InputError, MissingExtra, RecipeError, install_command, require_packages
from recipe.memory import available
from recipe.prompting import open_prompt
from recipe.text import format_plan, planner_messages
from recipe.training import cost
from recipe.training.cost import GIGABYTE, Device, Lengths, Shape
from recipe.types import Example

if TYPE_CHECKING:
    from recipe.models.checkpoints import Reader

State = Literal["ok", "note", "missing"]

_SAMPLED = 200
"""Examples whose tokens are counted."""
_LETTERS = 3.5
"""Letters in a token, where there is no tokenizer to ask."""
_ASSUMED = Lengths(prompt=160, continuation=60, longest=300)
"""Of a run whose examples are not there."""
_EFFICIENCY = 0.3
"""Share of a matrix product's rate that a whole pass reaches on a CPU."""
_UTILISATION = 0.3
"""Share of a GPU's peak that is assumed."""
_PEAK = {7: 1024, 8: 2048, 9: 4096, 10: 8192}
"""Operations a clock of a multiprocessor in 16 bits, by compute capability."""
_CLOCK = 1.4e9
_CPU_BANDWIDTH, _GPU_BANDWIDTH = 1.0e10, 1.0e12
_CPU_LAYER, _GPU_LAYER = 3e-4, 8e-4
"""Seconds of one pass of one layer beside its arithmetic; on a GPU the time in which its kernels are started."""
_MEASURED_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a run needs."""

    subject: str
    state: State
    sentence: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run takes."""

    parameters: int
    trained: int
    seconds: float
    """Of the whole run, without those of the reward and of validation."""
    memory: dict[str, float]
    """Bytes at the peak, by what they hold."""
    memory_free: float | None
    disk: dict[str, float]
    """Bytes that are written, by what they hold."""
    disk_free: float
    device: str
    source: str
    """What was measured and what was assumed."""


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found for a run, and what it takes."""

    stage: Stage
    findings: tuple[Finding, ...]
    estimate: Estimate | None
    """None where the model's size is not known."""
    ready: bool = field(default=False)
    """Whether nothing is missing."""


def check_run(stage: Stage, config: AnyTraining) -> Preflight:
    """Look for all that a run needs, and estimate what it takes. Writes nothing, and raises for no missing thing."""
    findings = [tried("packages", lambda: _packages(config))]
    examples: list[Example] = []
    findings.append(tried("examples", lambda: _read(config, examples)))
    installed = findings[0].state != "missing" or all(find_spec(name) for name in ("torch", "transformers"))
    reader: list[Reader] = []
    if isinstance(config, TrainingSettings):
        findings += _of_training(config, reader, installed)
    findings.append(tried("output", lambda: _output(stage, config, installed)))
    estimate = None
    if installed:
        try:
            shape = _base_shape(config) if isinstance(config, BaseModelConfig) else _shape(config, reader)
            if shape is not None:
                estimate = _estimate(config, shape, examples, reader)
                findings += _room(estimate)
        except RecipeError as error:
            findings.append(Finding("model", "missing", str(error)))
    return Preflight(stage, tuple(findings), estimate, all(one.state != "missing" for one in findings))


def estimate_lines(estimate: Estimate | None) -> list[str]:
    """An estimate in lines of text."""
    if estimate is None:
        return ["no estimate: the model's size is not known"]
    parts = ", ".join(f"{name} {size(held)}" for name, held in estimate.memory.items())
    files = ", ".join(f"{name} {size(held)}" for name, held in estimate.disk.items())
    return [
        f"parameters, millions: {estimate.parameters / 1e6:,.1f} in the model, {estimate.trained / 1e6:,.2f} trained",
        f"memory: {parts}",
        f"disk: {files}",
        f"time: {duration(estimate.seconds)} on {estimate.device}, without the reward and validation",
        f"estimated: {estimate.source}",
    ]


def size(held: float) -> str:
    """Bytes in words.

    >>> size(8.2e6), size(1.24e9)
    ('8 MB', '1.2 GB')
    """
    return f"{held / 1e6:.0f} MB" if held < 1e8 else f"{held / GIGABYTE:,.1f} GB"


def duration(seconds: float) -> str:
    """About how long.

    >>> duration(40), duration(600), duration(9000)
    ('about 40 seconds', 'about 10 minutes', 'about 2.5 hours')
    """
    if seconds < 120:
        return f"about {seconds:.0f} seconds"
    return f"about {seconds / 60:.0f} minutes" if seconds < 7200 else f"about {seconds / 3600:,.1f} hours"


def model_rates(config: AnyTraining, model: str = "", base: BaseModelConfig | None = None) -> cost.Rates | None:
    """Seconds of each kind of work of a run whose model and examples need not be there yet.

    The model is a hub id or folder, or the `base` from nothing; None where its size is not known. Raises ConfigError.
    """
    from recipe.models.checkpoints import use_bf16  # noqa: PLC0415 - loads torch

    reader: list[Reader] = []
    lora = config if isinstance(config, TrainingSettings) else None
    if base is not None or isinstance(config, BaseModelConfig):
        shape = _base_shape(config if isinstance(config, BaseModelConfig) else base, lora)
    else:
        list(model_findings(model, None, reader))
        if not reader:
            return None
        shape = _measured_shape(reader[0].config, lora)
    bf16 = use_bf16(config.bf16)
    return cost.rates(config, shape, _lengths(config, [], reader), _device(shape, bf16), bf16=bf16)


def tried(subject: str, look: Callable[[], str | tuple[State, str]]) -> Finding:
    """What looking for a thing says, or `missing` with the error that it raises."""
    try:
        said = look()
    except (RecipeError, OSError) as error:
        return Finding(subject, "missing", str(error))
    return Finding(subject, "ok", said) if isinstance(said, str) else Finding(subject, *said)


def _packages(config: AnyTraining) -> str:
    """Raises MissingExtra."""
    needed = {"train": "training"}
    if isinstance(config, TrainingSettings) and "wandb" in config.metrics:
        needed["wandb"] = "metrics = ['wandb']"
    if isinstance(config, TrainingSettings) and config.input == "video":
        needed["video"] = "input = 'video'"
    if isinstance(config, RewardTrainingSettings) and config.corpus is not None:
        needed["cpu"] = "corpus search"
    if isinstance(config, RewardTrainingSettings) and config.reward_service is not None:
        needed["client"] = "the reward service"
    require_packages(needed)
    if isinstance(config, GRPOConfig) and config.rollouts == "vllm" and find_spec("vllm") is None:
        raise MissingExtra("rollouts = 'vllm'", "vllm")
    return "all are installed"


def _read(config: AnyTraining, into: list[Example]) -> str:
    into += read_training_examples(config.examples, config.split)
    of = f" of split {config.split!r}" if config.split else ""
    if not into:
        raise InputError.at(config.examples, "it holds no example", "write some, for example with recipe data prepare")
    return f"{config.examples}: {len(into):,} examples{of}"


def _of_training(config: TrainingSettings, reader: "list[Reader]", installed: bool) -> Iterator[Finding]:
    """What fine-tuning needs beside its examples."""
    if installed:
        yield from model_findings(config.model, config.revision, reader)
    if reader:
        yield tried("end of turn", lambda: _end_of_turn(config, reader[0]))
    if config.prompt:
        yield tried("prompt", lambda: f"{open_prompt(config.prompt).name!r} can be read")
    if config.input == "video":
        if find_spec("av") is None:
            yield Finding(
                "videos", "missing", f"Packages for videos are not installed; run: {install_command('video')}."
            )
        else:
            yield tried("videos", lambda: _videos(config))
    if not isinstance(config, RewardTrainingSettings):
        return
    if config.corpus is not None:
        corpus = config.corpus
        yield tried("corpus", lambda: _corpus(corpus, installed))
    else:
        yield Finding("reward", "note", f"{config.reward_service}: the service is asked when the run starts")
    if (model := config.reward.grounded.language_model) not in ("", "policy") and installed:
        yield from model_findings(model, None, [], "reward.language_model")
    if isinstance(config, BestOfNConfig) and config.plans is not None:
        plans = config.plans / "completions" / "round-01.jsonl"
        yield tried("plans", lambda: _file(plans))
    if (settings := config.validation) is not None:
        yield tried(
            "validation",
            lambda: f"{settings.examples}: {len(read_examples(settings.examples, settings.split)):,} examples",
        )
        if settings.graphs is not None:
            graphs = settings.graphs
            yield tried("validation.graphs", lambda: f"{graphs} is there" if graphs.exists() else _file(graphs))
        if settings.measure in ("matched_f1", "proxy") or settings.graphs is not None:
            yield tried("validation.encoder", lambda: encoder_at_hand({"name": settings.encoder}, installed))


def _end_of_turn(config: TrainingSettings, reader: "Reader") -> str | tuple[State, str]:
    """Which token ends a plan, and what is done where that is not the tokenizer's `eos_token`."""
    from recipe.models.checkpoints import end_of_turn  # noqa: PLC0415 - loads torch

    end, eos = end_of_turn(reader.tokenizer), reader.tokenizer.eos_token
    if end.id is None:
        return "note", "neither the chat template nor the tokenizer has a token that ends a turn, so that no plan ends"
    if end.written and end.token == eos:
        return f"{eos!r} ends a plan"
    if end.written:
        said = f"the chat template ends a turn with {end.token!r}, and eos_token is {eos!r}: a plan ends at either"
    else:
        after = repr(end.text.strip()) if end.text.strip() else "nothing"
        said = f"the chat template writes {after} after a turn, and no token: a plan ends at eos_token, {eos!r}"
    if isinstance(config, SFTConfig):
        return "note", f"{said}, and each continuation of the examples with {end.token!r}"
    return "note", f"{said}; a base model may not write it before SFT has taught it"


def _file(path: Path) -> str:
    """Raises InputError."""
    if not path.is_file():
        raise not_a_file(path)
    return f"{path} is there"


def _videos(config: TrainingSettings) -> str:
    from recipe.training.video.data import video_source  # noqa: PLC0415 - loads torch

    source = video_source(config, None)
    assert source is not None
    return f"{config.videos}: videos of {len(source.examples):,} examples"


def _in_hub_cache(name: str, revision: str | None, *files: str) -> bool:
    """Whether one of the files of a hub's model is in the local cache."""
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - slow to import
    from huggingface_hub.errors import HFValidationError  # noqa: PLC0415

    try:
        found = (try_to_load_from_cache(name, file, revision=revision) for file in files)
        return any(isinstance(path, str) for path in found)
    except HFValidationError:
        return False


def _from_hub(name: str, revision: str | None) -> tuple[State, str]:
    """What is said of a hub's model that is not in the local cache."""
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        problem = (
            "there is no such folder, it is not in the local cache of the hub, and HF_HUB_OFFLINE switches the hub off"
        )
        raise InputError.at(f"model {name!r}", problem, "give a model folder, or download the model once while online")
    at = "" if revision is None else f" at revision {revision!r}"
    return "note", f"{name!r}{at} is not in the local cache; it would be downloaded from the hub, its size is not known"


def model_findings(name: str, revision: str | None, into: "list[Reader]", subject: str = "model") -> Iterator[Finding]:
    """Whether a model is there; what reads chats for it goes into `into`."""
    from recipe.models.checkpoints import load_reader  # noqa: PLC0415 - loads torch
    from recipe.models.local import Prompts  # noqa: PLC0415
    from recipe.models.smollm2 import NAME, smollm2_identity  # noqa: PLC0415

    local = Path(name).is_dir() or Path(name).is_absolute() or name.startswith(".") or name.count("/") > 1

    def look() -> str | tuple[State, str]:
        if name == NAME:
            identity = smollm2_identity()
            if not any((cache_folder() / "models").glob(f"{NAME}-{identity['sha256'][:16]}-*")):
                return (
                    "note",
                    f"{identity['package']}: its weights are converted once, in about a minute; no estimate yet",
                )
        elif not local and not _in_hub_cache(name, revision, "config.json"):
            return _from_hub(name, revision)
        reader = load_reader(name, revision)
        Prompts(name, reader, reader.video).render_all([planner_messages("a goal", ())])
        into.append(reader)
        if local and not [*Path(name).glob("*.safetensors"), *Path(name).glob("*.bin")]:
            raise InputError.at(name, "there are no weights in this folder", "restore model.safetensors")
        weights = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
        if not local and name != NAME and not _in_hub_cache(name, revision, *weights):
            return _from_hub(name, revision)
        return f"{name}: {into[-1].config.model_type}, {'in a folder' if local else 'at hand'}"

    yield tried(subject, look)


def _corpus(folder: Path, installed: bool) -> str:
    """Raises CorpusError, MissingExtra, EncoderMismatch."""
    from recipe.corpus.store import Corpus  # noqa: PLC0415 - a base or SFT needs none

    corpus = Corpus.open(folder)
    encoder = encoder_at_hand(dict(corpus.manifest["encoder"]), installed)
    return f"{folder}: {len(corpus):,} narrations; {encoder}"


def encoder_at_hand(recorded: dict[str, Any], installed: bool) -> str:
    """Whether an encoder is at hand and, as far as its files tell, the one recorded. Raises RecipeError."""
    name = str(recorded["name"])
    if name.startswith("hash:"):
        return f"encoder {name}"
    require_packages(encoder_extra(name))
    if not installed:
        return f"encoder {name}"
    from recipe.corpus.sentence_transformer import folder_sha256, packaged_minilm  # noqa: PLC0415 - loads torch

    folder = packaged_minilm() if name == "minilm" else Path(name)
    if folder.is_dir():
        if recorded.get("weights") and folder_sha256(folder) != recorded["weights"]:
            problem = "its weights are not those that the corpus was built with"
            raise InputError.at(f"encoder {name!r}", problem, "restore the encoder, or build the corpus again")
        return f"encoder {name}"
    if not _in_hub_cache(
        name if "/" in name else f"sentence-transformers/{name}", recorded.get("revision"), "config.json"
    ):
        return _from_hub(name, recorded.get("revision"))[1].removesuffix(", its size is not known")
    return f"encoder {name}, in the local cache"


def _output(stage: Stage, config: AnyTraining, installed: bool) -> str:
    """What the run folder holds. Raises ConfigError, InputError."""
    output = config.output
    if installed and (output / "run.json").is_file():
        from recipe.training.runs import held_run, step_of  # noqa: PLC0415 - loads torch

        run = held_run(stage, config, output)
        if run is not None and run.finished:
            return f"{output}: the run is finished; the command returns at once"
        if run is not None:
            steps = [step_of(checkpoint) for checkpoint in run.complete()]
            total = f" of {config.steps:,}" if isinstance(config, BaseModelConfig | GRPOConfig) else ""
            return f"{output}: a run would be resumed after step {max(steps, default=0):,}{total}"
    elif output.is_dir() and any(not path.name.startswith(".") for path in output.iterdir()):
        if not (output / "run.json").is_file():
            raise ConfigError(f"{output}: the folder is not empty and holds no run; set another `output`.")
    elif output.exists() and not output.is_dir():
        raise ConfigError(f"{output}: this is a file; set another `output`.")
    above = _existing(output)
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise InputError.at(
            output, f"no folder can be made in {above}", "set another `output`, or change its permissions"
        )
    return f"{output}: a new run"


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    path = path.absolute()
    return next(one for one in (path, *path.parents) if one.exists())


def _base_shape(config: BaseModelConfig | None, lora: TrainingSettings | None = None) -> Shape:
    """The shape of a base model from nothing, with all it can hold of its vocabulary."""
    from recipe.training.base import base_shape  # noqa: PLC0415 - loads torch

    assert config is not None
    return _measured_shape(base_shape(config, config.vocabulary), lora)


def _shape(config: AnyTraining, reader: "list[Reader]") -> Shape | None:
    assert isinstance(config, TrainingSettings)
    return _measured_shape(reader[0].config, config) if reader else None


def _measured_shape(model_config: Any, lora: TrainingSettings | None) -> Shape:
    """The size of a model, on the meta device, where it takes no memory, and of its adapters; None: all is trained.

    Raises ConfigError where the model has no projection of a name.
    """
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    text = model_config.get_text_config()
    video = model_config.model_type == "qwen2_5_vl"
    kind = transformers.AutoModelForImageTextToText if video else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = kind.from_config(model_config, trust_remote_code=False)
    # The output layer's weights may be the embedding's; they are no less work then.
    parameters = sum(weight.numel() for weight in model.parameters())
    tied = bool(getattr(model_config, "tie_word_embeddings", False))
    adapters = parameters
    if lora is not None:
        linear = {name: one for name, one in model.named_modules() if isinstance(one, torch.nn.Linear)}
        if video:
            linear = {name: one for name, one in linear.items() if "language_model" in name.split(".")}
        wanted = {name: [m for at, m in linear.items() if at.endswith(f".{name}")] for name in lora.lora.target_modules}
        if absent := [name for name, modules in wanted.items() if not modules]:
            raise ConfigError(f"lora.target_modules: the model has no module {absent[0]!r}; name others.")
        sizes = (one.in_features + one.out_features for modules in wanted.values() for one in modules)
        adapters = lora.lora.rank * sum(sizes)
        if lora.input == "video":
            adapters += sum(w.numel() for name, w in model.named_parameters() if ".merger." in name)
    heads = text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    return Shape(
        parameters=parameters,
        embedded=0 if tied else text.vocab_size * text.hidden_size,
        adapters=adapters,
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        heads=heads,
        kv_width=width * (getattr(text, "num_key_value_heads", None) or heads),
        vocabulary=text.vocab_size,
    )


def _lengths(config: AnyTraining, examples: list[Example], reader: "list[Reader]") -> Lengths:
    """Tokens of the examples, of some of them where they are many."""
    stride = max(1, len(examples) // _SAMPLED)
    chosen = examples[::stride]
    if not chosen:
        lengths = _ASSUMED
    else:
        plain = [
            planner_messages(one.goal, one.history if one.told_history is None else one.told_history) for one in chosen
        ]
        if isinstance(config, TrainingSettings) and config.prompt:
            asked = open_prompt(config.prompt)
            plain = [asked.training_chat(one)[:-1] for one in chosen]
        count = reader[0].tokenizer if reader else None

        def tokens(text: str) -> float:
            return len(text) / _LETTERS if count is None else len(count(text, add_special_tokens=False)["input_ids"])

        # Some tokens of the chat template for each turn.
        prompts = [sum(5 + tokens(turn["content"]) for turn in chat) for chat in plain]
        written = [1 + tokens(format_plan(one.continuation)) for one in chosen]
        longest = max(map(sum, zip(prompts, written, strict=True)))
        lengths = Lengths(fmean(prompts), fmean(written), round(longest))
    if isinstance(config, TrainingSettings) and config.input == "video":
        # Two frames share the patches, of which four are one token.
        seen = (config.frames.count or config.frames.max_frames) // 2 * config.frames.max_pixels // 28**2
        lengths = Lengths(lengths.prompt + seen, lengths.continuation, lengths.longest + seen)
    return lengths


def _estimate(config: AnyTraining, shape: Shape, examples: list[Example], reader: "list[Reader]") -> Estimate:
    from recipe.models.checkpoints import use_bf16  # noqa: PLC0415 - loads torch

    lengths = _lengths(config, examples, reader)
    bf16 = use_bf16(config.bf16)
    device = _device(shape, bf16)
    rates = cost.rates(config, shape, lengths, device, bf16=bf16)
    return Estimate(
        parameters=shape.parameters,
        trained=shape.adapters,
        seconds=device.start_seconds + cost.training_seconds(config, rates, len(examples)),
        memory=cost.memory(config, shape, lengths, bf16=bf16),
        memory_free=device.free,
        disk=cost.disk(config, shape, bf16=bf16),
        disk_free=shutil.disk_usage(_existing(config.output)).free,
        device=device.name,
        source=device.source,
    )


def _device(shape: Shape, bf16: bool) -> Device:
    """Where training would run: a GPU by what is assumed of its kind, or a CPU by a measured matrix product."""
    import torch  # noqa: PLC0415

    if torch.cuda.is_available():
        card = torch.cuda.get_device_properties(0)
        flops = card.multi_processor_count * _CLOCK * _PEAK.get(card.major, _PEAK[8]) * _UTILISATION
        source = f"calculated: {_UTILISATION:.0%} of the GPU's peak in 16 bits; not measured"
        unused, _ = torch.cuda.mem_get_info(0)
        return Device(card.name, flops, _GPU_BANDWIDTH, _GPU_LAYER, cost.STARTING, float(unused), source)
    number = torch.bfloat16 if bf16 else torch.float32
    left, right = torch.randn(512, shape.hidden).to(number), torch.randn(shape.hidden, 4 * shape.hidden).to(number)
    left @ right
    began, worked, count = perf_counter(), process_time(), 0
    while perf_counter() - began < _MEASURED_SECONDS:
        left @ right
        count += 1
    passed = perf_counter() - began
    flops = count * 8 * 512 * shape.hidden**2 / passed
    # Other programs take their share of the processor, and of the start, too.
    busy = max(1.0, passed * torch.get_num_threads() / (process_time() - worked))
    source = f"calculated from a matrix product of {flops / 1e9:.0f} billion operations a second, measured now"
    name = f"CPU, {torch.get_num_threads()} threads"
    unused = available()
    free = None if unused is None else float(unused)
    rate, start = _EFFICIENCY * flops, cost.STARTING * busy
    return Device(name, rate, _CPU_BANDWIDTH, _CPU_LAYER, start, free, source)


def _room(estimate: Estimate) -> Iterator[Finding]:
    """Whether memory and disk suffice."""
    needed, free = sum(estimate.memory.values()), estimate.memory_free
    if free is not None:
        said = f"about {size(needed)} at the peak, {size(free)} are free"
        certain = sum(held for name, held in estimate.memory.items() if "activations" not in name)
        remedy = "lower micro_batch, max_completion_tokens or max_tokens, or set gradient_checkpointing = true"
        if certain > free:
            said += "; take a smaller model or a device with more memory"
            yield Finding("memory", "missing", said)
        elif needed > free:
            yield Finding("memory", "note", f"{said}; {remedy}")
        else:
            yield Finding("memory", "ok", said)
    written = sum(estimate.disk.values())
    said = f"about {size(written)} are written, {size(estimate.disk_free)} are free"
    if written > estimate.disk_free:
        yield Finding("disk", "missing", f"{said}; free some space or set another `output`")
    else:
        yield Finding("disk", "ok", said)
