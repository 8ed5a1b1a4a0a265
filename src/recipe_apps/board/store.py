"""A board and all that people change in it: accounts, tokens, tracks, scorers, submissions, quotas, and the log.

Each change is one transaction together with its line of the log. A submission is known by its content: what an account
sends twice is one submission. Quotas count what was scored or still may be; what failed or was cancelled is free.

The locks are the same on every path, and in this order: account, track, jobs, scorers by their ids. Two transactions
that took them in another order could wait for each other.
"""

import hmac
import json
import secrets
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, and_, case, func, insert, or_, select, update
from sqlalchemy.orm import Session

from recipe.artifacts import JsonObject, fingerprint, to_json
from recipe.errors import InputError
from recipe.types import Example
from recipe_apps.board.database import PATIENCE, Database, transaction
from recipe_apps.board.models import (
    Account,
    Job,
    LogLine,
    Meta,
    ReferenceSet,
    Role,
    Scorer,
    Submission,
    Token,
    Track,
    storable,
)
from recipe_apps.board.validation import SubmissionCheck

BOARD = "board"
"""The account that control rows belong to, and the actor of what the program does by itself."""
_DAY = 86_400.0
_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
# Without what looks alike.
# 57 letters: an id of 12 has 70 bits, so that none is guessed and none comes twice.
_ID_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"
# Submissions that are read at once.
_AT_ONCE = 200
# Submissions of which it is remembered what they answer.
_REMEMBERED = 50_000
# Why a job was cancelled that runs once its scorer is used again.
_RETIRED = "the scorer was retired"
# Sets of references that are kept in memory.
_REFERENCE_SETS = 16


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

    @classmethod
    def read(cls, sha: str, lines: bytes, graphs: bytes | None) -> "References":
        """A stored set, from its examples as JSON lines and its packed graphs."""
        examples = []
        for line in lines.decode().split("\n")[:-1]:  # a step may hold what else ends a line, such as U+2028
            row = json.loads(line)
            for name in ("history", "continuation", "told_history"):
                row[name] = None if row.get(name) is None else tuple(row[name])
            examples.append(Example(**row))
        return cls(sha, tuple(examples), None if graphs is None else json.loads(zlib.decompress(graphs)))


class Unknown(InputError):
    """A thing that is not there, or not for whoever asks."""


class QuotaExceeded(InputError):
    """The account has had as many submissions scored as the track allows."""


