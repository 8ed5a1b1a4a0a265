"""The tables of a board, and the database that holds them: SQLite or PostgreSQL, by address.

Everything is in the database, the references and the queue included, so that workers on other machines need its address
and nothing else. Times are seconds since 1970 by the clock of the database: machines need not agree on theirs.

SQLite keeps its journal in WAL, so that pages are read while a job is written down; a writer takes the lock when its
transaction begins, which two writers that only take it at their first change would fight over.

The two databases differ in what they keep: SQLite takes a NUL, a number of 65 bits is another error in each. So the
types of the columns check every text and number that enters a table, or a question to one, before either database.
"""

import json
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal, TypeVar

from recipe.artifacts import half_character
from recipe.errors import ComputeError, InputError, MissingExtra, RecipeError, first_line, quoted

try:
    from alembic import command
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from alembic.util import CommandError
    from sqlalchemy import (
        JSON,
        BigInteger,
        Boolean,
        Column,
        Connection,
        Dialect,
        Engine,
        Float,
        ForeignKey,
        Identity,
        Index,
        Integer,
        LargeBinary,
        MetaData,
        String,
        Table,
        Text,
        TypeDecorator,
        UniqueConstraint,
        create_engine,
        event,
        inspect,
        text,
    )
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
except ModuleNotFoundError as error:
    raise MissingExtra("the evaluation board", "board") from error

Result = TypeVar("Result")

_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = MetaData(naming_convention=_NAMES)
_UNKEPT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Control characters but tabs and line feeds, separators of lines, and halves of characters."""


_LARGEST = 1e300
"""No number of a board is as large."""


def storable(field: str, value: object, longest: int | None = None) -> str:
    """A text that both databases keep as it is. Raises InputError with the field for any other value."""
    if not isinstance(value, str):
        raise InputError(f"field {field!r} is no text; give it as one.")
    if longest is not None and len(value) > longest:
        raise InputError(f"field {field!r} holds {len(value):,} characters; give {longest} at most.")
    if _UNKEPT.search(value):
        raise InputError(f"field {field!r} holds a control character or half a character ({quoted(value)}); remove it.")
    return value


class _Text(TypeDecorator[str]):
    """A text that was checked; what the program says itself (`mended`) is mended where a person's text is refused."""

    impl, cache_ok = String, True

    def __init__(self, field: str, length: int | None = None, mended: bool = False) -> None:
        super().__init__()
        self.field, self.length, self.mended = field, length, mended
        self.impl = Text() if length is None else String(length)  # type: ignore[assignment]

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if self.mended and isinstance(value, str):
            value = _UNKEPT.sub("\N{REPLACEMENT CHARACTER}", value)[: self.length]
        return value if value is None else storable(self.field, value, self.length)


class _Whole(TypeDecorator[int]):
    """A whole number of so many bits."""

    impl, cache_ok = Integer, True

    def __init__(self, field: str, bits: int = 32) -> None:
        super().__init__()
        self.field, self.bits = field, bits
        if bits > 32:
            # SQLite counts rows in plain integers only.
            self.impl = BigInteger().with_variant(Integer(), "sqlite")  # type: ignore[assignment]

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        if value is None or (isinstance(value, int) and -(1 << self.bits - 1) <= value < 1 << self.bits - 1):
            return value
        raise InputError(f"field {self.field!r} is no whole number of {self.bits} bits; give a smaller one.")


class _Number(TypeDecorator[float]):
    """A finite number."""

    impl, cache_ok = Float, True

    def __init__(self, field: str) -> None:
        super().__init__()
        self.field = field

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        if value is None or (isinstance(value, int | float) and -_LARGEST < value < _LARGEST):
            return value
        raise InputError(f"field {self.field!r} is no finite number; give one.")


class _Json(TypeDecorator[Any]):
    """Values of JSON, without NaN, infinity and halves of characters."""

    impl, cache_ok = JSON, True

    def __init__(self, field: str) -> None:
        super().__init__()
        self.field = field

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise InputError(f"field {self.field!r} holds a number that JSON does not know; give another.") from None
        if half_character(value) is not None:
            raise InputError(f"field {self.field!r} holds half a character; repair or remove it.")
        return value


def _text(name: str, length: int | None = None, mended: bool = False, **more: Any) -> Column[str]:
    return Column(name, _Text(name, length, mended), nullable=False, **more)


