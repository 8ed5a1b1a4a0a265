"""From paths to texts: files, folders, archives and compressed files, one after another, a block at a time.

A folder is read as all files in it, in the order of their names, and an archive as its members. Nothing is unpacked to
disk.
"""

import codecs
import gzip
import io
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from recipe.artifacts import not_a_file
from recipe.errors import InputError, first_line

HEAD = 1 << 16
"""Bytes from which a file's format is detected."""
MOST_CHARACTERS = 1 << 24
"""Characters of one line, one video's file or one video's entry at most: an hour of speech takes about 100,000."""

_READ_AT_ONCE = 1 << 18
_ARCHIVES = re.compile(r"\.(zip|tar|tar\.gz|tgz)$", re.IGNORECASE)
_COMPRESSED = re.compile(r"\.(gz|zst)$", re.IGNORECASE)
# What the libraries raise for archives that are damaged or, RuntimeError, locked.
_DAMAGE = (
    EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, RuntimeError, OSError, ValueError, LookupError,
    TypeError,
)  # fmt: skip


class SourceFile(NamedTuple):
    """A file that is being read: `label` is its name in messages, `name` its file name without `.gz` or `.zst`."""

    label: str
    name: str
    stream: io.BufferedReader
    path: Path | None
    """Where the very bytes of the stream lie on disk; None in archives and compressed files."""
    inside: bool
    """True for a file that was found in a folder or an archive and not named itself."""

    def blocks(self, encoding: str) -> Generator[str]:
        """The text of a file in blocks, without a byte order mark. Raises InputError with line and position."""
        encoding = encoding_of(self.stream.peek(4)[:4], encoding)
        name = "utf-8-sig" if encoding == "utf-8" else encoding
        decoder = codecs.getincrementaldecoder(name)()
        position, line = 0, 1
        while True:
            block = self.stream.read(_READ_AT_ONCE)
            # The decoder counts an error's position from the bytes that it held back of the block before.
            held = len(decoder.getstate()[0])
            try:
                text = decoder.decode(block, final=not block)
            except UnicodeError as error:
                # UTF-16 or UTF-32 without a mark of the order of bytes; Python 3.13 raises an error of its own for it.
                if not isinstance(error, UnicodeDecodeError) or error.reason.endswith("BOM"):
                    remedy = f"give {encoding}-le or {encoding}-be, or convert the file to UTF-8"
                    raise InputError.at(
                        self.label, f"the text has no {encoding.upper()} byte order mark", remedy
                    ) from None
                shown = f"0x{error.object[error.start]:02x}" if error.start < len(error.object) else "the end"
                # In Latin-1 these bytes are control characters, which no text has.
                likely = "cp1252" if re.search(rb"[\x80-\x9f]", error.object) else "latin-1"
                if 4 * error.object.count(0) > len(error.object):
                    likely = "utf-16-le" if error.object[::2].count(0) < error.object[1::2].count(0) else "utf-16-be"
                at = f"byte {shown} at position {position - held + error.start:,}"
                remedy = f"convert the file to UTF-8 or give its encoding, such as {likely} ({at})"
                line += error.object[: error.start].count(b"\n")
                raise InputError.at(self.label, f"the text is not {encoding.upper()}", remedy, line=line) from None
            if text:
                yield text
            if not block:
                return
            position += len(block)
            line += text.count("\n")

    def whole(self, encoding: str) -> str:
        """The text of a file of one video. Raises InputError where it is longer than `MOST_CHARACTERS`."""
        parts, length = list[str](), 0
        with closing(self.blocks(encoding)) as read:
            for part in read:
                parts.append(part)
                length += len(part)
                if length > MOST_CHARACTERS:
                    raise too_long(self.label, "the file of a video")
        return "".join(parts)

    def lines(self, encoding: str) -> Iterator[str]:
        """The lines of a file, each with its line feed. Raises InputError for a line longer than `MOST_CHARACTERS`."""
        begun, length = list[str](), 0
        with closing(self.blocks(encoding)) as parts:
            for part in parts:
                # Not splitlines, which divides at U+2028 and form feeds, too; JSON may hold the first as it is.
                first, *rest = part.split("\n")
                begun.append(first)
                length += len(first)
                for following in rest:
                    yield "".join(begun) + "\n"
                    begun, length = [following], len(following)
                if length > MOST_CHARACTERS:
                    raise too_long(self.label, "a line")
        if last := "".join(begun):
            yield last


def source_files(path: Path) -> Generator[SourceFile]:
    """Every file that `path` stands for, open for reading until the next one is asked for; hidden ones are left out.

    Raises InputError for a path that is not there, also in a folder, and for an archive that cannot be read.
    """
    if path.is_dir():
        for file in _walk(path):
            # A link to nothing, as git-annex leaves for what is not fetched; or a pipe, which would be waited for.
            if not file.is_file():
                raise not_a_file(file)
            yield from _open(file, inside=True)
    elif path.is_file():
        yield from _open(path, inside=False)
    else:
        raise not_a_file(path)


