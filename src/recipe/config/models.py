"""Settings of whatever asks a model: sampling, endpoints, frames, Phi and judges."""

from typing import Annotated, Literal

from pydantic import Field

from recipe.config.base import Positive, Settings


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
