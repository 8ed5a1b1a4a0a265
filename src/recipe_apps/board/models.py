"""The tables of a board as typed rows: everything is in the database, the references and the queue included, so that
workers on other machines need its address and nothing else.

Times are seconds since 1970 by the clock of the database: machines need not agree on theirs.
"""

import json
import re
from typing import Any, Literal

from recipe.artifacts import JsonObject, half_character
from recipe.errors import InputError, MissingExtra, quoted

try:
    from sqlalchemy import (
        JSON,
        BigInteger,
        Dialect,
        Float,
        ForeignKey,
        Identity,
        Index,
        Integer,
        MetaData,
        String,
        TypeDecorator,
        UniqueConstraint,
    )
    from sqlalchemy import Text as LongText
    from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, mapped_column
except ModuleNotFoundError as error:
    raise MissingExtra("the evaluation board", "board") from error

Role = Literal["submitter", "owner"]
State = Literal["queued", "running", "scored", "failed", "cancelled"]
# Control characters but tabs and line feeds, separators of lines, and halves of characters.
_UNKEPT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# No number of a board is as large.
_LARGEST = 1e300


def storable(field: str, value: object, longest: int | None = None) -> str:
    """A text that both databases keep as it is. Raises InputError with the field for any other value."""
    if not isinstance(value, str):
        raise InputError(f"field {field!r} is no text; give it as one.")
    if longest is not None and len(value) > longest:
        raise InputError(f"field {field!r} holds {len(value):,} characters; give {longest} at most.")
    if _UNKEPT.search(value):
        raise InputError(f"field {field!r} holds a control character or half a character ({quoted(value)}); remove it.")
    return value


class CheckedColumn(TypeDecorator[Any]):
    """The type of a column whose values are checked before either database sees them, in rows and in questions.

    SQLite takes a NUL, PostgreSQL does not; a number of 65 bits is another error in each. `mended` texts, which the
    program says itself, lose what a person's text is refused for. A `whole` number has 32 bits, a `long` one 64.
    """

    impl, cache_ok = String, True

    def __init__(
        self,
        field: str,
        kind: Literal["text", "mended", "whole", "long", "number", "json"] = "text",
        length: int | None = None,
    ) -> None:
        """`length`: characters of a text at most. Raises InputError with `field` for a value that cannot be kept."""
        super().__init__()
        self.field, self.kind, self.length = field, kind, length
        text = LongText() if length is None else String(length)
        # SQLite counts rows in plain integers only.
        long = BigInteger().with_variant(Integer(), "sqlite")
        self.impl = {"whole": Integer(), "long": long, "number": Float(), "json": JSON()}.get(kind, text)  # type: ignore[assignment]

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        if self.kind == "json":
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError, RecursionError):
                problem = "holds a number that JSON does not know; give another"
                raise InputError(f"field {self.field!r} {problem}.") from None
            if half_character(value) is not None:
                raise InputError(f"field {self.field!r} holds half a character; repair or remove it.")
        elif value is None:
            return None
        elif self.kind in ("whole", "long"):
            bits = 32 if self.kind == "whole" else 64
            if not (isinstance(value, int) and -(1 << bits - 1) <= value < 1 << bits - 1):
                raise InputError(f"field {self.field!r} is no whole number of {bits} bits; give a smaller one.")
        elif self.kind == "number":
            if not (isinstance(value, int | float) and -_LARGEST < value < _LARGEST):
                raise InputError(f"field {self.field!r} is no finite number; give one.")
        else:
            if self.kind == "mended" and isinstance(value, str):
                value = _UNKEPT.sub("\N{REPLACEMENT CHARACTER}", value)[: self.length]
            storable(self.field, value, self.length)
        return value


class Base(MappedAsDataclass, DeclarativeBase, kw_only=True, repr=False, eq=False):
    """What all rows share: they are made with the names of their columns."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Meta(Base):
    """Values of the whole board: its title, and the key of the tokens."""

    __tablename__ = "meta"
    key: Mapped[str] = mapped_column(CheckedColumn("key", length=64), primary_key=True)
    value: Mapped[str] = mapped_column(CheckedColumn("value"))


class Account(Base):
    """A person, or the account `board` that owns the control rows."""

    __tablename__ = "accounts"
    name: Mapped[str] = mapped_column(CheckedColumn("name", length=64), primary_key=True)
    display: Mapped[str] = mapped_column(CheckedColumn("display", length=80))
    role: Mapped[Role] = mapped_column(CheckedColumn("role", length=16))
    created: Mapped[float] = mapped_column(CheckedColumn("created", "number"), default=0.0)
    revoked: Mapped[float | None] = mapped_column(CheckedColumn("revoked", "number"), default=None)

    @property
    def is_owner(self) -> bool:
        """Whether it owns the board, and so sees and may do everything."""
        return self.role == "owner"


class Token(Base):
    """A token is `rb_ID_SECRET`; of the secret the database knows a keyed hash."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(CheckedColumn("id", length=16), primary_key=True)
    account: Mapped[str] = mapped_column(ForeignKey("accounts.name"), index=True)
    hash: Mapped[str] = mapped_column(CheckedColumn("hash", length=64))
    created: Mapped[float] = mapped_column(CheckedColumn("created", "number"))
    revoked: Mapped[float | None] = mapped_column(CheckedColumn("revoked", "number"), default=None)


