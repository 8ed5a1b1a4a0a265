"""Backup and restore: a whole board as one SQLite file, whatever database it is in.

A backup reads all tables in one transaction, so that it is the board of one moment while submissions come in. The file
is a board itself: `recipe board serve --database FILE` shows it. Restoring copies it into an empty database, in which
what was running is queued again, since the workers that held it are not there.
"""

import sqlite3
import zlib
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from pydantic import TypeAdapter
from sqlalchemy import Table, func, insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError
from sqlalchemy.orm import Session

from recipe.artifacts import atomic_path, fingerprint
from recipe.errors import ConfigError, InputError, RecipeError, first_line
from recipe.evaluation import board_measures
from recipe_apps.board.database import Database
from recipe_apps.board.models import Account, Base, Job, Role, State
from recipe_apps.board.scoring import Figures
from recipe_apps.board.settings import ScorerSettings
from recipe_apps.board.store import BOARD, References, is_account, note, one_line, web_address
from recipe_apps.board.validation import read_content

# Each table after those that it refers to.
_TABLES = Base.metadata.sorted_tables
# Rows that are copied at once.
_ROWS_AT_ONCE = 200
# Bytes of a value, unpacked, at most.
_LARGEST = 1 << 30
_REMEDY = "give a file that `recipe board backup` wrote"


def backup(url: str, target: Path) -> int:
    """Write the board in a database to one file, all or nothing; returns the number of rows.

    Raises InputError where there is no board, or where the file exists.
    """
    if target.exists():
        raise InputError.at(target, "the file exists", "give a new one")
    with closing(Database(url)) as source:
        source.require_current()
        with atomic_path(target) as unfinished, closing(Database(f"sqlite:///{unfinished}")) as copy:
            copy.upgrade()
            rows = copy.write(lambda into: _copy(source, copy, into))
            # In WAL the last changes may lie in a second file, which nobody would hand on.
            copy.set_journal("DELETE")
    return rows


def restore(file: Path, url: str) -> tuple[int, list[str]]:
    """Copy a backup into an empty database, all or nothing; returns the number of rows, and the owners it names.

    The file may be anybody's: it is only read, and everything in it is checked before it is kept. Its tokens work, so
    who made it may hold one. Raises InputError for a file that is no backup of this version, or holds what no board
    wrote, and for a database that holds a board.
    """
    if not file.is_file():
        raise InputError.at(file, "the file does not exist", _REMEDY)
    with closing(Database(f"sqlite:///{file}")) as source, closing(Database(url)) as target:
        source.require_current()
        # Views, triggers and tables that no board has would run what they hold, or hide it.
        with TemporaryDirectory() as folder, closing(Database(f"sqlite:///{folder}/board.db")) as own:
            own.upgrade()
            known, schema = _schema(Path(folder, "board.db")), _schema(file)
        if more := sorted(schema.keys() - known.keys()):
            raise InputError.at(file, f"it holds a {more[0][0]} {more[0][1][:80]!r}, which no board has", _REMEDY)
        if other := sorted(key for key in known if schema.get(key) != known[key]):
            raise InputError.at(file, f"its {other[0][0]} {other[0][1]!r} is missing or another", _REMEDY)
        target.upgrade()

        def fill(into: Session) -> tuple[int, list[str]]:
            if any(into.scalar(select(func.count()).select_from(table)) for table in _TABLES):
                raise InputError("the database holds a board already; restore into an empty one.")
            known: dict[str, Any] = {}
            try:
                rows = _copy(source, target, into, known)
                one_line("title", known["title"], 200)
                if "token key" not in known:
                    raise ValueError("the key of the tokens is missing")
            except (InputError, ConfigError) as error:
                raise InputError(f"{file}: {error}") from None
            except IntegrityError as error:
                problem = f"its rows do not belong together ({first_line(error.orig or error)})"
                raise InputError.at(file, problem, _REMEDY) from None
            except StatementError as error:
                if not isinstance(error.orig, RecipeError):
                    raise
                raise InputError(f"{file}: {error.orig}") from None
            except (zlib.error, ValueError, TypeError, LookupError, RecursionError) as error:
                problem = f"it is damaged, or no board wrote it ({first_line(error)})"
                raise InputError.at(file, problem, _REMEDY) from None
            now, reason = target.now(into), "the board was restored from a backup"
            for job in into.scalars(select(Job).where(Job.state == "running")).all():
                job.state, job.lease, job.lease_until, job.reason = "queued", "", None, reason
                note(into, now, BOARD, "job", job.submission, job.scorer, "running", "queued", reason)
            owners = select(Account.name).where(Account.role == "owner", Account.revoked.is_(None))
            return rows, list(into.scalars(owners.order_by(Account.name)))

        return target.write(fill)