class Board:
    """One board in its database."""

    patience = PATIENCE

    def __init__(self, database: Database) -> None:
        self.database = database
        values = {meta.key: meta.value for meta in database.scalars(select(Meta))}
        self.title = values["title"]
        self._key = bytes.fromhex(values["token key"])
        self._references: dict[str, References] = {}
        self._answered: dict[str, NDArray[np.bool_]] = {}

    @classmethod
    def open(cls, url: str) -> "Board":
        """The board in a database. Raises InputError where there is none, or one of another version."""
        database = Database(url)
        try:
            database.require_current()
            return cls(database)
        except BaseException:
            database.close()
            raise

    @classmethod
    def create(cls, url: str, title: str, fill: Callable[["Board"], object] = lambda _: None) -> "Board":
        """A new board with what `fill` puts on it, all or nothing. Raises InputError where the database holds one."""
        database = Database(url)
        title = one_line("title", title, 200)

        def begin(session: Session) -> "Board":
            if session.scalars(select(Meta.key)).first() is not None:
                raise InputError("the database holds a board already; give another one, or use that.")
            now = database.now(session)
            session.add_all([Meta(key="title", value=title), Meta(key="token key", value=secrets.token_hex(32))])
            # Revoked from its beginning: nobody is ever to hold a token of it.
            session.add(Account(name=BOARD, display="control", role="submitter", created=now, revoked=now))
            note(session, now, BOARD, "board made", reason=title)
            board = cls(database)
            fill(board)
            return board

        try:
            database.upgrade()
            return database.write(begin)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Give the database's connections back."""
        self.database.close()

    # People

    @transaction
    def add_account(
        self, session: Session, name: str, role: Role = "submitter", display: str = "", actor: str = BOARD
    ) -> str:
        """A new account; returns its token, which is shown this once. Raises InputError for a name that is in use."""
        if not is_account(name):
            raise InputError(f"field 'name' is {name[:80]!r}; give 1 to 64 of a-z, 0-9, '-', '_' and '.'.")
        display = one_line("display", display or name, 80)
        now = self.database.now(session)
        if session.get(Account, name) is not None:
            raise InputError(f"account {name!r} exists; take another name, or make a token for it.")
        session.add(Account(name=name, display=display, role=role, created=now))
        note(session, now, actor, "account added", name, reason=role)
        return self._add_token(session, now, name)

    @transaction
    def new_token(self, session: Session, name: str, actor: str = BOARD) -> str:
        """A further token of an account. Raises InputError for an unknown or revoked one."""
        now = self.database.now(session)
        self._require_account(session, name)
        note(session, now, actor, "token added", name)
        return self._add_token(session, now, name)

    @transaction
    def revoke(self, session: Session, name: str, actor: str = BOARD) -> None:
        """End an account and all its tokens; its submissions stay. Raises InputError for an unknown one."""
        now = self.database.now(session)
        self._require_account(session, name)
        session.execute(update(Account).where(Account.name == name, Account.revoked.is_(None)).values(revoked=now))
        session.execute(update(Token).where(Token.account == name, Token.revoked.is_(None)).values(revoked=now))
        note(session, now, actor, "account revoked", name)

    @transaction
    def rename(self, session: Session, name: str, display: str) -> None:
        """Change what pages call an account. Raises InputError for a name that is empty or too long."""
        display = one_line("display", display, 80)
        now = self.database.now(session)
        session.execute(update(Account).where(Account.name == name).values(display=display))
        note(session, now, name, "display name", name, reason=display)
        touch(session, session.scalars(select(Scorer.id)).all())

    def account_of(self, token: str) -> Account | None:
        """Who holds a token; None for one that is unknown or revoked."""
        prefix, _, rest = token.partition("_")
        identity, _, secret = rest.partition("_")
        # The type of the column would refuse such a text as a field; here it is a token that nobody knows.
        if prefix != "rb" or not secret or len(token) > 200 or not (token.isascii() and token.isprintable()):
            return None
        query = (
            select(Token.hash, Account)
            .join(Account, Account.name == Token.account)
            .where(Token.id == identity[:16], Token.revoked.is_(None), Account.revoked.is_(None))
        )
        for row in self.database.rows(query):
            # In constant time: a time that depends on the texts would tell how far a guess is right.
            if hmac.compare_digest(self._hash(secret), row.hash):
                account: Account = row.Account
                return account
        return None

    def _hash(self, secret: str) -> str:
        # A keyed hash is enough: the secret holds 256 random bits, which no list of guesses contains.
        return hmac.new(self._key, secret.encode(), sha256).hexdigest()

    def _add_token(self, session: Session, now: float, name: str) -> str:
        # The id finds the row, so that the secret itself is neither stored nor searched for.
        identity, secret = random_id(12), secrets.token_urlsafe(32)
        session.add(Token(id=identity, account=name, hash=self._hash(secret), created=now))
        return f"rb_{identity}_{secret}"

    def _require_account(self, session: Session, name: str) -> None:
        account = session.get(Account, name)
        if account is None or name == BOARD or account.revoked is not None:
            raise Unknown(f"there is no account {name[:80]!r}, or it is revoked.")

    # Tracks and scorers

    @transaction
    def add_track(self, session: Session, track: Track, references: References) -> None:
        """A new track with its references. Raises InputError for a name that is in use."""
        now = self.database.now(session)
        if session.get(Track, track.name) is not None:
            raise InputError(f"track {track.name!r} exists; take another name.")
        if session.get(ReferenceSet, references.sha) is None:
            lines = "".join(json.dumps(to_json(example), ensure_ascii=False) + "\n" for example in references.examples)
            graphs = None if references.graphs is None else packed(dict(references.graphs))
            session.add(
                ReferenceSet(sha=references.sha, examples=zlib.compress(lines.encode(), 6), graphs=graphs)
            )  # fmt: skip
            session.flush()  # before the track, which refers to it
        position = session.scalars(select(func.count()).select_from(Track)).one()
        session.add(replace(track, reference_set=references.sha, position=position))
        note(session, now, BOARD, "track added", track.name, reason=f"{len(references.examples)} examples")

    def tracks(self) -> list[Track]:
        """All tracks, in the order in which they were added."""
        return list(self.database.scalars(select(Track).order_by(Track.position)))

    def track(self, name: str) -> Track:
        """A track. Raises InputError for an unknown one."""
        tracks = {track.name: track for track in self.tracks()}
        if name not in tracks:
            raise Unknown(f"there is no track {name[:80]!r}; tracks are {', '.join(tracks) or 'none'}.")
        return tracks[name]

    def scorers(self) -> Sequence[Scorer]:
        """The scorers of all boards, in the order in which they were added."""
        return self.database.scalars(select(Scorer).order_by(Scorer.created, Scorer.id))

    def scorer(self, board: str) -> Scorer:
        """The scorer of a board. Raises Unknown for an unknown one."""
        for scorer in self.database.scalars(select(Scorer).where(Scorer.id == board)):
            return scorer
        raise Unknown(f"there is no board {board[:40]!r}.")

    def references(self, sha: str) -> References:
        """A set of references."""
        references = self._references.get(sha)
        if references is None:
            [row] = self.database.scalars(select(ReferenceSet).where(ReferenceSet.sha == sha))
            references = References.read(sha, zlib.decompress(row.examples), row.graphs)
            if len(self._references) >= _REFERENCE_SETS:
                self._references.clear()
            self._references[sha] = references
        return references

    def questions(self, track: Track) -> dict[str, Example]:
        """The questions of a track by id: its examples without their continuations."""
        examples = self.references(track.reference_set).examples
        return {example.example_id: replace(example, continuation=()) for example in examples}

    def answered(self, identities: Iterable[str]) -> dict[str, NDArray[np.bool_]]:
        """Of each submission, whether it has a plan with steps for each question of its track [questions]."""
        known = self._answered
        wanted = list(dict.fromkeys(identities))
        new = [identity for identity in wanted if identity not in known]
        if len(known) + len(new) > _REMEMBERED:
            known, new = {}, wanted
        for start in range(0, len(new), _AT_ONCE):
            query = (
                select(Submission.id, Submission.content, Track.plans)
                .join(Track, Track.name == Submission.track)
                .where(Submission.id.in_(new[start : start + _AT_ONCE]))
            )
            for row in self.database.rows(query):
                # Canonical content: the steps stand last, and a quote within a step is escaped.
                lines = zlib.decompress(row.content).split(b"\n")[:-1]
                steps = [not line.endswith(b'"steps": []}') for line in lines]
                known[row.id] = np.asarray(np.array(steps, dtype=bool).reshape(-1, row.plans).any(axis=1))
        self._answered = known
        return {identity: known[identity] for identity in wanted}

    @transaction
    def change_track(
        self, session: Session, name: str, *, published: bool | None = None, closed: bool | None = None,
        actor: str = BOARD,
    ) -> None:  # fmt: skip
        """Publish or hide the results of a track, close or open it for submissions. Raises InputError."""
        self.track(name)
        changes = {"published": published, "closed": closed}
        values = {key: value for key, value in changes.items() if value is not None}
        if not values:
            return
        now = self.database.now(session)
        session.execute(update(Track).where(Track.name == name).values(**values))
        words = ", ".join(f"{key}: {'yes' if value else 'no'}" for key, value in values.items())
        note(session, now, actor, "track changed", name, reason=words)

    @transaction
    def add_scorer(
        self, session: Session, track: str, measure: str, label: str, settings: JsonObject, identity: JsonObject,
        actor: str, replaced: str = "",
    ) -> tuple[str, int]:  # fmt: skip
        """A scorer of a track, and a job for each of its submissions; returns its board's id and the number of jobs.

        A scorer that was retired is taken up again: it gets the jobs that it lacks, and those that its retirement
        cancelled. `replaced` is retired.
        """
        board = fingerprint(identity)[:16]
        now = self.database.now(session)
        # What is sent or withdrawn meanwhile waits: it would get no job here, or one that nobody cancels.
        session.execute(select(Track.name).where(Track.name == track).with_for_update())
        cancelled = (
            select(Job)
            .join(Submission, Submission.id == Job.submission)
            .where(
                Job.scorer == board, Job.state == "cancelled", Job.reason == _RETIRED, Submission.withdrawn.is_(None)
            )
        )
        again = session.scalars(cancelled.order_by(Job.id).with_for_update(of=Job)).all()
        for job in again:
            self._requeue(session, now, actor, job, "the scorer was taken up again")
        if (known := session.get(Scorer, board)) is not None:
            if known.retired is not None:
                note(session, now, actor, "scorer taken up again", track, board, reason=label)
            session.execute(update(Scorer).where(Scorer.id == board).values(retired=None))
        else:
            session.add(
                Scorer(
                    id=board, track=track, measure=measure, label=label, settings=settings, identity=identity,
                    created=now,
                )
            )  # fmt: skip
            note(session, now, actor, "scorer added", track, board, reason=label)
        lacking = select(Submission.id).where(
            Submission.track == track,
            Submission.withdrawn.is_(None),
            Submission.id.not_in(select(Job.submission).where(Job.scorer == board)),
        )
        identities = session.scalars(lacking.order_by(Submission.created)).all()
        for submission in identities:
            self._queue(session, now, actor, submission, board)
        touch(session, [board])
        if replaced:
            self.retire(replaced, actor)
        return board, len(identities) + len(again)

    @transaction
    def retire(self, session: Session, board: str, actor: str = BOARD) -> None:
        """Take a scorer out of use: what is queued for it is cancelled, its scores stay on its board."""
        now = self.database.now(session)
        track = select(Scorer.track).where(Scorer.id == board).scalar_subquery()
        if session.scalars(select(Track.name).where(Track.name == track).with_for_update()).first() is None:
            raise Unknown(f"there is no board {board[:40]!r}.")
        note(session, now, actor, "scorer retired", "", board)
        self._cancel(session, now, actor, Job.scorer == board, _RETIRED)
        session.execute(update(Scorer).where(Scorer.id == board).values(retired=now))

    # Submissions

    @transaction
    def submit(
        self, session: Session, account: str, track: str, checked: SubmissionCheck, system: str, *, link: str = "",
        remark: str = "", private: bool = False, control: str = "",
    ) -> tuple[str, bool]:  # fmt: skip
        """Take a submission that was checked; returns its id, and whether it is new.

        `control` is the name of a control row, which the program submits itself, without a quota and to closed tracks.
        Raises InputError for a closed track and for names that cannot be used, QuotaExceeded where the quota is used.
        """
        system, link, remark = one_line("system", system, 80), web_address(link), _remark(remark)
        now = self.database.now(session)
        # One submission of an account at a time, so that two at once cannot both take the last of a quota.
        session.execute(select(Account.name).where(Account.name == account).with_for_update())
        own = (Submission.account == account, Submission.track == track)
        same = select(Submission.id).where(*own, Submission.sha == checked.sha)
        if (known := session.scalars(same).first()) is not None:
            return known, False
        # Shared: accounts need not wait for each other, only for a change of the scorers or of the rules.
        rules = session.scalars(select(Track).where(Track.name == track).with_for_update(read=True)).one()
        if not control:
            if rules.closed:
                raise InputError(f"track {track!r} is closed for submissions.")
            day, total = self.used(session, now, account, track)
            if day >= rules.day_quota:
                raise QuotaExceeded(
                    f"the quota of track {track!r} is used: {day} of {rules.day_quota} in 24 hours. Submissions that "
                    "fail or are cancelled do not count; wait for one of them to be a day old."
                )
            if total >= rules.total_quota:
                raise QuotaExceeded(
                    f"the quota of track {track!r} is used: {total} of {rules.total_quota} in all; ask the owner."
                )
        identity = random_id(12)
        content = zlib.compress(checked.content, 6)
        session.add(
            Submission(
                id=identity, track=track, account=account, system=system, sha=checked.sha, content=content,
                plans=checked.plans, link=link, note=remark, control=control, private=private, created=now,
            )
        )  # fmt: skip
        note(session, now, account, "submitted", identity, reason=f"{system}, track {track}")
        for board in session.scalars(select(Scorer.id).where(Scorer.track == track, Scorer.retired.is_(None))).all():
            self._queue(session, now, account, identity, board)
        return identity, True

    @transaction
    def change_submission(
        self, session: Session, identity: str, account: str, *, private: bool | None = None, link: str | None = None,
        remark: str | None = None,
    ) -> None:  # fmt: skip
        """Change what may be changed of a submission. Raises InputError."""
        values: dict[str, Any] = {} if private is None else {"private": private}
        values |= {} if link is None else {"link": web_address(link)}
        values |= {} if remark is None else {"note": _remark(remark)}
        if not values:
            return
        now = self.database.now(session)
        changed = session.execute(update(Submission).where(Submission.id == identity).values(**values))
        if not changed.rowcount:  # type: ignore[attr-defined]
            raise Unknown(f"there is no submission {identity[:40]!r}.")
        note(session, now, account, "submission changed", identity, reason=", ".join(values))
        touch(session, session.scalars(select(Job.scorer).where(Job.submission == identity)).all())

    @transaction
    def withdraw(self, session: Session, identity: str, account: str) -> None:
        """Take a submission off all boards; jobs that have not ended are cancelled, the log stays."""
        now = self.database.now(session)
        self._hold_track(session, identity)
        still = update(Submission).where(Submission.id == identity, Submission.withdrawn.is_(None))
        if session.execute(still.values(withdrawn=now)).rowcount:  # type: ignore[attr-defined]
            note(session, now, account, "withdrawn", identity)
            self._cancel(session, now, account, Job.submission == identity, "the submission was withdrawn")
            touch(session, session.scalars(select(Job.scorer).where(Job.submission == identity)).all())

    def used(self, session: Session, now: float, account: str, track: str) -> tuple[int, int]:
        """Submissions of an account that count on a track: in the last 24 hours, and in all."""
        counted = select(Job.submission).where(Job.state.in_(("queued", "running", "scored")))
        # A clock that went back makes times of the future; one that was wrong by days must not lock an account out.
        lately = and_(Submission.created > now - _DAY, Submission.created < now + _DAY)
        today = func.coalesce(func.sum(case((lately, 1), else_=0)), 0)
        own = (Submission.account == account, Submission.track == track)
        day, total = session.execute(select(today, func.count()).where(*own, Submission.id.in_(counted))).one()
        return int(day), int(total)

    def _queue(self, session: Session, now: float, actor: str, submission: str, board: str) -> None:
        session.add(Job(submission=submission, scorer=board, not_before=now, queued=now))
        note(session, now, actor, "job", submission, board, after="queued")

    def _requeue(self, session: Session, now: float, actor: str, job: Job, reason: str) -> None:
        before = job.state
        job.state, job.attempts, job.not_before, job.queued, job.ended, job.reason = "queued", 0, now, now, None, ""
        note(session, now, actor, "job", job.submission, job.scorer, before, "queued", reason)

    def _cancel(self, session: Session, now: float, actor: str, which: ColumnElement[bool], reason: str) -> None:
        """Cancel what is queued or running; a worker at it notices when it is done."""
        unended = select(Job).where(which, Job.state.in_(("queued", "running"))).with_for_update()
        # Read again once they are locked: a worker may have ended a job that this session saw before.
        for job in session.scalars(unended.execution_options(populate_existing=True)).all():
            before = job.state
            job.state, job.ended, job.reason, job.lease, job.lease_until = "cancelled", now, reason, "", None
            note(session, now, actor, "job", job.submission, job.scorer, before, "cancelled", reason)

    def _hold_track(self, session: Session, submission: str) -> None:
        """Let no scorer be added to a submission's track, nor retired, until the transaction ends."""
        track = select(Submission.track).where(Submission.id == submission).scalar_subquery()
        session.execute(select(Track.name).where(Track.name == track).with_for_update(read=True)).all()

    @transaction
    def cancel_job(self, session: Session, job: int, actor: str) -> None:
        """Cancel a job that has not ended."""
        self._cancel(session, self.database.now(session), actor, Job.id == job, "the owner cancelled it")

    @transaction
    def again(self, session: Session, number: int, actor: str) -> None:
        """Queue a job that failed or was cancelled once more. Raises InputError for another state."""
        now = self.database.now(session)
        ended = and_(Job.id == number, or_(Job.state == "failed", Job.state == "cancelled"))
        if (submission := session.scalars(select(Job.submission).where(ended)).first()) is not None:
            self._hold_track(session, submission)
        job = session.scalars(select(Job).where(ended).with_for_update()).first()
        if job is None:
            raise Unknown(f"there is no job {number} that failed or was cancelled.")
        withdrawn = session.scalar(select(Submission.withdrawn).where(Submission.id == job.submission))
        retired = session.scalar(select(Scorer.retired).where(Scorer.id == job.scorer))
        if withdrawn is not None or retired is not None:
            raise InputError(f"job {number} is of a withdrawn submission or a retired scorer; it stays as it is.")
        self._requeue(session, now, actor, job, "the owner asked")


