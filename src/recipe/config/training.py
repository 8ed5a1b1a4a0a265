"""Settings of training: the base model, SFT, GRPO and best-of-N rounds.

*Stated* marks a value that the paper gives, with the place; *ours* marks a value that it does not give.
"""

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from recipe.config.base import Config, Fraction, Positive, Seeded, Settings, load_config, parse_config, read_config
from recipe.config.models import TEMPERATURE, FrameConfig
from recipe.config.reward import RewardConfig
from recipe.errors import ConfigError

Metrics = Literal["tensorboard", "wandb", "trackio", "mlflow"]
LARGEST_RATIO = 2.0
"""Largest weight of a vLLM completion: C of truncated importance sampling (Yao et al., 2025)."""
PLANS_EVERY, PLANS = 50, 8
"""Of the tables of plans that trackers get: optimiser steps between two, and plans in one, as many as fit a screen."""
LOG_EVERY = 1
"""Optimiser steps between two records of the metrics: the watchdog and the reports read every step."""


def tracking_packages(metrics: Sequence[Metrics]) -> dict[str, str]:
    """The extras that sending metrics needs, each with what it is for."""
    return {kind: f"metrics = [{kind!r}]" for kind in metrics if kind != "tensorboard"}


class TrackingConfig(Settings):
    """How a run is named where its metrics go. It changes no result."""

    fixed = MappingProxyType({"plans_every": PLANS_EVERY, "plans": PLANS})

    project: str = "recipe"
    """Ours. Project, or experiment in MLflow's words."""
    run: str = ""
    """Ours. Name of the run; left out: that of its folder."""


class _ExamplesSettings(Settings):
    """The examples of a run, or of its validation."""

    examples: Path
    """Examples, JSON lines (docs/data.md)."""
    split: str = ""
    """Examples of this split are taken; empty takes all."""


class _RunSettings(_ExamplesSettings, Seeded):
    """What every run of training has."""

    output: Path
    """Run folder: `checkpoints/`, `logs/`, `metrics.jsonl`, and the model in `model/`: merged, where it was adapted."""


class BaseModelConfig(_RunSettings):
    """A small Qwen2-architecture language model trained from scratch, so that the whole method runs without a hub.

    Each example is a training text, rendered as one chat. The paper has no such model: every setting is ours.
    """

    stage = "base"

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
    save_every: Positive = 200
    """Optimiser steps between two resumable checkpoints."""
    bf16: bool = True
    """Compute in bfloat16; a processor without instructions for it computes in float32, and says so."""


class LoraSettings(Settings):
    """Low-rank adapters of the language decoder."""

    rank: Positive = 16
    """Ours."""
    alpha: Positive = 32
    """Ours."""
    dropout: Fraction = 0.05
    """Ours."""
    target_modules: tuple[str, ...] = ("q_proj", "v_proj")
    """Stated (section 3.1): the query and value projections."""


class TrainingSettings(_RunSettings):
    """What SFT, GRPO and best-of-N rounds share."""

    fixed = MappingProxyType({"log_every": LOG_EVERY})

    model: str
    """A model id on the hub, a folder in the standard layout, or `smollm2` (docs/planning.md). Stated (section 4.1):
    Qwen2.5 of 0.5B, 3B and 7B, for video Qwen2.5-VL-3B. Ours: the Instruct versions."""
    revision: str | None = None
    """The model's pinned revision on its hub."""
    prompt: str = ""
    """Ours. What a policy of text is asked with: `plain`, `one-example` or a file (docs/planning.md); left out: the
    prompt that the model was trained with, `plain` for any other model."""
    split: str = "train"
    input: Literal["text", "video"] = "text"
    """Stated (section 3.1), both: the policy reads the history as text, or as the frames before the cut."""
    videos: Path | None = None
    """Folder of `<video_id>.<ext>` or `<source>/<video_id>.<ext>`; this and the next ones: with `input = "video"`."""
    skip_missing_videos: bool = False
    """Leave out examples whose video is not in the folder, instead of refusing to begin."""
    frames: FrameConfig = FrameConfig()
    """Ours. Which frames of a video are read."""
    merger_learning_rate: Annotated[float, Field(gt=0)] | None = None
    """Peak rate of the merger; left out: `learning_rate`. Stated (section 3.1): this projector from vision to text is
    trained in full, the visual encoder is frozen. Ours: the rate."""
    lora: LoraSettings = LoraSettings()
    save_every: Positive = 50
    """Ours. Optimiser steps between two resumable checkpoints."""
    metrics: tuple[Metrics, ...] = ("tensorboard",)
    """Where metrics go besides `metrics.jsonl`."""
    tracking: TrackingConfig = TrackingConfig()
    """How the run is named there."""
    bf16: bool | None = None
    """Ours. Compute in bfloat16; left out: on CUDA only. A processor without instructions for it computes in float32,
    and says so."""
    micro_batch: Positive | None = None
    """Ours. Examples in one forward and backward pass, a divisor of those in a step: of `batch_size`, of GRPO
    `prompts_per_step` x `group_size`; left out: all."""
    gradient_checkpointing: bool = False
    """Ours. Recompute activations in the backward pass: less memory, more time."""

    @model_validator(mode="after")
    def _video_settings_have_a_use(self) -> Self:
        if self.input == "text":
            for name in ("videos", "skip_missing_videos", "frames", "merger_learning_rate"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"'{name}' requires input = 'video'; set that, or leave {name} out")
        elif self.prompt:
            raise ValueError("'prompt' requires input = 'text'; leave it out")
        return self