def file_names(paths: Iterable[Path]) -> Iterator[str]:
    """The names of all files that `source_files` would open, members of archives among them; a `.tar` is read for it.

    Raises InputError for an archive that cannot be read.
    """
    for path in paths:
        for file in _walk(path) if path.is_dir() else [path] if path.is_file() else []:
            if not _ARCHIVES.search(file.name):
                yield _COMPRESSED.sub("", file.name)
                continue
            with _readable(str(file)):
                if file.suffix.lower() == ".zip":
                    with zipfile.ZipFile(file) as packed:
                        members = [entry.filename for entry in packed.infolist() if not entry.is_dir()]
                        yield from (_COMPRESSED.sub("", Path(name).name) for name in members if not _hidden(name))
                    continue
                with tarfile.open(file, "r|*") as archive:
                    for entry in archive:
                        archive.members = []  # type: ignore[attr-defined] # as in `_open`
                        if entry.isfile() and not _hidden(entry.name):
                            yield _COMPRESSED.sub("", Path(entry.name).name)


def _walk(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise error

    for root, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                yield Path(root, name)


def _open(path: Path, inside: bool) -> Iterator[SourceFile]:
    if not _ARCHIVES.search(path.name):
        # As much as a format is detected from: `peek` gives no more than the buffer holds.
        with path.open("rb", buffering=HEAD) as stream:
            yield _plain(str(path), path.name, cast(io.BufferedReader, stream), path, inside)
    elif path.suffix.lower() == ".zip":
        with _readable(str(path)), zipfile.ZipFile(path) as packed:
            # By name, as the files of a folder, in whatever order they were packed.
            for name in sorted(entry.filename for entry in packed.infolist() if not entry.is_dir()):
                if _hidden(name):
                    continue
                label = _label(path, name)
                with _readable(label), packed.open(name) as stored:
                    yield _plain(label, Path(name).name, _checked(cast(BinaryIO, stored), label), None, inside=True)
    else:
        with _readable(str(path)), tarfile.open(path, "r|*") as archive:
            for entry in archive:
                # A stream is read once from front to end, so what was passed need not be kept.
                archive.members = []  # type: ignore[attr-defined]
                if not entry.isfile() or _hidden(entry.name):
                    continue
                member = archive.extractfile(entry)
                if member is not None:
                    label = _label(path, entry.name)
                    checked = _checked(cast(BinaryIO, member), label)
                    yield _plain(label, Path(entry.name).name, checked, None, inside=True)


def _plain(label: str, name: str, stream: io.BufferedReader, path: Path | None, inside: bool) -> SourceFile:
    """A file, decompressed on the way where it begins as a gzip or a Zstandard file does."""
    head = stream.peek(4)[:4]
    if head[:2] == b"\x1f\x8b":
        unpacked: object = gzip.GzipFile(fileobj=stream)
    elif head == b"\x28\xb5\x2f\xfd":
        pa = import_module("pyarrow")  # heavy, and only for files so compressed
        unpacked = pa.CompressedInputStream(pa.PythonFile(stream, "r"), "zstd")
    else:
        return SourceFile(label, name, stream, path, inside)
    name = _COMPRESSED.sub("", name)
    return SourceFile(label, name, _checked(cast(BinaryIO, unpacked), label), None, inside)


def _label(archive: Path, member: str) -> str:
    """What messages call a member; its name may hold anything, so what cannot be shown is escaped."""
    return f"{archive}/{member if member.isprintable() else ascii(member)}"


def _hidden(name: str) -> bool:
    # macOS packs a folder of its own beside the files of a zip.
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


@contextmanager
def _readable(label: str) -> Iterator[None]:
    """Turn a library's errors about an archive into one InputError."""
    try:
        yield
    except _DAMAGE as error:
        problem = f"the compressed data cannot be read ({first_line(error)})"
        raise InputError.at(label, problem, "fetch or pack the file again") from None


def _checked(stream: BinaryIO, label: str) -> io.BufferedReader:
    return cast(io.BufferedReader, io.BufferedReader(_CheckedStream(stream, label), HEAD))


class _CheckedStream(io.RawIOBase):
    """A decompressing stream that reports damage as InputError."""

    def __init__(self, stream: BinaryIO, label: str) -> None:
        self._stream, self._label = stream, label

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        with _readable(self._label):
            block = self._stream.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)


def encoding_of(head: bytes, encoding: str) -> str:
    """The encoding that was asked for; in place of UTF-8, the one that the byte order mark of a file's head names.

    >>> encoding_of(b"\\xff\\xfea\\0", "utf-8"), encoding_of(b"a", "utf-8"), encoding_of(b"\\xff\\xfe", "cp1252")
    ('utf-16', 'utf-8', 'cp1252')
    """
    if encoding != "utf-8" or not head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)):
        return encoding
    # The mark of UTF-32 begins with that of UTF-16, so it is looked for first.
    return "utf-32" if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)) else "utf-16"


def too_long(label: str, text: str) -> InputError:
    """The error for more text than any video has."""
    return InputError.at(
        label, f"{text} is longer than {MOST_CHARACTERS:,} characters", "check the file and its format"
    )