def note(
    session: Session, now: float, actor: str, action: str, subject: str = "", board: str = "", before: str = "",
    after: str = "", reason: str = "",
) -> None:  # fmt: skip
    """Write a line of the log, after what the session holds already: rows that are added later may refer to it."""
    values = {"actor": actor, "action": action, "object": subject, "board": board, "before": before, "after": after}
    session.execute(insert(LogLine).values(time=now, reason=reason[:1_000], **values))


def touch(session: Session, boards: Iterable[str]) -> None:
    """Say that what these boards show has changed."""
    # Sorted: two transactions that lock the same rows in different orders would deadlock.
    for board in sorted(boards):
        session.execute(update(Scorer).where(Scorer.id == board).values(revision=Scorer.revision + 1))


def packed(value: object) -> bytes:
    """A value as compressed JSON."""
    return zlib.compress(json.dumps(value, ensure_ascii=False).encode(), 6)


def random_id(length: int) -> str:
    """Letters and digits that say nothing."""
    return "".join(secrets.choice(_ID_LETTERS) for _ in range(length))


def is_account(name: str) -> bool:
    """Whether a text may be the name of an account."""
    return 0 < len(name) <= 64 and set(name) <= _NAME_LETTERS


def one_line(field: str, name: str, longest: int) -> str:
    """A name in one line of visible characters. Raises InputError where it is empty or too long."""
    text = " ".join(name.split())
    if not text or len(text) > longest or not text.isprintable():
        raise InputError(f"field {field!r} is empty, longer than {longest} characters, or holds control characters.")
    return text


def _remark(text: str) -> str:
    """What a submitter says of a submission, in lines. Raises InputError for what cannot be kept."""
    return storable("note", "\n".join(text.strip().splitlines()), 2_000)


def web_address(link: str) -> str:
    """An http or https address, or nothing. Raises InputError for anything else."""
    text = link.strip()
    if text and (
        not text.startswith(("https://", "http://")) or len(text) > 300 or not text.isprintable() or " " in text
    ):
        raise InputError(
            "field 'link' is no web address; give one that begins with https://, of at most 300 characters."
        )
    return text