class FineTuningSettings(TrainingSettings):
    """What SFT and best-of-N rounds share: token cross-entropy with fused AdamW (stated, appendix A.4)."""

    epochs: Positive = 3
    """Stated (appendix A.4)."""
    batch_size: Positive = 2
    """Stated (appendix A.4). Examples in an optimiser step."""
    learning_rate: float = 2e-4
    """Stated (appendix A.4). The peak rate."""
    warmup: Fraction = 0.1
    """Stated (appendix A.4). Share of the steps in which the rate rises; it then falls as a cosine."""

    @model_validator(mode="after")
    def _micro_batch_divides(self) -> Self:
        return _checked_micro_batch(self, self.micro_batch, self.batch_size, "batch_size")


class SFTConfig(FineTuningSettings):
    """Supervised fine-tuning: token cross-entropy on the continuation, with fused AdamW (stated, appendix A.4)."""

    stage = "sft"

    max_tokens: Positive = 1024
    """Ours. Longer prompt-and-continuation pairs are cut; a video's own tokens count."""


Measured = Literal["reward", "matched_f1", "proxy", "validity"]
"""What validation can choose by."""


class ValidationSettings(_ExamplesSettings):
    """Plans for held-out prompts while training: which step's model is kept, and when training stops.

    An example or a video that is in the training examples or in the corpus is refused. The paper has no validation:
    every setting is ours.
    """

    prompts: Positive | None = None
    """The first so many of the examples; left out: all."""
    every: Positive = 10
    """Optimiser steps, or rounds of best-of-N, between two validations; the base and the last one are always validated.
    """
    measure: Measured = "reward"
    """What the kept step is best by: the reward itself, matched step F1 with the continuation, the proxy judge's total
    as a share, or validity against task graphs. The mean reward is recorded with each."""
    patience: Positive | None = None
    """Validations without a better one after which training stops; left out: it goes on."""
    samples: Positive = 4
    """Plans of a prompt, with the same random numbers at each validation."""
    encoder: str = "minilm"
    """Of `matched_f1`, `proxy` and of `validity` with `graphs`: minilm, hash:256, hub id or folder."""
    graphs: Path | None = None
    """With `measure = "validity"`: task graphs as in `recipe evaluate validity`; left out: the embedded world's."""
    threshold: Fraction | None = None
    """With `graphs`: least similarity of a line to its step; left out: measured."""

    @model_validator(mode="after")
    def _graphs_have_a_use(self) -> Self:
        if self.graphs is not None and self.measure != "validity":
            raise ValueError("graphs has a use with measure = 'validity' only; set that, or leave graphs out")
        if self.threshold is not None and self.graphs is None:
            raise ValueError("threshold has a use with graphs only: the embedded world has its own wordings")
        return self


