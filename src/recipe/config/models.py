"""Settings of whatever asks a model: sampling, models, frames, Phi and judges."""

import json
from collections.abc import Mapping
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from recipe.config.base import Batched, Loaded, Positive, Seeded, Settings


class FrameConfig(Settings):
    """Which frames of a video a model sees, and how large (Qwen2.5-VL's own defaults, but for the bounds)."""

    fps: Annotated[float, Field(gt=0)] = 2.0
    """Frames of each second, taken evenly up to the cut point."""
    count: Positive | None = None
    """Number of frames, evenly spread, for a video of any length; overrides `fps` and `max_frames`."""
    max_frames: Annotated[int, Field(ge=2)] = 32
    """Frames at most; where `fps` gives more, this number is spread evenly instead."""
    min_pixels: Positive = 128 * 28 * 28
    """Smaller frames are enlarged to this area."""
    max_pixels: Positive = 768 * 28 * 28
    """Larger frames are reduced to this area."""


TEMPERATURE = 0.7
"""Of plans: in use, in roll-outs and in validation (SPEC: evaluation takes one continuation at temperature 0.7)."""


class SamplingConfig(Seeded, Batched):
    """How a planner samples."""

    temperature: Annotated[float, Field(ge=0)] | None = None
    """0 is greedy. Usually 0.7, or with `imitate` the checkpoint's own."""
    max_tokens: Positive = 256
    """Longest completion."""
    imitate: Literal["none", "checkpoint"] = "none"
    """`none` samples from the model's softmax at the temperature and nothing else; `checkpoint` also applies top_k,
    top_p, min_p and repetition_penalty of the checkpoint's generation_config.json, and its temperature."""

    @model_validator(mode="before")
    @classmethod
    def _own_temperature(cls, values: Any) -> Any:
        """Writes the default into the value, so that equal settings compare as equal."""
        if (
            isinstance(values, Mapping)
            and values.get("imitate", "none") == "none"
            and values.get("temperature") is None
        ):
            return {**values, "temperature": TEMPERATURE}
        return values


# Fields of a request that no setting replaces.
_OWN = ("model", "messages", "n", "stream")


def _request_fields(value: Any) -> Any:
    """The table that `extra_body` is given as, in a file or as JSON. Raises ValueError."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError('give a JSON object, such as {"top_k": 20}') from None
    if isinstance(value, dict) and (own := [name for name in _OWN if name in value]):
        raise ValueError(f"{own[0]} is no further field; leave it out")
    if isinstance(value, dict) and not isinstance(value.get("chat_template_kwargs", {}), dict):
        raise ValueError('chat_template_kwargs is no object; give one, such as {"enable_thinking": false}')
    return value


class ModelConfig(Loaded):
    """A model and how it is asked: on this machine, at an OpenAI-compatible endpoint, or from its cache alone."""

    fixed = MappingProxyType({"jpeg_quality": 85, "token_limit": "max_tokens", "send_seed": True})

    model: str
    """Model folder, such as a run's model/, hub id, `smollm2` (docs/planning.md), or the name at the endpoint."""
    engine: Literal["transformers", "vllm"] = "transformers"
    """What runs a model on this machine; vllm is an extra of its own, for many prompts on a GPU."""
    engine_memory: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """Share of the GPU's memory that vllm takes, weights included."""
    endpoint: str | None = None
    """Base address of an OpenAI-compatible endpoint, such as http://localhost:8000/v1."""
    key_variable: str | None = None
    """Environment variable that holds the endpoint's key; without it none is sent."""
    concurrency: Positive = 8
    """Requests under way at once."""
    timeout: Annotated[float, Field(gt=0)] = 180.0
    """Seconds that one request may take."""
    tries: Positive = 6
    """Requests for one answer at most."""
    patience: Annotated[float, Field(gt=0)] = 900.0
    """Seconds after which no further try for an answer begins, waits included."""
    clips: Literal["images", "video"] = "images"
    """A clip as images with their times, or as one video, which only vLLM takes."""
    max_pixels: Positive | None = None
    """Larger frames are reduced to this area before they are sent; left out: as they are."""
    structured: Literal["auto", "json_schema", "json_object", "off"] = "auto"
    """How answers are held to a schema: by the schema, as any JSON object, or in words only. `auto` begins with the
    first and takes the next where the host refuses it. Without --endpoint: by --engine vllm only."""
    extra_body: Annotated[dict[str, Any], BeforeValidator(_request_fields)] = Field(default_factory=dict)
    """Further fields of every request as a JSON object, such as {"chat_template_kwargs": {"enable_thinking": false}}.
    They are sent to the endpoint; a model on this machine takes chat_template_kwargs alone."""
    price_in: Annotated[float, Field(ge=0)] | None = None
    """Price of a million tokens of prompts, in any currency: gives the cost."""
    price_out: Annotated[float, Field(ge=0)] | None = None
    """Price of a million tokens of answers."""
    cache: Path | None = None
    """Folder of answers, which several runs may share. Default: OUTPUT.cache, where a file is written."""
    replay: bool = False
    """Answer from the cache alone; a question that is not in it is an error."""
    max_calls: Annotated[int, Field(ge=0)] | None = None
    """Most answers to pay for in this run; the next run finds them in the cache."""
    max_tokens_total: Annotated[int, Field(ge=0)] | None = None
    """Most tokens to pay for in this run, read and written; the last answers may exceed it."""


