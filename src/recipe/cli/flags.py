"""Settings of a command: options for the keys that people type, and `--settings FILE` and `--set KEY=VALUE` for all.

A generator of these few lines rather than tyro or pydantic-settings: both parse the whole command line themselves, and
the commands keep Typer's other options, panels, usage errors and tests.
"""

import ast
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic import create_model

from recipe.cli.console import definition
from recipe.config import Settings, changed_values, parse_config, read_config
from recipe.errors import ConfigError

Command = Callable[..., Any]
# Letters of all choices of an option that fit on the line of its name.
_LONG = 60
# In place of 0 for a number that must be above it.
_SMALLEST = 0.001
# The command of each key that only its files have.
_COMMANDS = {
    "stage": "recipe train",
    "source": "recipe run",
    "tracks": "recipe board init",
    "judge": "recipe reproduce --models",
    "frontier": "recipe reproduce --models",
    "cost": "recipe reproduce --scale",
}


@dataclass(frozen=True)
class SettingsTable:
    """A table of a command's settings: its class, and the fields that are options, too."""

    kind: type[Settings]
    flags: tuple[str, ...] = ()
    panel: str = "Settings"
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of an option in place of the field's own, such as `--model --judge`."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values in place of the class's own defaults."""

    def option(self, table: str, name: str) -> inspect.Parameter:
        """The option of a field, with its type, bounds, default and documentation; None unless it is given."""
        own = self.kind.model_fields[name]
        kind, marks = own.annotation, list(own.metadata)
        while get_origin(kind) is Annotated or type(None) in get_args(kind):
            if get_origin(kind) is Annotated:
                kind, *inner = get_args(kind)
                marks += (mark for part in inner for mark in getattr(part, "metadata", [part]))
            else:
                [kind] = (member for member in get_args(kind) if member is not type(None))
        limits: dict[str, Any] = {}
        for bound in marks:  # of annotated_types, as pydantic keeps them
            if hasattr(bound, "ge"):
                limits["min"] = bound.ge
            elif hasattr(bound, "gt"):
                limits["min"] = bound.gt + (1 if kind is int else _SMALLEST)
            elif hasattr(bound, "le"):
                limits["max"] = bound.le
        default = self.defaults.get(name, None if own.is_required() else own.get_default(call_default_factory=True))
        about = " ".join(documented_fields(self.kind).get(name, "").split())
        choices = [str(choice) for choice in get_args(kind)] if get_origin(kind) is Literal else []
        if len("|".join(choices)) > _LONG:
            limits["metavar"] = "<name>"
            about = f"{about} One of {', '.join(choices)}."
        if default not in (None, "") and not isinstance(default, bool):
            about = f"{about} Default: {default}."
        flags = self.names.get(name, f"--{name.replace('_', '-')}").split()
        option = typer.Option(*flags, help=about, rich_help_panel=self.panel, show_default=False, **limits)
        annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
        return inspect.Parameter(f"{table}_{name}", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def setting_keys(*kinds: type[Settings], **tables: type[Settings]) -> dict[str, str]:
    """Every key that `--set` takes, with what stands for its value: those of `kinds`, and those below each table.

    >>> from recipe.config import FrameConfig
    >>> setting_keys(frames=FrameConfig)["frames.fps"]
    'VALUE'
    """
    keys = dict[str, str]()
    levels = [("", kind) for kind in kinds] + [(f"{table}.", kind) for table, kind in tables.items()]
    for before, kind in levels:  # which grows by the tables below
        for name, of in kind.model_fields.items():
            members = [of.annotation, *get_args(of.annotation)]
            inner = [member for member in members if isinstance(member, type) and issubclass(member, Settings)]
            levels += [(f"{before}{name}.", member) for member in inner]
            if not inner:
                keys.setdefault(f"{before}{name}", "true" if bool in members else "VALUE")
    return keys


def settable(keys: Callable[[], dict[str, str]]) -> Callable[[Command], Command]:
    """Record the keys that `--set` accepts, so that an unknown option can suggest one."""

    def decorate(command: Command) -> Command:
        command.setting_keys = keys  # type: ignore[attr-defined]
        return command

    return decorate


def with_settings(**tables: SettingsTable) -> Callable[[Command], Command]:
    """Give a command settings, a keyword for each table, by options, `--set` and `--settings`.

    An option goes before `--set`, and that before the file. Unset fields keep their defaults, and are not among
    `model_fields_set`. Raises ConfigError for a key that is unknown or a value that cannot be used.
    """
    options = {(table, name): of.option(table, name) for table, of in tables.items() for name in of.flags}
    others = [
        f"{table}.{name}" for table, of in tables.items() for name in of.kind.model_fields if name not in of.flags
    ]
    some = next(iter(others), None) or next(f"{table}.{name}" for table, name in options)
    further = [
        inspect.Parameter(
            "settings_file",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                Path | None,
                typer.Option(
                    "--settings",
                    metavar="FILE.toml",
                    help=f"Settings of this command in TOML: tables {', '.join(tables)} (docs/reference.md).",
                    rich_help_panel="Settings",
                ),
            ],
        ),
        inspect.Parameter(
            "changes",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                list[str] | None,
                typer.Option(
                    "--set",
                    metavar="KEY=VALUE",
                    help=f"Set a key of the settings, such as {some}=VALUE; repeat for more."
                    + (f" Keys without an option of their own: {', '.join(others)}." if others else ""),
                    rich_help_panel="Settings",
                ),
            ],
        ),
    ]

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command)

        @functools.wraps(command)
        def run(*, settings_file: Path | None, changes: list[str] | None, **arguments: Any) -> Any:
            defaults = {table: of.defaults for table, of in tables.items()}
            values = _merged(defaults, {} if settings_file is None else read_config(settings_file))
            values = changed_values(values, changes or ())
            for (table, name), option in options.items():
                if (value := arguments.pop(option.name)) is not None:
                    values = _merged(values, {table: {name: value}})
            for table, name in options:
                required, below = tables[table].kind.model_fields[name].is_required(), values[table]
                if required and isinstance(below, dict) and name not in below:
                    flag = tables[table].names.get(name, f"--{name.replace('_', '-')}")
                    raise typer.BadParameter(f"Missing option {flag} (or set {table}.{name}).", param_hint=flag)
            kinds: dict[str, Any] = {table: (of.kind, ...) for table, of in tables.items()}
            whole = create_model("CommandSettings", __base__=Settings, **kinds)
            origin = "the options" if settings_file is None else str(settings_file)
            settings = parse_config(values, whole, origin, changes or ())
            return command(**arguments, **{table: getattr(settings, table) for table in tables})

        kept = [parameter for name, parameter in signature.parameters.items() if name not in tables]
        parameters = [*kept, *options.values(), *further]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters} | {"return": None}
        return settable(lambda: setting_keys(**{table: of.kind for table, of in tables.items()}))(run)

    return decorate


def _merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values with others in their place, table by table."""
    merged = dict(values)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


@functools.cache
def documented_fields(kind: type[Settings]) -> dict[str, str]:
    """The documentation below each field of a class and of its bases.

    Help and the reference alone read it. Pydantic's `use_attribute_docstrings` would read it for every class that is
    imported, and parse the whole module for each: 0.3 s of every command.
    """
    documented: dict[str, str] = {}
    # Bases first, so that the text of a class stands in place of an inherited one.
    for base in reversed(kind.__mro__):
        if not issubclass(base, Settings):
            continue
        parsed = definition(inspect.getsource(sys.modules[base.__module__]), base.__name__)
        body = parsed.body if isinstance(parsed, ast.ClassDef) else []
        for annotated, below in pairwise(body):
            match annotated, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    documented[name] = inspect.cleandoc(text)
    return documented


def require_file_of(command: str, path: Path) -> None:
    """Raises ConfigError, with the right command, where the settings file at `path` is for another one than `command`.

    Also where it cannot be read.
    """
    settings = read_config(path)
    for key, other in _COMMANDS.items():
        if key in settings and other != command:
            raise ConfigError(f"{path}: a file with the key {key!r} is for {other}.")
