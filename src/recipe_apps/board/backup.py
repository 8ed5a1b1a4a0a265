"""Backup and restore: a whole board as one SQLite file, whatever database it is in.

A backup reads all tables in one transaction, so that it is the board of one moment while submissions come in. The file
is a board itself: `recipe board serve --database FILE` shows it. Restoring copies it into an empty database, in which
what was running is queued again, since the workers that held it are not there.
"""

import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from pydantic import TypeAdapter
from sqlalchemy import Connection, Table, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from recipe.artifacts import atomic_path, fingerprint
from recipe.errors import ConfigError, InputError, first_line
from recipe.evaluation.measures import board_measures
from recipe_apps.board.scoring import Figures
from recipe_apps.board.store import (
    BOARD,
    References,
    Role,
    State,
    is_account,
    note,
    one_line,
    read_references,
    web_address,
)
from recipe_apps.board.tables import (
    Database,
    accounts,
    jobs,
    meta,
    metadata,
    references,
    require_current,
    scorers,
    scores,
    set_journal,
    standings,
    submissions,
    tracks,
    upgrade,
    workers,
)
from recipe_apps.board.work import read_content, settings_of

_ROWS = 200
"""Rows that are copied at once."""
_LARGEST = 1 << 30
"""Bytes of a value, unpacked, at most."""
_REMEDY = "give a file that `recipe board backup` wrote"


def backup(url: str, target: Path) -> int:
    """Write the board in a database to one file, all or nothing; returns the number of rows.

    Raises InputError where there is no board, or where the file exists.
    """
    if target.exists():
        raise InputError.at(target, "the file exists", "give a new one")
    with closing(Database(url)) as source:
        require_current(source)
        with atomic_path(target) as partial, closing(Database(f"sqlite:///{partial}")) as copy:
            upgrade(copy)
            rows = _copy(source, copy)
            set_journal(copy, "DELETE")
    return rows


def restore(file: Path, url: str) -> tuple[int, list[str]]:
    """Copy a backup into an empty database, all or nothing; returns the number of rows, and the owners it names.

    The file may be anybody's: it is only read, and everything in it is checked before it is kept. Its tokens work, so
    who made it may hold one. Raises InputError for a file that is no backup of this version, or holds what no board
    wrote, and for a database that holds a board.
    """
    if not file.is_file():
        raise InputError.at(file, "the file does not exist", "give a file that `recipe board backup` wrote")
    with closing(Database(f"sqlite:///{file}")) as source, closing(Database(url)) as target:
        require_current(source)
        _require_plain(file)
        upgrade(target)

        def fill(into: Connection) -> tuple[int, list[str]]:
            if _rows(into):
                raise InputError("the database holds a board already; restore into an empty one.")
            rows = _copied(file, source, target)
            _requeue(into, target.now(into))
            whose = select(accounts.c.name).where(accounts.c.role == "owner", accounts.c.revoked.is_(None))
            return rows, list(into.execute(whose.order_by(accounts.c.name)).scalars())

        return target.write(fill)


def _require_plain(file: Path) -> None:
    """Refuse a file with views, triggers or tables that no board has: they run what they hold, or hide it."""
    with TemporaryDirectory() as folder, closing(Database(f"sqlite:///{folder}/board.db")) as own:
        upgrade(own)
        known = _schema(Path(folder, "board.db"))
    found = _schema(file)
    if more := sorted(found.keys() - known.keys()):
        raise InputError.at(file, f"it holds a {more[0][0]} {more[0][1][:80]!r}, which no board has", _REMEDY)
    if other := sorted(key for key in known if found.get(key) != known[key]):
        raise InputError.at(file, f"its {other[0][0]} {other[0][1]!r} is missing or another", _REMEDY)