class ReferenceSet(Base):
    """Examples with their continuations and task graphs, compressed, known by content."""

    __tablename__ = "reference_sets"
    sha: Mapped[str] = mapped_column(CheckedColumn("sha", length=64), primary_key=True)
    examples: Mapped[bytes]
    graphs: Mapped[bytes | None] = mapped_column(default=None)


class Track(Base):
    """One set of questions."""

    __tablename__ = "tracks"
    name: Mapped[str] = mapped_column(CheckedColumn("name", length=64), primary_key=True)
    title: Mapped[str] = mapped_column(CheckedColumn("title", length=200))
    position: Mapped[int] = mapped_column(CheckedColumn("position", "whole"), default=0)
    about: Mapped[str] = mapped_column(CheckedColumn("about"), default="")
    reference_set: Mapped[str] = mapped_column(ForeignKey("reference_sets.sha"), default="")
    plans: Mapped[int] = mapped_column(CheckedColumn("plans", "whole"), default=1)
    """Plans that a submission holds for each question."""
    shown_examples: Mapped[list[str]] = mapped_column(CheckedColumn("shown_examples", "json"), default_factory=list)
    """Ids of questions that a system's page shows with its plans."""
    published: Mapped[bool] = mapped_column(default=True)
    closed: Mapped[bool] = mapped_column(default=False)
    day_quota: Mapped[int] = mapped_column(CheckedColumn("day_quota", "whole"), default=5)
    total_quota: Mapped[int] = mapped_column(CheckedColumn("total_quota", "whole"), default=100)

    def shows_results_to(self, viewer: Account | None) -> bool:
        """Whether its figures are for this viewer; None is anybody."""
        return self.published or (viewer is not None and viewer.is_owner)


class Scorer(Base):
    """One scorer is one board; `revision` grows with whatever its page shows."""

    __tablename__ = "scorers"
    id: Mapped[str] = mapped_column(CheckedColumn("id", length=16), primary_key=True)
    track: Mapped[str] = mapped_column(ForeignKey("tracks.name"), index=True)
    measure: Mapped[str] = mapped_column(CheckedColumn("measure", length=16))
    label: Mapped[str] = mapped_column(CheckedColumn("label", length=200))
    settings: Mapped[JsonObject] = mapped_column(CheckedColumn("settings", "json"))
    identity: Mapped[JsonObject] = mapped_column(CheckedColumn("identity", "json"))
    created: Mapped[float] = mapped_column(CheckedColumn("created", "number"))
    retired: Mapped[float | None] = mapped_column(CheckedColumn("retired", "number"), default=None)
    revision: Mapped[int] = mapped_column(CheckedColumn("revision", "whole"), default=0)


class Submission(Base):
    """The plans of one system for a track; an account's same plans are the same submission."""

    __tablename__ = "submissions"
    __table_args__ = (UniqueConstraint("account", "track", "sha"), Index(None, "track", "created"))
    id: Mapped[str] = mapped_column(CheckedColumn("id", length=16), primary_key=True)
    track: Mapped[str] = mapped_column(ForeignKey("tracks.name"))
    account: Mapped[str] = mapped_column(ForeignKey("accounts.name"), index=True)
    system: Mapped[str] = mapped_column(CheckedColumn("system", length=80))
    sha: Mapped[str] = mapped_column(CheckedColumn("sha", length=64))
    content: Mapped[bytes]
    """The canonical plans, compressed."""
    plans: Mapped[int] = mapped_column(CheckedColumn("plans", "whole"))
    link: Mapped[str] = mapped_column(CheckedColumn("link", length=300))
    note: Mapped[str] = mapped_column(CheckedColumn("note"))
    control: Mapped[str] = mapped_column(CheckedColumn("control", length=32))
    private: Mapped[bool]
    created: Mapped[float] = mapped_column(CheckedColumn("created", "number"))
    withdrawn: Mapped[float | None] = mapped_column(CheckedColumn("withdrawn", "number"), default=None)

    def belongs_to(self, viewer: Account | None) -> bool:
        """Whether it is the viewer's own, or the viewer owns the board."""
        return viewer is not None and (viewer.is_owner or viewer.name == self.account)

    def is_shown_to(self, viewer: Account | None) -> bool:
        """Whether it is the viewer's, or everybody's."""
        return self.belongs_to(viewer) or (not self.private and self.withdrawn is None)


