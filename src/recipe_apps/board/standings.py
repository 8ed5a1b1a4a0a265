"""Standings of a board: who stands where, which differences are more than chance, and the table as CSV.

Systems are ordered by their figure. Two are tied where the 95% interval of their paired difference holds 0: each
example is compared with itself, and whole videos or goals are drawn, as in `recipe evaluate compare`. A place begins
with the first system whose difference from the leader of the place before is clear of 0, so that a chain of small
differences does not tie what is far apart. A difference without an interval begins no place. The newest scored
submission of a system has a place; earlier ones are listed without one, because the best of many tries on one test set
is no better system.

Control rows stand among the systems at their figure, without a place. So does a system that lacks more than
`MOST_UNSCORED` of its verdicts, with the share: too much of its figure is open.

Stored figures are whole. What leaves the server passes `public_figures`, which rounds to the digits that pages show and
holds back what tells too much of few plans: of a mean with all its digits, guesses at references could be read off.
"""

import csv
import io
import math
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, insert, select, update

from recipe.artifacts import JsonObject, to_json
from recipe.evaluation.judge.plans import CONTROLS
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe.evaluation.measures import Measure, measure_named
from recipe.evaluation.people.ratings import cell
from recipe.stats import Interval, macro_intervals
from recipe_apps.board.scoring import LEAST, MOST_UNSCORED
from recipe_apps.board.store import Board, pack, unpack
from recipe_apps.board.tables import accounts, scorers, scores, standings, submissions, tracks

Array = NDArray[np.float64]
_AT_ONCE = 64
"""Differences whose intervals are computed together."""
_FURTHER = 2
"""Digits of a further metric that is no percentage."""


@dataclass(frozen=True, slots=True)
class Places:
    """The order of some systems."""

    order: list[int]
    """Rows, best first."""
    places: list[str]
    """Of the rows in that order: `1`, or `=2` where several share it."""
    gaps: list[Interval | None]
    """Each row minus the next one; None for the last, and where no example is scored for both."""
    resolvable: float | None
    """Half the width of the median interval of a gap: a smaller difference is not told from chance here."""


def places_of(values: Array, datasets: Sequence[str], clusters: Sequence[str], figures: Sequence[float]) -> Places:
    """The places of systems by `figures` [systems]; `values` [systems, examples] are NaN where there is no score."""
    order = sorted(range(len(values)), key=lambda row: -figures[row])
    ordered = values[order]
    gaps = _differences(ordered[:-1], ordered[1:], datasets, clusters)
    leaders, first = [0] * len(order), 0
    while first < len(order):
        following, found = first + 1, len(order)
        while following < len(order) and found == len(order):
            block = ordered[following : following + _AT_ONCE]
            against = _differences(np.repeat(ordered[first : first + 1], len(block), axis=0), block, datasets, clusters)
            clear = [place for place, one in enumerate(against) if one is not None and one.sign == 1]
            found = following + clear[0] if clear else found
            following += _AT_ONCE
        leaders[first:found] = [first] * (found - first)
        first = found
    shared = [leaders.count(leader) > 1 for leader in leaders]
    names = [f"{'=' if many else ''}{leader + 1}" for leader, many in zip(leaders, shared, strict=True)]
    widths = [(one.high - one.low) / 2 for one in gaps if one and one.low is not None and one.high is not None]
    return Places(order, names, [*gaps, None] if order else [], median(widths) if widths else None)


def _differences(
    first: Array, second: Array, datasets: Sequence[str], clusters: Sequence[str]
) -> list[Interval | None]:
    """The paired difference of each row with its interval, over the examples that both score."""
    found: list[Interval | None] = [None] * len(first)
    apart = first - second
    whole = np.isfinite(apart).all(axis=1)
    rows = np.flatnonzero(whole)
    for start in range(0, len(rows), _AT_ONCE):
        block = rows[start : start + _AT_ONCE]
        for row, interval in zip(block, macro_intervals(apart[block], datasets, clusters), strict=True):
            found[row] = interval
    for row in np.flatnonzero(~whole):
        known = np.flatnonzero(np.isfinite(apart[row])).tolist()
        if known:
            places = [[names[place] for place in known] for names in (datasets, clusters)]
            [found[row]] = macro_intervals(apart[row][known][None], places[0], places[1])
    return found


def refresh(board: Board, scorer: str) -> bool:
    """Make the standings of a board again where its scores have changed; whether that was so."""
    stale = (
        select(scorers.c.revision)
        .outerjoin(standings, standings.c.scorer == scorers.c.id)
        .where(scorers.c.id == scorer, standings.c.revision.is_distinct_from(scorers.c.revision))
    )
    revision = board.database.query(lambda connection: connection.execute(stale).scalar())
    if revision is None:
        return False
    value = standings_of(board, scorer)

    def keep(connection: Connection) -> None:
        values = {"revision": revision, "made": board.database.now(connection), "rows": pack(value)}
        own = standings.c.scorer == scorer
        # Servers may make standings at once: what one made of older scores never replaces what is newer.
        older = update(standings).where(own, standings.c.revision < revision)
        replaced = connection.execute(older.values(**values)).rowcount
        if not replaced and connection.execute(select(standings.c.scorer).where(own)).first() is None:
            connection.execute(insert(standings).values(scorer=scorer, **values))

    board.database.write(keep)
    return True


