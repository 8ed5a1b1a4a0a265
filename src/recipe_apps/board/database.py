"""The database that holds a board: SQLite or PostgreSQL, by address; its transactions, its clock and its version.

SQLite keeps its journal in WAL, so that pages are read while a job is written down. A writer takes the lock when its
transaction begins: two writers that took it at their first change would contend for it, and one would fail.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from recipe.errors import ComputeError, InputError, MissingExtra, RecipeError, first_line
from recipe_apps.board.models import Meta, Score

try:
    from alembic import command
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError
    from sqlalchemy import Connection, Executable, Select, String, cast, create_engine, event, inspect, select, text
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import (
        ArgumentError,
        DBAPIError,
        IntegrityError,
        NoSuchModuleError,
        OperationalError,
        StatementError,
    )
    from sqlalchemy.exc import TimeoutError as PoolTimeout
    from sqlalchemy.orm import Session
except ModuleNotFoundError as error:
    raise MissingExtra("the evaluation board", "board") from error

Result = TypeVar("Result")
P = ParamSpec("P")

_NOW = {
    True: text("SELECT (julianday('now') - 2440587.5) * 86400.0"),
    False: text("SELECT extract(epoch FROM clock_timestamp())::double precision"),
}
# Seconds that SQLite waits for another writer.
_BUSY = 60.0
PATIENCE = 8.0
"""Seconds that a request waits for a database that has gone away, such as one that is restarted."""
# Times that a change runs again because another writer added its row first.
# A second run finds the other writer's row.
_CONFLICTS = 3
_FAILURES = (
    # SQLite's names and PostgreSQL's numbers, what to do, and whether it may pass by itself
    (("SQLITE_FULL", "53100"), "has no space left: free some on its disk, then try again", True),
    (("SQLITE_READONLY", "25006", "42501"), "may not be written: give this program the right to write it", False),
    (("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH"),
     "cannot be opened: see that its file and its folder are there, and may be read and written", False),
    (("SQLITE_BUSY", "SQLITE_LOCKED", "55P03"), "is being written by another process: wait for that one, or end it",
     True),
    (("SQLITE_CORRUPT",), "is damaged: restore a backup", False),
    (("SQLITE_NOTADB",), "is no database of SQLite, or is damaged: check the address, or restore a backup", False),
    (("SQLITE_IOERR",), "cannot read or write its disk: look at the disk, then try again", True),
    (("53300", "too many clients", "remaining connection slots"),
     "has no connection left: raise its max_connections, or run fewer servers and workers", True),
)  # fmt: skip
_AWAY = "does not answer: see that it runs, then try again"
_MIGRATIONS = str(Path(__file__).with_name("migrations"))


def transaction(method: Callable[Concatenate[Any, Session, P], Result]) -> Callable[Concatenate[Any, P], Result]:
    """Let a method of an object with `database` and `patience` run in one transaction, by `Database.write`."""

    @wraps(method)
    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        written: Result = self.database.write(lambda session: method(self, session, *args, **kwargs), self.patience)
        return written

    return run


class Database:
    """The database of a board: an engine, its transactions, and its clock."""

    def __init__(self, url: str) -> None:
        """Raises InputError for an address that names no SQLite or PostgreSQL database."""
        self.url = address(url)
        self.is_sqlite = make_url(self.url).get_backend_name() == "sqlite"
        # An idle connection that the server has closed is replaced before it is used.
        options: dict[str, Any] = {"pool_pre_ping": True}
        if self.is_sqlite:
            # The pool hands a connection to another thread only once the first has given it back.
            options |= {"connect_args": {"timeout": _BUSY, "check_same_thread": False}}
            if not make_url(self.url).database:
                raise InputError("a board needs a file: give sqlite:///board.db or a path.")
        else:
            options |= {"pool_size": 16, "max_overflow": 16, "connect_args": {"connect_timeout": 5}}
        try:
            self.engine = create_engine(self.url, **options)
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            raise InputError(f"the database {_without_password(url)!r} cannot be used: {error}.") from None
        if self.is_sqlite:
            event.listen(self.engine, "connect", _configure)
            event.listen(self.engine, "begin", _begin)
            self._reader = self.engine
        else:
            # All questions of one transaction see one state, as those of SQLite do by themselves.
            self._reader = self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self.writer = self.engine.execution_options(recipe_writes=True)
        self._within = threading.local()

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that sees one state of the database."""
        # Rows are read after their transaction has ended: they keep their values.
        with Session(self._reader, expire_on_commit=False) as session, session.begin():
            yield session

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        """A transaction that writes, which further calls in this thread join."""
        with Session(self.writer, expire_on_commit=False) as session, session.begin():
            self._within.session = session
            try:
                yield session
            finally:
                self._within.session = None

    def write(self, change: Callable[[Session], Result], patience: float = PATIENCE) -> Result:
        """Run `change` in one transaction, all or nothing; again where the database went away meanwhile.

        It also runs again where another writer added the same row between its look and its own insert, which
        PostgreSQL permits: the second run finds that row. A transaction whose end was lost may have been kept, so
        `change` must be idempotent. Raises ComputeError where the database stays away for `patience` seconds.

        What `change` writes or asks by further calls, in its thread, is a part of the same transaction.
        """
        return self._retried(self._writing, change, patience)

    def query(self, ask: Callable[[Session], Result], patience: float = PATIENCE) -> Result:
        """As `write`, for what only reads."""
        return self._retried(self.read, ask, patience)

    def rows(self, statement: Executable, patience: float = PATIENCE) -> Sequence[Any]:
        """The rows of one question, with a field for each of its columns."""
        return self.query(lambda session: session.execute(statement).all(), patience)

    def scalars(self, statement: Select[Result], patience: float = PATIENCE) -> Sequence[Result]:
        """The values of a question for one column, or for the rows of one table."""
        return self.query(lambda session: session.scalars(statement).all(), patience)

    def now(self, session: Session) -> float:
        """Seconds since 1970 by the database's clock."""
        return float(session.execute(_NOW[self.is_sqlite]).scalar_one())

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()

    def _retried(
        self, begin: Callable[[], AbstractContextManager[Session]], call: Callable[[Session], Result], patience: float
    ) -> Result:
        outer: Session | None = getattr(self._within, "session", None)
        if outer is not None:
            return call(outer)
        until, pause, conflicts = time.monotonic() + patience, 0.05, 0
        while True:
            try:
                with begin() as session:
                    return call(session)
            except IntegrityError:
                conflicts += 1
                if conflicts > _CONFLICTS:
                    raise
            except DBAPIError as error:
                problem, passes = _failure(error.orig)
                if problem == _AWAY and not (isinstance(error, OperationalError) or error.connection_invalidated):
                    raise
                if not passes or time.monotonic() + pause > until:
                    sentence = f"the board's database {problem} ({first_line(error.orig or error)})"
                    raise ComputeError(f"{sentence}; nothing of this request was kept.") from None
            except StatementError as error:  # a value that a column's type refused
                if isinstance(error.orig, RecipeError):
                    raise error.orig from None
                raise
            except PoolTimeout:
                raise ComputeError("too many requests wait for the board's database; try again.") from None
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def upgrade(self) -> None:
        """Bring the tables to this version: made where there are none, migrated where they are older."""
        if self.is_sqlite and (path := make_url(self.url).database):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self.set_journal("WAL")
        with self._opening(), self.engine.connect() as connection:
            config = Config(attributes={"connection": connection})
            # A configparser takes a % for the beginning of a name.
            config.set_main_option("script_location", _MIGRATIONS.replace("%", "%%"))
            command.upgrade(config, "head")
            connection.commit()

    def set_journal(self, mode: Literal["WAL", "DELETE"]) -> None:
        """Set SQLite's journal: WAL, with files next to a board in use; DELETE, for a single file to hand on."""
        with self._opening(), closing(self.engine.raw_connection()) as raw:
            raw.cursor().execute(f"PRAGMA journal_mode={mode}")

    def require_current(self) -> None:
        """Raise InputError where there is no board in the database, or one of another version."""
        shown, path = _without_password(self.url), make_url(self.url).database
        missing = InputError(f"there is no board in {shown}; run `recipe board init` first.")
        if self.is_sqlite and path and not Path(path).is_file():
            raise missing
        head = ScriptDirectory(_MIGRATIONS).get_current_head()
        with self._opening(), self.engine.connect() as connection:
            version = MigrationContext.configure(connection).get_current_revision()
            # Tables without a row are what a `recipe board init` left that was ended before it had made the board.
            empty = not inspect(connection).has_table("meta") or connection.execute(select(Meta.key)).first() is None
            oldest = None
            if version == head:
                # As text: a file of anybody may hold what is no JSON.
                figures = select(cast(Score.figures, String)).order_by(Score.created).limit(1)
                oldest = connection.execute(figures).scalar()
        if empty or version is None:
            raise missing
        if version != head:
            problem = f"the board in {shown} has the tables of version {version}, and this program {head}"
            raise InputError(f"{problem}; run `recipe board upgrade`, or the program of the board's version.")
        if oldest is not None and '"unscored_share"' not in oldest:
            problem = f"the board in {shown} holds scores of a version before 0.3.0"
            raise InputError(f"{problem}; make a new board with `recipe board init`, and send the plans to it.")

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Raises InputError, with the remedy, for a database that cannot be opened or written."""
        shown = _without_password(self.url)
        try:
            yield
        except CommandError as error:
            raise InputError(f"the tables in {shown} are of another program ({error}).") from None
        except (DBAPIError, sqlite3.Error) as error:  # PRAGMAs run outside of SQLAlchemy's transactions
            cause = error.orig if isinstance(error, DBAPIError) else error
            problem, _ = _failure(cause)
            if problem == _AWAY:
                problem = "cannot be opened: check its address, and that it runs"
            raise InputError(f"the database {shown} {problem} ({first_line(cause or error)}).") from None


def address(url: str) -> str:
    """The address of a database; a plain path is a SQLite file.

    >>> address("board.db"), address("postgresql://user@host/board")
    ('sqlite:///board.db', 'postgresql+psycopg://user@host/board')
    """
    if "://" not in url:
        return f"sqlite:///{url}"
    scheme, _, rest = url.partition("://")
    if scheme in ("postgresql", "postgres"):
        return f"postgresql+psycopg://{rest}"
    if scheme not in ("sqlite", "postgresql+psycopg"):
        shown = _without_password(url)
        raise InputError(f"the database {shown!r} is none that a board runs on; give SQLite or PostgreSQL.")
    return url


def _without_password(url: str) -> str:
    try:
        return make_url(url).render_as_string(hide_password=True) if "://" in url else url
    except ArgumentError:
        return "(not an address)"


def _failure(cause: BaseException | None) -> tuple[str, bool]:
    """What a driver's error says of the database with the remedy, and whether it may pass by itself."""
    code = str(getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or "")
    for known, problem, passes in _FAILURES:
        if any(code.startswith(name) or (" " in name and name in str(cause)) for name in known):
            return problem, passes
    return _AWAY, True


def _configure(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions begin below, and nowhere else
    # SQLite checks references only where it is told to, for each connection. With NORMAL a loss of power could take the
    # last transactions, since the journal is in WAL.
    for setting in ("foreign_keys=ON", "synchronous=FULL"):
        connection.execute(f"PRAGMA {setting}")


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("recipe_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
