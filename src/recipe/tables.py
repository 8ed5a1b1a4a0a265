"""Files of rows, known by their content: JSON lines, JSON, CSV, Parquet and Arrow, plain, in gzip or in Zstandard.

Every row comes as the text of a JSON object with its line, so that all forms are read alike.
"""

import ast
import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, Literal, Union, cast, get_args, get_origin, get_type_hints

from recipe.artifacts import not_a_file, text_lines
from recipe.errors import InputError, first_line
from recipe.rows import Row, Unknown, parse_row, quoted_value

_SAVE, _UNPACK, _EXPORT = (
    "save it as CSV (UTF-8)",
    "unpack it and give the file inside",
    "export it as JSON lines or CSV",
)
# Name and remedy of forms that are not read, by how their bytes begin; the first that matches counts.
_REFUSED = {
    rb"PK\x03\x04.*xl/|\xd0\xcf\x11\xe0": ("an Excel workbook", _SAVE),
    rb"PK\x03\x04.*(opendocument|\.iwa)": ("a document of LibreOffice or Numbers", _SAVE),
    rb"PK\x03\x04.*word/|%PDF-|\{\\rtf": ("a text document", "save its rows as CSV (UTF-8)"),
    rb"PK[\x03\x05]|7z\xbc\xaf|Rar!|.{257}ustar|BZh\d|\xfd7zXZ": ("an archive (zip, 7z, RAR, tar or xz)", _UNPACK),
    rb"SQLite format 3|.{8}DUCK": ("a database of SQLite or DuckDB", _EXPORT),
    rb"\x80[\x02-\x05]|\x89HDF|\x93NUMPY|FEA1": ("a pickle, or a file of HDF5, NumPy or Feather 1", _EXPORT),
    rb"ARROW1": ("an Arrow file", "write it as Parquet"),
    rb"\s*<": ("a web page or XML", _EXPORT),
    rb"(.\0){4}|(\0.){4}": ("UTF-16 without a mark of it", "save it as UTF-8"),
}
# Cells without a value, as R, spreadsheets, pandas and databases write them.
_ABSENT = {"", "NA", "N/A", "#N/A", "<NA>", "NaN", "nan", "None", "NULL", "null", "\\N"}
# The name of a column in which pandas or R number the rows.
_INDEX = re.compile(r"unnamed: 0[.\d]*|column 1|__index_level_\d+__", re.IGNORECASE)
# Separators of several items on one line.
_JOINED = re.compile(
    r"\S\s*([;；|¦•→]|\\n|<br)\s*\S|\s[-=]?>+\s|(\s(--+|[—–/+·])\s.*){2}|\b1[.):].*\b2[.):]|^array\(", re.IGNORECASE
)
# Further separators, in a cell of steps: a whole procedure on one line would otherwise be read as one step.
_SENTENCES = re.compile(r"[,/–—]|[.!?]\s+\S|\sthen\s", re.IGNORECASE)
_BETWEEN = re.compile(r"[\s,]*")


