"""The settings of every stage: one frozen class each, defaults as in the paper; no heavy package is imported."""

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeGuard, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from recipe.errors import ConfigError

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Metrics = Literal["tensorboard", "wandb"]


class Settings(BaseModel):
    """Base of all settings: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), use_attribute_docstrings=True)


class EncoderConfig(Settings):
    """The frozen sentence encoder that maps steps and segments to unit-norm vectors."""

    name: str = "jinaai/jina-embeddings-v3-hf"
    """A sentence-transformers model id or folder; `minilm`, packaged; or `hash:D`, words hashed to D numbers."""
    revision: str | None = None
    """The model's pinned revision on its hub."""
    task: str | None = None
    """The model's own task, prompt or adapter folder; Jina v3 is asked for `text-matching` where none is given."""
    dimension: Positive | None = None
    """Truncate vectors to this many dimensions (Matryoshka models)."""
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    """Number format that the encoder computes in; `auto` is bfloat16 where the device has it, else float32."""
    device: str | None = None
    """Where the encoder computes, for example `cuda:1` or `cpu`; the best device there is where none is given."""
    trust_remote_code: bool = False
    """Run code that comes with the model; taken only with a revision that is a commit, or a model folder."""
    batch_size: Positive = 64
    """Texts encoded at once."""


class CorpusConfig(Settings):
    """How narrations become an index on disk."""

    encoder: EncoderConfig = EncoderConfig()
    shard_size: Positive = 4096
    """Narrations in a shard."""


class GroundedConfig(Settings):
    """The grounded verifier (docs/verifier.md); symbols as in `recipe.reward.grounded`."""

    candidates: Positive = 150
    """Narrations that stage 1 finds for the goal, and as many for the history: the pool is chosen among them."""
    pool_size: Positive = 100
    """Narrations in P, that judge."""
    background_size: Positive = 50
    """Narrations in Q, that say what any text earns."""
    relevance: Annotated[float, Field(ge=0)] = 0.25
    """rho, weight of the part that reads no corpus."""
    horizon: Annotated[float, Field(gt=0)] = 8.0
    """H, steps that a plan is expected to have."""
    price: Annotated[float, Field(ge=0)] = 0.04
    """phi, share of what a step of the history earns that each step of a plan costs."""
    abstain_below: float | None = None
    """Coverage of a prompt below which the corpus is not asked; the reward is then relevance alone."""


class RewardConfig(Settings):
    """The verifier (paper, section 3.2 and appendix A.3)."""

    verifier: Literal["paper", "grounded"] = "paper"
    """The paper's reward, to which all settings below belong, or the grounded one with its own."""
    grounded: GroundedConfig = GroundedConfig()
    pool: Literal["history", "full", "own"] = "history"
    """Which steps retrieve the pool: those of h for both scores, those of h + c for both, or each its own."""
    pool_size: Positive = 25
    """K, narrations kept by stage 1."""
    gap: Annotated[float, Field(le=0)] = -0.05
    """g, the gap penalty of stage 2."""
    tau: Fraction = 0.10
    """Progress threshold of the gate."""
    alpha: Annotated[float, Field(gt=0)] = 2.0
    """Penalty slope below the gate."""
    epsilon: Annotated[float, Field(gt=0)] = 1e-6
    """Guard of the division by the remaining gap 1 - A(h)."""
    stage2: bool = True
    """Off: A_mono in place of A_NW (ablation)."""
    history_baseline: bool = True
    """Off: A(h) = 0 (ablation)."""
    relative_progress: bool = True
    """Off: rho = A(h + c) - A(h) (ablation)."""
    gate: bool = True
    """Off: R = A(h + c) always (ablation)."""