def _time(name: str, nullable: bool = False) -> Column[float]:
    return Column(name, _Number(name), nullable=nullable)


meta = Table("meta", metadata, _text("key", 64, primary_key=True), _text("value"))
"""Title, the key of the tokens, the board's own id."""

accounts = Table(
    "accounts",
    metadata,
    _text("name", 64, primary_key=True),
    _text("display", 80),
    _text("role", 16),
    _time("created"),
    _time("revoked", nullable=True),
)
"""People, and the account `board` that owns the control rows."""

tokens = Table(
    "tokens",
    metadata,
    _text("id", 16, primary_key=True),
    Column("account", ForeignKey("accounts.name"), nullable=False, index=True),
    _text("hash", 64),
    _time("created"),
    _time("revoked", nullable=True),
)
"""A token is `rb_ID_SECRET`; of the secret the database knows a keyed hash."""

references = Table(
    "reference_sets",
    metadata,
    _text("sha", 64, primary_key=True),
    Column("examples", LargeBinary, nullable=False),
    Column("graphs", LargeBinary),
)
"""Examples with their continuations and task graphs, compressed, known by content."""

tracks = Table(
    "tracks",
    metadata,
    _text("name", 64, primary_key=True),
    Column("position", _Whole("position"), nullable=False),
    _text("title", 200),
    _text("about"),
    Column("reference_set", ForeignKey("reference_sets.sha"), nullable=False),
    Column("plans", _Whole("plans"), nullable=False),
    Column("shown_examples", _Json("shown_examples"), nullable=False),
    Column("published", Boolean, nullable=False),
    Column("closed", Boolean, nullable=False),
    Column("day_quota", _Whole("day_quota"), nullable=False),
    Column("total_quota", _Whole("total_quota"), nullable=False),
)

scorers = Table(
    "scorers",
    metadata,
    _text("id", 16, primary_key=True),
    Column("track", ForeignKey("tracks.name"), nullable=False, index=True),
    _text("measure", 16),
    _text("label", 200),
    Column("settings", _Json("settings"), nullable=False),
    Column("identity", _Json("identity"), nullable=False),
    _time("created"),
    _time("retired", nullable=True),
    Column("revision", _Whole("revision"), nullable=False),
)
"""One scorer is one board; `revision` grows with whatever its page shows."""

