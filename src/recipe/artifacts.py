"""Files that stages hand to each other: atomic writes, JSON lines with located errors, fingerprints, run folders."""

import errno
import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import socket
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, BinaryIO

from pydantic_core import to_jsonable_python

from recipe.errors import HALVES, InputError, printable

JsonObject = dict[str, Any]
CARD = "card.json"
"""In the folder of a model or checkpoint: from what it was made."""
# Bytes of a line of JSON at most: hostile JSON takes twenty times its length in memory.
_MOST_LINE_BYTES = 1 << 25
# Characters of a field's place that an error names.
_NAMED = 200
ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""How JSON writes a half of a character, also where its other half follows."""


@contextmanager
def atomic_path(target: Path | str) -> Iterator[Path]:
    """A sibling path to write to, which replaces `target` once it is complete and on disk.

    Works for files and folders. If the body raises, the target is untouched and the partial output removed; what a
    killed process of this machine left behind is removed by the next attempt. Of several processes and threads that
    write one target, each has a path of its own, and the last to finish leaves its whole output.
    """
    (target := Path(target)).parent.mkdir(parents=True, exist_ok=True)
    pattern = re.compile(rf"\.{re.escape(target.name)}\.{_machine()}-(\d+)-\d+\.partial")
    with os.scandir(target.parent) as entries:
        begun = [(Path(entry.path), match) for entry in entries if (match := pattern.fullmatch(entry.name))]
    for path, match in begun:
        process = int(match[1])
        if path in _live:
            continue
        if process != os.getpid():  # what this process has not in `_live`, an earlier one of its number left behind
            try:
                # Signal 0 reaches nobody: it asks whether there is such a process.
                os.kill(process, 0)
                continue
            except ProcessLookupError:
                pass
            except PermissionError:  # it runs, for another user
                continue
        remove(path)
    with _own_sibling(target) as partial, _named(partial, target):
        yield partial
        # Its content before its name: else a power cut may leave the name of an empty file.
        sync(partial)
        # A folder with content cannot be replaced in one step, so that it is moved aside, however often.
        while True:
            try:
                partial.replace(target)
                break
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not partial.is_dir():
                    raise
            with _own_sibling(target) as aside, suppress(FileNotFoundError):  # another process has moved it
                target.replace(aside)
        sync_names(target.parent)


# Modes of a temporary file, and of one that `open` makes, before the umask.
_PRIVATE, _PUBLIC = 0o600, 0o666
# It can be read by setting it alone; here, before there are threads that write files meanwhile.
_UMASK = os.umask(0)
os.umask(_UMASK)
_counter = itertools.count()
# Partial outputs of this process that are being written.
_live: set[Path] = set()


@contextmanager
def _own_sibling(target: Path) -> Iterator[Path]:
    """A path next to `target` that no other process or thread uses, removed at the end."""
    path = target.with_name(f".{target.name}.{_machine()}-{os.getpid()}-{next(_counter)}.partial")
    # Before the path is used: another thread that begins the same target removes what it does not find here.
    _live.add(path)
    try:
        yield path
    finally:
        with _named(path, target):
            remove(path)
        _live.discard(path)


@cache
def _machine() -> str:
    """What tells apart machines, and containers, that write to one disk: process numbers mean something within one."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        space = ""
    return hashlib.sha256(f"{socket.gethostname()} {space}".encode()).hexdigest()[:8]


@contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a folder, made where it is missing, for this process; the lock ends with the process, however it ends.

    Where another process holds it, waits for that one, or raises InputError without `wait`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The folder itself and no file in it: the kernel ends the lock with the process, and nothing stays behind.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            problem = "another process is at work in this folder"
            raise InputError.at(folder, problem, "wait for it or choose another folder") from None
        yield
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Where this user keeps what can be made again: `RECIPE_CACHE`, else `recipe` in `XDG_CACHE_HOME` or ~/.cache."""
    if own := os.environ.get("RECIPE_CACHE"):
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "recipe"


def write_text(target: Path | str, text: str) -> None:
    """Write `text` as UTF-8, all or nothing."""
    with atomic_path(target) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(target: Path | str, value: object, sort_keys: bool = True) -> None:
    """Write `value` as indented JSON, all or nothing."""
    write_text(target, json.dumps(value, indent=2, sort_keys=sort_keys, ensure_ascii=False) + "\n")


def read_json(path: Path | str) -> Any:
    """The value of a JSON file.

    Raises InputError when it is missing or not JSON, deeper than Python reads, or holds half a character.
    """
    if not (path := Path(path)).is_file():
        raise not_a_file(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        value = json.loads(text, parse_int=_whole_number)
    except RecursionError:
        raise InputError.at(path, "not valid JSON (nested too deeply)", "repair or recreate the file") from None
    except ValueError as error:  # no JSON, no UTF-8, or a number of thousands of digits
        raise InputError.at(path, f"not valid JSON ({error})", "repair or recreate the file") from None
    if ESCAPED_HALF.search(text):
        require_whole(path, None, value)
    return value


def _whole_number(digits: str) -> int:
    number = int(digits)
    if abs(number) > sys.float_info.max:  # whatever computes with it would fail
        raise ValueError(f"the number {digits:.20}... is too large")
    return number


def to_json(value: object) -> Any:
    """A dataclass, or several, as plain JSON values."""
    return to_jsonable_python(value)


def not_a_file(path: Path) -> InputError:
    """The error for a path where a file was to be read and there is a folder, a pipe or nothing."""
    if path.is_dir():
        return InputError.at(path, "this is a folder", "give the path of a file")
    if path.exists():
        return InputError.at(path, "this is a pipe or a device", "give the path of a file on disk")
    return InputError.at(path, "the file does not exist", "check the path")


def read_text(path: Path | str) -> str:
    """The text of a UTF-8 file, without a byte order mark. Raises InputError for no file, and for another encoding."""
    if not (path := Path(path)).is_file():
        raise not_a_file(path)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError.at(path, "the text is not UTF-8", "convert the file to UTF-8") from None


def require_writable(target: Path) -> None:
    """Check before long work that a file can be written to `target`. Raises InputError, OSError."""
    if target.is_dir():
        raise InputError.at(target, "this is a folder", "give the path of a file to write")
    target.parent.mkdir(parents=True, exist_ok=True)
    with _own_sibling(target) as partial, _named(partial, target):
        partial.touch()


def write_jsonl(target: Path | str, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write one JSON object a line, all or nothing; returns the number of rows."""
    count = 0
    with atomic_path(target) as partial, partial.open("w", encoding="utf-8") as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def read_jsonl(path: Path | str) -> Iterator[tuple[int, JsonObject]]:
    """Line number and object of each line, read as `text_lines`.

    Raises InputError also for a line that is not a JSON object, and as `require_whole`.
    """
    for number, text in text_lines(path):
        row = json_line(path, number, text)
        if ESCAPED_HALF.search(text):
            require_whole(path, number, row)
        yield number, row


