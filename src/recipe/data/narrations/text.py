"""From bytes to text, a block at a time; a byte that does not belong is named with its place."""

import codecs
from collections.abc import Generator, Iterator
from contextlib import closing

from recipe.data.narrations.files import Opened
from recipe.errors import InputError

LONGEST = 1 << 28
"""Characters of one line, one video's file or one video's entry at most: an hour of speech takes about 100,000."""

_BLOCK = 1 << 18


def blocks(file: Opened, encoding: str) -> Generator[str]:
    """The text of a file in blocks, without a byte order mark. Raises InputError with line and position."""
    name = "utf-8-sig" if encoding == "utf-8" else encoding
    decoder = codecs.getincrementaldecoder(name)()
    position, line = 0, 1
    while True:
        block = file.stream.read(_BLOCK)
        held = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            before = error.object[: error.start].count(b"\n")
            raise _not_text(file, encoding, position - held + error.start, line + before, error) from None
        if text:
            yield text
        if not block:
            return
        position += len(block)
        line += text.count("\n")


def _not_text(file: Opened, encoding: str, position: int, line: int, error: UnicodeDecodeError) -> InputError:
    found = f"0x{error.object[error.start]:02x}" if error.start < len(error.object) else "the end"
    remedy = f"convert the file to UTF-8 or give its encoding, such as latin-1 (byte {found} at position {position:,})"
    return InputError.at(file.label, f"the text is not {encoding.upper()}", remedy, line=line)


def whole(file: Opened, encoding: str) -> str:
    """The text of a file of one video. Raises InputError where it is longer than any is."""
    parts, length = list[str](), 0
    with closing(blocks(file, encoding)) as found:
        for part in found:
            parts.append(part)
            length += len(part)
            if length > LONGEST:
                raise too_long(file.label, "the file of a video")
    return "".join(parts)


def lines(file: Opened, encoding: str) -> Iterator[str]:
    """The lines of a file, each with its line feed. Raises InputError for a line that is longer than any is."""
    begun, length = list[str](), 0
    with closing(blocks(file, encoding)) as parts:
        for part in parts:
            first, *rest = part.split("\n")
            begun.append(first)
            length += len(first)
            for following in rest:
                yield "".join(begun) + "\n"
                begun, length = [following], len(following)
            if length > LONGEST:
                raise too_long(file.label, "a line")
    if last := "".join(begun):
        yield last


def too_long(label: str, what: str) -> InputError:
    """The error for text that no video has so much of."""
    return InputError.at(label, f"{what} is longer than {LONGEST:,} characters", "check the file and its format")
