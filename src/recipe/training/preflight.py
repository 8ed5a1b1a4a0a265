"""What a training run needs, looked for before it starts: files, packages, model, corpus, folder, disk and memory.

Nothing is written and no weights are loaded. All that is missing is found at once. Memory and disk are a rule of thumb
from the number of parameters; time is measured by two steps of the run (`recipe.training.cost`).
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from recipe.artifacts import cache_folder, not_a_file
from recipe.config.training import (
    AnyTraining,
    BaseModelConfig,
    BestOfNConfig,
    GRPOConfig,
    RewardTrainingSettings,
    SFTConfig,
    Stage,
    TrainingSettings,
    tracking_packages,
)
from recipe.corpus.encoders import encoder_extra
from recipe.data.examples import read_examples, read_training_examples
from recipe.errors import ConfigError, InputError, MissingExtra, RecipeError, install_command, require_packages
from recipe.memory import available
from recipe.prompting import open_prompt
from recipe.reward.own import pinned_reward
from recipe.text import planner_messages
from recipe.training.cost import size

if TYPE_CHECKING:
    from recipe.models.checkpoints import Reader

State = Literal["ok", "note", "missing"]

PROCESS = 1.0e9
"""Bytes of Python with torch, transformers and TRL."""
KEPT = 3
"""Checkpoints on disk at most: the last two, and the one that is written."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that a run needs."""

    subject: str
    state: State
    sentence: str

    @classmethod
    def of(cls, subject: str, look: Callable[[], str | tuple[State, str]]) -> "Requirement":
        """What looking for a thing says, or `missing` with the error that it raises."""
        try:
            sentence = look()
        except (RecipeError, OSError) as error:
            return cls(subject, "missing", str(error))
        return cls(subject, "ok", sentence) if isinstance(sentence, str) else cls(subject, *sentence)


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What a run holds at least, by a rule of thumb; activations, logits and the cache of roll-outs come on top."""

    parameters: int
    trained: int
    memory: dict[str, float]
    """Bytes, by what they hold."""
    memory_free: float | None
    disk: dict[str, float]
    """Bytes that are written, by what they hold."""
    disk_free: float

    def lines(self) -> list[str]:
        """The estimate in lines of text."""
        parts = ", ".join(f"{name} {size(held)}" for name, held in self.memory.items())
        files = ", ".join(f"{name} {size(held)}" for name, held in self.disk.items())
        return [
            f"parameters, millions: {self.parameters / 1e6:,.1f} in the model, {self.trained / 1e6:,.2f} trained",
            f"memory: {parts}, and activations, which depend on lengths and micro_batch",
            f"disk: {files}",
            "time: recipe train check --measure takes two steps and says the hours",
        ]

    def room(self) -> Iterator[Requirement]:
        """Whether memory and disk suffice."""
        needed, free = sum(self.memory.values()), self.memory_free
        if free is not None:
            sentence = f"about {size(needed)} and activations, {size(free)} are free"
            if needed > free:
                yield Requirement("memory", "missing", f"{sentence}; take a smaller model or a device with more memory")
            else:
                yield Requirement("memory", "ok", sentence)
        written = sum(self.disk.values())
        sentence = f"about {size(written)} are written, {size(self.disk_free)} are free"
        if written > self.disk_free:
            yield Requirement("disk", "missing", f"{sentence}; free some space or set another `output`")
        else:
            yield Requirement("disk", "ok", sentence)


@dataclass(frozen=True, slots=True)
class Preflight:
    """What a run needs and holds."""

    stage: Stage
    findings: tuple[Requirement, ...]
    estimate: MemoryEstimate | None
    """None where the model's size is not known."""

    @property
    def ready(self) -> bool:
        """Whether nothing is missing."""
        return all(finding.state != "missing" for finding in self.findings)


