"""What the board's API says, as plain values: boards, systems, submissions, the queue, the owner's page.

No view reads a reference. Figures of a track whose results are hidden are seen by the owner alone, and a private
submission by its account and the owner.
"""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, case, func, select

from recipe.artifacts import JsonObject, to_json
from recipe.evaluation.controls import is_beaten
from recipe.evaluation.judge.plans import CONTROLS
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe.evaluation.measures import Measure, measure_named
from recipe.evaluation.metrics import METRICS
from recipe.stats import Interval
from recipe_apps.board.scoring import LEAST
from recipe_apps.board.standings import (
    differences_from_controls,
    metric_digits,
    public_figures,
    read_standings,
    rounded,
)
from recipe_apps.board.store import Account, Board, Track, Unknown
from recipe_apps.board.tables import accounts, jobs, log, scorers, scores, submissions, tokens, workers
from recipe_apps.board.work import GONE, read_content

PAGE = 100
"""Rows of one page of a board."""
LOGGED = 100
"""Lines of the log that are read at once."""
_RECENT = 20
"""Jobs whose mean time makes the estimate of the queue."""
_STATES = ("queued", "running", "scored", "failed", "cancelled")


class Views:
    """The values of one board, for whoever looks."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._kept: dict[str, tuple[int, JsonObject]] = {}

    # Boards

    def index(self, viewer: Account | None = None) -> JsonObject:
        """All tracks with their boards, and the queue."""
        boards = self._boards()
        found = []
        for track in self.board.tracks():
            examples = self.board.references(track.reference_set).examples
            summaries = []
            for row in boards:
                if row.track == track.name and row.retired is None:
                    leader = next((one for one in self._rows(row, track, viewer) if one["place"]), None)
                    about = leader and {"system": leader["system"], "value": leader["value"]}
                    summaries.append(self._summary(row, track, viewer) | {"leader": about})
            found.append(
                {
                    "name": track.name,
                    "title": track.title or track.name,
                    "about": track.about,
                    "examples": len(examples),
                    "plans": track.plans,
                    "published": track.published,
                    "closed": track.closed,
                    "questions": f"/api/tracks/{track.name}/questions.jsonl",
                    "quota": {"day": track.day_quota, "total": track.total_quota},
                    "boards": summaries,
                }
            )
        return {"title": self.board.title, "tracks": found, "queue": self.queue()}

    def table(self, board: str, query: Mapping[str, str], viewer: Account | None = None) -> JsonObject:
        """One board: its rows, searched, sorted and in pages. Raises Unknown for an unknown board."""
        row, track = self._board(board)
        value, made, _ = self._standing(board)
        examples = self.board.references(track.reference_set).examples
        kind = measure_named(row.measure)
        rows = self._rows(row, track, viewer)
        if query.get("all") != "1":
            rows = [one for one in rows if one["latest"]]
        if wanted := query.get("q", "").casefold().strip():
            named = ("system", "by", "account", "control")
            rows = [one for one in rows if wanted in " ".join(one[name] for name in named).casefold()]
        rows = _sorted(rows, query.get("sort", "place"), query.get("order", ""))
        pages = max(1, -(-len(rows) // PAGE))
        page = min(max(1, _whole(query.get("page", "1"))), pages)
        shown = self._visible(track, viewer)
        about = {
            "identity": row.identity,
            "examples": len(examples),
            "clusters": len({kind.cluster_of(one) for one in examples}),
            "cluster": kind.cluster,
            "resolvable": value["resolvable"] if shown else None,
            "as_of": made,
            "others": [
                self._summary(one, track, viewer)
                for one in self._boards()
                if one.track == track.name and one.id != board
            ],
        }
        counts: dict[str, int] = {}
        for example in examples:
            counts[example.source] = counts.get(example.source, 0) + 1
        return {
            "board": self._summary(row, track, viewer) | about,
            "datasets": [
                {"name": name, "examples": count, "shown": count >= LEAST} for name, count in sorted(counts.items())
            ],
            "least": LEAST,
            "rows": rows[(page - 1) * PAGE : page * PAGE],
            "total": len(rows),
            "page": page,
            "pages": pages,
        }

    def rows(self, board: str, viewer: Account | None = None) -> tuple[JsonObject, list[str]]:
        """All rows of a board, and the names of its datasets."""
        row, track = self._board(board)
        examples = self.board.references(track.reference_set).examples
        return {"rows": self._rows(row, track, viewer)}, sorted({one.source for one in examples})

    def _board(self, board: str) -> tuple[Any, Track]:
        found = next((one for one in self._boards() if one.id == board), None)
        if found is None:
            raise Unknown(f"there is no board {board[:40]!r}.")
        return found, self.board.track(found.track)

    def _boards(self) -> Sequence[Any]:
        query = select(scorers).order_by(scorers.c.created, scorers.c.id)
        return self.board.database.query(lambda connection: connection.execute(query).all())

    def _standing(self, board: str) -> tuple[JsonObject, float, int]:
        """The standings, unpacked once for each time they are made."""
        query = select(scorers.c.revision).where(scorers.c.id == board)
        kept = self._kept.get(board)
        if kept is not None:
            revision = self.board.database.query(lambda connection: connection.execute(query).scalar())
            if revision == kept[0]:
                return kept[1]["value"], kept[1]["made"], kept[0]
        value, made, revision = read_standings(self.board, board)
        self._kept[board] = (revision, {"value": value, "made": made})
        return value, made, revision

    def _rows(self, row: Any, track: Track, viewer: Account | None) -> list[JsonObject]:
        return self._standing(row.id)[0]["rows"] if self._visible(track, viewer) else []

    def _visible(self, track: Track, viewer: Account | None) -> bool:
        return track.published or (viewer is not None and viewer.is_owner)

    def _summary(self, row: Any, track: Track, viewer: Account | None) -> JsonObject:
        kind: type[Measure] = measure_named(row.measure)
        rows = self._rows(row, track, viewer)
        return {
            "id": row.id,
            "track": track.name,
            "track_title": track.title or track.name,
            "measure": row.measure,
            "label": row.label,
            "main": metric_title(kind.main),
            "unit": kind.unit,
            "digits": kind.digits,
            "rows": len(rows),
            "systems": sum(bool(one["place"]) for one in rows),
            "retired": row.retired,
            "published": track.published,
        }

    def queue(self) -> JsonObject:
        """Jobs that wait and run, workers that live, and how long the queue may take."""

        def ask(connection: Connection) -> JsonObject:
            now = self.board.database.now(connection)
            counted = select(jobs.c.state, func.count().label("count_")).where(jobs.c.state.in_(("queued", "running")))
            counts = {row.state: row.count_ for row in connection.execute(counted.group_by(jobs.c.state)).all()}
            # A sign of life from the future was given before the clock went back.
            living = select(workers).where(workers.c.seen.between(now - GONE, now + GONE)).order_by(workers.c.name)
            at_work = select(jobs.c.worker, jobs.c.submission).where(jobs.c.state == "running")
            at = {row.worker: row.submission for row in connection.execute(at_work).all()}
            took = select(jobs.c.ended - jobs.c.started).where(jobs.c.state == "scored", jobs.c.ended >= jobs.c.started)
            times = list(connection.execute(took.order_by(jobs.c.ended.desc()).limit(_RECENT)).scalars())
            alive = [
                {
                    "name": one.name,
                    "seen": max(0.0, now - one.seen),
                    "job": f"scores {at[one.name]}" if one.name in at else "",
                }
                for one in connection.execute(living).all()
            ]
            left = counts.get("queued", 0) + counts.get("running", 0)
            estimate = left * sum(times) / len(times) / len(alive) if times and alive and left else None
            return {
                "queued": counts.get("queued", 0),
                "running": counts.get("running", 0),
                "workers": alive,
                "estimate": estimate,
            }

        return self.board.database.query(ask)

    # Submissions

    def submission(self, identity: str, viewer: Account | None = None) -> JsonObject:
        """A system's page. Raises Unknown for a submission that is not there for this viewer."""
        [row] = self._found(submissions.c.id == identity) or [None]
        if row is None or not _may_see(row, viewer):
            raise Unknown(f"there is no submission {identity[:40]!r}.")
        own = self._described([row], viewer)[0]
        track = self.board.track(row.track)
        shown = self._visible(track, viewer)
        same = self._found(
            submissions.c.account == row.account, submissions.c.system == row.system, submissions.c.track == row.track
        )
        others = [one for one in same if one.id != row.id and _may_see(one, viewer)]
        return {
            "submission": own,
            "boards": self._results(row, track, viewer) if shown else [],
            "history": self._history(identity),
            "others": self._described(others, viewer),
            "examples": self._public_examples(row, track),
        }

    def mine(self, account: Account) -> list[JsonObject]:
        """The submissions of an account, newest first."""
        return self._described(self._found(submissions.c.account == account.name), account)

    def me(self, account: Account) -> JsonObject:
        """An account, and what it used of its quotas."""

        def ask(connection: Connection) -> list[JsonObject]:
            now = self.board.database.now(connection)
            found = []
            for track in self.board.tracks():
                day, total = self.board.used(connection, now, account.name, track.name)
                limits = {"day": (day, track.day_quota), "total": (total, track.total_quota)}
                found.append(
                    {"track": track.name}
                    | {name: {"used": used, "limit": most} for name, (used, most) in limits.items()}
                )
            return found

        quotas = self.board.database.query(ask)
        return {"name": account.name, "display": account.display, "role": account.role, "quotas": quotas}

    def _found(self, *which: Any) -> Sequence[Any]:
        query = (
            select(submissions, accounts.c.display)
            .join(accounts, accounts.c.name == submissions.c.account)
            .where(*which)
            .order_by(submissions.c.created.desc(), submissions.c.id)
        )
        return self.board.database.query(lambda connection: connection.execute(query).all())

    def _described(self, rows: Sequence[Any], viewer: Account | None) -> list[JsonObject]:
        """Submissions with their jobs."""
        if not rows:
            return []
        own = [row.id for row in rows]

        def ask(connection: Connection) -> tuple[Any, dict[int, int]]:
            with_label = select(jobs, scorers.c.label).join(scorers, scorers.c.id == jobs.c.scorer)
            found = connection.execute(with_label.where(jobs.c.submission.in_(own)).order_by(jobs.c.id)).all()
            waiting = select(jobs.c.id).where(jobs.c.state == "queued").order_by(jobs.c.id)
            places = {number: place for place, number in enumerate(connection.execute(waiting).scalars(), 1)}
            return found, places

        found, waiting = self.board.database.query(ask)
        figures = self._figures(own)
        kinds = {one.id: measure_named(one.measure) for one in self._boards()}
        tracks = {one.name: one for one in self.board.tracks()}
        described = []
        for row in rows:
            track = tracks[row.track]
            shown = self._visible(track, viewer)
            of_row = []
            for job in (one for one in found if one.submission == row.id):
                of_row.append(
                    {
                        "id": job.id,
                        "board": job.scorer,
                        "label": job.label,
                        "state": job.state,
                        "reason": job.reason,
                        "position": waiting.get(job.id),
                        "attempts": job.attempts,
                        "queued": job.queued,
                        "started": job.started,
                        "ended": job.ended,
                        "value": figures.get((row.id, job.scorer), {}).get("value") if shown else None,
                        "digits": kinds[job.scorer].digits,
                        "place": self._place(job.scorer, row.id) if shown and job.state == "scored" else "",
                    }
                )
            described.append(
                {
                    "id": row.id,
                    "track": row.track,
                    "track_title": track.title or track.name,
                    "system": row.system,
                    "by": row.display,
                    "account": row.account,
                    "created": row.created,
                    "private": row.private,
                    "withdrawn": row.withdrawn,
                    "control": row.control,
                    "link": row.link,
                    "note": row.note,
                    "plans": row.plans,
                    "sha": row.sha if _owns(row, viewer) else "",
                    "state": _state([job["state"] for job in of_row]),
                    "jobs": of_row,
                }
            )
        return described

    def _place(self, board: str, submission: str, field: str = "place") -> str:
        """The place of a submission, or with `no_place` why it has none."""
        rows = self._standing(board)[0]["rows"]
        return next((str(one[field]) for one in rows if one["submission"] == submission), "")

    def _figures(self, identities: Sequence[str]) -> dict[tuple[str, str], JsonObject]:
        """The public figures of submissions, by submission and board."""
        query = (
            select(
                submissions.c.id, submissions.c.control, scores.c.scorer, scores.c.figures, scores.c.per_example,
                scorers.c.measure, scorers.c.track,
            )
            .join(submissions, submissions.c.id == scores.c.submission)
            .join(scorers, scorers.c.id == scores.c.scorer)
            .where(scores.c.submission.in_(identities))
        )  # fmt: skip
        rows = self.board.database.query(lambda connection: connection.execute(query).all())
        sets = {track.name: self.board.references(track.reference_set).examples for track in self.board.tracks()}
        sources = {name: [one.source for one in examples] for name, examples in sets.items()}
        self.board.answered(row.id for row in rows if not row.control)
        return {
            (row.id, row.scorer): public_figures(self.board, measure_named(row.measure), sources[row.track], row)
            for row in rows
        }

    def _results(self, row: Any, track: Track, viewer: Account | None) -> list[JsonObject]:
        figures = self._figures([row.id])
        found = []
        for board in self._boards():
            if (row.id, board.id) not in figures:
                continue
            own, kind = figures[row.id, board.id], measure_named(board.measure)
            # What is too little for a figure is too little for a difference.
            against = differences_from_controls(self.board, board.id, row.id) if own["value"] is not None else {}
            controls = {one["control"]: one for one in self._standing(board.id)[0]["rows"] if one["control"]}
            further = {
                name: {"title": metric_title(name), "digits": metric_digits(kind, name), "value": one}
                for name, one in own["metrics"].items()
            }
            found.append(
                self._summary(board, track, viewer)
                | own
                | {
                    "place": self._place(board.id, row.id),
                    "no_place": self._place(board.id, row.id, "no_place"),
                    "metrics": further,
                    "least": LEAST,
                    "against": [
                        _against(name, one, kind, own, controls.get(name))
                        for name, one in against.items()
                        if name != row.control
                    ],
                }
            )
        return found

    def _history(self, identity: str) -> list[JsonObject]:
        query = select(log).where(log.c.object == identity).order_by(log.c.id)
        rows = self.board.database.query(lambda connection: connection.execute(query).all())
        return [
            {
                "time": one.time,
                "state": one.after or one.action,
                "reason": one.reason if one.action == "job" else "",
                "board": one.board,
            }
            for one in rows
        ]

    def _public_examples(self, row: Any, track: Track) -> list[JsonObject]:
        """The questions that the owner made public, with the system's first plan of each; none of a control row."""
        if row.control or not track.shown_examples:
            return []
        plans = {one.example_id: one for one in reversed(read_content(zlib.decompress(row.content)))}
        questions = self.board.questions(track)
        return [
            {
                "example_id": name,
                "goal": questions[name].goal,
                "history": list(questions[name].history),
                "plan": list(plans[name].steps),
            }
            for name in track.shown_examples
            if name in plans
        ]

    def questions(self, track: str) -> Iterable[str]:
        """The questions of a track as JSON lines, without their continuations."""
        for one in self.board.questions(self.board.track(track)).values():
            row = {"example_id": one.example_id, "source": one.source, "goal": one.goal, "history": list(one.history)}
            yield json.dumps(row, ensure_ascii=False) + "\n"

    # The owner

    def owner(self, viewer: Account) -> JsonObject:
        """Accounts, tracks, boards with their jobs, what failed, and the newest lines of the log."""

        def ask(connection: Connection) -> tuple[Any, Any, Any]:
            sent = select(submissions.c.account, func.count().label("count")).group_by(submissions.c.account).subquery()
            live = (
                select(tokens.c.account, func.count().label("count"))
                .where(tokens.c.revoked.is_(None))
                .group_by(tokens.c.account)
                .subquery()
            )
            people = (
                select(accounts, sent.c.count.label("submissions"), live.c.count.label("tokens"))
                .outerjoin(sent, sent.c.account == accounts.c.name)
                .outerjoin(live, live.c.account == accounts.c.name)
                .order_by(accounts.c.created, accounts.c.name)
            )
            counted = select(
                jobs.c.scorer, *(func.sum(case((jobs.c.state == state, 1), else_=0)).label(state) for state in _STATES)
            ).group_by(jobs.c.scorer)
            failed = (
                select(jobs, submissions.c.system)
                .join(submissions, submissions.c.id == jobs.c.submission)
                .where(jobs.c.state == "failed")
                .order_by(jobs.c.ended.desc())
                .limit(LOGGED)
            )
            return (
                connection.execute(people).all(), connection.execute(counted).all(), connection.execute(failed).all()
            )  # fmt: skip

        people, counted, failed = self.board.database.query(ask)
        counts = {row.scorer: {state: int(getattr(row, state) or 0) for state in _STATES} for row in counted}
        tracks = {one.name: one for one in self.board.tracks()}
        return {
            "accounts": [
                {
                    "name": one.name,
                    "display": one.display,
                    "role": one.role,
                    "created": one.created,
                    "revoked": one.revoked,
                    "submissions": one.submissions or 0,
                    "tokens": one.tokens or 0,
                }
                for one in people
            ],
            "tracks": self.index(viewer)["tracks"],
            "boards": [
                self._summary(one, tracks[one.track], viewer) | {"jobs": counts.get(one.id, dict.fromkeys(_STATES, 0))}
                for one in self._boards()
            ],
            "failed": [
                {
                    "job": one.id,
                    "submission": one.submission,
                    "system": one.system,
                    "board": one.scorer,
                    "reason": one.reason,
                    "ended": one.ended,
                }
                for one in failed
            ],
            "log": self.log(),
        }

    def log(self, before: int | None = None) -> list[JsonObject]:
        """Lines of the log, newest first, before a number."""
        query = select(log).order_by(log.c.id.desc()).limit(LOGGED)
        if before is not None:
            query = query.where(log.c.id < before)
        rows = self.board.database.query(lambda connection: connection.execute(query).mappings().all())
        return [dict(row) for row in rows]


