"""A board and all that people change in it: accounts, tokens, tracks, scorers, submissions, quotas, and the log.

Each change is one transaction together with its line of the log. A submission is known by its content: what an account
sends twice is one submission. Quotas count what was scored or still may be; what failed or was cancelled is free.
"""

import hmac
import json
import secrets
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, and_, case, func, insert, or_, select, update

from recipe.artifacts import JsonObject, fingerprint, to_json
from recipe.errors import InputError
from recipe.types import Example
from recipe_apps.board.tables import (
    Database,
    accounts,
    jobs,
    log,
    meta,
    references,
    require_current,
    scorers,
    storable,
    submissions,
    tokens,
    tracks,
    upgrade,
)

Role = Literal["submitter", "owner"]
State = Literal["queued", "running", "scored", "failed", "cancelled"]
BOARD = "board"
"""The account that control rows belong to, and the actor of what the program does by itself."""
DAY = 86_400.0
COUNTED = ("queued", "running", "scored")
"""States of a job in which its submission counts against the quota."""
_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
_ID_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
"""Without what looks alike."""
_AT_ONCE = 200
"""Submissions that are read at once."""
_REMEMBERED = 50_000
"""Submissions of which it is remembered what they answer."""
_SCHEME = "rb_"


@dataclass(frozen=True, slots=True)
class Account:
    """Somebody who holds a token."""

    name: str
    display: str
    role: Role

    @property
    def is_owner(self) -> bool:
        """Whether the board is theirs."""
        return self.role == "owner"


@dataclass(frozen=True, slots=True)
class References:
    """What the plans of a track are scored against; it never leaves the database but for workers."""

    sha: str
    examples: tuple[Example, ...]
    graphs: Mapping[str, str] | None = None
    """Files of task graphs by name; None for the embedded world, and where no scorer reads graphs."""

    @classmethod
    def of(cls, examples: Sequence[Example], graphs: Mapping[str, str] | None = None) -> "References":
        """The set of these examples, known by its content."""
        return cls(fingerprint([to_json(examples), graphs]), tuple(examples), graphs)


@dataclass(frozen=True, slots=True)
class Track:
    """One set of questions."""

    name: str
    title: str
    about: str
    reference_set: str
    plans: int = 1
    """Plans that a submission holds for each question."""
    shown_examples: tuple[str, ...] = ()
    """Ids of questions that a system's page shows with its plans."""
    published: bool = True
    closed: bool = False
    day_quota: int = 5
    total_quota: int = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """What somebody sends, apart from its plans."""

    system: str
    link: str = ""
    note: str = ""
    private: bool = False
    control: str = ""
    """Name of a control row, which the program submits itself."""


class Unknown(InputError):
    """What was asked for is not there, or not for whoever asks."""


class QuotaExceeded(InputError):
    """The account has had as many submissions scored as the track allows."""


