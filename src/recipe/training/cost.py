"""What training takes before it starts: seconds, memory and disk, from the model's shape, lengths and the device.

Seconds are those of the arithmetic: two operations a weight and token in the forward pass, the same again for what the
backward pass hands on, and again for the gradients of weights that are trained. A token that is written reads all
weights. Activations are those of Korthikanti et al. 2022 (Reducing activation recomputation in large transformer
models, section 4). Nothing here loads torch.
"""

import math
from dataclasses import dataclass

from recipe.config import BaseModelConfig, BestOfNConfig, GRPOConfig, Settings, SFTConfig
from recipe.config.training import AnyTraining

GIGABYTE = 1e9
PROCESS = 1.0e9
"""Bytes of Python with torch, transformers and TRL."""
STARTING = 10.0
"""Seconds in which a process starts and loads a model."""
KEPT = 3
"""Checkpoints on disk at most: the last two, and the one that is written."""
SYSTEM = 60
"""Tokens of the system turn, which the base model reads once a batch."""


class Rates(Settings):
    """Seconds of each kind of work on one device."""

    base_seconds: float = 0.0
    """Of training the base from nothing."""
    sft_step_seconds: float
    grpo_step_seconds: float
    plan_seconds: float
    """Of one sampled plan."""


def training_seconds(config: AnyTraining, rates: Rates, examples: int) -> float:
    """Seconds of a whole run on so many examples."""
    if isinstance(config, BaseModelConfig):
        return rates.base_seconds
    if isinstance(config, GRPOConfig):
        return rates.grpo_step_seconds * config.steps
    if isinstance(config, BestOfNConfig):
        examples = config.prompts_per_round or examples
    fine_tuning = rates.sft_step_seconds * config.epochs * math.ceil(examples / config.batch_size)
    if isinstance(config, BestOfNConfig):
        return config.rounds * (rates.plan_seconds * config.n * examples + fine_tuning)
    return fine_tuning


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a model."""

    parameters: int
    embedded: int
    """Of them those of the embedding, which a token looks up; the output layer's are not among them."""
    adapters: int
    """Parameters of the adapters, and of what else is trained."""
    layers: int
    hidden: int
    heads: int
    kv_width: int
    """Numbers of a token's key, or value, in a layer."""
    vocabulary: int


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of prompts and reference continuations."""

    prompt: float
    continuation: float
    longest: int
    """Prompt and continuation of the longest example."""


@dataclass(frozen=True, slots=True)
class Device:
    """Where training runs."""

    name: str
    flops: float
    """Operations a second of a matrix product of the model's width, measured, or on CUDA as assumed."""
    bandwidth: float
    """Bytes a second of memory."""
    layer_seconds: float
    """That one pass of one layer takes beside its arithmetic, however small it is."""
    start_seconds: float
    """In which a process starts and loads a model."""
    free: float | None
    """Bytes of memory that are free; None: not known."""
    source: str
    """Where these figures come from."""


def rates(config: AnyTraining, shape: Shape, lengths: Lengths, device: Device, *, bf16: bool) -> Rates:
    """Seconds of each kind of work of a config; without the seconds that the reward itself takes."""
    if isinstance(config, BaseModelConfig):
        # All weights have gradients; the system turn is read once a batch.
        step = _pass(shape, config.batch_tokens + SYSTEM, lengths.longest, device, passes=3)
        return Rates(base_seconds=config.steps * step, sft_step_seconds=0, grpo_step_seconds=0, plan_seconds=0)
    # The backward pass of frozen weights costs one forward pass; checkpointing adds another.
    passes = 3 if config.gradient_checkpointing else 2
    read = lengths.prompt + lengths.continuation
    size, micro = _batch(config)
    fine_tuning = math.ceil(size / micro) * _pass(shape, micro * read, read, device, passes)
    if not isinstance(config, GRPOConfig | BestOfNConfig):
        return Rates(sft_step_seconds=fine_tuning, grpo_step_seconds=0, plan_seconds=0)
    rows = size if isinstance(config, GRPOConfig) else config.completions_at_once
    prompts = config.prompts_per_step if isinstance(config, GRPOConfig) else math.ceil(rows / config.n)
    written = config.max_completion_tokens
    number = 2 if bf16 else 4
    token = max(
        _pass(shape, rows, lengths.prompt + written / 2, device, 1),
        (shape.parameters * number + rows * _cache(shape, lengths, written) * number / 2) / device.bandwidth,
    )
    sampling = _pass(shape, prompts * lengths.prompt, lengths.prompt, device, 1) + written * token
    if isinstance(config, BestOfNConfig):
        return Rates(sft_step_seconds=fine_tuning, grpo_step_seconds=0, plan_seconds=sampling / rows)
    reference = 1 if config.beta else 0
    whole = lengths.prompt + written
    learning = math.ceil(size / micro) * _pass(
        shape, micro * whole, whole, device, config.iterations * passes + reference
    )
    return Rates(sft_step_seconds=0, grpo_step_seconds=sampling + learning, plan_seconds=sampling / rows)