submissions = Table(
    "submissions",
    metadata,
    _text("id", 16, primary_key=True),
    Column("track", ForeignKey("tracks.name"), nullable=False),
    Column("account", ForeignKey("accounts.name"), nullable=False, index=True),
    _text("system", 80),
    _text("sha", 64),
    Column("content", LargeBinary, nullable=False),
    Column("plans", _Whole("plans"), nullable=False),
    _text("link", 300),
    _text("note"),
    _text("control", 32),
    Column("private", Boolean, nullable=False),
    _time("created"),
    _time("withdrawn", nullable=True),
    UniqueConstraint("account", "track", "sha"),
    Index(None, "track", "created"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", _Whole("id", 64), Identity(), primary_key=True),
    Column("submission", ForeignKey("submissions.id"), nullable=False),
    Column("scorer", ForeignKey("scorers.id"), nullable=False, index=True),
    _text("state", 16),
    Column("attempts", _Whole("attempts"), nullable=False),
    _time("not_before"),
    _text("worker", 80),
    _text("lease", 32),
    _time("lease_until", nullable=True),
    _time("queued"),
    _time("started", nullable=True),
    _time("ended", nullable=True),
    _text("reason", mended=True),
    UniqueConstraint("submission", "scorer"),
    Index(None, "state", "id"),
)

scores = Table(
    "scores",
    metadata,
    Column("submission", ForeignKey("submissions.id"), primary_key=True),
    Column("scorer", ForeignKey("scorers.id"), primary_key=True, index=True),
    Column("figures", _Json("figures"), nullable=False),
    Column("per_example", LargeBinary, nullable=False),
    _time("created"),
)
"""One row a job that was scored: its figures, and one number an example, which differences are made from."""

standings = Table(
    "standings",
    metadata,
    Column("scorer", ForeignKey("scorers.id"), primary_key=True),
    Column("revision", _Whole("revision"), nullable=False),
    _time("made"),
    Column("rows", LargeBinary, nullable=False),
)
"""What a board's page shows, made after each change of its scores."""

workers = Table(
    "workers",
    metadata,
    _text("name", 80, primary_key=True),
    Column("measures", _Json("measures"), nullable=False),
    _time("seen"),
    _text("at", 120, mended=True),
)
"""Signs of life."""

log = Table(
    "log",
    metadata,
    Column("id", _Whole("id", 64), Identity(), primary_key=True),
    _time("time"),
    _text("actor", 80),
    _text("action", 32),
    _text("object", 64, index=True),
    _text("board", 16),
    _text("before", 32),
    _text("after", 32),
    _text("reason", mended=True),
)
"""Every action of people and every state of a job; triggers of the database refuse to change or delete a row."""

_NOW = {
    "sqlite": text("SELECT (julianday('now') - 2440587.5) * 86400.0"),
    "postgresql": text("SELECT extract(epoch FROM clock_timestamp())::double precision"),
}
_BUSY = 60.0
"""Seconds that SQLite waits for another writer."""
_PATIENCE = 8.0
"""Seconds that a request waits for a database that has gone away, such as one that is restarted."""
_CONFLICTS = 3
"""Times that a change runs again because another writer added its row first."""
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


class Database:
    """The database of a board: an engine, its transactions, and its clock."""

    def __init__(self, url: str) -> None:
        """Raises InputError for an address that names no SQLite or PostgreSQL database."""
        self.url = address(url)
        kind = make_url(self.url).get_backend_name()
        given: dict[str, Any] = {"pool_pre_ping": True}
        if kind == "sqlite":
            given |= {"connect_args": {"timeout": _BUSY, "check_same_thread": False}}
            if not make_url(self.url).database:
                raise InputError("a board needs a file: give sqlite:///board.db or a path.")
        else:
            given |= {"pool_size": 16, "max_overflow": 16, "connect_args": {"connect_timeout": 5}}
        try:
            self.engine = create_engine(self.url, **given)
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            raise InputError(f"the database {_shown(url)!r} cannot be used: {error}.") from None
        self.is_sqlite = kind == "sqlite"
        if self.is_sqlite:
            _prepare_sqlite(self.engine)
        self._writer = self.engine.execution_options(recipe_writes=True)
        self._within = threading.local()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database."""
        with self.engine.connect() as connection:
            if not self.is_sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with connection.begin():
                yield connection

    def write(self, change: Callable[[Connection], Result], patience: float = _PATIENCE) -> Result:
        """Run `change` in one transaction, all or nothing; again where the database went away meanwhile.

        It also runs again where another writer added the same row between its look and its own insert, which
        PostgreSQL permits: the second run finds that row. A transaction whose end was lost may have been kept, so
        `change` must bear to be run twice. Raises ComputeError where the database stays away for `patience` seconds.

        What `change` writes or asks by further calls, in its thread, is a part of the same transaction.
        """
        outer = getattr(self._within, "connection", None)
        return self._tried(lambda: self._written(change), patience) if outer is None else change(outer)

    def query(self, ask: Callable[[Connection], Result], patience: float = _PATIENCE) -> Result:
        """As `write`, for what only reads."""

        def read() -> Result:
            with self.read() as connection:
                return ask(connection)

        outer = getattr(self._within, "connection", None)
        return self._tried(read, patience) if outer is None else ask(outer)

    def now(self, connection: Connection) -> float:
        """Seconds since 1970 by the database's clock."""
        return float(connection.execute(_NOW["sqlite" if self.is_sqlite else "postgresql"]).scalar_one())

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()

    def _written(self, change: Callable[[Connection], Result]) -> Result:
        with self._writer.begin() as connection:
            self._within.connection = connection
            try:
                return change(connection)
            finally:
                self._within.connection = None

    def _tried(self, call: Callable[[], Result], patience: float) -> Result:
        until, pause, conflicts = time.monotonic() + patience, 0.05, 0
        while True:
            try:
                return call()
            except IntegrityError:
                conflicts += 1
                if conflicts > _CONFLICTS:
                    raise
            except DBAPIError as error:
                said, passes = _failure(error.orig)
                if said == _AWAY and not (isinstance(error, OperationalError) or error.connection_invalidated):
                    raise
                if not passes or time.monotonic() + pause > until:
                    told = f"the board's database {said} ({first_line(error.orig or error)})"
                    raise ComputeError(f"{told}; nothing of this request was kept.") from None
            except StatementError as error:  # a value that a column's type refused
                if isinstance(error.orig, RecipeError):
                    raise error.orig from None
                raise
            except PoolTimeout:
                raise ComputeError("too many requests wait for the board's database; try again.") from None
            time.sleep(pause)
            pause = min(2 * pause, 2.0)


def _failure(cause: BaseException | None) -> tuple[str, bool]:
    """What a driver's error says of the database with the remedy, and whether it may pass by itself."""
    code = str(getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None) or "")
    for known, said, passes in _FAILURES:
        if any(code.startswith(one) or (" " in one and one in str(cause)) for one in known):
            return said, passes
    return _AWAY, True