def _schema(file: Path) -> dict[tuple[str, str], object]:
    """What a SQLite file is made of, by kind and name: the columns of tables, the text of everything else."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        made: dict[tuple[str, str], object] = {}
        for kind, name, written in connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall():
            of_table = "SELECT name, type, hidden FROM pragma_table_xinfo(?) ORDER BY name"
            virtual = " ".join(str(written).split()).upper().startswith("CREATE VIRTUAL")
            plain = kind == "table" and not virtual
            made[kind, name] = connection.execute(of_table, (name,)).fetchall() if plain else written
        return made


def _copied(file: Path, source: Database, target: Database) -> int:
    """Copy what was checked, row by row. Raises InputError for what no board wrote."""
    seen: dict[str, Any] = {}
    try:
        rows = _copy(source, target, partial(_require_sound, seen))
        one_line("title", seen["title"], 200)
        if "token key" not in seen:
            raise ValueError("the key of the tokens is missing")
        return rows
    except (InputError, ConfigError) as error:
        raise InputError(f"{file}: {error}") from None
    except IntegrityError as error:
        problem = f"its rows do not belong together ({first_line(error.orig or error)})"
        raise InputError.at(file, problem, _REMEDY) from None
    except (_Unreadable, zlib.error, ValueError, TypeError, KeyError, LookupError, RecursionError) as error:
        raise InputError.at(file, f"it is damaged, or no board wrote it ({first_line(error)})", _REMEDY) from None


class _Unreadable(Exception):
    """The file cannot be read to its end."""


def _require_sound(seen: dict[str, Any], table: Table, row: dict[str, Any]) -> None:
    """Raise for a row that the program would not have written; `seen` holds what rows before it said."""
    for column in table.columns:
        value, kind = row[column.name], column.type.python_type
        if value is None and not column.nullable:
            raise ValueError(f"{table.name}.{column.name} is empty")
        if isinstance(value, str) and "\0" in value:  # of an earlier version, in a SQLite file
            row[column.name] = value.replace("\0", "\N{REPLACEMENT CHARACTER}")
        if value is not None and kind in (str, bytes, bool) and not isinstance(value, kind):
            raise TypeError(f"{table.name}.{column.name} is no {kind.__name__}")
    if table is meta and row["key"] == "token key" and len(bytes.fromhex(row["value"])) != 32:
        raise ValueError("the key of the tokens is another")
    if table is meta:
        seen[row["key"]] = row["value"]
    elif table is accounts:
        one_line("display", row["display"], 80)
        if row["role"] not in get_args(Role) or not is_account(row["name"]):
            raise ValueError(f"the account {row['name'][:80]!r} is none")
    elif table is references:
        examples = _unpacked(row["examples"])
        if row["graphs"] is not None:
            _unpacked(row["graphs"])
        given = read_references(row["sha"], examples, row["graphs"])
        if References.of(given.examples, given.graphs).sha != row["sha"]:
            raise ValueError("a set of references is not what its name says")
        seen[f"set {row['sha']}"] = len(given.examples)
    elif table is tracks:
        seen[f"track {row['name']}"] = seen[f"set {row['reference_set']}"], row["plans"]
    elif table is scorers:
        known = {row["measure"], settings_of(row["settings"]).measure} <= {*board_measures()}
        if fingerprint(row["identity"])[:16] != row["id"] or not known:
            raise ValueError(f"the scorer {row['id']!r} is not what its name says")
        seen[f"scorer {row['id']}"] = seen[f"track {row['track']}"][0]
    elif table is submissions:
        content = _unpacked(row["content"])
        examples, plans = seen[f"track {row['track']}"]
        if (
            sha256(content).hexdigest() != row["sha"]
            or not row["plans"] == len(read_content(content)) == examples * plans
        ):
            raise ValueError(f"the plans of submission {row['id']!r} are not what it says")
        one_line("system", row["system"], 80)
        web_address(row["link"])
    elif table is jobs and row["state"] not in get_args(State):
        raise ValueError(f"the state of job {row['id']} is none")
    elif table is scores:
        TypeAdapter(Figures).validate_python(row["figures"])
        if len(_unpacked(row["per_example"])) != 8 * seen[f"scorer {row['scorer']}"]:
            raise ValueError(f"the scores of submission {row['submission']!r} are not of its questions")


def _unpacked(blob: bytes) -> bytes:
    """A compressed value, unless it is far larger than any of a board."""
    stream = zlib.decompressobj()
    value = stream.decompress(blob, _LARGEST)
    if stream.unconsumed_tail or not stream.eof:
        raise ValueError("a packed value is cut off, or larger than any of a board")
    return value


def _requeue(connection: Connection, now: float) -> None:
    """What was running when the backup was made runs again."""
    for job in connection.execute(select(jobs).where(jobs.c.state == "running")).all():
        reason = "the board was restored from a backup"
        values = {"state": "queued", "lease": "", "lease_until": None, "reason": reason}
        connection.execute(update(jobs).where(jobs.c.id == job.id).values(**values))
        note(connection, now, BOARD, "job", job.submission, job.scorer, "running", "queued", reason)
    connection.execute(workers.delete())


def _rows(connection: Connection) -> int:
    return sum(
        int(connection.execute(select(func.count()).select_from(table)).scalar_one())
        for table in metadata.sorted_tables
    )


def _copy(source: Database, target: Database, check: Callable[[Table, dict[str, Any]], None] | None = None) -> int:
    """Copy all tables in one transaction, rows checked where they are not this program's; standings are made again."""
    copied = 0

    def write(into: Connection) -> None:
        nonlocal copied
        copied = 0
        with source.read() as out:
            for table in metadata.sorted_tables:
                if check is not None and table in (standings, workers):
                    continue
                for block in _blocks(out, table, foreign=check is not None):
                    rows = [dict(row) for row in block]
                    if check is not None:
                        for row in rows:
                            check(table, row)
                    into.execute(insert(table), rows)
                    copied += len(block)
        if not target.is_sqlite:  # numbers go on behind those that were copied
            for table in metadata.sorted_tables:
                if any(column.identity is not None for column in table.columns):
                    sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
                    last = f"SELECT setval({sequence}, coalesce(max(id), 0) + 1, false) FROM {table.name}"  # noqa: S608 - names of our own tables
                    into.execute(text(last))

    target.write(write)
    return copied


def _blocks(out: Connection, table: Table, foreign: bool) -> Iterator[Sequence[Any]]:
    try:
        yield from out.execution_options(yield_per=_ROWS).execute(select(table)).mappings().partitions(_ROWS)
    except DBAPIError as error:
        if not foreign:
            raise
        # Of the file that is read: not to be tried again, as a failure of the target would be.
        raise _Unreadable(first_line(error.orig or error)) from None