class BaseModelConfig(Settings):
    """A small Qwen2-architecture language model trained from scratch, so that the whole method runs without a hub."""

    examples: Path
    """Training texts: examples as JSON lines, each rendered as one chat."""
    output: Path
    """Run folder: `logs/`, `metrics.jsonl`, and the model in `model/`."""
    split: str = ""
    """Examples of this split are trained on; empty takes all."""
    hidden_size: Positive = 192
    layers: Positive = 4
    head_size: Positive = 32
    vocabulary: Annotated[int, Field(ge=512)] = 2048
    """Entries of the byte-level BPE at most, special tokens included."""
    context: Positive = 1024
    """Longest position the model is built for, in tokens; longer chats are left out of training."""
    steps: Positive = 1200
    """Optimiser steps."""
    batch_tokens: Positive = 512
    """Tokens in a step, padding included, the common system turn not."""
    learning_rate: float = 3e-3
    """Peak rate: it rises over the first 30 steps and then falls as a cosine."""
    bf16: bool = True
    seed: int = 0


class LoraSettings(Settings):
    """Low-rank adapters on the query and value projections of the language decoder (paper, section 3.1)."""

    rank: Positive = 16
    alpha: Positive = 32
    dropout: Fraction = 0.05
    target_modules: tuple[str, ...] = ("q_proj", "v_proj")


class FrameConfig(Settings):
    """Which frames of a video a model sees, and how large (Qwen2.5-VL's own defaults, but for the bounds)."""

    fps: Annotated[float, Field(gt=0)] = 2.0
    """Frames a second, taken evenly up to the cut point."""
    count: Positive | None = None
    """So many frames, evenly spread, whatever the length; overrides `fps` and `max_frames`."""
    max_frames: Annotated[int, Field(ge=2)] = 128
    """Where `fps` gives more, so many are spread evenly instead."""
    min_pixels: Positive = 128 * 28 * 28
    """Smaller frames are enlarged to this area."""
    max_pixels: Positive = 768 * 28 * 28
    """Larger frames are reduced to this area."""


class TrainingSettings(Settings):
    """What SFT and GRPO share."""

    model: str
    """A model id on the hub or a folder in the standard layout."""
    revision: str | None = None
    """The model's pinned revision on its hub."""
    examples: Path
    """Training examples, JSON lines."""
    output: Path
    """Run folder: `checkpoints/`, `logs/`, `metrics.jsonl`, and the merged model in `model/`."""
    split: str = "train"
    """Examples of this split are trained on; empty takes all."""
    input: Literal["text", "video"] = "text"
    """What tells the policy the history: its steps as text, or the frames before the cut (paper, section 3.1)."""
    videos: Path | None = None
    """Folder of `<video_id>.<ext>` or `<source>/<video_id>.<ext>`; this and what follows: with `input = "video"`."""
    skip_missing_videos: bool = False
    """Leave out examples whose video is not in the folder, instead of refusing to begin."""
    frames: FrameConfig = FrameConfig()
    """Which frames of a video are read."""
    merger_learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Peak rate of the merger, the projector from vision to text, trained in full; left out: `learning_rate`."""
    lora: LoraSettings = LoraSettings()
    save_every: Positive = 50
    """Optimiser steps between two resumable checkpoints."""
    log_every: Positive = 1
    """Optimiser steps between two records of the metrics."""
    metrics: tuple[Metrics, ...] = ("tensorboard",)
    """Where metrics go beside `metrics.jsonl`."""
    bf16: bool | None = None
    """Compute in bfloat16; left out: on CUDA only."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, more time."""
    seed: int = 0

    @model_validator(mode="after")
    def _video_settings_have_a_use(self) -> Self:
        if self.input == "text":
            for name in ("videos", "skip_missing_videos", "frames", "merger_learning_rate"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} has a use with input = 'video' only; set that, or leave {name} out")
        return self


class SFTConfig(TrainingSettings):
    """Supervised fine-tuning on the continuation (paper, appendix A.4)."""

    epochs: Positive = 3
    batch_size: Positive = 2
    """Examples in an optimiser step."""
    micro_batch: Positive | None = None
    """Examples in one forward and backward pass, a divisor of `batch_size`; left out: all."""
    learning_rate: float = 2e-4
    warmup: Fraction = 0.1
    """Share of the steps in which the rate rises; it then falls as a cosine."""
    max_tokens: Positive = 1024
    """Longer prompt-and-continuation pairs are cut; a video's own tokens count."""

    @model_validator(mode="after")
    def _micro_batch_divides(self) -> Self:
        return _checked_micro_batch(self, self.micro_batch, self.batch_size, "batch_size")