def memory(config: AnyTraining, shape: Shape, lengths: Lengths, *, bf16: bool) -> dict[str, float]:
    """Bytes at the peak of a run, by what they hold."""
    if isinstance(config, BaseModelConfig):
        tokens, width = config.batch_tokens + SYSTEM, min(lengths.longest, config.context)
        held = {"weights": 4.0 * shape.parameters, "gradients and optimiser": 12.0 * shape.parameters}
        return held | {"activations": _activations(shape, tokens, width, 4, eager=True), "process": PROCESS}
    number = 2 if bf16 else 4
    held = {"weights": float(number * shape.parameters), "adapters, gradients and optimiser": 16.0 * shape.adapters}
    _, micro = _batch(config)
    if isinstance(config, SFTConfig):
        width = min(lengths.longest, config.max_tokens)
    else:
        width = math.ceil(lengths.longest - lengths.continuation) + config.max_completion_tokens
    written = config.max_completion_tokens if isinstance(config, GRPOConfig) else width
    tokens = micro * width
    layers = _activations(shape, tokens, width, number, eager=False)
    if config.gradient_checkpointing:
        layers = layers / shape.layers + float(number * tokens * shape.hidden * shape.layers)
    # Logits, their probabilities and gradients, in float32.
    learning = layers + 3 * 4.0 * micro * written * shape.vocabulary
    if isinstance(config, GRPOConfig | BestOfNConfig):
        rows = _batch(config)[0] if isinstance(config, GRPOConfig) else config.completions_at_once
        cache = rows * _cache(shape, lengths, config.max_completion_tokens) * number
        held |= {"activations and logits, or cache of roll-outs": max(learning, cache)}
    else:
        held |= {"activations and logits": learning}
    return held | {"process": PROCESS}


def disk(config: AnyTraining, shape: Shape, *, bf16: bool) -> dict[str, float]:
    """Bytes that a run writes: checkpoints and the model, without logs."""
    if isinstance(config, BaseModelConfig):
        kept = KEPT if config.steps > config.save_every else 0
        return {"checkpoints": kept * 12.0 * shape.parameters, "model": 4.0 * shape.parameters}
    adapters = 12.0 * shape.adapters * KEPT + 4.0 * shape.adapters  # with the best step's
    return {"checkpoints": adapters, "merged model": float((2 if bf16 else 4) * shape.parameters)}


def _batch(config: SFTConfig | GRPOConfig | BestOfNConfig) -> tuple[int, int]:
    """Rows of an optimiser step, and of one pass."""
    size = config.prompts_per_step * config.group_size if isinstance(config, GRPOConfig) else config.batch_size
    return size, config.micro_batch or size


def _pass(shape: Shape, tokens: float, width: float, device: Device, passes: int) -> float:
    """Seconds of passes that cost a forward pass each, over `tokens` in rows of `width`."""
    products = 2 * tokens * (shape.parameters - shape.embedded)
    attention = 4 * tokens * width * shape.hidden * shape.layers
    return passes * ((products + attention) / device.flops + shape.layers * device.layer_seconds)


def _cache(shape: Shape, lengths: Lengths, written: int) -> float:
    """Numbers in the keys and values of one row."""
    return 2 * shape.layers * shape.kv_width * (lengths.prompt + written)


def _activations(shape: Shape, tokens: float, width: float, number: int, *, eager: bool) -> float:
    """Bytes that the backward pass reads; `eager` attention also keeps its matrices."""
    matrices = 5 * shape.heads * width / shape.hidden if eager else 0.0
    return number / 2 * tokens * shape.hidden * shape.layers * (34 + matrices)
