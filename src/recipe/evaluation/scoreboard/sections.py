"""Sections on diversity, validity, VPA, and what a report was made from."""

from collections.abc import Iterable, Sequence

from recipe.evaluation.published import DIVERSITY_JUDGE, JUDGE, published
from recipe.evaluation.scoreboard.accuracy import comparability, published_table
from recipe.evaluation.scoreboard.sources import Board
from recipe.evaluation.scores import DiversityScores, HorizonScores, ValidityScores, VpaScores
from recipe.report.elements import Cell, Figure, Heading, Row, Section, Table, count, measured, plain
from recipe.report.numbers import METRICS, SHARES
from recipe.stats import Interval

# Procedural diversity of systems, beside the paper's three points.


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


# Validity against task graphs: its components, each goal's, and how far judges agree with it.


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


# Visual planning for assistance (VPA): systems by horizon, then the published rows with what they leave open.


IOU = (
    "mIoU here is per sample: the intersection over the union of the sets of predicted and reference actions of one "
    "sample, then the mean over samples. The paper does not define its mIoU, and published code computes four "
    "different quantities under that name (per sample, over a batch, cumulative, bitwise): rows of different "
    "origin may not be comparable in it."
)


def vpa_section(board: Board, figures: Sequence[Figure]) -> Section | None:
    """Visual planning for assistance: systems by horizon, then the published rows."""
    found = [scores for _, scores in board.of(VpaScores)]
    if not found:
        return None
    published_vpa = published("vpa")
    return Section(
        name="vpa",
        title="Visual planning for assistance",
        short="VPA",
        paragraphs=(
            IOU,
            "SR is the share of samples whose first T actions all equal the reference in order, mAcc the share of "
            "positions that do.",
        ),
        blocks=(
            _vpa_table(found),
            *figures,
            published_table(published_vpa, "Published results on CrossTask"),
            *_settings_tables(found),
        ),
        warnings=tuple(_vpa_warnings(found)),
    )


def _vpa_warnings(found: Sequence[VpaScores]) -> Iterable[str]:
    for one in found:
        if one.history == "oracle":
            yield f"{one.system} read the true history, not one seen in the video: published systems read the video."
        if (told := one.settings.get("calibration", "")) and not told.startswith("calibrated"):
            yield f"{one.system}: {told}."
    if len({(one.protocol, one.taxonomy) for one in found}) > 1:
        yield "The systems differ in protocol or taxonomy: rows that differ there are not comparable."


def _vpa_table(found: Sequence[VpaScores]) -> Table:
    horizons = sorted({one.horizon for scores in found for one in scores.horizons})
    headings = [Heading(name) for name in ("protocol", "history")]
    for horizon in horizons:
        names = ("mAcc", "samples") if horizon == 1 else ("SR", "mAcc", "mIoU", "samples")
        headings += [Heading(name, f"T={horizon}") for name in names]
    return Table(
        caption="CrossTask, first T actions",
        about="percent, 95% interval clustered by video below",
        first="system",
        headings=tuple(headings),
        rows=tuple(_vpa_row(scores, horizons) for scores in found),
    )


def _vpa_row(scores: VpaScores, horizons: Sequence[int]) -> Row:
    measured_at = {one.horizon: one for one in scores.horizons}
    cells = [
        Cell(scores.protocol, f"{scores.taxonomy} actions" if scores.taxonomy.isdigit() else scores.taxonomy),
        Cell(scores.history or "none"),
    ]
    for horizon in horizons:
        cells += _horizon_cells(measured_at.get(horizon), horizon)
    return Row(scores.system, tuple(cells), about="supervised" if scores.supervised else "")


def _horizon_cells(one: HorizonScores | None, horizon: int) -> list[Cell]:
    if one is None:
        return [measured(None)] * (2 if horizon == 1 else 4)
    samples = Cell(f"{one.samples:,}", f"{one.videos:,} videos")
    if horizon == 1:
        return [measured(one.accuracy), samples]
    return [measured(one.success_rate), measured(one.accuracy), measured(one.iou), samples]


def _settings_tables(found: Sequence[VpaScores]) -> Iterable[Table]:
    more = dict.fromkeys(name for scores in found for one in scores.horizons for name in one.more)
    rows = [
        Row(scores.system, (Cell(f"T={one.horizon}"), *(plain(one.more.get(name), 2) for name in more)))
        for scores in found
        for one in scores.horizons
    ]
    if more:
        notes = (
            "`batch`, `cumulative` and `bitwise` are other quantities that are called mIoU; none is comparable "
            "with the mean over samples.",
        )
        yield Table(
            "Further measures", "system", (Heading("T"), *map(Heading, more)), tuple(rows), notes=notes, folded=True
        )
    remap = dict.fromkeys(name for scores in found for name in scores.remap)
    if remap:
        rows = [Row(scores.system, tuple(plain(scores.remap.get(name), 3) for name in remap)) for scores in found]
        yield Table("Mapping steps to actions", "system", tuple(map(Heading, remap)), tuple(rows), folded=True)


# What a report is made from, and what judging took.


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