class Job(Base):
    """A submission to be scored by one scorer; whoever knows `lease` holds it until `lease_until`."""

    __tablename__ = "jobs"
    __table_args__ = (UniqueConstraint("submission", "scorer"), Index(None, "state", "id"))
    id: Mapped[int] = mapped_column(CheckedColumn("id", "long"), Identity(), primary_key=True, init=False)
    submission: Mapped[str] = mapped_column(ForeignKey("submissions.id"))
    scorer: Mapped[str] = mapped_column(ForeignKey("scorers.id"), index=True)
    not_before: Mapped[float] = mapped_column(CheckedColumn("not_before", "number"))
    queued: Mapped[float] = mapped_column(CheckedColumn("queued", "number"))
    state: Mapped[State] = mapped_column(CheckedColumn("state", length=16), default="queued")
    attempts: Mapped[int] = mapped_column(CheckedColumn("attempts", "whole"), default=0)
    worker: Mapped[str] = mapped_column(CheckedColumn("worker", length=80), default="")
    lease: Mapped[str] = mapped_column(CheckedColumn("lease", length=32), default="")
    lease_until: Mapped[float | None] = mapped_column(CheckedColumn("lease_until", "number"), default=None)
    started: Mapped[float | None] = mapped_column(CheckedColumn("started", "number"), default=None)
    ended: Mapped[float | None] = mapped_column(CheckedColumn("ended", "number"), default=None)
    reason: Mapped[str] = mapped_column(CheckedColumn("reason", "mended"), default="")


class Score(Base):
    """One row a job that was scored: its figures, and one number an example, which differences are made from."""

    __tablename__ = "scores"
    submission: Mapped[str] = mapped_column(ForeignKey("submissions.id"), primary_key=True)
    scorer: Mapped[str] = mapped_column(ForeignKey("scorers.id"), primary_key=True, index=True)
    figures: Mapped[JsonObject] = mapped_column(CheckedColumn("figures", "json"))
    per_example: Mapped[bytes]
    created: Mapped[float] = mapped_column(CheckedColumn("created", "number"))


class Standing(Base):
    """What a board's page shows, made after each change of its scores."""

    __tablename__ = "standings"
    scorer: Mapped[str] = mapped_column(ForeignKey("scorers.id"), primary_key=True)
    revision: Mapped[int] = mapped_column(CheckedColumn("revision", "whole"))
    made: Mapped[float] = mapped_column(CheckedColumn("made", "number"))
    rows: Mapped[bytes]


class Heartbeat(Base):
    """A worker's last sign of life."""

    __tablename__ = "workers"
    name: Mapped[str] = mapped_column(CheckedColumn("name", length=80), primary_key=True)
    measures: Mapped[list[str]] = mapped_column(CheckedColumn("measures", "json"))
    seen: Mapped[float] = mapped_column(CheckedColumn("seen", "number"))
    at: Mapped[str] = mapped_column(CheckedColumn("at", "mended", 120), default="")


class LogLine(Base):
    """An action of a person or a state of a job; triggers of the database refuse to change or delete a line."""

    __tablename__ = "log"
    id: Mapped[int] = mapped_column(CheckedColumn("id", "long"), Identity(), primary_key=True, init=False)
    time: Mapped[float] = mapped_column(CheckedColumn("time", "number"))
    actor: Mapped[str] = mapped_column(CheckedColumn("actor", length=80))
    action: Mapped[str] = mapped_column(CheckedColumn("action", length=32))
    object: Mapped[str] = mapped_column(CheckedColumn("object", length=64), index=True, default="")
    board: Mapped[str] = mapped_column(CheckedColumn("board", length=16), default="")
    before: Mapped[str] = mapped_column(CheckedColumn("before", length=32), default="")
    after: Mapped[str] = mapped_column(CheckedColumn("after", length=32), default="")
    reason: Mapped[str] = mapped_column(CheckedColumn("reason", "mended"), default="")