class Board:
    """One board in its database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        rows = database.query(lambda connection: connection.execute(select(meta.c.key, meta.c.value)).all())
        known = {row.key: row.value for row in rows}
        self.title: str = known["title"]
        self._key = bytes.fromhex(known["token key"])
        self._references = lru_cache(maxsize=16)(self._read_references)
        self._answered: dict[str, NDArray[np.bool_]] = {}

    @classmethod
    def open(cls, url: str) -> "Board":
        """The board in a database. Raises InputError where there is none, or one of another version."""
        database = Database(url)
        try:
            require_current(database)
            return cls(database)
        except BaseException:
            database.close()
            raise

    @classmethod
    def create(cls, url: str, title: str, fill: Callable[["Board"], object] = lambda _: None) -> "Board":
        """A new board with what `fill` puts on it, all or nothing. Raises InputError where the database holds one."""
        database = Database(url)
        named = one_line("title", title, 200)

        def begin(connection: Connection) -> "Board":
            if connection.execute(select(meta.c.key)).first() is not None:
                raise InputError("the database holds a board already; give another one, or use that.")
            now = database.now(connection)
            connection.execute(
                insert(meta),
                [{"key": "title", "value": named}, {"key": "token key", "value": secrets.token_hex(32)}],
            )
            connection.execute(
                insert(accounts).values(name=BOARD, display="control", role="submitter", created=now, revoked=now)
            )
            note(connection, now, BOARD, "board made", reason=named)
            board = cls(database)
            fill(board)
            return board

        try:
            upgrade(database)
            return database.write(begin)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Give the database's connections back."""
        self.database.close()

    # People

    def add_account(self, name: str, role: Role = "submitter", display: str = "", actor: str = BOARD) -> str:
        """A new account; returns its token, which is shown this once. Raises InputError for a name that is in use."""
        if not is_account(name):
            raise InputError(f"field 'name' is {name[:80]!r}; give 1 to 64 of a-z, 0-9, '-', '_' and '.'.")
        shown = one_line("display", display or name, 80)

        def add(connection: Connection) -> str:
            now = self.database.now(connection)
            if connection.execute(select(accounts.c.name).where(accounts.c.name == name)).first():
                raise InputError(f"account {name!r} exists; take another name, or make a token for it.")
            connection.execute(insert(accounts).values(name=name, display=shown, role=role, created=now))
            note(connection, now, actor, "account added", name, reason=role)
            return self._add_token(connection, now, name)

        return self.database.write(add)

    def new_token(self, name: str, actor: str = BOARD) -> str:
        """A further token of an account. Raises InputError for an unknown or revoked one."""

        def add(connection: Connection) -> str:
            now = self.database.now(connection)
            self._require_account(connection, name)
            note(connection, now, actor, "token added", name)
            return self._add_token(connection, now, name)

        return self.database.write(add)

    def revoke(self, name: str, actor: str = BOARD) -> None:
        """End an account and all its tokens; its submissions stay. Raises InputError for an unknown one."""

        def end(connection: Connection) -> None:
            now = self.database.now(connection)
            self._require_account(connection, name)
            for table, column in ((accounts, accounts.c.name), (tokens, tokens.c.account)):
                connection.execute(update(table).where(column == name, table.c.revoked.is_(None)).values(revoked=now))
            note(connection, now, actor, "account revoked", name)

        self.database.write(end)

    def rename(self, name: str, display: str) -> None:
        """Change what pages call an account. Raises InputError for a name that is empty or too long."""
        shown = one_line("display", display, 80)

        def change(connection: Connection) -> None:
            now = self.database.now(connection)
            connection.execute(update(accounts).where(accounts.c.name == name).values(display=shown))
            note(connection, now, name, "display name", name, reason=shown)
            for board in connection.execute(select(scorers.c.id).order_by(scorers.c.id)).scalars().all():
                touch(connection, board)

        self.database.write(change)

    def account_of(self, token: str) -> Account | None:
        """Who holds a token; None for one that is unknown or revoked."""
        identity, _, secret = token.removeprefix(_SCHEME).partition("_")
        if (
            not token.startswith(_SCHEME)
            or not secret
            or len(token) > 200
            or not (token.isascii() and token.isprintable())
        ):
            return None
        query = (
            select(tokens.c.hash, accounts.c.name, accounts.c.display, accounts.c.role)
            .join(accounts, accounts.c.name == tokens.c.account)
            .where(tokens.c.id == identity[:16], tokens.c.revoked.is_(None), accounts.c.revoked.is_(None))
        )
        row = self.database.query(lambda connection: connection.execute(query).first())
        if row is None or not hmac.compare_digest(self._hash(secret), row.hash):
            return None
        return Account(row.name, row.display, row.role)

    def _hash(self, secret: str) -> str:
        # A keyed hash is enough: the secret holds 256 random bits, which no list of guesses contains.
        return hmac.new(self._key, secret.encode(), sha256).hexdigest()

    def _add_token(self, connection: Connection, now: float, name: str) -> str:
        identity, secret = random_id(12), secrets.token_urlsafe(32)
        connection.execute(insert(tokens).values(id=identity, account=name, hash=self._hash(secret), created=now))
        return f"{_SCHEME}{identity}_{secret}"

    def _require_account(self, connection: Connection, name: str) -> None:
        found = connection.execute(select(accounts.c.revoked).where(accounts.c.name == name)).first()
        if found is None or name == BOARD or found.revoked is not None:
            raise Unknown(f"there is no account {name[:80]!r}, or it is revoked.")

    # Tracks and scorers

    def add_track(self, track: Track, given: References, actor: str = BOARD) -> None:
        """A new track with its references. Raises InputError for a name that is in use."""
        rows = "".join(json.dumps(to_json(one), ensure_ascii=False) + "\n" for one in given.examples)
        graphs = None if given.graphs is None else pack(dict(given.graphs))

        def add(connection: Connection) -> None:
            now = self.database.now(connection)
            if connection.execute(select(tracks.c.name).where(tracks.c.name == track.name)).first():
                raise InputError(f"track {track.name!r} exists; take another name.")
            if not connection.execute(select(references.c.sha).where(references.c.sha == given.sha)).first():
                blob = zlib.compress(rows.encode(), 6)
                connection.execute(insert(references).values(sha=given.sha, examples=blob, graphs=graphs))
            place = connection.execute(select(func.count()).select_from(tracks)).scalar_one()
            values = to_json(replace(track, reference_set=given.sha))
            connection.execute(insert(tracks).values(position=place, **values))
            note(connection, now, actor, "track added", track.name, reason=f"{len(given.examples)} examples")

        self.database.write(add)

    def tracks(self) -> list[Track]:
        """All tracks, in the order in which they were added."""
        query = select(tracks).order_by(tracks.c.position)
        rows = self.database.query(lambda connection: connection.execute(query).mappings().all())
        return [_track(row) for row in rows]

    def track(self, name: str) -> Track:
        """A track. Raises InputError for an unknown one."""
        found = {one.name: one for one in self.tracks()}
        if name not in found:
            raise Unknown(f"there is no track {name[:80]!r}; tracks are {', '.join(found) or 'none'}.")
        return found[name]

    def references(self, sha: str) -> References:
        """A set of references."""
        return self._references(sha)

    def questions(self, track: Track) -> dict[str, Example]:
        """The questions of a track by id: its examples without their continuations."""
        found = self.references(track.reference_set).examples
        return {one.example_id: replace(one, continuation=()) for one in found}

    def _read_references(self, sha: str) -> References:
        query = select(references.c.examples, references.c.graphs).where(references.c.sha == sha)
        row = self.database.query(lambda connection: connection.execute(query).one())
        return read_references(sha, zlib.decompress(row.examples), row.graphs)

    def answered(self, identities: Iterable[str]) -> dict[str, NDArray[np.bool_]]:
        """Of each submission, whether it has a plan with steps for each question of its track [questions]."""
        known = self._answered
        wanted = list(dict.fromkeys(identities))
        new = [one for one in wanted if one not in known]
        if len(known) + len(new) > _REMEMBERED:
            known, new = {}, wanted
        for start in range(0, len(new), _AT_ONCE):
            query = (
                select(submissions.c.id, submissions.c.content, tracks.c.plans)
                .join(tracks, tracks.c.name == submissions.c.track)
                .where(submissions.c.id.in_(new[start : start + _AT_ONCE]))
            )
            for row in self.database.query(lambda connection, query=query: connection.execute(query).all()):  # type: ignore[misc]
                # Canonical content: the steps stand last, and a quote within a step is escaped.
                lines = zlib.decompress(row.content).split(b"\n")[:-1]
                steps = [not line.endswith(b'"steps": []}') for line in lines]
                known[row.id] = np.asarray(np.array(steps, dtype=bool).reshape(-1, row.plans).any(axis=1))
        self._answered = known
        return {one: known[one] for one in wanted}

    def change_track(
        self, name: str, *, published: bool | None = None, closed: bool | None = None, actor: str = BOARD
    ) -> None:
        """Publish or hide the results of a track, close or open it for submissions. Raises InputError."""
        self.track(name)
        given = {"published": published, "closed": closed}
        values = {key: value for key, value in given.items() if value is not None}
        if not values:
            return

        def change(connection: Connection) -> None:
            now = self.database.now(connection)
            connection.execute(update(tracks).where(tracks.c.name == name).values(**values))
            words = ", ".join(f"{key}: {'yes' if value else 'no'}" for key, value in values.items())
            note(connection, now, actor, "track changed", name, reason=words)

        self.database.write(change)

    def add_scorer(
        self, track: str, measure: str, label: str, settings: JsonObject, identity: JsonObject, actor: str = BOARD
    ) -> tuple[str, int]:
        """A scorer of a track, and a job for each of its submissions; returns its board's id and the number of jobs.

        A scorer that is there already is taken up again, and gets the jobs that it lacks.
        """
        board = fingerprint(identity)[:16]

        def add(connection: Connection) -> int:
            now = self.database.now(connection)
            # What is sent or withdrawn meanwhile waits: it would get no job here, or one that nobody cancels.
            connection.execute(select(tracks.c.name).where(tracks.c.name == track).with_for_update())
            if connection.execute(select(scorers.c.id).where(scorers.c.id == board)).first():
                connection.execute(update(scorers).where(scorers.c.id == board).values(retired=None))
            else:
                values = {"track": track, "measure": measure, "label": label, "settings": settings}
                connection.execute(
                    insert(scorers).values(id=board, identity=identity, created=now, revision=0, **values)
                )
                note(connection, now, actor, "scorer added", track, board, reason=label)
            scored = select(jobs.c.submission).where(jobs.c.scorer == board)
            left = select(submissions.c.id).where(
                submissions.c.track == track, submissions.c.withdrawn.is_(None), submissions.c.id.not_in(scored)
            )
            found = list(connection.execute(left.order_by(submissions.c.created)).scalars())
            for submission in found:
                self._queue(connection, now, actor, submission, board)
            touch(connection, board)
            return len(found)

        return board, self.database.write(add)

    def retire(self, board: str, actor: str = BOARD) -> None:
        """Take a scorer out of use: what is queued for it is cancelled, its scores stay on its board."""

        def end(connection: Connection) -> None:
            now = self.database.now(connection)
            of_board = select(scorers.c.track).where(scorers.c.id == board).scalar_subquery()
            if (
                connection.execute(select(tracks.c.name).where(tracks.c.name == of_board).with_for_update()).first()
                is None
            ):
                raise Unknown(f"there is no board {board[:40]!r}.")
            note(connection, now, actor, "scorer retired", "", board)
            # Jobs before their scorer, as a worker does that ends one.
            self._cancel(connection, now, actor, jobs.c.scorer == board, "the scorer was retired")
            connection.execute(update(scorers).where(scorers.c.id == board).values(retired=now))

        self.database.write(end)

    # Submissions

    def submit(self, account: str, track: str, sha: str, content: bytes, plans: int, entry: Entry) -> tuple[str, bool]:
        """Take a submission that was checked; returns its id, and whether it is new.

        Raises InputError for a closed track and for names that cannot be used, QuotaExceeded where the quota is used.
        """
        system = one_line("system", entry.system, 80)
        link, said = web_address(entry.link), remark(entry.note)

        def add(connection: Connection) -> tuple[str, bool]:
            now = self.database.now(connection)
            # One submission of an account at a time, so that two at once cannot both take the last of a quota.
            connection.execute(select(accounts.c.name).where(accounts.c.name == account).with_for_update())
            own = (submissions.c.account == account, submissions.c.track == track)
            known = select(submissions.c.id).where(*own, submissions.c.sha == sha)
            if (same := connection.execute(known).scalar()) is not None:
                return same, False
            of_track = select(tracks).where(tracks.c.name == track).with_for_update(read=True)
            row = connection.execute(of_track).mappings().one()
            if not entry.control:
                if row["closed"]:
                    raise InputError(f"track {track!r} is closed for submissions.")
                self._require_quota(connection, now, _track(row), account)
            identity = random_id(12)
            values = {"system": system, "sha": sha, "content": zlib.compress(content, 6), "plans": plans, "link": link}
            values |= {"note": said, "control": entry.control, "private": entry.private, "created": now}
            connection.execute(insert(submissions).values(id=identity, track=track, account=account, **values))
            note(connection, now, account, "submitted", identity, reason=f"{system}, track {track}")
            active = select(scorers.c.id).where(scorers.c.track == track, scorers.c.retired.is_(None))
            for board in connection.execute(active).scalars().all():
                self._queue(connection, now, account, identity, board)
            return identity, True

        return self.database.write(add)

    def change_submission(
        self,
        identity: str,
        account: str,
        *,
        private: bool | None = None,
        link: str | None = None,
        said: str | None = None,
    ) -> None:
        """Change what may be changed of a submission. Raises InputError."""
        values: dict[str, Any] = {} if private is None else {"private": private}
        values |= {} if link is None else {"link": web_address(link)}
        values |= {} if said is None else {"note": remark(said)}
        if not values:
            return

        def change(connection: Connection) -> None:
            now = self.database.now(connection)
            connection.execute(update(submissions).where(submissions.c.id == identity).values(**values))
            note(connection, now, account, "submission changed", identity, reason=", ".join(values))
            touch_boards_of(connection, identity)

        self.database.write(change)

    def withdraw(self, identity: str, account: str) -> None:
        """Take a submission off all boards; jobs that have not ended are cancelled, the log stays."""

        def end(connection: Connection) -> None:
            now = self.database.now(connection)
            still = (submissions.c.id == identity, submissions.c.withdrawn.is_(None))
            self._hold_track(connection, identity)
            if connection.execute(update(submissions).where(*still).values(withdrawn=now)).rowcount:
                note(connection, now, account, "withdrawn", identity)
                self._cancel(connection, now, account, jobs.c.submission == identity, "the submission was withdrawn")
                touch_boards_of(connection, identity)

        self.database.write(end)

    def used(self, connection: Connection, now: float, account: str, track: str) -> tuple[int, int]:
        """Submissions of an account that count on a track: in the last 24 hours, and in all."""
        counted = select(jobs.c.submission).where(jobs.c.state.in_(COUNTED))
        own = (submissions.c.account == account, submissions.c.track == track)
        # A clock that went back makes times of the future; one that was wrong by days must not lock an account out.
        lately = and_(submissions.c.created > now - DAY, submissions.c.created < now + DAY)
        today = func.coalesce(func.sum(case((lately, 1), else_=0)), 0)
        query = select(today, func.count()).where(*own, submissions.c.id.in_(counted))
        day, total = connection.execute(query).one()
        return int(day), int(total)

    def _require_quota(self, connection: Connection, now: float, track: Track, account: str) -> None:
        day, total = self.used(connection, now, account, track.name)
        if day >= track.day_quota:
            raise QuotaExceeded(
                f"the quota of track {track.name!r} is used: {day} of {track.day_quota} in 24 hours. Submissions that "
                "fail or are cancelled do not count; wait for one of them to be a day old."
            )
        if total >= track.total_quota:
            raise QuotaExceeded(
                f"the quota of track {track.name!r} is used: {total} of {track.total_quota} in all; ask the owner."
            )

    def _queue(self, connection: Connection, now: float, actor: str, submission: str, board: str) -> None:
        connection.execute(
            insert(jobs).values(
                submission=submission, scorer=board, state="queued", attempts=0, not_before=now, worker="", lease="",
                queued=now, reason="",
            )
        )  # fmt: skip
        note(connection, now, actor, "job", submission, board, after="queued")

    def _cancel(self, connection: Connection, now: float, actor: str, which: Any, reason: str) -> None:
        """Cancel what is queued or running; a worker at it notices when it is done."""
        waiting = select(jobs).where(which, jobs.c.state.in_(("queued", "running"))).with_for_update()
        for job in connection.execute(waiting).all():
            values = {"state": "cancelled", "ended": now, "reason": reason, "lease": "", "lease_until": None}
            connection.execute(update(jobs).where(jobs.c.id == job.id).values(**values))
            note(connection, now, actor, "job", job.submission, job.scorer, job.state, "cancelled", reason)

    def _hold_track(self, connection: Connection, submission: str) -> None:
        """Let no scorer be added to a submission's track, nor retired, until the transaction ends."""
        of_submission = select(submissions.c.track).where(submissions.c.id == submission).scalar_subquery()
        held = select(tracks.c.name).where(tracks.c.name == of_submission).with_for_update(read=True)
        connection.execute(held).all()

    def cancel_job(self, job: int, actor: str) -> None:
        """Cancel a job that has not ended."""
        self.database.write(
            lambda connection: self._cancel(
                connection, self.database.now(connection), actor, jobs.c.id == job, "the owner cancelled it"
            )
        )

    def again(self, job: int, actor: str) -> None:
        """Queue a job that failed or was cancelled once more. Raises InputError for another state."""

        def queue(connection: Connection) -> None:
            now = self.database.now(connection)
            ended = and_(jobs.c.id == job, or_(jobs.c.state == "failed", jobs.c.state == "cancelled"))
            found = connection.execute(select(jobs.c.submission).where(ended)).scalar()
            if found is not None:
                self._hold_track(connection, found)
            row = connection.execute(select(jobs).where(ended).with_for_update()).first()
            if row is None:
                raise Unknown(f"there is no job {job} that failed or was cancelled.")
            gone = select(jobs.c.id).join(submissions).join(scorers).where(
                jobs.c.id == job, or_(submissions.c.withdrawn.is_not(None), scorers.c.retired.is_not(None))
            )  # fmt: skip
            if connection.execute(gone).first() is not None:
                raise InputError(f"job {job} is of a withdrawn submission or a retired scorer; it stays as it is.")
            values = {"state": "queued", "attempts": 0, "not_before": now, "queued": now, "ended": None, "reason": ""}
            connection.execute(update(jobs).where(jobs.c.id == job).values(**values))
            note(connection, now, actor, "job", row.submission, row.scorer, row.state, "queued", "the owner asked")

        self.database.write(queue)


