"""Backup and restore: a whole board as one SQLite file, whatever database it is in.

A backup reads all tables in one transaction, so that it is the board of one moment while submissions come in. The file
is a board itself: `recipe board serve --database FILE` shows it. Restoring copies it into an empty database, in which
what was running is queued again, since the workers that held it are not there.
"""

from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, func, insert, select, text, update

from recipe.artifacts import atomic_path
from recipe.board.store import BOARD, note
from recipe.board.tables import Database, jobs, metadata, require_current, set_journal, upgrade, workers
from recipe.errors import InputError

_ROWS = 200
"""Rows that are copied at once."""


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


def restore(file: Path, url: str) -> int:
    """Copy a backup into an empty database; returns the number of rows.

    Raises InputError for a file that is no backup of this version, and for a database that holds a board.
    """
    if not file.is_file():
        raise InputError.at(file, "the file does not exist", "give a file that `recipe board backup` wrote")
    with closing(Database(f"sqlite:///{file}")) as source, closing(Database(url)) as target:
        require_current(source)
        upgrade(target)
        if target.query(lambda connection: _rows(connection)):
            raise InputError("the database holds a board already; restore into an empty one.")
        rows = _copy(source, target)
        target.write(lambda connection: _requeue(connection, target.now(connection)))
    return rows


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


def _copy(source: Database, target: Database) -> int:
    copied = 0

    def write(into: Connection) -> None:
        nonlocal copied
        copied = 0
        with source.read() as out:
            for table in metadata.sorted_tables:
                found = out.execution_options(yield_per=_ROWS).execute(select(table)).mappings()
                for block in found.partitions(_ROWS):
                    into.execute(insert(table), [dict(row) for row in block])
                    copied += len(block)
        if not target.is_sqlite:  # numbers go on behind those that were copied
            for table in metadata.sorted_tables:
                if any(column.identity is not None for column in table.columns):
                    sequence = f"pg_get_serial_sequence('{table.name}', 'id')"
                    last = f"SELECT setval({sequence}, coalesce(max(id), 0) + 1, false) FROM {table.name}"  # noqa: S608 - names of our own tables
                    into.execute(text(last))

    target.write(write)
    return copied
