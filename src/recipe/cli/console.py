"""Shared by all commands: groups and help, progress, results, and the end of a command by an error."""

import ast
import errno
import functools
import inspect
import io
import json
import logging
import re
import shlex
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeVar

import typer.main
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from recipe.errors import COMMANDS, RecipeError, printable, shortened
from recipe.progress import LOADING, Advance, LogLines, Progress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from recipe.report.elements import Table
    from recipe.training.preflight import Requirement

# Letters, more than any first sentence has.
_WHOLE = 1000
CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a key of the settings, such as lora.rank=8; repeat for more."),
]
"""Option of each command that reads settings from a TOML file."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells report it and as Typer turns it into."""

TERMINATED = 143
"""Exit code after SIGTERM, as shells report it."""


# Options that hold data, some of which other commands take several times. Of all others the last value counts, so that
# a script can add its own at the end.
_ONCE = frozenset({"--continuation", "--examples", "--goal", "--predictions", "--procedures", "--prompts", "--tasks"})


class _PlainCommand(TyperCommand):
    """A command whose help has a section for each panel of options, and which says how a setting is given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; one that is unknown, but the name of a key of the settings, is answered by `--set`.

        Of `_ONCE`, one that takes one value and is given twice is refused: the first would be dropped in silence.
        """
        given = [*args]
        try:
            _, _, order = self.make_parser(ctx).parse_args(args=[*args])
            for option, count in Counter(order).items():
                once = isinstance(option, TyperOption) and not option.multiple and option.opts[0] in _ONCE
                if once and count > 1:
                    ctx.fail(f"{option.opts[0]} is given {count} times and takes one value; give it once.")
            return super().parse_args(ctx, args)
        except Exception as error:  # of the Click in Typer, which does not export its class
            if gone := _removed(ctx, given):
                ctx.fail(gone)
            unknown: Any = error if hasattr(error, "option_name") and hasattr(error, "possibilities") else None
            keys: dict[str, str] = getattr(self.callback, "setting_keys", dict)() if unknown is not None else {}
            if keys and (sentence := _as_setting(unknown.option_name, given, keys, not unknown.possibilities)):
                unknown.message, unknown.possibilities = sentence, None
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            panel = getattr(parameter, "rich_help_panel", None)
            title = panel or ("Arguments" if isinstance(parameter, TyperArgument) else "Options")
            if record := parameter.get_help_record(ctx):
                sections.setdefault(title, []).append(record)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


def _removed(ctx: Any, words: Sequence[str]) -> str | None:
    """What to use in place of the first removed name among the words of a command."""
    from recipe.config.removed import removed_option  # settings are not imported for a list of commands

    return removed_option(ctx.command_path, words)


def _as_setting(option: str, given: Sequence[str], keys: Mapping[str, str], near: bool) -> str:
    """Names the setting for an unknown option; empty where no key has its name or, with `near`, a similar one."""
    name = option.lstrip("-").replace("-", "_")
    named = [key for key in keys if key == name or key.endswith(f".{name}")]
    from recipe.config.synonyms import nearest_key  # settings are not imported for a list of commands

    shallow_first = sorted(keys, key=lambda key: key.count("."))
    if not named and near and (meant := nearest_key(name, shallow_first, cutoff=0.75)):
        named = [key for key in keys if key.rpartition(".")[2] == meant.rpartition(".")[2]]
    if not named:
        return ""
    shallow = min(key.count(".") for key in named)
    named = [key for key in named if key.count(".") == shallow][:3]
    places = (place for place, word in enumerate(given) if word.partition("=")[0] == option)
    words = given[next(places, len(given)) :] or [option]
    _, equals, value = words[0].partition("=")
    if not equals and len(words) > 1 and not re.match(r"-\D", words[1]):
        value = words[1]
    # A flag has no value of its own: what follows it is an argument.
    values = {key: value if value and keys[key] == "VALUE" else keys[key] for key in named}
    ways = [f"--set {shlex.quote(f'{key}={values[key]}')}" for key in named]
    exact = all(key.rpartition(".")[2] == name or key == name for key in named)
    about = f"{option} is a setting" if exact else f"there is no {option}, but a setting {named[0]}"
    return f"{about}; use {' or '.join(ways)}."