class GRPOConfig(TrainingSettings):
    """Group relative policy optimisation against the verifier (paper, section 3.3 and appendix A.4).

    From an SFT run, give its merged `model/` folder as `model`: the reference policy is then the SFT checkpoint.
    """

    corpus: Path
    """The verification corpus."""
    corpus_devices: tuple[str, ...] = ()
    """GPUs that hold the corpus's codes and search them, for example `["cuda:1"]`; left out: the processor searches."""
    reward: RewardConfig = RewardConfig()
    steps: Positive = 500
    """Optimiser steps."""
    prompts_per_step: Positive = 8
    group_size: Annotated[int, Field(ge=2)] = 4
    """G, completions of one prompt."""
    micro_batch: Positive | None = None
    """Completions in one forward and backward pass, a divisor of `prompts_per_step` x `group_size`; left out: all."""
    beta: Annotated[float, Field(ge=0)] = 0.04
    """Weight of the KL divergence to the reference policy."""
    clip: Annotated[float, Field(gt=0)] = 0.30
    """Clipping range of the importance ratio."""
    iterations: Positive = 1
    """Passes over each batch of completions; the ratio moves away from 1, and clipping acts, only above 1."""
    learning_rate: float = 1e-4
    """Constant, without warm-up."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Of the roll-outs."""
    max_completion_tokens: Positive = 256

    @model_validator(mode="after")
    def _micro_batch_divides(self) -> Self:
        completions = self.prompts_per_step * self.group_size
        return _checked_micro_batch(self, self.micro_batch, completions, "prompts_per_step x group_size")


class SamplingConfig(Settings):
    """How a planner samples (SPEC: evaluation takes one continuation at temperature 0.7)."""

    temperature: Annotated[float, Field(ge=0)] = 0.7
    """0 is greedy."""
    max_tokens: Positive = 256
    batch_size: Positive = 64
    seed: int = 0


class EndpointConfig(Settings):
    """An OpenAI-compatible endpoint and how it is asked (docs/endpoints.md)."""

    url: str
    """Its base address, such as `http://localhost:8000/v1`."""
    model: str
    """The model's name there."""
    key_variable: str | None = None
    """Environment variable that holds the key; left out: the endpoint is asked without one."""
    clips: Literal["images", "video"] = "images"
    """A clip as one image a frame, each after its time, or as the one `video_url` of JPEG frames that vLLM takes."""
    jpeg_quality: Annotated[int, Field(ge=1, le=95)] = 85
    max_pixels: Positive | None = None
    """Frames of a larger area are reduced to this one before they are sent; left out: as they are."""
    concurrency: Positive = 8
    """Requests under way at once."""
    timeout: Annotated[float, Field(gt=0)] = 180.0
    """Seconds that one request may take."""
    tries: Positive = 6
    """Requests for one answer at most."""
    patience: Annotated[float, Field(gt=0)] = 900.0
    """Seconds after which no further try for an answer is begun, waits included."""
    token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name under which the endpoint takes the longest completion; some hosts know only the second."""
    send_seed: bool = True
    """Send a seed of its own for each sample; off for hosts that refuse the field."""
    structured: Literal["auto", "json_schema", "json_object", "off"] = "auto"
    """How answers are held to a schema where one is asked for: as the host says, any JSON object, or only in words.
    `auto` begins with the first and takes the next where the host refuses it."""
    price_in: Annotated[float, Field(ge=0)] | None = None
    """Price of a million tokens of the prompts, in any currency."""
    price_out: Annotated[float, Field(ge=0)] | None = None
    """Price of a million tokens of the completions."""


class PhiConfig(Settings):
    """How Phi, the frozen vision-language model, reads a video as steps (paper, section 3.1)."""

    frames: FrameConfig = FrameConfig()
    goal: bool = True
    """Tell Phi the goal, which the planner knows, too."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0 is greedy."""
    max_tokens: Positive = 512
    """Of an answer."""
    seed: int = 0


