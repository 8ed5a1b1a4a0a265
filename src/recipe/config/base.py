"""Settings: frozen classes read from TOML, with errors that name the key; no heavy package is imported."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import date, time
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, SerializationInfo, SerializerFunctionWrapHandler, ValidationError
from pydantic.functional_serializers import model_serializer
from pydantic.functional_validators import model_validator
from pydantic_core import ErrorDetails

from recipe.config.removed import removed_setting
from recipe.config.synonyms import nearest_key
from recipe.errors import ConfigError

Positive = Annotated[int, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
FUNCTION_NAME = re.compile(r"(?P<module>[^\s:@/]+):(?P<function>[^\s:@/]+)(?:@(?P<source>[0-9a-f]{12}))?")
"""`module:function`, a function of the user's own (`recipe.functions`), with the hash of its source file or without."""


class Settings(BaseModel):
    """Base of all settings: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())
    stage: ClassVar[str] = ""
    """Of settings of training: what the key `stage` of their file says."""
    written_if_set: ClassVar[frozenset[str]] = frozenset()
    """Keys that came after runs were recorded without them. At their defaults they are left out where settings are
    written, so that a run that an earlier version began is the same run, and a reward the same reward."""
    fixed: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Keys that are settings no more, each with the value that always holds. They are still written, for the same
    reason, and may still be given with this value."""

    @model_validator(mode="before")
    @classmethod
    def _without_fixed(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or cls.fixed.keys().isdisjoint(values):
            return values
        return {key: value for key, value in values.items() if key not in cls.fixed or value != cls.fixed[key]}

    @model_serializer(mode="wrap")
    def _as_recorded(self, serialise: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        values: dict[str, Any] = serialise(self)
        for name in self.written_if_set:
            if getattr(self, name) == type(self).model_fields[name].default:
                values.pop(name, None)
        if info.exclude_unset or info.exclude_defaults:
            return values
        asked, without = info.include or (self.fixed if info.include is None else ()), info.exclude or ()
        return values | {key: value for key, value in self.fixed.items() if key in asked and key not in without}


class Seeded(Settings):
    """Settings of what draws random numbers."""

    seed: int = 0
    """Another seed draws other samples."""


class Batched(Settings):
    """Settings of a model that takes several inputs at once."""

    batch_size: Positive = 64
    """Texts, prompts or completions that a model on this machine takes at once."""


class Loaded(Settings):
    """Settings of a model whose weights are loaded on this machine."""

    revision: str | None = None
    """The model's pinned revision on its hub."""
    device: str | None = None
    """Where it computes on this machine, such as `cuda:1` or `cpu`; the best device there is where none is given."""


Config = TypeVar("Config", bound=Settings)


def load_config(path: Path | str, kind: type[Config], changes: Sequence[str] = ()) -> Config:
    """Read a TOML file into the settings of one stage; `changes` are values to set in it, as KEY=VALUE.

    Raises ConfigError with the field and the nearest known key.
    """
    raw = read_config(path, changes)
    if kind.stage and (named := raw.pop("stage", kind.stage)) != kind.stage:
        raise ConfigError(f"{path}: key 'stage' is {named!r}; run `recipe train {path}`, or change the key.")
    return parse_config(raw, kind, str(path), changes)


# Tables and lists within each other that settings may have; the deepest ones here have four.
_DEEPEST = 50


def read_config(path: Path | str, changes: Sequence[str] = ()) -> dict[str, Any]:
    """The plain values of a TOML file, with `changes` set in them. Raises ConfigError.

    The file alone does not make a model's own code run: `trust_remote_code` is the user's to give.
    """
    if (path := Path(path)).is_dir():
        raise ConfigError(f"{path}: this is a folder; give the path of a TOML file.")
    if not path.is_file():
        problem = "this is a pipe or a device" if path.exists() else "the file does not exist"
        raise ConfigError(f"{path}: {problem}; check the path.")
    try:
        # Editors of Windows begin a text with a mark, which TOML has not.
        raw = read_toml(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML ({error}); repair the file.") from None
    if _trusts(raw):
        raise ConfigError(
            f"{path}: key 'trust_remote_code' is not taken from a file, which may be from others; "
            "read the model's code, and give --set with the whole key, or `recipe corpus build --trust-remote-code`."
        )
    return changed_values(raw, changes)


def _trusts(value: Any) -> bool:
    """Whether a table anywhere in a plain value asks to run a model's own code."""
    if isinstance(value, Mapping):
        return bool(value.get("trust_remote_code")) or any(map(_trusts, value.values()))
    return isinstance(value, list) and any(map(_trusts, value))


def read_toml(text: str) -> dict[str, Any]:
    """The tables of a text in TOML. Raises ValueError for another text, and for one that Python cannot read."""
    try:
        read = tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if _deeper_than(_DEEPEST, read):  # dotted keys nest without recursion; whoever shows or copies the values recurses
        raise ValueError("nested too deeply")
    return read


def _deeper_than(most: int, value: Any) -> bool:
    """Whether a plain value nests more than `most` tables and lists."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else None
    return inner is not None and (most == 0 or any(_deeper_than(most - 1, below) for below in inner))


def changed_values(values: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Plain values with each KEY=VALUE of `changes` in them; a dot leads into a table.

    A value is read as TOML, and as text where it is none. Raises ConfigError.

    >>> changed_values({"lora": {"rank": 16}}, ["lora.rank=8", "model=smollm2"])
    {'lora': {'rank': 8}, 'model': 'smollm2'}
    """
    result = dict(values)
    for change in changes:
        key, equals, text = change.partition("=")
        *tables, name = key.strip().split(".")
        if not equals or not name or not all(tables) or len(tables) > _DEEPEST:
            raise ConfigError(
                f"--set {change[:200]!r}: give KEY=VALUE, for example --set steps=100 or --set lora.rank=8."
            )
        here = result
        for table in tables:
            inner = here.get(table, {})
            if not isinstance(inner, Mapping):
                raise ConfigError(
                    f"--set {change!r}: key {table!r} is a value and no table; leave out what follows it."
                )
            here[table] = here = dict(inner)
        try:
            read = read_toml(f"value = {text}")
        except ValueError:
            read = {}
        value = read.get("value", text)
        # A line feed may begin further keys, and TOML takes some texts for dates: both are meant as texts.
        here[name] = text if len(read) > 1 or isinstance(value, date | time) else value
    return result


def parse_config(raw: dict[str, Any], kind: type[Config], origin: str, changes: Sequence[str] = ()) -> Config:
    """Validate plain values as the settings of one stage; raises ConfigError naming `origin`.

    Where the value at fault is of `changes`, the error names that change instead.
    """
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        key, sentence = _explain(error.errors(include_url=False), kind)
        named = (change for change in changes if f"{key}.".startswith(f"{change.partition('=')[0].strip()}."))
        change = next(named, None) if key else None
        raise ConfigError(f"{origin if change is None else f'--set {change}'}: {sentence}") from None


def check_table(raw: Mapping[str, Any], kind: type[Settings], origin: str) -> None:
    """Check the keys and values of a table that holds some of the settings of `kind`; raises ConfigError."""
    try:
        kind.model_validate(raw)
    except ValidationError as error:
        faults = [fault for fault in error.errors(include_url=False) if fault["type"] != "missing"]
        if faults:
            raise ConfigError(f"{origin}: {_explain(faults, kind)[1]}") from None


def _explain(faults: Sequence[ErrorDetails], kind: type[Settings]) -> tuple[str, str]:
    """Key and sentence of the first error; an unknown key goes first: a misspelt one leaves another missing."""
    first = min(faults, key=lambda fault: fault["type"] != "extra_forbidden")
    names, table = _walk(kind, first["loc"])
    context = first.get("ctx", {})
    if first["type"].startswith("union_tag"):
        names.append(context["discriminator"].strip("'"))
    key, message = ".".join(names), first["msg"].removeprefix("Value error, ")
    for python, toml in (("Tuple", "List"), ("tuple", "list"), ("dictionary", "table")):
        message = message.replace(python, toml)
    if not key:
        return key, f"{message}."
    if first["type"] in ("extra_forbidden", "literal_error"):
        given = first["input"] if first["type"] == "literal_error" else None
        # A number is a place in a list, or the key that was written.
        name = next((name for name in reversed(names) if not name.isdigit()), names[-1])
        if gone := removed_setting(table, name, given):
            return key, f"{key if given is None else f'{key} = {given!r}'} was removed: {gone}."
    if first["type"] == "extra_forbidden":
        known = sorted(table.model_fields)
        nearest = nearest_key(names[-1], known)
        hint = f"did you mean {nearest!r}?" if nearest else f"known keys are {', '.join(known)}."
        return key, f"unknown key {key!r}; {hint}"
    if first["type"] in ("missing", "union_tag_not_found"):
        return key, f"key {key!r} is missing; add it."
    if first["type"] == "union_tag_invalid":
        return key, f"key {key!r}: input should be one of {context['expected_tags']} (given: {context['tag']!r})."
    return key, f"key {key!r}: {message[0].lower()}{message[1:]} (given: {first['input']!r})."


def _walk(kind: type[Settings], location: tuple[int | str, ...]) -> tuple[list[str], type[Settings]]:
    """The keys that lead to `location`, and the class of the table that it lies in."""
    here, names = kind, list[str]()
    tagged: dict[str, type[Settings]] = {}
    for part in map(str, location):
        if part in tagged:  # tells the member of a union, and is no key
            here, tagged = tagged[part], {}
            continue
        names.append(part)
        if field := here.model_fields.get(part):
            kinds = get_args(field.annotation) or [field.annotation]
            members = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Settings)]
            if isinstance(field.discriminator, str):
                tagged = {get_args(kind.model_fields[field.discriminator].annotation)[0]: kind for kind in members}
            elif members:
                here = members[0]
    return names, here
