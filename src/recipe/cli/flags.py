"""Command-line flags made from settings: one flag a field, with the field's type, bounds, default and docstring.

A generator of these few lines rather than tyro or pydantic-settings: both parse the whole command line themselves, and
the commands keep Typer's other options, panels, usage errors and tests.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from recipe.config import Settings, parse_config
from recipe.config.base import Flag

Command = Callable[..., None]
_LONG = 60
"""Letters of all choices of a flag that fit on the line of its name."""
_SMALLEST = 0.001
"""In place of 0 for a number that must be above it."""


def with_flags(
    kind: type[Settings],
    parameter: str,
    panel: str,
    *,
    only: Sequence[str] | None = None,
    names: Mapping[str, Sequence[str]] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> Callable[[Command], Command]:
    """Give a command a flag for each field of settings, `only` for some, in place of its keyword `parameter`.

    The command receives the settings with the fields that were given set, so that a field left out keeps the default
    of its class, or that of `defaults`. `names` are further names of a flag.
    """
    chosen = [name for name in kind.model_fields if only is None or name in only]
    options = [
        _option(name, kind.model_fields[name], panel, (names or {}).get(name, ()), defaults or {})
        for name in chosen
        if Flag() not in kind.model_fields[name].metadata
    ]

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command)

        @functools.wraps(command)
        def run(**given: Any) -> None:
            values = {option.name: given.pop(option.name) for option in options}
            set_fields = {name: value for name, value in values.items() if value is not None}
            settings = parse_config({**(defaults or {}), **set_fields}, kind, "the options")
            command(**given, **{parameter: settings})

        others = [other for name, other in signature.parameters.items() if name != parameter]
        parameters = [*others, *options]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
        return run

    return decorate


def _option(
    name: str, field: FieldInfo, panel: str, more: Sequence[str], defaults: Mapping[str, Any]
) -> inspect.Parameter:
    """The flag of a field: None unless it is given."""
    kind, bounds = _plain(field.annotation, list(field.metadata))
    flag = next((bound.name for bound in bounds if isinstance(bound, Flag)), None)
    flag = flag or f"--{name.replace('_', '-')}"
    limits: dict[str, Any] = {}
    for bound in bounds:  # of annotated_types, as pydantic keeps them
        if hasattr(bound, "ge"):
            limits["min"] = bound.ge
        elif hasattr(bound, "gt"):
            limits["min"] = bound.gt + (1 if kind is int else _SMALLEST)
        elif hasattr(bound, "le"):
            limits["max"] = bound.le
    if get_origin(kind) is dict:
        kind, limits["metavar"] = str, "<json>"
    default = defaults.get(name, None if field.is_required() else field.get_default(call_default_factory=True))
    shown = None if default in (None, "", {}) or isinstance(default, bool) else default
    if kind is bool and "/" in flag:
        shown = flag.split("/")[0 if default else 1].removeprefix("--")
    about = " ".join((field.description or "").split())
    choices = [str(choice) for choice in get_args(kind)] if get_origin(kind) is Literal else []
    if len("|".join(choices)) > _LONG:
        limits["metavar"] = "<name>"
        about = f"{about} One of {', '.join(choices)}."
    option = typer.Option(
        flag,
        *more,
        help=about if shown is None else f"{about} Default: {shown}.",
        rich_help_panel=panel,
        show_default=False,
        **limits,
    )
    required = field.is_required() and name not in defaults
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else None,
        annotation=Annotated[kind if required else kind | None, option],
    )


def _plain(annotation: Any, bounds: list[Any]) -> tuple[Any, list[Any]]:
    """A type without None and annotations, and what the annotations say."""
    if get_origin(annotation) is Annotated:
        kind, *found = get_args(annotation)
        return _plain(kind, [*bounds, *(one for part in found for one in getattr(part, "metadata", [part]))])
    members = [one for one in get_args(annotation) if one is not type(None)]
    if type(None) in get_args(annotation) and len(members) == 1:
        return _plain(members[0], bounds)
    return annotation, bounds
