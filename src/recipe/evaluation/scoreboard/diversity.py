"""Procedural diversity of systems, beside the paper's three points."""

from collections.abc import Iterable, Sequence

from recipe.evaluation.published import DIVERSITY_JUDGE, published
from recipe.evaluation.scoreboard.accuracy import published_table
from recipe.evaluation.scoreboard.elements import Cell, Figure, Heading, Row, Section, Table, count, measured
from recipe.evaluation.scoreboard.judges import comparability
from recipe.evaluation.scoreboard.sources import Board
from recipe.evaluation.scores import DiversityScores

LEVELS = ("0", "0.25", "0.5", "0.75", "1")


def diversity_section(board: Board, figures: Sequence[Figure]) -> Section | None:
    """Procedural diversity beside the paper's three points."""
    found = [scores for _, scores in board.of(DiversityScores)]
    if not found:
        return None
    headings = ("judge", "diversity", "prompts", "samples", "pairs", "unscored", "order checked", "order changed it")
    rows = tuple(Row(one.system, _diversity_cells(one)) for one in found)
    known = {_level(level): level for level in LEVELS}
    levels = (*LEVELS, *sorted({level for one in found for level in one.levels if _level(level) not in known}))
    shares = tuple(Row(one.system, (Cell(one.judge.name), *_level_cells(one, levels))) for one in found)
    return Section(
        name="diversity",
        title="Procedural diversity",
        short="Diversity",
        paragraphs=(
            "The mean over prompts of the mean over pairs of samples of how different two plans are as procedures, "
            "from 0 (the same) to 1; a plan that does not serve the goal earns nothing by being different.",
        ),
        blocks=(
            Table("Procedural diversity", "system", tuple(map(Heading, headings)), rows, "0 to 1, 95% interval below"),
            *figures,
            Table(
                "Pairs at each level",
                "system",
                (Heading("judge"), *map(Heading, levels)),
                shares,
                "share of scored pairs",
                folded=True,
            ),
            published_table(published("diversity"), "Published diversity and accuracy on COIN"),
        ),
        warnings=tuple(
            comparability(judge, DIVERSITY_JUDGE) for judge in {one.judge.name: one.judge for one in found}.values()
        ),
    )


def _diversity_cells(one: DiversityScores) -> tuple[Cell, ...]:
    changed = f"{one.order_disagreements:,} of {one.order_pairs:,}" if one.order_pairs else "–"
    return (
        Cell(one.judge.name), measured(one.diversity, 3), count(one.prompts), count(one.samples), count(one.pairs),
        count(one.unscored), count(one.order_pairs), Cell(changed),
    )  # fmt: skip


def _level_cells(one: DiversityScores, levels: Sequence[str]) -> Iterable[Cell]:
    counts = {_level(name): number for name, number in one.levels.items()}
    total = sum(counts.values())
    return (Cell(f"{100 * counts.get(_level(level), 0) / total:.0f} %" if total else "–") for level in levels)


def _level(name: str) -> float | str:
    try:
        return float(name)
    except ValueError:
        return name