def text_lines(path: Path | str, opened: BinaryIO | None = None) -> Iterator[tuple[int, str]]:
    """Number and text of each line of a file, or of a stream opened on it; blank lines are skipped.

    Raises InputError for a file that is missing or blank, and for a line that is too long or not UTF-8.
    """
    if not (path := Path(path)).is_file():
        raise not_a_file(path)
    rows = 0
    with nullcontext(opened) if opened else path.open("rb") as stream:
        # One byte more than a line may have tells that it goes on, without reading it to its end.
        for number, line in enumerate(iter(lambda: stream.readline(_MOST_LINE_BYTES + 1), b""), start=1):
            if len(line) > _MOST_LINE_BYTES:
                problem = f"the line is longer than {_MOST_LINE_BYTES:,} bytes"
                raise InputError.at(path, problem, "give one JSON object a line", line=number)
            try:
                # The mark that some editors begin a UTF-8 file with is no part of the line.
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise InputError.at(path, "the text is not UTF-8", "convert the file to UTF-8", line=number) from None
            if text.strip():
                rows += 1
                yield number, text
    if rows == 0:
        raise InputError.at(path, "the file is empty", "give a file with one JSON object a line")


def json_line(path: Path | str, number: int, line: str) -> JsonObject:
    """The object of a line of text. Raises InputError, naming the file and the line."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        problem = f"not valid JSON ({error.msg} at column {error.colno})"
        raise InputError.at(path, problem, "give one JSON object a line", line=number) from None
    except (RecursionError, ValueError):
        problem = "nested too deeply, or a number of too many digits"
        raise InputError.at(path, problem, "give one plain JSON object a line", line=number) from None
    if not isinstance(value, dict):
        raise InputError.at(path, "not a JSON object", "give one JSON object a line", line=number)
    return value


def require_whole(path: Path | str, line: int | None, value: object) -> None:
    """Reject a JSON value with half a character in a text or a name. Raises InputError, naming its field."""
    if (path_in_value := half_character(value)) is not None:
        shown = path_in_value[:_NAMED]
        problem, field = f"{printable(shown or 'the text')} holds half a character", re.sub(r"(\[\d+\])+$", "", shown)
        raise InputError.at(path, problem, "repair or remove it", line=line, field=field or None)


def half_character(value: object) -> str | None:
    """The first field of a JSON value, such as `steps[1].text`, in which a text or a name holds half a character.

    None where none does, and empty where the value itself is the text.
    """
    left: list[tuple[str, object]] = [("", value)]  # not by recursion: JSON may be deeper than Python's stack
    while left:
        field, item = left.pop()
        if isinstance(item, str) and HALVES.search(item):
            return field
        if isinstance(item, dict):
            named = [(f"{field}.{name}" if field else name, inner) for name, inner in item.items()]
            if half := next((name for name, _ in named if HALVES.search(name)), None):
                return half
            left += reversed(named)
        elif isinstance(item, list):
            left += [(f"{field}[{index}]", item[index]) for index in reversed(range(len(item)))]
    return None


def installed(packages: Sequence[str]) -> dict[str, str]:
    """Versions of the packages that are installed, for the record of a run."""
    versions = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def fingerprint(value: object) -> str:
    """SHA-256 of a JSON-serialisable value, independent of key order."""
    # Texts as they are and not as escapes: recorded ids are hashes of these bytes.
    encoded = json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(encoded.encode("utf-8", "surrogatepass")).hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _named(partial: Path, target: Path) -> Iterator[None]:
    """Make system errors about the partial output name `target`, the path that the user gave."""
    try:
        yield
    except OSError as error:
        if str(error.filename or partial).startswith(str(partial)):
            error.filename = str(target)
        raise


def sync(path: Path) -> None:
    """Wait until a file, or every file in a folder, is on disk, readable for whom the umask says.

    Libraries that write through a temporary file, as safetensors does, leave it to its owner alone.
    """
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    for file in files:
        with file.open("rb") as stream:
            if stat.S_IMODE(os.fstat(stream.fileno()).st_mode) == _PRIVATE:
                os.fchmod(stream.fileno(), _PUBLIC & ~_UMASK)
            os.fsync(stream.fileno())


def sync_names(folder: Path) -> None:
    """Wait until the names in a folder are on disk; writing a new file does not write its name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