def note(
    connection: Connection,
    now: float,
    actor: str,
    action: str,
    subject: str = "",
    board: str = "",
    before: str = "",
    after: str = "",
    reason: str = "",
) -> None:
    """A line of the log."""
    values = {"actor": actor, "action": action, "object": subject, "board": board}
    values |= {"before": before, "after": after, "reason": reason[:1_000]}
    connection.execute(insert(log).values(time=now, **values))


def touch(connection: Connection, board: str) -> None:
    """What a board shows has changed."""
    connection.execute(update(scorers).where(scorers.c.id == board).values(revision=scorers.c.revision + 1))


def touch_boards_of(connection: Connection, submission: str) -> None:
    """What is shown of a submission has changed."""
    own = select(jobs.c.scorer).where(jobs.c.submission == submission).order_by(jobs.c.scorer)
    for board in connection.execute(own).scalars().all():
        touch(connection, board)


def pack(value: object) -> bytes:
    """A value as compressed JSON."""
    return zlib.compress(json.dumps(value, ensure_ascii=False).encode(), 6)


def unpack(blob: bytes) -> Any:
    """The value that `pack` compressed."""
    return json.loads(zlib.decompress(blob))


def random_id(length: int) -> str:
    """Letters and digits that say nothing."""
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(length))


def is_account(name: str) -> bool:
    """Whether a text may be the name of an account."""
    return 0 < len(name) <= 64 and set(name) <= _NAME_LETTERS


