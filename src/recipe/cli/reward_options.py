"""The options that the commands of `recipe reward` share, and the settings that they make."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from recipe.config import RewardConfig, load_config

if TYPE_CHECKING:
    from pydantic import SecretStr

    from recipe.reward.verifier import Verifier


def _known(name: str | None) -> str | None:
    from recipe.config.reward import known_verifier

    try:
        return None if name is None else known_verifier(name)
    except ValueError as error:
        raise typer.BadParameter(f"{error} (given: {name!r}).") from None


Folder = Annotated[Path, typer.Option("--corpus", help="Corpus folder that the reward uses.")]
Method = Annotated[
    str | None,
    typer.Option(
        "--verifier",
        metavar="<name>",
        callback=_known,
        help="paper, grounded, or module:function for a function of yours (docs/own.md); r0 and length are controls.",
    ),
]
Pool = Annotated[
    Literal["history", "full", "own"] | None,
    typer.Option(help="Steps that retrieve the pool: h for both scores, h + c for both, or each its own."),
]
Config = Annotated[Path | None, typer.Option(help="Reward settings, a TOML file; the paper's by default.")]


def settings(config: Path | None, method: str | None, pool: str | None) -> "RewardConfig":
    """The settings of a file, or the defaults, with what the options say in their place.

    A function of the user's own is named with the hash of its source file. Raises ConfigError, and InputError for a
    function that cannot be loaded.
    """
    from recipe.reward.own import pinned_reward

    chosen = RewardConfig() if config is None else load_config(config, RewardConfig)
    options = {name: value for name, value in (("verifier", method), ("pool", pool)) if value is not None}
    return pinned_reward(chosen.model_copy(update=options))


def open_verifier(corpus: Path, config: Path | None, method: str | None, pool: str | None = None) -> "Verifier":
    """The verifier on a corpus folder, by the options. Raises ConfigError and CorpusError."""
    from recipe.corpus.store import Corpus
    from recipe.reward.verifier import Verifier

    chosen = settings(config, method, pool)  # before a corpus is opened
    return Verifier(Corpus.open(corpus), chosen)


def after(history: Sequence[str]) -> str:
    """How much is done, as a heading says it.

    >>> after(["boil the water"])
    'after 1 step'
    """
    return f"after {len(history)} step{'s' * (len(history) != 1)}"


def service_token(file: Path | None) -> "SecretStr | None":
    """The token of the file, or else of the environment. Raises InputError for a file that is empty or no text."""
    import os

    from pydantic import SecretStr

    from recipe.artifacts import read_text
    from recipe.errors import InputError

    if file is None:
        token = os.environ.get("RECIPE_TOKEN", "").strip()
        return SecretStr(token) if token else None
    if not (token := read_text(file).strip()):
        raise InputError.at(file, "the file is empty", "write the token into it")
    return SecretStr(token)
