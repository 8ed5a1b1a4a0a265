"""What the board's API says, as plain values: boards, systems, submissions, the queue, the owner's page.

No view reads a reference. Figures of a track whose results are hidden are seen by the owner alone, and a private
submission by its account and the owner.
"""

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import case, func, select

from recipe.artifacts import JsonObject, to_json
from recipe.evaluation import measure_named
from recipe.evaluation.judge.plans import CONTROLS
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe.evaluation.metrics import METRICS
from recipe_apps.board.models import Account, Heartbeat, Job, LogLine, Score, Scorer, Standing, Submission, Token, Track
from recipe_apps.board.scoring import LEAST_EXAMPLES
from recipe_apps.board.standings import differences_from_controls, metric_digits, public_figures, refresh, rounded
from recipe_apps.board.store import Board, Unknown
from recipe_apps.board.validation import read_content
from recipe_apps.board.work import WORKER_TIMEOUT

PAGE = 100
"""Rows of one page of a board."""
LOGGED = 100
"""Lines of the log that are read at once."""
# Jobs whose mean time makes the estimate of the queue.
_RECENT = 20
_STATES = ("queued", "running", "scored", "failed", "cancelled")


class Views:
    """The values of one board, for whoever looks."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._standings: dict[str, tuple[int, float, JsonObject]] = {}

    # Boards

    def index(self, viewer: Account | None = None) -> JsonObject:
        """All tracks with their boards, and the queue."""
        scorers = self.board.scorers()
        tracks = []
        for track in self.board.tracks():
            boards = []
            for scorer in scorers:
                if scorer.track == track.name and scorer.retired is None:
                    rows = self._rows(scorer, track, viewer)
                    leader = next((row for row in rows if row["place"]), None)
                    about = leader and {
                        "system": leader["system"],
                        "value": leader["value"],
                        "tied": sum(row["place"] == leader["place"] for row in rows) - 1,
                    }
                    boards.append(self._summary(scorer, track, viewer) | {"leader": about})
            tracks.append(
                {
                    "name": track.name,
                    "title": track.title or track.name,
                    "about": track.about,
                    "examples": len(self.board.references(track.reference_set).examples),
                    "plans": track.plans,
                    "published": track.published,
                    "closed": track.closed,
                    "questions": f"/api/tracks/{track.name}/questions.jsonl",
                    "quota": {"day": track.day_quota, "total": track.total_quota},
                    "boards": boards,
                }
            )
        return {"title": self.board.title, "tracks": tracks, "queue": self.queue()}

    def table(self, board: str, query: Mapping[str, str], viewer: Account | None = None) -> JsonObject:
        """One board: its rows, searched, sorted and in pages. Raises Unknown for an unknown board."""
        scorer = self.board.scorer(board)
        track, kind = self.board.track(scorer.track), measure_named(scorer.measure)
        examples = self.board.references(track.reference_set).examples
        made, value = self._standing(board)
        rows = self._rows(scorer, track, viewer)
        if query.get("all") != "1":
            rows = [row for row in rows if row["latest"]]
        if wanted := query.get("q", "").casefold().strip():
            named = ("system", "by", "account", "control")
            rows = [row for row in rows if wanted in " ".join(row[name] for name in named).casefold()]
        key, order = query.get("sort", "place"), query.get("order", "")
        if key in ("system", "by"):
            rows = sorted(rows, key=lambda row: str(row[key]).casefold(), reverse=order == "down")
        elif key == "date":
            rows = sorted(rows, key=lambda row: row["created"], reverse=order != "up")
        elif key != "place":  # a dataset; a row without a figure of it comes last
            without = [row for row in rows if not row["datasets"].get(key)]
            rows = [row for row in rows if row["datasets"].get(key)]
            rows = sorted(rows, key=lambda row: row["datasets"][key]["mean"], reverse=order != "up") + without
        elif order == "up":
            rows = rows[::-1]
        pages, number = max(1, -(-len(rows) // PAGE)), query.get("page", "1")
        page = min(max(1, int(number) if number.isdecimal() and len(number) < 8 else 1), pages)
        about = {
            "identity": scorer.identity,
            "examples": len(examples),
            "clusters": len({kind.cluster_of(example) for example in examples}),
            "cluster": kind.cluster,
            "leaders": _leaders_in_words(self._rows(scorer, track, viewer)),
            "resolvable": value["resolvable"] if track.shows_results_to(viewer) else None,
            "as_of": made,
            "others": [
                self._summary(other, track, viewer)
                for other in self.board.scorers()
                if other.track == track.name and other.id != board
            ],
        }
        # A dataset of few questions is named, but has no figure (`LEAST_EXAMPLES`).
        counts = Counter(example.source for example in examples)
        return {
            "board": self._summary(scorer, track, viewer) | about,
            "datasets": [
                {"name": name, "examples": count, "shown": count >= LEAST_EXAMPLES}
                for name, count in sorted(counts.items())
            ],
            "least": LEAST_EXAMPLES,
            "rows": rows[(page - 1) * PAGE : page * PAGE],
            "total": len(rows),
            "page": page,
            "pages": pages,
        }

    def rows(self, board: str, viewer: Account | None = None) -> tuple[list[JsonObject], list[str]]:
        """All rows of a board, and the names of its datasets."""
        scorer = self.board.scorer(board)
        track = self.board.track(scorer.track)
        examples = self.board.references(track.reference_set).examples
        return self._rows(scorer, track, viewer), sorted({example.source for example in examples})

    def _standing(self, board: str) -> tuple[float, JsonObject]:
        """When the standings of a board were last made, and their value, unpacked once; made now where they never were.

        They may be older than the scores: the server remakes them in the background.
        """
        kept = self._standings.get(board)
        if kept is None or self.board.scorer(board).revision != kept[0]:
            stored = self.board.database.scalars(select(Standing).where(Standing.scorer == board))
            standing = stored[0] if stored else refresh(self.board, board)
            value = json.loads(zlib.decompress(standing.rows))
            value["by_submission"] = {row["submission"]: row for row in value["rows"]}
            kept = self._standings[board] = standing.revision, standing.made, value
        return kept[1:]

    def _rows(self, scorer: Scorer, track: Track, viewer: Account | None) -> list[JsonObject]:
        if not track.shows_results_to(viewer):
            return []
        rows: list[JsonObject] = self._standing(scorer.id)[1]["rows"]
        return rows

    def _summary(self, scorer: Scorer, track: Track, viewer: Account | None) -> JsonObject:
        kind = measure_named(scorer.measure)
        rows = self._rows(scorer, track, viewer)
        return {
            "id": scorer.id,
            "track": track.name,
            "track_title": track.title or track.name,
            "measure": scorer.measure,
            "label": scorer.label,
            "main": metric_title(kind.main),
            "unit": kind.unit,
            "digits": kind.digits,
            "rows": len(rows),
            "systems": sum(bool(row["place"]) for row in rows),
            "retired": scorer.retired,
            "published": track.published,
        }

    def queue(self) -> JsonObject:
        """Jobs that wait and run, workers that live, and how long the queue may take."""
        counted = select(Job.state, func.count()).where(Job.state.in_(("queued", "running"))).group_by(Job.state)
        at_work = select(Job.worker, Job.submission).where(Job.state == "running")
        durations = (
            select(Job.ended - Job.started)
            .where(Job.state == "scored", Job.ended >= Job.started)
            .order_by(Job.ended.desc())
            .limit(_RECENT)
        )
        now, counts, signs, at, times = self.board.database.query(
            lambda session: (
                self.board.database.now(session),
                dict(session.execute(counted).all()),
                session.scalars(select(Heartbeat).order_by(Heartbeat.name)).all(),
                dict(session.execute(at_work).all()),
                [seconds for seconds in session.scalars(durations) if seconds is not None],
            )
        )
        alive = [
            {
                "name": sign.name,
                "seen": max(0.0, now - sign.seen),
                "job": f"scores {at[sign.name]}" if sign.name in at else "",
            }
            for sign in signs
            if abs(now - sign.seen) <= WORKER_TIMEOUT  # one from the future was given before the clock went back
        ]
        queued, running = counts.get("queued", 0), counts.get("running", 0)
        left = queued + running
        estimate = left * sum(times) / len(times) / len(alive) if times and alive and left else None
        return {"queued": queued, "running": running, "workers": alive, "estimate": estimate}

    # Submissions

    def submission(self, identity: str, viewer: Account | None = None) -> JsonObject:
        """A system's page. Raises Unknown for a submission that is not there for this viewer."""
        [row] = self._submissions(Submission.id == identity) or [None]
        if row is None or not row.Submission.is_shown_to(viewer):
            raise Unknown(f"there is no submission {identity[:40]!r}.")
        own: Submission = row.Submission
        track = self.board.track(own.track)
        same = self._submissions(
            Submission.account == own.account, Submission.system == own.system, Submission.track == own.track
        )
        others = [other for other in same if other.Submission.id != own.id and other.Submission.is_shown_to(viewer)]
        lines = self.board.database.scalars(select(LogLine).where(LogLine.object == identity).order_by(LogLine.id))
        # The system's first plan for each question that the owner made public; a control row shows none.
        questions, plans = self.board.questions(track), {}
        if track.shown_examples and not own.control:
            plans = {plan.example_id: plan for plan in reversed(read_content(zlib.decompress(own.content)))}
        return {
            "submission": self._described([row], viewer)[0],
            "boards": self._results(own, track, viewer) if track.shows_results_to(viewer) else [],
            "history": [
                {
                    "time": line.time,
                    "state": line.after or line.action,
                    "reason": line.reason if line.action == "job" else "",
                    "board": line.board,
                }
                for line in lines
            ],
            "others": self._described(others, viewer),
            "examples": [
                {
                    "example_id": name,
                    "goal": questions[name].goal,
                    "history": list(questions[name].history),
                    "plan": list(plans[name].steps),
                }
                for name in track.shown_examples
                if name in plans
            ],
        }

    def mine(self, account: Account) -> list[JsonObject]:
        """The submissions of an account, newest first."""
        return self._described(self._submissions(Submission.account == account.name), account)

    def me(self, account: Account) -> JsonObject:
        """An account, and what it used of its quotas."""
        database, tracks = self.board.database, self.board.tracks()
        used = database.query(
            lambda session: [
                self.board.used(session, database.now(session), account.name, track.name) for track in tracks
            ]
        )
        quotas = [
            {
                "track": track.name,
                "day": {"used": day, "limit": track.day_quota},
                "total": {"used": total, "limit": track.total_quota},
            }
            for track, (day, total) in zip(tracks, used, strict=True)
        ]
        return _picked(account, "name", "display", "role") | {"quotas": quotas}

    def _submissions(self, *conditions: Any) -> Sequence[Any]:
        """Submissions with the displayed name of their account, newest first."""
        query = select(Submission, Account.display).join(Account, Account.name == Submission.account)
        return self.board.database.rows(query.where(*conditions).order_by(Submission.created.desc(), Submission.id))

    def _described(self, rows: Sequence[Any], viewer: Account | None) -> list[JsonObject]:
        """Submissions with their jobs."""
        if not rows:
            return []
        own = [row.Submission.id for row in rows]
        jobs, waiting = self.board.database.query(
            lambda session: (
                session.scalars(select(Job).where(Job.submission.in_(own)).order_by(Job.id)).all(),
                session.scalars(select(Job.id).where(Job.state == "queued").order_by(Job.id)).all(),
            )
        )
        # By number: workers take the oldest job first.
        positions = {number: position for position, number in enumerate(waiting, 1)}
        figures = self._figures(own)
        scorers = {scorer.id: scorer for scorer in self.board.scorers()}
        tracks = {track.name: track for track in self.board.tracks()}
        described = []
        for row in rows:
            submission: Submission = row.Submission
            track = tracks[submission.track]
            visible = track.shows_results_to(viewer)
            of_row = []
            for job in (job for job in jobs if job.submission == submission.id):
                standing = self._standing(job.scorer)[1] if visible and job.state == "scored" else {"by_submission": {}}
                of_row.append(
                    {
                        "id": job.id,
                        "board": job.scorer,
                        "label": scorers[job.scorer].label,
                        "state": job.state,
                        "reason": job.reason,
                        "position": positions.get(job.id),
                        **_picked(job, "attempts", "queued", "started", "ended"),
                        "value": figures.get((submission.id, job.scorer), {}).get("value") if visible else None,
                        "digits": measure_named(scorers[job.scorer].measure).digits,
                        "place": standing["by_submission"].get(submission.id, {"place": ""})["place"],
                    }
                )
            # The state of a submission: what is left to do comes first, then what went wrong.
            states = {job["state"] for job in of_row}
            state = next((name for name in ("running", "queued", "failed", "scored") if name in states), "cancelled")
            described.append(
                {
                    "id": submission.id,
                    "track": submission.track,
                    "track_title": track.title or track.name,
                    "system": submission.system,
                    "by": row.display,
                    **_picked(submission, "account", "created", "private", "withdrawn", "control", "link", "note"),
                    "plans": submission.plans,
                    "sha": submission.sha if submission.belongs_to(viewer) else "",
                    "state": state,
                    "jobs": of_row,
                }
            )
        return described

    def _figures(self, identities: Sequence[str]) -> dict[tuple[str, str], JsonObject]:
        """The public figures of submissions, by submission and board."""
        query = (
            select(
                Submission.id, Submission.control, Score.scorer, Score.figures, Score.per_example, Scorer.measure,
                Scorer.track,
            )
            .join(Submission, Submission.id == Score.submission)
            .join(Scorer, Scorer.id == Score.scorer)
            .where(Score.submission.in_(identities))
        )  # fmt: skip
        rows = self.board.database.rows(query)
        sources = {
            track.name: [example.source for example in self.board.references(track.reference_set).examples]
            for track in self.board.tracks()
        }
        self.board.answered(row.id for row in rows if not row.control)
        return {
            (row.id, row.scorer): public_figures(self.board, measure_named(row.measure), sources[row.track], row)
            for row in rows
        }

    def _results(self, submission: Submission, track: Track, viewer: Account | None) -> list[JsonObject]:
        """The figures of a submission on each board, and what it differs by from the control rows."""
        figures = self._figures([submission.id])
        results = []
        for scorer in self.board.scorers():
            if (submission.id, scorer.id) not in figures:
                continue
            own, kind = figures[submission.id, scorer.id], measure_named(scorer.measure)
            standing = self._standing(scorer.id)[1]
            place = standing["by_submission"].get(submission.id, {"place": "", "no_place": ""})
            controls = {row["control"]: row for row in standing["rows"] if row["control"]}
            # What is too little for a figure is too little for a difference.
            apart = differences_from_controls(self.board, scorer.id, submission.id) if own["value"] is not None else {}
            against = []
            for control, difference in apart.items():
                if control == submission.control:
                    continue
                # That of the two means as they are shown, where no question lacks a value: it tells nothing more.
                complete = own["complete"] and control in controls and controls[control]["complete"]
                mean = own["value"]["mean"] - controls[control]["value"]["mean"] if complete else None
                against.append(
                    {
                        "control": control,
                        "meaning": CONTROLS.get(control, ""),
                        "difference": rounded(to_json(difference), kind.digits, mean),
                        "beaten": None if difference.sign is None else difference.sign == 1,
                    }
                )
            metrics = {
                name: {"title": metric_title(name), "digits": metric_digits(kind, name), "value": value}
                for name, value in own["metrics"].items()
            }
            about = {
                "place": place["place"],
                "no_place": place["no_place"],
                "metrics": metrics,
                "least": LEAST_EXAMPLES,
            }
            results.append(self._summary(scorer, track, viewer) | own | about | {"against": against})
        return results

    def questions(self, track: str) -> Iterable[str]:
        """The questions of a track as JSON lines, without their continuations."""
        for question in self.board.questions(self.board.track(track)).values():
            row = _picked(question, "example_id", "source", "goal") | {"history": list(question.history)}
            yield json.dumps(row, ensure_ascii=False) + "\n"

    # The owner

    def owner(self, viewer: Account) -> JsonObject:
        """Accounts, tracks, boards with their jobs, what failed, and the newest lines of the log."""
        sent = select(Submission.account, func.count().label("n")).group_by(Submission.account).subquery()
        live = select(Token.account, func.count().label("n")).where(Token.revoked.is_(None))
        valid = live.group_by(Token.account).subquery()
        people = (
            select(Account, sent.c.n.label("submissions"), valid.c.n.label("tokens"))
            .outerjoin(sent, sent.c.account == Account.name)
            .outerjoin(valid, valid.c.account == Account.name)
            .order_by(Account.created, Account.name)
        )
        counted = select(
            Job.scorer, *(func.sum(case((Job.state == state, 1), else_=0)).label(state) for state in _STATES)
        ).group_by(Job.scorer)
        failed = (
            select(Job, Submission.system)
            .join(Submission, Submission.id == Job.submission)
            .where(Job.state == "failed")
            .order_by(Job.ended.desc())
            .limit(LOGGED)
        )
        accounts, of_scorers, failures = self.board.database.query(
            lambda session: tuple(session.execute(query).all() for query in (people, counted, failed))
        )
        counts = {row.scorer: {state: int(getattr(row, state) or 0) for state in _STATES} for row in of_scorers}
        tracks = {track.name: track for track in self.board.tracks()}
        return {
            "accounts": [
                _picked(row.Account, "name", "display", "role", "created", "revoked")
                | {"submissions": row.submissions or 0, "tokens": row.tokens or 0}
                for row in accounts
            ],
            "tracks": self.index(viewer)["tracks"],
            "boards": [
                self._summary(scorer, tracks[scorer.track], viewer)
                | {"jobs": counts.get(scorer.id, dict.fromkeys(_STATES, 0))}
                for scorer in self.board.scorers()
            ],
            "failed": [
                {
                    "job": row.Job.id,
                    "submission": row.Job.submission,
                    "system": row.system,
                    "board": row.Job.scorer,
                    "reason": row.Job.reason,
                    "ended": row.Job.ended,
                }
                for row in failures
            ],
            "log": self.log(),
        }

    def log(self, before: int | None = None) -> list[JsonObject]:
        """Lines of the log, newest first, before a number."""
        query = select(LogLine).order_by(LogLine.id.desc()).limit(LOGGED)
        if before is not None:
            query = query.where(LogLine.id < before)
        names = ("id", "time", "actor", "action", "object", "board", "before", "after", "reason")
        return [_picked(line, *names) for line in self.board.database.scalars(query)]


def _leaders_in_words(rows: Sequence[JsonObject]) -> str:
    """Who is first on a board, or that this cannot be told; empty where fewer than two systems have a place.

    >>> _leaders_in_words([{"place": "=1", "system": "a"}, {"place": "=1", "system": "b"}])
    'All 2 systems tie: the first differs from none of them by more than chance.'
    """
    placed = [row for row in rows if row["place"]]
    first = [row["system"] for row in placed if row["place"] == placed[0]["place"]]
    if len(placed) < 2:
        return ""
    if len(first) == 1:
        return f"{first[0]} is first, and differs from the next by more than chance."
    which = (
        f"All {len(placed)} systems tie"
        if len(first) == len(placed)
        else f"{len(first)} systems tie for the first place"
    )
    return f"{which}: the first differs from none of them by more than chance."


def metric_title(name: str) -> str:
    """A metric in words."""
    if name in CRITERIA:
        return f"{name.replace('_', ' ')}, 0 to 5"
    horizon, _, measure = name.partition(".")
    if measure:
        return f"{measure.replace('_', ' ')}, T = {horizon}"
    return METRICS.get(name, name)


def _picked(row: object, *names: str) -> JsonObject:
    """Some fields of a row."""
    return {name: getattr(row, name) for name in names}
