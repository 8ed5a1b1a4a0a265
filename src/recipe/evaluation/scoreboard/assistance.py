"""Visual planning for assistance (VPA): systems by horizon, then the published rows with what they leave open."""

from collections.abc import Iterable, Sequence

from recipe.evaluation.published import published
from recipe.evaluation.scoreboard.accuracy import published_table
from recipe.evaluation.scoreboard.elements import Cell, Figure, Heading, Row, Section, Table, measured, plain
from recipe.evaluation.scoreboard.sources import Board
from recipe.evaluation.scores import HorizonScores, VpaScores

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