class PlainGroup(TyperGroup):
    """Commands that are listed with the whole first sentence of their help, and imported when they are called.

    Other packages add theirs by entry points: `serve = "recipe_apps.cli.serve:serve"` in the group `recipe.commands` is
    `recipe serve`; what the group `recipe.commands.reward` holds lies below `recipe reward`. An entry point names a
    function or a `CommandGroup`.
    """

    places: ClassVar[Mapping[str, EntryPoint]] = {}
    """Where each command of this project is that is not imported with its group."""
    further: ClassVar[str] = ""
    """Another group of entry points that name commands here."""
    _installed: dict[str, EntryPoint] | None = None
    """The commands of other packages."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names; for one that was removed, what to use instead, else the nearest."""
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            if gone := _removed(ctx, args[:1]):
                ctx.fail(gone)
            near = get_close_matches(args[0].lower(), self.list_commands(ctx), n=2)
            known = f"Did you mean {' or '.join(map(repr, near))}?" if near else f"See `{ctx.command_path} --help`."
            ctx.fail(f"No such command {args[0]!r}. {known}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys((*self.places, *self.commands, *self._of_packages(ctx))))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a name, imported; None where there is none.

        One of another package that cannot be loaded is said on standard error and left out: the other commands do not
        depend on it.
        """
        if cmd_name in self.commands:
            return self.commands[cmd_name]
        if (entry := self.places.get(cmd_name) or self._of_packages(ctx).get(cmd_name)) is None:
            return None
        try:
            loaded = entry.load()
        except Exception as error:
            if cmd_name in self.places:  # a fault of this program
                raise
            # So that it is said once, and help does not list what cannot run.
            del self._of_packages(ctx)[cmd_name]
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            line = f"the command {cmd_name!r} of {entry.module} cannot be loaded ({reason}); "
            err.print(f"{line}repair or remove its package.", highlight=False, soft_wrap=True)
            return None
        self.commands[cmd_name] = self.made_command(cmd_name, loaded)
        return self.commands[cmd_name]

    def made_command(self, name: str, loaded: Any) -> Any:
        """What Typer makes of a function or a `CommandGroup`."""
        group = CommandGroup()
        group.add_typer(loaded, name=name) if isinstance(loaded, typer.Typer) else group.command(name)(loaded)
        return typer.main.get_group(group).commands[name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            entry = self.places.get(name) or self._of_packages(ctx).get(name)
            package = entry.module.partition(".")[0] if entry and name not in self.places else ""
            title = f"Commands of {package}" if package else "Commands"
            described = None if entry is None or name in self.commands else described_command(entry)
            if (command := described or self.get_command(ctx, name)) is not None:
                sections.setdefault(title, []).append((name, command.get_short_help_str(limit=_WHOLE)))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)

    def _of_packages(self, ctx: Any) -> dict[str, EntryPoint]:
        if self._installed is None:  # once a group: the metadata of every installed package is read
            names: list[str] = []
            while ctx.parent is not None:
                names.insert(0, ctx.info_name)
                ctx = ctx.parent
            groups = [".".join(("recipe.commands", *names)), *([self.further] if self.further else [])]
            entries = (entry for group in groups for entry in entry_points(group=group))
            self._installed = {
                entry.name: entry for entry in entries if entry.name not in {*self.places, *self.commands}
            }
        return self._installed


class CommandGroup(typer.Typer):
    """Commands with help in plain text: it wraps at any width, and no word of it is cut.

    Besides the commands added here, it has those at `places`, such as `"plan": "recipe.cli.plan:plan"`, which
    are imported when they are called. `kind` may resolve names in its own way.
    """

    def __init__(
        self, places: Mapping[str, str] | None = None, kind: type[PlainGroup] = PlainGroup, **settings: Any
    ) -> None:
        entries = {name: EntryPoint(name, place, "recipe.commands") for name, place in (places or {}).items()}
        group = type(kind.__name__, (kind,), {"places": entries})
        super().__init__(cls=group, callback=_no_options, no_args_is_help=True, rich_markup_mode=None, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[[CommandFunction], CommandFunction]:
        return super().command(name, cls=_PlainCommand, **settings)


def _no_options() -> None:
    """The callback of a group that has no options: without one, Typer makes no group of fewer than two commands."""


def described_command(entry: EntryPoint) -> TyperCommand | None:
    """A command that has only the help of the one at `entry`; None where the text of its module does not tell it.

    The list of a group is shown in this way because some modules take a second to import.
    """
    try:
        loader: Any = getattr(find_spec(entry.module), "loader", None)
        parsed = definition(loader.get_source(entry.module) or "", entry.attr)
    except Exception:  # noqa: BLE001 - no module, none in Python, or none that can be read: who loads it says why
        return None
    if isinstance(parsed, ast.FunctionDef | ast.ClassDef):
        text = ast.get_docstring(parsed)
    else:
        words = getattr(getattr(parsed, "value", None), "keywords", ())
        text = next((getattr(word.value, "value", None) for word in words if word.arg == "help"), None)
    return TyperCommand(name=entry.name, help=text) if isinstance(text, str) else None


def definition(source: str, name: str) -> ast.stmt | None:
    """The statement of a module's text that defines a function, a class or a value at its top; None where none does.

    It is parsed alone, which is quicker than the whole module by ten times.
    """
    name = re.escape(name)
    statement = re.search(rf"^(?:(?:def|class) {name}\b|{name} = ).*\n(?:[ \t)\]}}].*\n|\n)*", source, re.MULTILINE)
    return ast.parse(statement[0]).body[0] if statement else None


class SafeConsole(Console):
    """A console that shows what a terminal would obey in the texts of narrations, plans, files and errors.

    Words in square brackets are text: of a path or a step they would otherwise be taken for rich's markup, and vanish.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


out = SafeConsole()
err = SafeConsole(stderr=True)

_FILE_FOR_FOLDER = "a file is where a folder is needed, so choose another path"
_NO_RIGHT = "choose another path or change its permissions"
_NO_SPACE = "free some space and run the same command again"
# Remedies for errors of the operating system.
_REMEDIES = {
    errno.EEXIST: _FILE_FOR_FOLDER,
    errno.ENOTDIR: _FILE_FOR_FOLDER,
    errno.EISDIR: "give the path of a file",
    errno.ENOENT: "check the path",
    errno.EACCES: _NO_RIGHT,
    errno.EPERM: _NO_RIGHT,
    errno.EROFS: _NO_RIGHT,
    errno.ENOSPC: _NO_SPACE,
    errno.EDQUOT: _NO_SPACE,
    errno.EFBIG: _NO_SPACE,
}


class _Bars:
    """Progress bars on a terminal, one for each task under way; spinner and clock move while a unit of work lasts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way = 0
        self._display: RichProgress | None = None

    @contextmanager
    def task(self, description: str, total: int | None = None) -> Iterator[Advance]:
        from rich.progress import (  # help and results need no bars
            BarColumn,
            MofNCompleteColumn,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as RichProgress

        with self._lock:  # tasks of several threads share one display, which the last of them takes down
            if self._display is None:
                columns = (
                    SpinnerColumn(),
                    TextColumn("{task.description}", markup=False),
                    BarColumn(),
                    MofNCompleteColumn(),
                    TimeElapsedColumn(),
                    TimeRemainingColumn(),
                )
                self._display = RichProgress(*columns, console=err)
                self._display.start()
            display = self._display
            self._under_way += 1
        bar = display.add_task(description, total=total)
        try:
            yield lambda n: display.advance(bar, n)
        finally:
            display.stop_task(bar)
            with self._lock:
                self._under_way -= 1
                if self._under_way == 0:
                    display.stop()
                    self._display = None


def progress() -> Progress:
    """_Bars where standard error is a terminal, lines of text elsewhere."""
    return _Bars() if err.is_terminal else LogLines(sys.stderr)


def json_text(value: object) -> str:
    """A value as JSON that a terminal shows and does not obey."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    text = json.dumps(value, ensure_ascii=not unicode, indent=2)
    return COMMANDS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_lines(*lines: object) -> None:
    """Lines of text on standard output, as they are: no markup, no colours, wrapped by the terminal alone."""
    for line in lines:
        out.print(line, highlight=False, soft_wrap=True)


class CommandOutput(NamedTuple):
    """The result of a command, as programs and as people read it."""

    value: object
    """Printed as JSON with `--json`."""
    lines: "Iterable[str | Table | RenderableType]" = ()
    """Printed without: texts as they are, tables with their notes, and what rich draws."""
    ends: int | RecipeError = 0
    """How the command ends once this is printed: by an exit code, or by an error."""

    def show(self, as_json: bool) -> None:
        """Print it, and end as it says. Raises RecipeError and SystemExit."""
        if as_json:
            from recipe.artifacts import to_json

            typer.echo(json_text(to_json(self.value)))
        for line in () if as_json else self.lines:
            if isinstance(line, str):
                print_lines(line)
                continue
            from recipe.report.elements import Table  # loads NumPy, which texts do not need

            if isinstance(line, Table):
                print_table(line)
            else:
                out.print(line, highlight=False, soft_wrap=isinstance(line, Text))
        if isinstance(self.ends, RecipeError):
            raise self.ends
        if self.ends:
            raise SystemExit(self.ends)


def shows(command: Callable[..., CommandOutput]) -> Callable[..., None]:
    """Give a command `--json`, and print what it returns; one with the parameter `as_json` gets the option."""
    signature = inspect.signature(command)
    knows = "as_json" in signature.parameters

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        as_json = arguments["as_json"] if knows else arguments.pop("as_json")
        command(**arguments).show(as_json)

    option = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
    json_option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=option)
    kept = [parameter for name, parameter in signature.parameters.items() if name != "as_json"]
    # Typer reads the parameters of the signature, and their types by get_type_hints.
    run.__signature__ = signature.replace(parameters=[*kept, json_option])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*kept, json_option)} | {
        "return": None
    }
    return run