class _ReadingSettings(Seeded):
    """How a model is asked to describe or to judge: by default for its likeliest answer."""

    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0 is greedy."""
    max_tokens: Positive = 512
    """Longest answer; a model that thinks aloud needs more."""


class PhiConfig(_ReadingSettings):
    """How Phi, the frozen vision-language model, describes a video as steps (paper, section 3.1)."""

    frames: FrameConfig = FrameConfig(max_pixels=128 * 28 * 28)
    """Smaller than a planner's, because there are thousands of clips: 2,048 tokens each at most."""
    goal: bool = True
    """Give Phi the goal, which the planner gets, too."""


MOST_SHOWN = MappingProxyType({"max_steps": 100, "max_step_characters": 500, "max_characters": 12_000})
"""What a judge is shown of a plan: steps, characters of a step, and characters of all steps together; the prompt says
how many are left out. 12,000 characters are about 3,000 tokens, so that any plan fits a judge of 8,192 tokens."""


class JudgeConfig(_ReadingSettings):
    """How a judge is asked (docs/judge.md)."""

    fixed = MOST_SHOWN

    repeats: Positive = 1
    """Verdicts for each plan."""
    reasks: Annotated[int, Field(ge=0)] = 1
    """How often an answer that cannot be read is asked for again."""
    batch_size: Positive = 16
    """Prompts that a judge on this machine reads at once."""
    history: Literal["annotated", "perceived"] = "annotated"
    """The history that the judge reads: the annotated one, or Phi's, which the paper's figures show."""


CriterionName = Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$")]
# Names of figures that are made of all criteria.
_OF_ALL = {"accuracy", "total"}
_IN_SYSTEM = {"count", "lowest", "highest", "orders", "rules", "criteria"}
_IN_PROMPT = {"code", "data", "note", "keys", "count", "scope", "lowest", "highest", "flags"}


class RubricRule(Settings):
    """A rule of a rubric that comes before its criteria."""

    name: CriterionName
    text: str
    """As the judge reads it."""
    caps: dict[CriterionName, int] = Field(default_factory=dict)
    """Highest score of criteria where the rule holds. The judge then says whether it holds, and the cap is applied to
    its scores; without caps, applying the rule is left to the judge."""


class RubricConfig(Settings):
    """A rubric: what a judge scores plans by (docs/own.md)."""

    name: Annotated[str, Field(pattern="^[a-z0-9][a-z0-9-]*$")]
    """As tables and records show it."""
    lowest: int = 0
    """The lowest score of a criterion, which a plan without a step that says anything gets without being read."""
    highest: int = 5
    """The highest score of a criterion."""
    criteria: Annotated[dict[CriterionName, str], Field(min_length=1)]
    """What each criterion means, by its name."""
    rules: tuple[RubricRule, ...] = ()
    """Rules before the criteria, such as what a plan is marked down for whatever else it has."""
    orders: str = ""
    """A sentence on what a text counts as that gives orders to the judge."""
    system: str | None = None
    """The system message, with the place $criteria and, where you like, $rules, $orders, $count, $lowest and $highest.
    Left out: the packaged one."""
    prompt: str | None = None
    """The message with the data, with the places $data and $keys and, where you like, $code, $note, $scope, $flags,
    $count, $lowest and $highest. Left out: the packaged one."""

    @model_validator(mode="after")
    def _can_be_asked(self) -> Self:
        if not self.lowest < self.highest <= self.lowest + 100:
            raise ValueError(f"highest is {self.highest} and lowest {self.lowest}; give a scale of 2 to 101 values")
        names = [*self.criteria, *(rule.name for rule in self.rules)]
        if twice := [name for name in names if names.count(name) > 1 or name in _OF_ALL]:
            raise ValueError(f"{twice[0]!r} names two things; give criteria and rules other names")
        for rule in self.rules:
            for name, most in rule.caps.items():
                if name not in self.criteria or not self.lowest <= most <= self.highest:
                    raise ValueError(f"rule {rule.name!r} caps {name} at {most}, which is no criterion on the scale")
        for key, needed, known in (("system", {"criteria"}, _IN_SYSTEM), ("prompt", {"data", "keys"}, _IN_PROMPT)):
            if (text := getattr(self, key)) is None:
                continue
            template = Template(text)
            places = set(template.get_identifiers())
            if not template.is_valid() or needed - places or places - known:
                takes = ", ".join(f"${name}" for name in sorted(needed))
                others = ", ".join(f"${name}" for name in sorted(known - needed))
                raise ValueError(f"{key} must take {takes}, may take {others}, and has a plain dollar as $$")
        return self
