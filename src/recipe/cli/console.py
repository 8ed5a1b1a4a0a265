"""What all commands share: how progress and results are shown, and how errors end a command."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from recipe.errors import RecipeError
from recipe.progress import Advance, LogLines, Progress

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells report it."""

out = Console()
err = Console(stderr=True)


class Bars:
    """Progress bars on a terminal; their spinner and clock move while a unit of work takes long."""

    @contextmanager
    def task(self, description: str, total: int | None = None) -> Iterator[Advance]:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with RichProgress(*columns, console=err) as bars:
            task = bars.add_task(description, total=total)
            yield lambda n: bars.advance(task, n)


def progress() -> Progress:
    """Bars where standard error is a terminal, lines of text elsewhere."""
    return Bars() if err.is_terminal else LogLines(sys.stderr)


def print_json(value: object) -> None:
    """The machine-readable result of a command, alone on standard output."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))


def run(app: typer.Typer) -> int:
    """Run the command line; returns its exit code instead of raising."""
    try:
        result = app(standalone_mode=False)
        return result if isinstance(result, int) else 0
    except RecipeError as error:
        err.print(f"[bold red]error:[/] {error}", highlight=False, soft_wrap=True)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        err.print("[bold]interrupted[/]: finished work is kept; the same command goes on from there.")
        return INTERRUPTED
    except typer.Exit as stop:
        return stop.exit_code
    except Exception as error:
        if hasattr(error, "show") and hasattr(error, "exit_code"):  # click's usage errors
            error.show()
            return int(error.exit_code)
        raise