def stale_boards(board: Board) -> list[str]:
    """Boards whose scores have changed since their standings were made."""
    query = (
        select(scorers.c.id)
        .outerjoin(standings, standings.c.scorer == scorers.c.id)
        .where(standings.c.revision.is_distinct_from(scorers.c.revision))
    )
    return board.database.query(lambda connection: list(connection.execute(query).scalars()))


def metric_digits(kind: type[Measure], name: str) -> int:
    """Digits that a further metric is shown with."""
    return kind.digits if kind.unit and name not in CRITERIA else _FURTHER


def rounded(value: JsonObject, digits: int, mean: float | None = None) -> JsonObject:
    """An interval as it is shown: `mean`, or its own, to so many digits, and the bounds to one less, outwards.

    Bounds tell more of single plans than a mean does, and their last digit says nothing of systems.
    """
    mean = round(value["mean"] if mean is None else mean, digits) + 0.0  # a negative 0 would tell a sign
    low, high = value["low"], value["high"]
    if low is None or high is None:
        return value | {"mean": mean}
    return value | {"mean": mean, "low": 0.0 - _outwards(-low, digits - 1), "high": _outwards(high, digits - 1)}


def _outwards(bound: float, digits: int) -> float:
    scale = 10.0**digits
    return math.ceil(round(bound * scale, 6)) / scale + 0.0


def public_figures(board: Board, kind: type[Measure], datasets: Sequence[str], row: Any) -> JsonObject:
    """What everybody may know of the figures of a submission; `datasets` [questions] names each question's.

    `row` has its `id`, `control`, `figures` and `per_example`. There is a figure where `LEAST` questions have a plan
    with steps and a score: with fewer, it would tell of single plans. The plans of a control row are the program's.
    """
    figures = row.figures
    known = np.isfinite(_values(row.per_example))
    counts, answered, unscored = Counter(datasets), len(datasets), 0
    if not row.control:
        has, unscored = board.answered([row.id])[row.id], figures["unscored"]
        counts = Counter(name for name, one in zip(datasets, has & known, strict=True) if one)
        answered = max(0, int(has.sum()) - unscored)
    enough = answered >= LEAST
    by_dataset = {
        name: rounded(one, kind.digits) if one is not None and counts[name] - unscored >= LEAST else None
        for name, one in figures["datasets"].items()
    }
    further = {name: rounded(one, metric_digits(kind, name)) for name, one in figures["metrics"].items()}
    return {
        "value": rounded(figures["value"], kind.digits) if enough and figures["value"] is not None else None,
        "datasets": by_dataset,
        "metrics": further if enough else {},
        "unscored": figures["unscored"],
        "complete": bool(known.all()),
        "answered": answered,
    }


def standings_of(board: Board, scorer: str) -> JsonObject:
    """The rows of a board as its page shows them, best first, and what differences it resolves."""

    def ask(connection: Connection) -> tuple[Any, Any]:
        head = connection.execute(
            select(scorers.c.measure, tracks.c.reference_set)
            .join(tracks, tracks.c.name == scorers.c.track)
            .where(scorers.c.id == scorer)
        ).one()
        names = (
            "id", "system", "account", "control", "link", "created", "private"
        )  # fmt: skip
        columns = [submissions.c[name] for name in names]
        query = (
            select(*columns, accounts.c.display, scores.c.figures, scores.c.per_example)
            .join(submissions, submissions.c.id == scores.c.submission)
            .join(accounts, accounts.c.name == submissions.c.account)
            .where(scores.c.scorer == scorer, submissions.c.withdrawn.is_(None), submissions.c.private.is_(False))
            .order_by(submissions.c.created, submissions.c.id)
        )
        return head, connection.execute(query).all()

    head, found = board.database.query(ask)
    examples = board.references(head.reference_set).examples
    clusters = [measure_named(head.measure).cluster_of(one) for one in examples]
    datasets = [one.source for one in examples]
    kind = measure_named(head.measure)
    board.answered(row.id for row in found if not row.control)
    shown = {row.id: public_figures(board, kind, datasets, row) for row in found}
    found = [row for row in found if shown[row.id]["value"] is not None]
    newest = {(row.account, row.system): row.id for row in found}
    latest = {row.id for row in found if not row.control and newest[row.account, row.system] == row.id}
    # What an earlier version scored has no share, and no value where a verdict is missing.
    shares = {row.id: row.figures.get("unscored_share", row.figures["unscored"] / len(examples)) for row in found}
    competing = [row for row in found if row.id in latest and shares[row.id] <= MOST_UNSCORED]
    values = np.array([_values(row.per_example) for row in competing]).reshape(len(competing), len(examples))
    places = places_of(values, datasets, clusters, [row.figures["value"]["mean"] for row in competing])
    placed = {
        competing[row].id: (place, gap)
        for row, place, gap in zip(places.order, places.places, places.gaps, strict=True)
    }
    # The difference of two means as they are shown tells nothing that they do not.
    whole = {name: own["value"]["mean"] for name, own in shown.items() if own["value"] and own["complete"]}
    following = {competing[row].id: competing[below].id for row, below in pairwise(places.order)}
    rows = []
    for row in sorted(found, key=lambda one: -one.figures["value"]["mean"]):
        place, gap = placed.get(row.id, ("", None))
        below = following.get(row.id, "")
        apart = whole[row.id] - whole[below] if row.id in whole and below in whole else None
        rows.append(
            {
                "place": place,
                "submission": row.id,
                "system": row.system,
                "by": row.display,
                "account": row.account,
                "control": row.control,
                "control_meaning": CONTROLS.get(row.control, ""),
                "value": shown[row.id]["value"],
                "datasets": shown[row.id]["datasets"],
                "gap": None if gap is None else rounded(to_json(gap), kind.digits, apart),
                "tied": gap is not None and gap.sign in (0, -1),
                "unscored": shown[row.id]["unscored"],
                "unscored_share": round(shares[row.id], 4),
                "complete": shown[row.id]["complete"],
                "no_place": _why(shares[row.id]) if row.id in latest and row.id not in placed else "",
                "created": row.created,
                "link": row.link,
                "private": False,
                "latest": bool(row.control) or row.id in latest,
            }
        )
    resolvable = None if places.resolvable is None else _outwards(places.resolvable, kind.digits - 1)
    return {"rows": rows, "resolvable": resolvable}


