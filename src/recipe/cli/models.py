"""The options of commands that ask a model, and the engine that they open."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

if TYPE_CHECKING:
    from recipe.config import EndpointConfig
    from recipe.models.wrappers import AnswerCache

# The options of whatever asks an endpoint, and the engine that they open.


_PANEL = "An OpenAI-compatible endpoint in place of a model on this machine"


def _option(*names: str, help: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_PANEL, **more)


Url = Annotated[str | None, _option("--endpoint", help="Its address, such as http://localhost:8000/v1.")]
KeyVariable = Annotated[str | None, _option(help="Environment variable that holds the key; without it none is sent.")]
Concurrency = Annotated[int, _option(min=1, help="Requests under way at once.")]
Timeout = Annotated[float, _option(min=0.001, help="Seconds that one request may take.")]
Tries = Annotated[int, _option(min=1, help="Requests for one answer at most.")]
Clips = Annotated[
    Literal["images", "video"],
    _option("--send", help="A clip as images with their times, or as one video, which only vLLM takes."),
]
TokenLimit = Annotated[
    Literal["max_tokens", "max_completion_tokens"],
    _option(help="Name of the field that bounds an answer; some hosts know only the second."),
]
NoSeed = Annotated[bool, _option("--no-seed", help="Send no seed, for hosts that refuse it.")]
Structured = Annotated[
    Literal["auto", "json_schema", "json_object", "off"],
    _option(help="How answers are held to a schema; `auto` finds out what the endpoint takes."),
]
PriceIn = Annotated[float | None, _option(min=0, help="Price of a million tokens of prompts: tells the cost.")]
PriceOut = Annotated[float | None, _option(min=0, help="Price of a million tokens of answers.")]


class Asked(NamedTuple):
    """What the options of an endpoint say."""

    url: str
    key_variable: str | None
    concurrency: int
    timeout: float
    tries: int
    clips: Literal["images", "video"]
    token_limit: Literal["max_tokens", "max_completion_tokens"]
    no_seed: bool
    price_in: float | None
    price_out: float | None
    structured: Literal["auto", "json_schema", "json_object", "off"] = "auto"

    def config(self, model: str, max_pixels: int | None = None) -> "EndpointConfig":
        """The settings of the endpoint for a model."""
        from recipe.config import EndpointConfig

        named = self._asdict() | {"send_seed": not self.no_seed, "model": model, "max_pixels": max_pixels}
        del named["no_seed"]
        return EndpointConfig.model_validate(named)


def cache_folder(given: Path | None, output: Path) -> Path:
    """Where answers are kept: as given, or beside the output."""
    return given or output.with_name(f"{output.name}.cache")


# What tells a model on this machine from others, for answers that are kept.


def model_identity(name: str, revision: str | None, digests: "AnswerCache") -> dict[str, str | None]:
    """A model of the hub by id and revision; a folder by what is in it, since other weights may take its place."""
    from recipe.artifacts import fingerprint

    folder = Path(name)
    if not folder.is_dir():
        return {"model": name, "revision": revision}
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return {"sha256": fingerprint({path.name: digests.sha256(path) for path in files})}