def row_texts(path: Path | str, fields: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Line and JSON object of each row of a file, in file order; in Parquet and Arrow the row's number.

    By the types of a row's `fields` a cell of CSV is a text, a list (JSON, as Python writes it, or one item a line) or
    another value. Raises InputError for a file that is missing, empty, damaged or of another form, which it names.
    """
    path = Path(path)
    with opened(path) as stream:
        head = stream.read(1 << 16)
        stream.seek(0)
        # By content and not by name: a download often has another ending.
        if head[:4] in (b"PAR1", b"ARRO", b"\xff\xff\xff\xff"):
            rows = _arrow_rows(path, stream, head)
        else:
            require_text(path, head)
            is_json = re.match(rb"\s*([\[{]|\Z)", head.removeprefix(codecs.BOM_UTF8))
            rows = _json_rows(path, stream) if is_json else _csv_rows(path, stream, fields)
        first = [*islice(rows, 1)]
        yield from chain(first, rows)
    if not first:
        raise InputError.at(path, "the file is empty", "give one row or more")


def read_rows(
    path: Path | str, kind: type[Row], unique: tuple[str, ...] = (), unknown: Unknown = "forbid"
) -> Iterator[tuple[int, Row]]:
    """Line number and row of each row, in file order; no two rows have the same values in the fields `unique`.

    The forms are those of `row_texts`. Raises InputError with file, line, field and remedy as that does,
    for a field that is missing, unknown or of the wrong kind, and for a row that occurs twice.
    """
    key = attrgetter(*unique) if unique else None
    lines: dict[Hashable, int] = {}
    for line, text in row_texts(path, get_type_hints(kind)):
        row = parse_row(path, line, text, kind, unknown)
        if key is not None and (first := lines.setdefault(key(row), line)) != line:
            values = ", ".join(f"{name} {quoted_value(getattr(row, name))}" for name in unique)
            problem = f"{values} was already given in line {first}"
            raise InputError.at(path, problem, "give each once", line=line, field=unique[-1])
        yield line, row


@contextmanager
def opened(path: Path | str) -> Iterator[BinaryIO]:
    """A file, unpacked while it is read, in UTF-8. Raises InputError for a file that is missing or damaged."""
    path = Path(path)
    if not path.is_file():
        raise not_a_file(path)
    try:
        with path.open("rb") as stream:
            yield _unpacked(stream)
    except UnicodeDecodeError as error:
        problem, line = f"the text is not {error.encoding.upper()}", error.object.count(b"\n", 0, error.start) + 1
        raise InputError.at(path, problem, "save it as UTF-8", line=line) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError.at(path, f"the file is damaged ({first_line(error)})", "fetch or write it again") from None


def require_text(path: Path | str, head: bytes) -> None:
    """Raise InputError for a file that does not begin as text, with the name of its form."""
    for beginning, (name, remedy) in _REFUSED.items():
        if re.match(beginning, head, re.DOTALL):
            raise InputError.at(path, f"this is {name}, which is not read", remedy)


def delimiter_of(header: str) -> str:
    """What divides the cells of a table, by its first line."""
    return max(",;\t|", key=re.sub('"[^"]*"', "", header).count)


def _unpacked(stream: BinaryIO) -> BinaryIO:
    """The bytes of a file without compression, in UTF-8 where a mark says that they are in UTF-16 or UTF-32."""
    head = stream.read(4)
    stream.seek(0)
    wide = head in (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
    if head[:2] == b"\x1f\x8b":
        return _unpacked(cast(BinaryIO, gzip.GzipFile(fileobj=stream)))
    if head == b"\x28\xb5\x2f\xfd":
        pa = import_module("pyarrow")  # heavy, and only for files so packed
        try:
            return _unpacked(io.BytesIO(pa.CompressedInputStream(pa.PythonFile(stream, "r"), "zstd").read()))
        except (OSError, ValueError) as error:
            raise EOFError(first_line(error)) from None
    if wide or head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return io.BytesIO(stream.read().decode("utf-32" if wide else "utf-16").encode())
    return stream


def _json_rows(path: Path, stream: BinaryIO) -> Iterator[tuple[int, str]]:
    """One object a line, as a stream; else a list, an object around one, or objects over several lines."""
    lines = text_lines(path, stream)
    first, second = next(lines), [*islice(lines, 1)]
    by_line = False
    # The first line of an object that lies over several is no object by itself.
    with suppress(ValueError, RecursionError):
        by_line = bool(second) and isinstance(json.loads(first[1]), dict)
    if by_line:
        yield from chain([first], second, lines)
        return
    stream.seek(0)
    text, remedy = stream.read().decode("utf-8-sig"), "give one JSON array of objects, or one object a line"
    try:
        values = [*_values(text, 0)]
        alone: Any = values[0][2] if len(values) == 1 else None
        lists = [(name, rows) for name, rows in alone.items() if isinstance(rows, list)] if type(alone) is dict else []
        names = [name for name, rows in lists if (name == "data" or len(alone) == 1) and {*map(type, rows)} <= {dict}]
        if isinstance(alone, list) or names:
            values = [*_values(text, text.index("[", _place_of(text, names[0]) if names else 0) + 1)]
    except json.JSONDecodeError as error:
        problem = f"not valid JSON ({error.msg} at column {error.colno})"
        raise InputError.at(path, problem, remedy, line=error.lineno) from None
    except (RecursionError, ValueError):
        raise InputError.at(path, "nested too deeply, or a number of too many digits", remedy, line=first[0]) from None
    yield from ((line, row) for line, row, _ in values)


def _values(text: str, place: int) -> Iterator[tuple[int, str, Any]]:
    """Line, text and value of each JSON value in the list whose items begin at `place`, or in the text."""
    listed, line, before, decode = place > 0, 1, 0, json.JSONDecoder().raw_decode
    while (place := _BETWEEN.match(text, place).end()) < len(text):  # type: ignore[union-attr]  # it matches nothing, too
        if listed and text[place] == "]":
            return
        value, end = decode(text, place)
        line += text.count("\n", before, place)
        yield line, text[place:end], value
        before, place = place, end


def _place_of(text: str, name: str) -> int:
    """Where the value of a key begins in an object of JSON: of several the last, whose value a reader of JSON takes."""
    place, last, decode = text.index("{") + 1, 0, json.JSONDecoder().raw_decode
    while text[(place := _BETWEEN.match(text, place).end())] != "}":  # type: ignore[union-attr]  # it matches nothing, too
        key, end = decode(text, place)
        value = _BETWEEN.match(text, text.index(":", end) + 1).end()  # type: ignore[union-attr]
        last = value if key == name else last
        place = decode(text, value)[1]
    return last


def cells_of(path: Path, stream: BinaryIO) -> Iterator[tuple[int, list[str]]]:
    """Line and stripped cells of each row of CSV that is not blank. Raises InputError for what is no CSV."""
    text, line = stream.read().decode("utf-8-sig"), 0
    # Python's own limit, 128 kB, is less than a cell that holds a whole transcript.
    csv.field_size_limit(1 << 24)
    delimiter = delimiter_of(re.split(r"[\r\n]", text.lstrip(), maxsplit=1)[0])
    table = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True)
    try:
        for cells in table:
            begins, line = line + 1, table.line_num
            cells = [cell.strip() for cell in cells]
            # Excel's own line, which names the delimiter, is no row.
            if any(cells) and not (begins == 1 and cells[0].lower() == "sep=" and not any(cells[1:])):
                yield begins, cells
    except csv.Error as error:
        raise InputError.at(path, f"not valid CSV ({error})", "quote cells as RFC 4180 does", line=line + 1) from None


def _csv_rows(path: Path, stream: BinaryIO, fields: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Rows of a table whose first row names the columns, without regard to case, spaces and hyphens."""
    rows = cells_of(path, stream)
    line, heads = next(rows, (1, []))
    heads = [head or f"column {number}" for number, head in enumerate(heads, start=1)]
    plain = [re.sub(r"[\W_]+", "_", head.lower()) for head in heads]
    names = [name if name in fields else head for name, head in zip(plain, heads, strict=True)]
    if twice := next((name for name, count in Counter(names).items() if count > 1), ""):
        raise InputError.at(path, "the column occurs twice", "give it once", line=line, field=twice)
    if not {*names} & {*fields}:
        problem = "this is no JSON, and the first row names no column that is known"
        remedy = f"give JSON lines, or a row of names such as {', '.join([*fields][:3])}"
        raise InputError.at(path, problem, remedy, line=line)
    for begins, cells in rows:
        if len(cells) < len(names) or any(cells[len(names) :]):
            problem = f"the row has {len(cells)} cells for {len(names)} columns"
            raise InputError.at(path, problem, "quote cells that hold a comma or a line feed", line=begins)
        values = {
            name: _cell(name, fields.get(name, Any), cell)
            for name, cell in zip(names, cells, strict=False)
            if cell not in _ABSENT and not (_INDEX.fullmatch(name) and cell.isdecimal())
        }
        if "history" in names and "steps" not in values:  # empty, it is one of no step
            values.setdefault("history", [])
        yield begins, json.dumps(values)


def _cell(name: str, kind: Any, cell: str) -> object:
    """The value of a cell; the text where it is none of its kind, which the row refuses."""
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    origins = {get_origin(own) or own for own in kinds}
    if origins & {str, Literal, Any}:
        return cell
    listed = tuple in origins
    if not listed:
        # pandas writes whole numbers as 1.0 where a column has an empty cell.
        cell = cell.lower() if cell.lower() in ("true", "false") else re.sub(r"(?<=\d)\.0+$", "", cell)
    if not listed or cell[0] in "[(":
        for parse in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
                value = parse(cell)
                json.dumps(value)  # Python has values that JSON has not, such as 2j and {1}
                if parse is json.loads or repr(value) == cell:  # Python reads NumPy's ['a' 'b'] as one text
                    return value
    items = [item for item in re.split(r"[\r\n]+", cell) if item.strip()]
    alone = len(items) == 1 and (_JOINED.search(cell) or (name == "steps" and _SENTENCES.search(cell)))
    joined = alone or any("|" in item for item in items)
    return cell if joined or not listed or cell[0] == "[" else items


def _arrow_rows(path: Path, stream: BinaryIO, head: bytes) -> Iterator[tuple[int, str]]:
    """Rows of Parquet, and of Arrow's files and streams."""
    pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")  # heavy, and only for these files
    number, content = 0, io.BytesIO(stream.read())
    try:
        if head.startswith(b"PAR1"):
            table = parquet.ParquetFile(content).read()
        else:
            table = (pa.ipc.open_file if head.startswith(b"ARRO") else pa.ipc.open_stream)(content).read_all()
        # By batches: a table as Python values takes many times its size.
        for row in chain.from_iterable(batch.to_pylist() for batch in table.to_batches(1024)):
            number += 1
            yield number, json.dumps({name: row[name] for name in row if not _INDEX.fullmatch(name)})
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
        problem = f"the file is damaged, or holds no plain values ({first_line(error).rstrip('.')})"
        raise InputError.at(path, problem, "write texts, numbers and lists of them", line=number or None) from None
