"""Write docs/reference.md, every command and every setting, from the code; `--check` fails when it is stale."""

import inspect
import sys
from pathlib import Path
from typing import Any

import typer.main
from results import write_pages

from recipe import config
from recipe.cli import app
from recipe.cli.flags import documented_fields

TARGET = Path(__file__).with_name("reference.md")


def commands(command: Any, path: str, parent: typer.Context | None = None) -> list[str]:
    """Help texts of a command and of those below it."""
    context = typer.Context(command, parent=parent, info_name=path.rpartition(" ")[2], max_content_width=100)
    if hasattr(command, "commands"):
        children = {name: command.get_command(context, name) for name in command.list_commands(context)}
        return [line for name, child in children.items() for line in commands(child, f"{path} {name}", context)]
    rows = [f"### `{path}`", "", inspect.cleandoc(command.help or ""), ""]
    table = [record for parameter in command.params if (record := parameter.get_help_record(context))]
    if table:
        rows += ["| argument | meaning |", "| --- | --- |"]
        rows += [f"| `{_cell(name)}` | {_cell(text)} |" for name, text in table]
        rows.append("")
    return rows


def settings(kind: type[config.Settings]) -> list[str]:
    """One table of a settings class: key, default, meaning."""
    rows = [
        f"### {kind.__name__}",
        "",
        inspect.getdoc(kind) or "",
        "",
        "| key | default | meaning |",
        "| --- | --- | --- |",
    ]
    documented = documented_fields(kind)
    for name, field in kind.model_fields.items():
        default = "required" if field.is_required() else f"`{field.default!r}`"
        rows.append(f"| `{name}` | {_cell(default)} | {_cell(documented.get(name, ''))} |")
    return [*rows, ""]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def render() -> str:
    kinds = [k for k in vars(config).values() if inspect.isclass(k) and issubclass(k, config.Settings)]
    kinds = [k for k in kinds if k is not config.Settings and k.__module__.startswith("recipe.config.")]
    lines = ["# Reference", "", "Generated from the code by `docs/reference.py`.", "", "## Commands", ""]
    lines += commands(typer.main.get_command(app), "recipe")
    lines += [
        "## Settings",
        "",
        "Keys of the TOML files; an unknown key is an error that names the nearest one.",
        "",
    ]
    lines += [line for kind in kinds for line in settings(kind)]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    write_pages({TARGET: render()}, "--check" in sys.argv)