def check_run(stage: Stage, config: AnyTraining) -> Preflight:
    """Look for everything that a run needs, and estimate its size. Writes nothing; what is missing is a finding."""
    check = Requirement.of
    findings = [check("packages", lambda: _packages(config))]
    findings.append(check("examples", lambda: _examples(config)))
    installed = findings[0].state != "missing" or all(find_spec(name) for name in ("torch", "transformers"))
    reader: list[Reader] = []
    if isinstance(config, TrainingSettings):
        if installed:
            findings += model_findings(config.model, config.revision, reader)
        if reader:
            findings.append(check("end of turn", lambda: _end_of_turn(config, reader[0])))
        if config.prompt:
            findings.append(check("prompt", lambda: f"{open_prompt(config.prompt).name!r} can be read"))
        if config.input == "video" and find_spec("av") is None:
            problem = f"Packages for videos are not installed; run: {install_command('video')}."
            findings.append(Requirement("videos", "missing", problem))
        elif config.input == "video":
            findings.append(check("videos", lambda: _videos(config)))
    if isinstance(config, RewardTrainingSettings):
        if config.control is not None:
            findings.append(Requirement("reward", "ok", "the control: plans are rewarded by the true continuation"))
        elif (corpus := config.corpus) is not None:
            findings.append(check("corpus", lambda: _corpus(corpus, installed)))
        else:
            asked = f"{config.reward_service}: the service is asked when the run starts"
            findings.append(Requirement("reward", "note", asked))
        if config.reward.is_function:
            findings.append(check("reward", lambda: f"{pinned_reward(config.reward).verifier} is there"))
        if isinstance(config, BestOfNConfig) and config.plans is not None:
            plans = config.plans / "completions" / "round-01.jsonl"
            findings.append(check("plans", lambda: _file(plans)))
        if (settings := config.validation) is not None:
            held, split = settings.examples, settings.split
            findings.append(check("validation", lambda: f"{held}: {len(read_examples(held, split)):,} examples"))
            if (graphs := settings.graphs) is not None:
                at_hand = f"{graphs} is there"
                findings.append(check("validation.graphs", lambda: at_hand if graphs.exists() else _file(graphs)))
            if settings.measure in ("matched_f1", "proxy") or graphs is not None:
                encoder = {"name": settings.encoder}
                findings.append(check("validation.encoder", lambda: encoder_at_hand(encoder, installed)))
    findings.append(check("output", lambda: _output(stage, config, installed)))
    estimate = None
    if installed and (reader or isinstance(config, BaseModelConfig)):
        try:
            estimate = _estimate(config, reader)
            findings += estimate.room()
        except RecipeError as error:
            findings.append(Requirement("model", "missing", str(error)))
    return Preflight(stage, tuple(findings), estimate)


def _packages(config: AnyTraining) -> str:
    """Raises MissingExtra."""
    needed = {"train": "training"}
    if isinstance(config, TrainingSettings):
        needed |= tracking_packages(config.metrics)
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


def _examples(config: AnyTraining) -> str:
    """Raises InputError, also where there are none."""
    count = len(read_training_examples(config.examples, config.split))
    return f"{config.examples}: {count:,} examples{f' of split {config.split!r}' if config.split else ''}"


def _end_of_turn(config: TrainingSettings, reader: "Reader") -> str | tuple[State, str]:
    """Which token ends a plan, and what is done where that is not the tokenizer's `eos_token`."""
    from recipe.models.checkpoints import end_of_turn  # noqa: PLC0415 - loads torch

    end, eos = end_of_turn(reader.tokenizer), reader.tokenizer.eos_token
    if end.id is None:
        return "note", "neither the chat template nor the tokenizer has a token that ends a turn, so that no plan ends"
    if end.written and end.token == eos:
        return f"{eos!r} ends a plan"
    if end.written:
        sentence = f"the chat template ends a turn with {end.token!r}, and eos_token is {eos!r}: a plan ends at either"
    else:
        after = repr(end.text.strip()) if end.text.strip() else "nothing"
        sentence = f"the chat template writes {after} after a turn, and no token: a plan ends at eos_token, {eos!r}"
    if isinstance(config, SFTConfig):
        return "note", f"{sentence}, and each continuation of the examples with {end.token!r}"
    return "note", f"{sentence}; a base model may not write it before SFT has taught it"