def finding_lines(findings: "Sequence[Requirement]") -> Iterator[str]:
    """A line for each thing that a run needs, and how many are missing."""
    width = max(len(finding.subject) for finding in findings)
    for finding in findings:
        yield f"{finding.state:<8} {finding.subject:<{width}}  {finding.sentence}"
    missing = sum(finding.state == "missing" for finding in findings)
    yield f"missing: {missing}" if missing else "nothing is missing"


def print_table(table: "Table") -> None:
    """A table on standard output, its notes below."""
    from recipe.report.terminal import terminal_table

    out.print(terminal_table(table, out.width))
    print_lines(*table.notes)


class _Lines(logging.Handler):
    """Writes records as lines on standard error, above the bars where there are some."""

    def emit(self, record: logging.LogRecord) -> None:
        err.print(record.getMessage(), highlight=False, soft_wrap=True)


def run(app: typer.Typer) -> int:
    """Run the command line; returns 0, 1 for input that cannot be used, 130 after Ctrl-C.

    Wrong usage exits with 2 by itself, and SIGTERM with 143. What the terminal's encoding lacks is shown as an escape.
    """
    # Else a plan in another script than the terminal's would end the command in a UnicodeEncodeError.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # What is loaded is said before it is.
    lines, level = _Lines(), LOADING.level
    LOADING.addHandler(lines)
    LOADING.setLevel(logging.INFO)
    with _noted_interrupts() as pressed, terminated():
        try:
            app(prog_name="recipe")
        except SystemExit as stop:
            if stop.code != INTERRUPTED:
                raise
            pressed.append(signal.SIGINT)
        except Exception as error:
            sentence = _sentence(error)
            if pressed:  # a library that is interrupted while it loads raises an error of its own
                pass
            elif sentence is None:
                raise
            else:
                err.print(f"error: {shortened(sentence)}", style="red", highlight=False, soft_wrap=True)
                return RecipeError.exit_code
        else:
            return 0
        finally:
            LOADING.removeHandler(lines)
            LOADING.setLevel(level)
    err.print("interrupted: finished work is kept; the same command resumes from there.")
    return INTERRUPTED


@contextmanager
def _noted_interrupts() -> Iterator[list[int]]:
    """A list that is empty until Ctrl-C is pressed."""
    pressed: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        # It raises KeyboardInterrupt; the number is noted because libraries turn that into errors of their own.
        signal.default_int_handler(number, frame)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def terminated() -> Iterator[None]:
    """End by SystemExit at SIGTERM, so that what is under way is kept as after Ctrl-C."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _sentence(error: Exception) -> str | None:
    """An error in one sentence; None for one that is a fault of the program."""
    if isinstance(error, RecipeError):
        return str(error)
    if isinstance(error, UnicodeEncodeError):  # a word of the command line that is no UTF-8, on its way to a file
        return f"{error.object[error.start : error.end]!a} cannot be written in a file; give texts in UTF-8."
    if not isinstance(error, OSError):
        return None
    lines = (error.strerror or str(error) or type(error).__name__).splitlines()
    reason = f"{lines[0][0].lower()}{lines[0][1:]}".rstrip(".")
    path = error.filename2 or error.filename
    file = "" if path is None else f"{path}: "
    remedy = _REMEDIES.get(error.errno or 0, "check the path and the space on its disk")
    return f"{file}{reason}; {remedy}."