def one_line(what: str, given: str, longest: int) -> str:
    """A name in one line of visible characters. Raises InputError where it is empty or too long."""
    text = " ".join(given.split())
    if not text or len(text) > longest or not text.isprintable():
        raise InputError(f"field {what!r} is empty, longer than {longest} characters, or holds control characters.")
    return text


def remark(given: str) -> str:
    """A remark, of several lines perhaps. Raises InputError where it is too long or holds control characters."""
    return storable("note", "\n".join(given.strip().splitlines()), 2_000)


def web_address(given: str) -> str:
    """An http or https address, or nothing. Raises InputError for anything else."""
    text = given.strip()
    if text and (
        not text.startswith(("https://", "http://")) or len(text) > 300 or not text.isprintable() or " " in text
    ):
        raise InputError(
            "field 'link' is no web address; give one that begins with https://, of at most 300 characters."
        )
    return text


def read_references(sha: str, examples: bytes, graphs: bytes | None) -> References:
    """A set of references from its examples, JSON lines, and its packed graphs."""
    lines = examples.decode().split("\n")[:-1]  # a step may hold what else ends a line, such as U+2028
    return References(
        sha, tuple(_example(json.loads(line)) for line in lines), None if graphs is None else unpack(graphs)
    )


def _track(row: Mapping[Any, Any]) -> Track:
    values = {name: row[name] for name in Track.__dataclass_fields__}
    return Track(**values | {"shown_examples": tuple(values["shown_examples"])})


def _example(row: JsonObject) -> Example:
    told = row.get("told_history")
    lists = {"history": tuple(row["history"]), "continuation": tuple(row["continuation"])}
    return Example(**row | lists | {"told_history": None if told is None else tuple(told)})