def _file(path: Path) -> str:
    """Raises InputError."""
    if not path.is_file():
        raise not_a_file(path)
    return f"{path} is there"


def _videos(config: TrainingSettings) -> str:
    from recipe.training.video import video_source  # noqa: PLC0415 - loads torch

    source = video_source(config, None)
    assert source is not None
    return f"{config.videos}: videos of {len(source.examples):,} examples"


def _in_hub_cache(name: str, revision: str | None, *files: str) -> bool:
    """Whether one of the files of a hub's model is in the local cache."""
    from huggingface_hub import errors, try_to_load_from_cache  # noqa: PLC0415 - slow to import

    try:
        paths = (try_to_load_from_cache(name, file, revision=revision) for file in files)
        return any(isinstance(path, str) for path in paths)
    except errors.HFValidationError:
        return False


def _from_hub(name: str, revision: str | None) -> tuple[State, str]:
    """Says what a hub's model that is not in the local cache would need."""
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        problem = (
            "there is no such folder, it is not in the local cache of the hub, and HF_HUB_OFFLINE switches the hub off"
        )
        raise InputError.at(f"model {name!r}", problem, "give a model folder, or download the model once while online")
    at = "" if revision is None else f" at revision {revision!r}"
    return "note", f"{name!r}{at} is not in the local cache; it would be downloaded from the hub, its size is not known"


def model_findings(name: str, revision: str | None, into: "list[Reader]") -> Iterator[Requirement]:
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

    yield Requirement.of("model", look)


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

        if isinstance(config, RewardTrainingSettings):
            config = config.model_copy(update={"reward": pinned_reward(config.reward)})
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
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _estimate(config: AnyTraining, reader: "list[Reader]") -> MemoryEstimate:
    """Weights, and 16 bytes for each trained number: itself, its gradient and Adam's two means, in float32.

    The model is built on the meta device, where it takes no memory. Raises ConfigError where it has no projection of a
    name.
    """
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    from recipe.models.devices import use_bf16  # noqa: PLC0415 - loads torch
    from recipe.training.base import base_shape  # noqa: PLC0415 - loads torch

    shape: Any = base_shape(config, config.vocabulary) if isinstance(config, BaseModelConfig) else reader[0].config
    video = shape.model_type == "qwen2_5_vl"
    kind = transformers.AutoModelForImageTextToText if video else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = kind.from_config(shape, trust_remote_code=False)
    parameters = trained = sum(weight.numel() for weight in model.parameters())
    if isinstance(config, TrainingSettings):
        trained = 0
        for target in config.lora.target_modules:
            modules = [
                module
                for name, module in model.named_modules()
                if isinstance(module, torch.nn.Linear)
                and name.endswith(f".{target}")
                and (not video or "language_model" in name.split("."))
            ]
            if not modules:
                raise ConfigError(f"lora.target_modules: the model has no module {target!r}; name others.")
            trained += config.lora.rank * sum(module.in_features + module.out_features for module in modules)
        if config.input == "video":
            trained += sum(weight.numel() for name, weight in model.named_parameters() if ".merger." in name)
        weights = float((2 if use_bf16(config.bf16) else 4) * parameters)
        memory = {"weights": weights, "adapters, gradients and optimiser": 16.0 * trained}
        # A checkpoint holds the adapter and Adam's means; the best step of validation is an adapter more.
        disk = {"checkpoints": 12.0 * trained * KEPT + 4.0 * trained, "merged model": weights}
    else:
        memory = {"weights": 4.0 * parameters, "gradients and optimiser": 12.0 * parameters}
        saved = KEPT if config.steps > config.save_every else 0
        disk = {"checkpoints": saved * 12.0 * parameters, "model": 4.0 * parameters}
    free = available()
    if torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info(0)
    return MemoryEstimate(
        parameters,
        trained,
        memory | {"process": PROCESS},
        None if free is None else float(free),
        disk,
        float(shutil.disk_usage(_existing(config.output)).free),
    )