def _schema(file: Path) -> dict[tuple[str, str], object]:
    """What a SQLite file is made of, by kind and name: the columns of tables, the text of everything else."""
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        schema: dict[tuple[str, str], object] = {}
        for kind, name, written in connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall():
            of_table = "SELECT name, type, hidden FROM pragma_table_xinfo(?) ORDER BY name"
            virtual = " ".join(str(written).split()).upper().startswith("CREATE VIRTUAL")
            plain = kind == "table" and not virtual
            schema[kind, name] = connection.execute(of_table, (name,)).fetchall() if plain else written
        return schema


def _copy(source: Database, target: Database, into: Session, known: dict[str, Any] | None = None) -> int:
    """Copy all tables from one state of the source; returns the number of rows.

    With `known`, the file is not this program's: each row is checked, and standings and workers stay behind, which are
    made again. Raises what `_require_sound` raises, and ValueError for a file that cannot be read to its end.
    """
    copied = 0
    with source.read() as out:
        for table in _TABLES:
            if known is not None and table.name in ("standings", "workers"):
                continue
            # In blocks: a board may be larger than the memory.
            query, blocks = select(table).execution_options(yield_per=_ROWS_AT_ONCE), None
            while True:
                try:
                    blocks = blocks or out.execute(query).mappings().partitions(_ROWS_AT_ONCE)
                    rows = [dict(row) for row in next(blocks, ())]
                except DBAPIError as error:
                    if known is None:
                        raise
                    # The backup cannot be read: trying again, as for a failure of the target, would not help.
                    raise ValueError(first_line(error.orig or error)) from None
                if not rows:
                    break
                if known is not None:
                    for row in rows:
                        _require_sound(known, table, row)
                into.execute(insert(table), rows)
                copied += len(rows)
    for table in _TABLES if not target.is_sqlite else ():  # numbers go on behind those that were copied
        if any(column.identity is not None for column in table.columns):
            sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
            last = f"SELECT setval({sequence}, coalesce(max(id), 0) + 1, false) FROM {table.name}"  # noqa: S608 - names of our own tables
            into.execute(text(last))
    return copied


def _require_sound(known: dict[str, Any], table: Table, row: dict[str, Any]) -> None:
    """Raise for a row that the program would not have written; `known` holds what rows before it said."""
    for column in table.columns:
        value, kind = row[column.name], column.type.python_type
        if value is None and not column.nullable:
            raise ValueError(f"{table.name}.{column.name} is empty")
        if value is not None and kind in (str, bytes, bool) and not isinstance(value, kind):
            raise TypeError(f"{table.name}.{column.name} is no {kind.__name__}")
    match table.name:
        case "meta":
            if row["key"] == "token key" and len(bytes.fromhex(row["value"])) != 32:
                raise ValueError("the key of the tokens is another")
            known[row["key"]] = row["value"]
        case "accounts":
            one_line("display", row["display"], 80)
            if row["role"] not in get_args(Role) or not is_account(row["name"]):
                raise ValueError(f"the account {row['name'][:80]!r} is none")
        case "reference_sets":
            if row["graphs"] is not None:
                _unpacked(row["graphs"])
            references = References.read(row["sha"], _unpacked(row["examples"]), row["graphs"])
            if References.of(references.examples, references.graphs).sha != row["sha"]:
                raise ValueError("a set of references is not what its name says")
            known[f"set {row['sha']}"] = len(references.examples)
        case "tracks":
            known[f"track {row['name']}"] = known[f"set {row['reference_set']}"], row["plans"]
        case "scorers":
            measures = {row["measure"], ScorerSettings.stored(row["settings"]).measure}
            if fingerprint(row["identity"])[:16] != row["id"] or not measures <= {*board_measures()}:
                raise ValueError(f"the scorer {row['id']!r} is not what its name says")
            known[f"scorer {row['id']}"] = known[f"track {row['track']}"][0]
        case "submissions":
            content = _unpacked(row["content"])
            questions, plans = known[f"track {row['track']}"]
            is_of_track = row["plans"] == len(read_content(content)) == questions * plans
            if sha256(content).hexdigest() != row["sha"] or not is_of_track:
                raise ValueError(f"the plans of submission {row['id']!r} are not what it says")
            one_line("system", row["system"], 80)
            web_address(row["link"])
        case "jobs":
            if row["state"] not in get_args(State):
                raise ValueError(f"job {row['id']} has an unknown state")
        case "scores":
            TypeAdapter(Figures).validate_python(row["figures"])
            if len(_unpacked(row["per_example"])) != 8 * known[f"scorer {row['scorer']}"]:
                raise ValueError(f"the scores of submission {row['submission']!r} are not of its questions")


def _unpacked(blob: bytes) -> bytes:
    """A compressed value, unless it is far larger than any of a board."""
    stream = zlib.decompressobj()
    # Bounded while it is unpacked: a few bytes can hold more than the memory.
    value = stream.decompress(blob, _LARGEST)
    if stream.unconsumed_tail or not stream.eof:
        raise ValueError("a packed value is cut off, or larger than any of a board")
    return value
