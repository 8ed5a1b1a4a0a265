"""Every error a user can meet, as one tree.

RecipeError            the base: one clear sentence, exit code 1
|- InputError          a file, a line or a value that the user gave cannot be used
|- ConfigError         a config file or option that does not validate
|- CorpusError         a corpus folder that is damaged, incomplete or of another format
|  `- EncoderMismatch  a corpus built with another encoder than the one asked for
|- MissingExtra        a feature whose optional packages are not installed
|- BudgetSpent         the requested answers would cost more than the budget
`- ComputeError        a result that could not be computed: never turned into a number
"""

from collections.abc import Sequence
from pathlib import Path

_NAMED = 5
_SHOWN = 160
"""Characters of a text that an error quotes."""


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
        place = str(path) if line is None else f"{path}, line {line}"
        where = place if field is None else f"{place}, field {field!r}"
        return cls(f"{where}: {problem}; {remedy}.")


class ConfigError(RecipeError):
    """A config does not validate."""


class CorpusError(RecipeError):
    """A corpus folder cannot be opened or trusted."""


class EncoderMismatch(CorpusError):
    """The corpus was built with another encoder than the one asked for."""


class BudgetSpent(RecipeError):
    """The budget does not suffice; answers that were paid for are kept where there is a cache."""


class ComputeError(RecipeError):
    """A value could not be computed; a caller reports it as missing, never as zero."""


class MissingExtra(RecipeError):
    """A feature was asked for whose packages are not installed."""

    def __init__(self, feature: str, extra: str, command: str = "") -> None:
        """`command` installs the packages where the extra alone does not."""
        # All go to the base so that the error survives the way back from a worker process.
        super().__init__(feature, extra, command)
        self.feature, self.extra = feature, extra
        self.command = command or f"pip install 'recipe-planner[{extra}]'"

    def __str__(self) -> str:
        return f"{self.feature} needs packages that are not installed; run: {self.command}."


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


def first_line(error: BaseException) -> str:
    """The first line of a library's error message, without its full stop; the error's name where it says nothing."""
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