@contextmanager
def _opening(database: Database) -> Iterator[None]:
    """Raises InputError, with the remedy, for a database that cannot be opened or written."""
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:  # PRAGMAs run outside of SQLAlchemy's transactions
        cause = error.orig if isinstance(error, DBAPIError) else error
        said, _ = _failure(cause)
        if said == _AWAY:
            said = "cannot be opened: check its address, and that it runs"
        raise InputError(f"the database {_shown(database.url)} {said} ({first_line(cause or error)}).") from None


def address(given: str) -> str:
    """The address of a database; a plain path is a SQLite file.

    >>> address("board.db"), address("postgresql://user@host/board")
    ('sqlite:///board.db', 'postgresql+psycopg://user@host/board')
    """
    if "://" not in given:
        return f"sqlite:///{given}"
    scheme, _, rest = given.partition("://")
    if scheme in ("postgresql", "postgres"):
        return f"postgresql+psycopg://{rest}"
    if scheme not in ("sqlite", "postgresql+psycopg"):
        raise InputError(f"the database {_shown(given)!r} is none that a board runs on; give SQLite or PostgreSQL.")
    return given


def upgrade(database: Database) -> None:
    """Bring the tables to this version: made where there are none, migrated where they are older."""
    if database.is_sqlite and (path := make_url(database.url).database):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        set_journal(database, "WAL")
    with _opening(database), _scripts() as config, database.engine.connect() as connection:
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            raise InputError(f"the tables in {_shown(database.url)} are of another program ({error}).") from None
        connection.commit()


def set_journal(database: Database, mode: Literal["WAL", "DELETE"]) -> None:
    """SQLite's journal: beside the file while a board is in use, inside it for one that is handed on."""
    with _opening(database), closing(database.engine.raw_connection()) as raw:
        raw.cursor().execute(f"PRAGMA journal_mode={mode}")


def require_current(database: Database) -> None:
    """Raise InputError where there is no board in the database, or one of another version."""
    remedy = "run `recipe board init` first"
    path = make_url(database.url).database
    if database.is_sqlite and path and not Path(path).is_file():
        raise InputError(f"there is no board in {_shown(database.url)}; {remedy}.")
    with _scripts() as config:
        head = ScriptDirectory.from_config(config).get_current_head()
    try:
        with _opening(database), database.engine.connect() as connection:
            found = MigrationContext.configure(connection).get_current_revision()
            # Tables without a row are what a `recipe board init` left that was ended before it had made the board.
            empty = not inspect(connection).has_table("meta") or connection.execute(meta.select()).first() is None
    except CommandError as error:
        raise InputError(f"the tables in {_shown(database.url)} are of another program ({error}).") from None
    if empty or found is None:
        raise InputError(f"there is no board in {_shown(database.url)}; {remedy}.")
    if found != head:
        problem = f"the board in {_shown(database.url)} has the tables of version {found}, and this program {head}"
        raise InputError(f"{problem}; run `recipe board upgrade`, or the program of the board's version.")


@contextmanager
def _scripts() -> Iterator[Config]:
    """The migrations of the package."""
    with as_file(files("recipe_apps.board").joinpath("migrations")) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        yield config


def _shown(url: str) -> str:
    """An address without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True) if "://" in url else url
    except ArgumentError:
        return "(not an address)"


def _prepare_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin below, and nowhere else
        for setting in ("foreign_keys=ON", "synchronous=FULL"):
            connection.execute(f"PRAGMA {setting}")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("recipe_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