def metric_title(name: str) -> str:
    """A metric in words."""
    if name in CRITERIA:
        return f"{name.replace('_', ' ')}, 0 to 5"
    horizon, _, measure = name.partition(".")
    if measure:
        return f"{measure.replace('_', ' ')}, T = {horizon}"
    return METRICS.get(name, name)


def _against(
    control: str, difference: Interval, kind: type[Measure], own: JsonObject, other: JsonObject | None
) -> JsonObject:
    """The difference from a control: that of the two means as they are shown, where no question lacks a value."""
    complete = other is not None and own["complete"] and other["complete"]
    mean = own["value"]["mean"] - other["value"]["mean"] if complete and other is not None else None
    return {
        "control": control,
        "meaning": CONTROLS.get(control, ""),
        "difference": rounded(to_json(difference), kind.digits, mean),
        "beaten": None if difference.sign is None else is_beaten(difference),
    }


def _state(states: Sequence[str]) -> str:
    """The state of a submission: what is left to do comes first, then what went wrong."""
    return next((state for state in ("running", "queued", "failed", "scored") if state in states), "cancelled")


def _owns(row: Any, viewer: Account | None) -> bool:
    return viewer is not None and (viewer.is_owner or viewer.name == row.account)


def _may_see(row: Any, viewer: Account | None) -> bool:
    return _owns(row, viewer) or (not row.private and row.withdrawn is None)


def _sorted(rows: list[JsonObject], key: str, order: str) -> list[JsonObject]:
    """Rows by a column; by place as they are. A row without a figure comes last."""
    if key == "place":
        return rows[::-1] if order == "up" else rows
    if key in ("system", "by"):
        return sorted(rows, key=lambda one: str(one[key]).casefold(), reverse=order == "down")
    if key == "date":
        return sorted(rows, key=lambda one: one["created"], reverse=order != "up")
    have = [one for one in rows if one["datasets"].get(key)]
    lack = [one for one in rows if not one["datasets"].get(key)]
    return sorted(have, key=lambda one: one["datasets"][key]["mean"], reverse=order != "up") + lack


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 8 else 1
