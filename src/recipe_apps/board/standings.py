"""Standings of a board: the place of each system, which differences are more than chance, and the table as CSV.

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
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from recipe.artifacts import JsonObject, to_json
from recipe.evaluation import measure_named
from recipe.evaluation.judge.plans import CONTROLS
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe.evaluation.measures import Measure
from recipe.prompting import visible
from recipe.stats import Interval, macro_intervals
from recipe_apps.board.models import Account, Score, Scorer, Standing, Submission
from recipe_apps.board.scoring import LEAST_EXAMPLES, MOST_UNSCORED
from recipe_apps.board.store import Board, packed

Array = NDArray[np.float64]
# Differences whose intervals are computed together.
# Of 10,000 questions a block is 5 MB of float64.
_AT_ONCE = 64
# Digits of a further metric that is no percentage.
_FURTHER = 2
# Characters of a cell; spreadsheets take 32,767.
_CELL = 30_000
_FORMULA = ("=", "+", "-", "@")


def places_of(
    values: Array, datasets: Sequence[str], clusters: Sequence[str], figures: Sequence[float]
) -> list[tuple[int, str, Interval | None]]:  # fmt: skip
    """Systems by `figures` [systems], best first; `values` [systems, examples] are NaN where there is no score.

    For each system its index, its place, such as `1`, or `=2` where several share it, and it minus the next one: None
    for the last, and where no example is scored for both.
    """
    # Python's sort is stable: systems with one figure stay in the order in which they came.
    order = sorted(range(len(values)), key=lambda row: -figures[row])
    ordered = values[order]
    gaps = _differences(ordered[:-1], ordered[1:], datasets, clusters)
    leaders, leader = [0] * len(order), 0
    while leader < len(order):
        # The next place begins with the first system that this leader beats. Most are near: a block at once will do.
        start, end = leader + 1, len(order)
        while start < len(order) and end == len(order):
            block = ordered[start : start + _AT_ONCE]
            of_leader = np.repeat(ordered[leader : leader + 1], len(block), axis=0)
            apart = _differences(of_leader, block, datasets, clusters)
            clear = [row for row, gap in enumerate(apart) if gap is not None and gap.sign == 1]
            end = start + clear[0] if clear else end
            start += _AT_ONCE
        leaders[leader:end] = [leader] * (end - leader)
        leader = end
    names = [f"{'=' if leaders.count(leader) > 1 else ''}{leader + 1}" for leader in leaders]
    return list(zip(order, names, [*gaps, None], strict=False))  # without systems there is no last one


def _differences(
    first: Array, second: Array, datasets: Sequence[str], clusters: Sequence[str]
) -> list[Interval | None]:
    """The paired difference of each row with its interval, over the examples that both score."""
    intervals: list[Interval | None] = [None] * len(first)
    apart = first - second
    whole = np.isfinite(apart).all(axis=1)
    rows = np.flatnonzero(whole)
    for start in range(0, len(rows), _AT_ONCE):
        block = rows[start : start + _AT_ONCE]
        for row, interval in zip(block, macro_intervals(apart[block], datasets, clusters), strict=True):
            intervals[row] = interval
    for row in np.flatnonzero(~whole):
        known = np.flatnonzero(np.isfinite(apart[row])).tolist()
        if known:
            names = [[of_examples[index] for index in known] for of_examples in (datasets, clusters)]
            [intervals[row]] = macro_intervals(apart[row][known][None], names[0], names[1])
    return intervals


def stale_boards(board: Board) -> list[str]:
    """Boards whose scores have changed since their standings were made."""
    query = select(Scorer.id).outerjoin(Standing, Standing.scorer == Scorer.id)
    return list(board.database.scalars(query.where(Standing.revision.is_distinct_from(Scorer.revision))))


def refresh(board: Board, scorer: str) -> Standing:
    """The standings of a board, made again where its scores have changed. Raises Unknown for an unknown board."""
    # The revision is read first: a score that comes meanwhile makes these standings old at once, and never too new.
    revision = board.scorer(scorer).revision
    kept = board.database.scalars(select(Standing).where(Standing.scorer == scorer))
    if kept and kept[0].revision == revision:
        return kept[0]
    rows = packed(standings_of(board, scorer))

    def keep(session: Session) -> Standing:
        # Servers may make standings at once: what one made of older scores never replaces what is newer.
        standing = session.get(Standing, scorer, with_for_update=True)
        if standing is None:
            standing = Standing(scorer=scorer, revision=revision, made=board.database.now(session), rows=rows)
            session.add(standing)
        elif standing.revision < revision:
            standing.revision, standing.made, standing.rows = revision, board.database.now(session), rows
        return standing

    return board.database.write(keep)


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
    # Rounded first: 1.1 * 10 is 11.000000000000002, whose ceiling is 12.
    return math.ceil(round(bound * scale, 6)) / scale + 0.0


def public_figures(board: Board, kind: type[Measure], datasets: Sequence[str], row: Any) -> JsonObject:
    """What everybody may know of the figures of a submission; `datasets` [questions] names each question's.

    `row` has its `id`, `control`, `figures` and `per_example`. There is a figure where `LEAST_EXAMPLES` questions have
    a plan with steps and a score: with fewer, it would tell of single plans. A control row's plans are the program's.
    """
    figures = row.figures
    known = np.isfinite(_values(row.per_example))
    counts, answered, unscored = Counter(datasets), len(datasets), 0
    if not row.control:
        has, unscored = board.answered([row.id])[row.id], figures["unscored"]
        counts = Counter(name for name, counts_here in zip(datasets, has & known, strict=True) if counts_here)
        answered = max(0, int(has.sum()) - unscored)
    enough = answered >= LEAST_EXAMPLES
    return {
        "value": rounded(figures["value"], kind.digits) if enough and figures["value"] is not None else None,
        "datasets": {
            name: rounded(value, kind.digits)
            if value is not None and counts[name] - unscored >= LEAST_EXAMPLES
            else None
            for name, value in figures["datasets"].items()
        },
        "metrics": {
            name: rounded(value, metric_digits(kind, name)) for name, value in figures["metrics"].items() if enough
        },
        "unscored": figures["unscored"],
        "complete": bool(known.all()),
        "answered": answered,
    }


def standings_of(board: Board, scorer: str) -> JsonObject:
    """The rows of a board as its page shows them, best first, and what differences it resolves."""
    kind, datasets, clusters = _questions(board, scorer)
    query = (
        select(
            Submission.id, Submission.system, Submission.account, Submission.control, Submission.link,
            Submission.created, Account.display, Score.figures, Score.per_example,
        )
        .join(Submission, Submission.id == Score.submission)
        .join(Account, Account.name == Submission.account)
        .where(Score.scorer == scorer, Submission.withdrawn.is_(None), Submission.private.is_(False))
        .order_by(Submission.created, Submission.id)
    )  # fmt: skip
    scored = board.database.rows(query)
    board.answered(row.id for row in scored if not row.control)
    shown = {row.id: public_figures(board, kind, datasets, row) for row in scored}
    scored = [row for row in scored if shown[row.id]["value"] is not None]
    newest = {(row.account, row.system): row.id for row in scored}
    latest = {row.id for row in scored if not row.control and newest[row.account, row.system] == row.id}
    competing = [row for row in scored if row.id in latest and row.figures["unscored_share"] <= MOST_UNSCORED]
    # The shape is stated: without a system numpy would make it one-dimensional.
    values = np.array([_values(row.per_example) for row in competing]).reshape(len(competing), len(datasets))
    places = places_of(values, datasets, clusters, [row.figures["value"]["mean"] for row in competing])
    placed = {competing[row].id: (name, gap) for row, name, gap in places}
    # The difference of two means as they are shown tells nothing that they do not.
    whole = {name: own["value"]["mean"] for name, own in shown.items() if own["value"] and own["complete"]}
    following = {competing[row].id: competing[below].id for (row, *_), (below, *_) in pairwise(places)}
    rows = []
    for row in sorted(scored, key=lambda row: -row.figures["value"]["mean"]):
        own, below, share = shown[row.id], following.get(row.id, ""), row.figures["unscored_share"]
        place, gap = placed.get(row.id, ("", None))
        apart = whole[row.id] - whole[below] if row.id in whole and below in whole else None
        missing = f"{share:.1%} of its verdicts are missing, more than {MOST_UNSCORED:.0%}"
        rows.append(
            {
                "place": place,
                "submission": row.id,
                "system": row.system,
                "by": row.display,
                "account": row.account,
                "control": row.control,
                "control_meaning": CONTROLS.get(row.control, ""),
                "value": own["value"],
                "datasets": own["datasets"],
                "gap": None if gap is None else rounded(to_json(gap), kind.digits, apart),
                "tied": gap is not None and gap.sign in (0, -1),
                "unscored": own["unscored"],
                "unscored_share": round(share, 4),
                "complete": own["complete"],
                "no_place": missing if row.id in latest and not place else "",
                "created": row.created,
                "link": row.link,
                "private": False,
                "latest": bool(row.control) or row.id in latest,
            }
        )
    # Half the width of the median interval: a smaller difference is not told from chance here.
    gaps = [gap for *_, gap in places if gap is not None]
    widths = [(gap.high - gap.low) / 2 for gap in gaps if gap.low is not None and gap.high is not None]
    return {"rows": rows, "resolvable": _outwards(median(widths), kind.digits - 1) if widths else None}


def _questions(board: Board, scorer: str) -> tuple[type[Measure], list[str], list[str]]:
    """The measure of a board, and of each question its dataset and its cluster."""
    row = board.scorer(scorer)
    kind = measure_named(row.measure)
    examples = board.references(board.track(row.track).reference_set).examples
    return kind, [example.source for example in examples], [kind.cluster_of(example) for example in examples]


def differences_from_controls(board: Board, scorer: str, submission: str) -> dict[str, Interval]:
    """A submission minus each control row, paired, with the interval; by the name of the control."""
    own = board.database.scalars(
        select(Score.per_example).where(Score.scorer == scorer, Score.submission == submission)
    )  # fmt: skip
    controls = board.database.rows(
        select(Submission.control, Score.per_example)
        .join(Submission, Submission.id == Score.submission)
        .where(Score.scorer == scorer, Submission.control != "")
    )
    if not own or not controls:
        return {}
    others = np.array([_values(row.per_example) for row in controls])
    _, datasets, clusters = _questions(board, scorer)
    intervals = _differences(np.repeat(_values(own[0])[None], len(others), axis=0), others, datasets, clusters)
    return {
        row.control: interval for row, interval in zip(controls, intervals, strict=True) if interval is not None
    }  # fmt: skip


def as_csv(rows: Iterable[JsonObject], datasets: Sequence[str]) -> str:
    """A board's rows as CSV: one number in `place` for all who share it, and no text that a spreadsheet computes."""
    stream = io.StringIO()
    columns = ("place", "system", "by", "account", "control", "value", "low", "high", "gap", "gap_low", "gap_high")
    # All texts in quotes: in some languages a spreadsheet parts cells at semicolons.
    writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    counts = ("unscored", "unscored_share", "no_place")
    writer.writerow((*columns, *counts, *map(cell, datasets), "created", "submission", "link"))
    for row in rows:
        gap = row["gap"] or {"mean": "", "low": "", "high": ""}
        figures = [interval[name] for interval in (row["value"], gap) for name in ("mean", "low", "high")]
        place = row["place"].removeprefix("=")
        writer.writerow(
            (
                int(place) if place else "",
                *(cell(row[name]) for name in ("system", "by", "account", "control")),
                *("" if figure is None else figure for figure in figures),
                *(row[name] for name in counts),
                *((row["datasets"].get(name) or {"mean": ""})["mean"] for name in datasets),
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


def cell(text: str) -> str:
    """A text as a cell of a spreadsheet: no formula, no hidden characters, no longer than a cell.

    >>> cell("=SUM(A1)"), cell("-1+2"), cell("boil \\u202ewater")
    ("'=SUM(A1)", "'-1+2", 'boil  water')
    """
    shown = visible(text).strip()
    shown = shown if len(shown) <= _CELL else f"{shown[: _CELL - 1]}…"
    # A sign in full width, or in small, computes as well.
    return f"'{shown}" if unicodedata.normalize("NFKC", shown[:1]).startswith(_FORMULA) else shown
