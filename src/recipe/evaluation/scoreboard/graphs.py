"""Validity against task graphs: its components, each goal's, and how far judges agree with it."""

from collections.abc import Iterable, Sequence

from recipe.evaluation.results import METRICS, SHARES, Interval
from recipe.evaluation.scoreboard.elements import Cell, Figure, Heading, Row, Section, Table, count, measured, plain
from recipe.evaluation.scoreboard.sources import Board
from recipe.evaluation.scores import ValidityScores


def validity_section(board: Board, figures: Sequence[Figure]) -> Section | None:
    """Validity against task graphs, its components, each goal's, and how far judges agree with it."""
    found = [scores for _, scores in board.of(ValidityScores)]
    if not found:
        return None
    present = dict.fromkeys(name for one in found for name in one.metrics)
    names = [name for name in METRICS if name in present] + [name for name in present if name not in METRICS]
    rows = tuple(
        Row(
            one.system,
            (
                Cell(one.graphs),
                *(_metric(one.metrics.get(name), name) for name in names),
                count(one.counts.plans),
                count(one.counts.missing),
            ),
        )
        for one in found
    )
    headings = (
        Heading("graphs"),
        *(Heading(f"{METRICS.get(name, name)}{', %' * (name in SHARES)}") for name in names),
        Heading("plans"),
        Heading("missing"),
    )
    return Section(
        name="validity",
        title="Validity against task graphs",
        short="Validity",
        paragraphs=(
            "No judge: each line of a plan is mapped to a step of the goal's task graph, and the graph decides. Every "
            "valid order scores full. Order is the share of prerequisites respected, coverage the share of required "
            "steps named, clean the share of lines that add a new step of the goal; validity = order × F1(coverage, "
            "clean). Intervals are clustered by goal.",
        ),
        blocks=(
            Table("Validity and its components", "system", headings, rows, "95% interval below"),
            *figures,
            *_by_goal(found),
            *_agreement(found),
        ),
    )


def _metric(value: Interval | None, name: str) -> Cell:
    if value is None or name not in SHARES:
        return measured(value, 2)
    scaled = [None if part is None else 100 * part for part in (value.mean, value.low, value.high)]
    return measured(Interval(scaled[0] or 0.0, scaled[1], scaled[2]), 0)


def _by_goal(found: Sequence[ValidityScores]) -> Iterable[Table]:
    goals = sorted({goal for one in found for goal in one.by_goal})
    if goals:
        rows = tuple(Row(goal, tuple(plain(one.by_goal.get(goal), 2) for one in found)) for goal in goals)
        yield Table("Validity of each goal", "goal", tuple(Heading(one.system) for one in found), rows, folded=True)


def _agreement(found: Sequence[ValidityScores]) -> Iterable[Table]:
    rows = [
        Row(
            one.system,
            (Cell(other.judge.name), measured(other.spearman, 2), plain(other.kendall, 2), count(other.plans)),
        )
        for one in found
        for other in one.agreement
    ]
    if rows:
        headings = tuple(map(Heading, ("judge", "Spearman", "Kendall", "plans")))
        yield Table(
            "Agreement of judges with validity",
            "system",
            headings,
            tuple(rows),
            "rank correlation over the same plans, 95% interval below",
        )