class RewardTrainingSettings(TrainingSettings):
    """What GRPO and best-of-N rounds share: a reward, and plans that the policy writes."""

    corpus: Path | None = None
    """The verification corpus. Stated (section 4.1): the HowToCaption release of HowTo100M."""
    corpus_devices: tuple[str, ...] = ()
    """Ours. GPUs that hold the corpus's codes and search them, for example `["cuda:1"]`; left out: the processor."""
    reward: RewardConfig = RewardConfig()
    """Settings of the verifier on `corpus`."""
    reward_service: str | None = None
    """Ours. Address of a running `recipe reward serve`, in place of `corpus`: corpus, devices and settings of the
    verifier are then the service's."""
    reward_patience: Annotated[float, Field(gt=0)] = 3600.0
    """Ours. Seconds for which training waits for a service that does not answer; may change when a run is resumed."""
    temperature: Annotated[float, Field(gt=0)] = TEMPERATURE
    """Ours. Of the roll-outs and of validation's plans. The default is that of `recipe plan`: at a higher one training
    repairs errors that plans in use do not have (docs/training.md)."""
    control: Literal["reference"] | None = None
    """Ours. A positive control in place of the verifier: plans are rewarded by the annotated continuation, with what
    `validation.measure` names, else matched step F1. If that reward does not rise, no reward can."""
    max_completion_tokens: Positive = 256
    """Ours."""
    min_coverage: Literal["partly", "known"] | float | None = None
    """Ours. Prompts whose task the corpus does not know, at least in part (docs/audit.md), are left out of training; or
    those that the verifier covers less than a number (`Reward.coverage`), for which it has to report coverage as the
    grounded one does. Left out: all prompts are trained on."""
    validation: ValidationSettings | None = None
    """Ours. Validate while training, and keep the best step or round instead of the last; with `input = "text"`."""
    truncated: Literal["keep", "mask"] = "keep"
    """Ours. Completions that hit the token limit: `mask` leaves them out of GRPO's loss, and best-of-N rounds never
    choose one; `keep` trains on them as they were written, without an end. They keep their reward, which counts for the
    mean and the spread of their group."""

    @model_validator(mode="after")
    def _one_source_of_rewards(self) -> Self:
        if self.control is None and (self.corpus is None) == (self.reward_service is None):
            raise ValueError("give one of corpus, a folder, and reward_service, an address")
        if self.corpus is None and self.control is None:
            for name in ("corpus_devices", "reward"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} has a use with corpus only; give it to the reward service instead")
        return self

    @model_validator(mode="after")
    def _validates_text(self) -> Self:
        if self.validation is not None and self.input != "text":
            raise ValueError("validation reads prompts as text; leave it out with input = 'video'")
        return self


