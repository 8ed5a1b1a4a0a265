"""Settings: frozen classes read from TOML, with errors that name the key; no heavy package is imported."""

import difflib
import tomllib
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeGuard, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from recipe.errors import ConfigError

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Flag(NamedTuple):
    """Command-line name of a field, in place of the one that its own name makes; without a name it has no flag."""

    name: str | None = None


class Settings(BaseModel):
    """Base of all settings: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), use_attribute_docstrings=True)


Config = TypeVar("Config", bound=Settings)


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
    first = min(error.errors(include_url=False), key=lambda fault: fault["type"] != "extra_forbidden")
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
            members = [kind for kind in get_args(field.annotation) or [field.annotation] if _is_settings(kind)]
            if isinstance(field.discriminator, str):
                tagged = {get_args(kind.model_fields[field.discriminator].annotation)[0]: kind for kind in members}
            elif members:
                here = members[0]
    return names, sorted(here.model_fields)


def _is_settings(kind: Any) -> TypeGuard[type[Settings]]:
    return isinstance(kind, type) and issubclass(kind, Settings)
