"""Checks that a published file has the layout its reader expects, with errors that say where it has not."""

from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from recipe.artifacts import read_json
from recipe.errors import InputError


class Published(BaseModel):
    """Base of the layouts of published JSON; fields that a reader does not need may come and go."""

    model_config = ConfigDict(frozen=True, extra="ignore", str_strip_whitespace=True)


Layout = TypeVar("Layout", bound=Published)


def read_published_json(path: Path, kind: type[Layout], remedy: str) -> Layout:
    """A JSON file as `kind`. Raises InputError naming the field, for example database.LtRSn-ntcLY.class."""
    value: Any = read_json(path)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError.at(path, first["msg"][0].lower() + first["msg"][1:], remedy, field=field) from None


def read_lines(path: Path, remedy: str) -> list[str]:
    """The lines of a UTF-8 text file. Raises InputError when it is missing or of another encoding."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (FileNotFoundError, IsADirectoryError):
        problem = "this is a folder" if path.is_dir() else "the file does not exist"
        raise InputError.at(path, problem, remedy) from None
    except UnicodeDecodeError:
        raise InputError.at(path, "the text is not UTF-8", remedy) from None