def read_standings(board: Board, scorer: str) -> tuple[JsonObject, float, int]:
    """The standings as they were last made, when that was, and their revision; made now where they never were."""
    query = select(standings.c.rows, standings.c.made, standings.c.revision).where(standings.c.scorer == scorer)
    row = board.database.query(lambda connection: connection.execute(query).first())
    if row is None:
        refresh(board, scorer)
        row = board.database.query(lambda connection: connection.execute(query).one())
    return unpack(row.rows), row.made, row.revision


def _why(share: float) -> str:
    return f"{share:.1%} of its verdicts are missing, more than {MOST_UNSCORED:.0%}"


def differences_from_controls(board: Board, scorer: str, submission: str) -> dict[str, Interval]:
    """A submission minus each control row, paired, with the interval; by the name of the control."""

    def ask(connection: Connection) -> tuple[Any, Any, Any]:
        head = connection.execute(
            select(scorers.c.measure, tracks.c.reference_set)
            .join(tracks, tracks.c.name == scorers.c.track)
            .where(scorers.c.id == scorer)
        ).one()
        own = select(scores.c.per_example).where(scores.c.scorer == scorer, scores.c.submission == submission)
        controls = (
            select(submissions.c.control, scores.c.per_example)
            .join(submissions, submissions.c.id == scores.c.submission)
            .where(scores.c.scorer == scorer, submissions.c.control != "")
        )
        return head, connection.execute(own).scalar(), connection.execute(controls).all()

    head, own, controls = board.database.query(ask)
    if own is None or not controls:
        return {}
    examples = board.references(head.reference_set).examples
    others = np.array([_values(row.per_example) for row in controls])
    ours = np.repeat(_values(own)[None], len(others), axis=0)
    kind = measure_named(head.measure)
    found = _differences(ours, others, [one.source for one in examples], [kind.cluster_of(one) for one in examples])
    return {row.control: one for row, one in zip(controls, found, strict=True) if one is not None}


def as_csv(value: JsonObject, datasets: Iterable[str]) -> str:
    """A board's rows as CSV: one number in `place` for all who share it, and no text that a spreadsheet computes."""
    stream = io.StringIO()
    names = list(datasets)
    columns = ("place", "system", "by", "account", "control", "value", "low", "high", "gap", "gap_low", "gap_high")
    # All texts in quotes: in some languages a spreadsheet parts cells at semicolons.
    writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    counts = ("unscored", "unscored_share", "no_place")
    writer.writerow((*columns, *counts, *map(cell, names), "created", "submission", "link"))
    for row in value["rows"]:
        gap = row["gap"] or {"mean": "", "low": "", "high": ""}
        figures = [one[name] for one in (row["value"], gap) for name in ("mean", "low", "high")]
        by_dataset = [(row["datasets"].get(name) or {"mean": ""})["mean"] for name in names]
        place = row["place"].removeprefix("=")
        writer.writerow(
            (
                int(place) if place else "",
                *(cell(row[name]) for name in ("system", "by", "account", "control")),
                *("" if one is None else one for one in figures),
                *(row[name] for name in counts),
                *by_dataset,
                row["created"],
                row["submission"],
                cell(row["link"]),
            )
        )
    return stream.getvalue()


def _values(blob: bytes) -> Array:
    values = np.frombuffer(zlib.decompress(blob), dtype="<f8").astype(np.float64)
    assert not math.isinf(float(np.nansum(values)))
    return values
