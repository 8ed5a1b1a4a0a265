"""What a report is made from, and what judging took."""

from collections.abc import Iterable

from recipe.evaluation.published import DIVERSITY_JUDGE, JUDGE
from recipe.evaluation.scoreboard.elements import Cell, Heading, Row, Section, Table, count, plain
from recipe.evaluation.scoreboard.sources import Board
from recipe.evaluation.scores import ValidityScores, VpaScores


def account_section(board: Board) -> Section:
    """What the measurements are from and what they cost."""
    return Section(
        name="files",
        title="What this is made from",
        short="Files",
        paragraphs=(f"The paper's judge of plans is {JUDGE}, its judge of pairs {DIVERSITY_JUDGE}.",),
        blocks=(*_ledger(board), _files(board)),
    )


def _ledger(board: Board) -> Iterable[Table]:
    rows = []
    ledgers = [
        (source.scores.system, source.scores.judge.name, source.scores.ledger)
        for source in board.sources
        if not isinstance(source.scores, VpaScores | ValidityScores)
    ]
    names = dict.fromkeys(name for _, _, ledger in ledgers for name in ledger)
    for system, judge, ledger in ledgers:
        if ledger:
            rows.append(Row(system, (Cell(judge), *(_amount(ledger.get(name)) for name in names))))
    if rows:
        yield Table(
            "What judging took",
            "system",
            (Heading("judge"), *(Heading(name.replace("_", " ")) for name in names)),
            tuple(rows),
        )


def _amount(value: float | None) -> Cell:
    if value is None:
        return Cell("–")
    return count(value) if float(value).is_integer() else plain(value, 4)


def _files(board: Board) -> Table:
    rows = tuple(
        Row(
            source.path.name,
            (
                Cell(source.scores.kind),
                Cell(source.scores.system),
                Cell("yes" if source.has_rows else "missing"),
                Cell(source.sha256[:16]),
            ),
        )
        for source in board.sources
    )
    notes: tuple[str, ...] = ()
    if any(not source.has_rows for source in board.sources):
        notes = ("Where rows are missing there are tables, and neither pages of examples nor paired differences.",)
    return Table("Files", "file", tuple(map(Heading, ("kind", "system", "rows", "SHA-256"))), rows, notes=notes)