class JudgeConfig(Settings):
    """How a judge is asked, and how much of a plan it is shown (docs/judge.md)."""

    temperature: Annotated[float, Field(ge=0)] = 0.0
    max_tokens: Positive = 512
    """Of an answer; a judge that thinks aloud needs more."""
    seed: int = 0
    repeats: Positive = 1
    """Verdicts asked for each plan."""
    reasks: Annotated[int, Field(ge=0)] = 1
    """How often an answer that cannot be read is asked for again."""
    max_steps: Positive = 100
    """Steps of a plan that are shown; the judge is told how many are not."""
    max_step_characters: Positive = 500
    max_characters: Positive = 12_000
    """Of all steps of a plan together."""
    batch_size: Positive = 16
    """Prompts that a model on this machine reads at once."""


Config = TypeVar("Config", bound=Settings)


def _checked_micro_batch(config: Config, micro: int | None, whole: int, name: str) -> Config:
    if micro is not None and whole % micro:
        raise ValueError(f"micro_batch {micro} does not divide {name}, which is {whole}")
    return config


def load_config(path: Path, kind: type[Config]) -> Config:
    """Read a TOML file into the settings of one stage; raises ConfigError with the field and the nearest known key."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(f"{path}: the file does not exist; check the path.") from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: this is a folder; give the path of a TOML file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML ({error}); repair the file.") from None
    return parse_config(raw, kind, str(path))


def parse_config(raw: dict[str, Any], kind: type[Config], origin: str) -> Config:
    """Validate plain values as the settings of one stage; raises ConfigError naming `origin`."""
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise ConfigError(f"{origin}: {_explain(error, kind)}") from None


def _explain(error: ValidationError, kind: type[Settings]) -> str:
    """The first error in words; an unknown key goes first, because a misspelt one leaves another missing."""
    first = min(error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden")
    names, known = _walk(kind, first["loc"])
    context = first.get("ctx", {})
    if first["type"].startswith("union_tag"):
        names.append(context["discriminator"].strip("'"))
    key, message = ".".join(names), first["msg"].removeprefix("Value error, ")
    for python, toml in (("Tuple", "List"), ("tuple", "list"), ("dictionary", "table")):
        message = message.replace(python, toml)
    if not key:
        return f"{message}."
    if first["type"] == "extra_forbidden":
        nearest = difflib.get_close_matches(names[-1], known, n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"known keys are {', '.join(known)}."
        return f"unknown key {key!r}; {hint}"
    if first["type"] in ("missing", "union_tag_not_found"):
        return f"key {key!r} is missing; add it."
    if first["type"] == "union_tag_invalid":
        return f"key {key!r}: input should be one of {context['expected_tags']} (given: {context['tag']!r})."
    return f"key {key!r}: {message[0].lower()}{message[1:]} (given: {first['input']!r})."


def _walk(kind: type[Settings], location: tuple[int | str, ...]) -> tuple[list[str], list[str]]:
    """The keys that lead to `location`, and all keys of the table that it lies in."""
    here, names = kind, list[str]()
    tagged: dict[str, type[Settings]] = {}
    for part in map(str, location):
        if part in tagged:  # tells the member of a union, and is no key
            here, tagged = tagged[part], {}
            continue
        names.append(part)
        if field := here.model_fields.get(part):
            members = [one for one in get_args(field.annotation) or [field.annotation] if _is_settings(one)]
            if isinstance(field.discriminator, str):
                tagged = {get_args(one.model_fields[field.discriminator].annotation)[0]: one for one in members}
            elif members:
                here = members[0]
    return names, sorted(here.model_fields)


def _is_settings(kind: Any) -> TypeGuard[type[Settings]]:
    return isinstance(kind, type) and issubclass(kind, Settings)