class VllmSettings(Settings):
    """vLLM next to the trainer, an engine for each process; the paper has none, every setting is ours."""

    fixed = MappingProxyType({"cap": LARGEST_RATIO})

    memory: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Ours. Share of the GPU's memory for its weights and cache."""
    sleep: bool = False
    """Ours. Give this memory back between roll-outs, at the price of time."""
    longest: Positive | None = None
    """Ours. Prompt and completion together, in tokens; left out: the model's own context."""
    correction: Literal["token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "off"] = "token_truncate"
    """Ours. How the ratio between the trainer's probability of a completion and vLLM's weighs its loss: by token or by
    sequence, cut at 2 or left out above it. `off` leaves out the measure of the gap too."""


class GRPOConfig(RewardTrainingSettings):
    """Group relative policy optimisation against the verifier (paper, section 3.3).

    Rewards standardised within the group, a KL penalty and fused AdamW are stated (appendix A.4). From an SFT run,
    give its merged `model/` folder as `model`: the reference policy is then the SFT checkpoint (stated, appendix A.4).
    """

    stage = "grpo"

    steps: Positive = 500
    """Ours. Optimiser steps; appendix A.3 speaks of "the first few thousand steps" without a number of all."""
    prompts_per_step: Positive = 8
    """Ours."""
    group_size: Annotated[int, Field(ge=2)] = 4
    """Stated (appendix A.4). G, completions of one prompt."""
    beta: Annotated[float, Field(ge=0)] = 0.04
    """Stated (appendix A.4). Weight of the KL divergence to the reference policy."""
    clip: Annotated[float, Field(gt=0)] = 0.30
    """Stated (appendix A.4). Clipping range of the importance ratio."""
    iterations: Positive = 1
    """Ours. Passes over each batch of completions; the ratio moves away from 1, and clipping acts, only above 1."""
    loss: Literal["grpo", "dapo", "dr_grpo"] = "grpo"
    """`grpo`, as first published, standardises rewards within the group (stated, appendix A.4) and averages the loss
    within a completion first (ours), which weakens the price of a long bad plan: plans grow. Ours: `dapo` (Yu et al.
    2025) averages over all tokens of a step instead; `dr_grpo` (Liu et al. 2025) only centres rewards and divides the
    sum over all tokens by `max_completion_tokens` a completion, so that neither the spread of a group nor the length of
    a completion weighs its tokens."""
    learning_rate: float = 1e-4
    """Stated (appendix A.4). Constant, without warm-up."""
    rollouts: Literal["transformers", "vllm"] = "transformers"
    """Ours. What writes the completions: the policy itself, or vLLM (docs/training.md)."""
    vllm: VllmSettings = VllmSettings()
    """With `rollouts = "vllm"`."""

    @model_validator(mode="after")
    def _vllm_has_a_use(self) -> Self:
        if self.rollouts == "transformers" and self.vllm != VllmSettings():
            raise ValueError("vllm has a use with rollouts = 'vllm' only; set that, or leave vllm out")
        return self

    @model_validator(mode="after")
    def _micro_batch_divides(self) -> Self:
        completions = self.prompts_per_step * self.group_size
        return _checked_micro_batch(self, self.micro_batch, completions, "prompts_per_step x group_size")


class BestOfNConfig(RewardTrainingSettings, FineTuningSettings):
    """Best-of-N distillation: each round, the policy writes N plans of a prompt and is fine-tuned on the best of them.

    The paper has no such optimiser: every setting is ours, and the rates of fine-tuning are those of SFT. What is
    trained is one adapter, which goes on through the rounds; each round has an optimiser and a schedule of its own.
    """

    stage = "best-of-n"
    fixed = MappingProxyType({**TrainingSettings.fixed, "margin": None})

    rounds: Positive = 1
    """Rounds of sampling, choosing and fine-tuning."""
    n: Annotated[int, Field(ge=2)] = 8
    """N, plans of one prompt among which one is chosen. An ideal round moves the policy by at most ln N - (N - 1) / N
    nats a plan."""
    prompts_per_round: Positive | None = None
    """Prompts of a round, all once before any comes again; left out: all."""
    plans: Path | None = None
    """Folder of another run whose plans of the first round are taken, without their rewards, so that runs on several
    rewards share the work: a run of the same model, examples and settings of sampling. Left out: the run writes them.
    """
    choose: Literal["best", "random"] = "best"
    """The plan to train on: the one with the highest reward, the first of equals; or as a control a random one."""
    completions_at_once: Positive = 128
    """Completions that are written and scored together; bounds the memory. A run that was stopped loses no more."""

    @model_validator(mode="after")
    def _reads_text(self) -> Self:
        if self.input != "text":
            raise ValueError("best-of-N rounds read histories as text; leave input out, or use recipe train grpo")
        return self


def _checked_micro_batch(config: Config, micro: int | None, whole: int, name: str) -> Config:
    if micro is not None and whole % micro:
        raise ValueError(f"micro_batch {micro} does not divide {name}, which is {whole}")
    return config


Stage = Literal["base", "sft", "grpo", "best-of-n"]
AnyTraining = BaseModelConfig | SFTConfig | GRPOConfig | BestOfNConfig
STAGES: dict[Stage, type[BaseModelConfig] | type[SFTConfig] | type[GRPOConfig] | type[BestOfNConfig]] = {
    "base": BaseModelConfig,
    "sft": SFTConfig,
    "grpo": GRPOConfig,
    "best-of-n": BestOfNConfig,
}


def read_training(path: Path, changes: Sequence[str] = (), stage: Stage | None = None) -> tuple[Stage, AnyTraining]:
    """What a config of training trains, and its settings: as its key `stage` says, else the only one that they fit.

    Raises ConfigError where the key is another than `stage`, where there is none and the settings fit several or none,
    and for settings that cannot be used.
    """
    raw = read_config(path, changes)
    named = stage or raw.get("stage")
    if named is not None:
        if str(named) not in STAGES:
            raise ConfigError(f"{path}: key 'stage': give one of {', '.join(STAGES)} (given: {named!r}).")
        return named, load_config(path, STAGES[named], changes)
    fitting: dict[Stage, AnyTraining] = {}
    for name, kind in STAGES.items():
        try:
            fitting[name] = parse_config(raw, kind, str(path), changes)
        except ConfigError:
            continue
    if len(fitting) == 1:
        return next(iter(fitting.items()))
    if fitting:
        raise ConfigError(f"{path}: the settings fit {' and '.join(fitting)}; add the key 'stage' with one of them.")
    # The stage with the fewest unknown keys is meant; its error says what is wrong.
    nearest = min(STAGES, key=lambda name: (len(raw.keys() - STAGES[name].model_fields.keys()), name == "base"))
    return nearest, parse_config(raw, STAGES[nearest], str(path), changes)
