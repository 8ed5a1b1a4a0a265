"""Sections on diversity, validity and VPA, and on the files that a report is made from."""

from collections.abc import Iterable, Mapping, Sequence

from recipe.evaluation.match import MAIN, match_sentences
from recipe.evaluation.metrics import CONTROL, METRICS, metric_cell, ordered_metrics, readings_table
from recipe.evaluation.published import DIVERSITY_JUDGE, JUDGE, published
from recipe.evaluation.scoreboard.accuracy import comparability, dataset_name, published_table
from recipe.evaluation.scoreboard.sources import Board
from recipe.evaluation.scores import (
    CriticalScores,
    DiversityScores,
    HorizonScores,
    JudgeScores,
    MatchScores,
    ValidityScores,
    VpaScores,
)
from recipe.models.sampling import Decoding, decoding_note
from recipe.report.elements import NONE, Cell, Figure, Heading, Section, Table, headings, row
from recipe.stats import Interval

_JUDGED = JudgeScores | CriticalScores | DiversityScores
LEVELS = ("0", "0.25", "0.5", "0.75", "1")
"""Levels of difference of two plans, as headings."""
IOU = (
    "mIoU here is per sample: the intersection over the union of the sets of predicted and reference actions of one "
    "sample, then the mean over samples. The paper does not define its mIoU, and published code computes four "
    "different quantities under that name (per sample, over a batch, cumulative, bitwise): rows of different "
    "origin may not be comparable in it."
)


def diversity_section(board: Board, figures: Sequence[Figure]) -> Section | None:
    """Procedural diversity beside the paper's three points."""
    every = [scores for _, scores in board.of(DiversityScores)]
    if not every:
        return None
    main = Table(
        caption="Procedural diversity",
        first="system",
        headings=headings(
            "judge", "diversity", "prompts", "samples", "pairs", "unscored", "order checked", "order changed it"
        ),
        rows=tuple(
            row(
                one.system,
                one.judge.name,
                Cell(one.diversity, 3),
                one.prompts,
                one.samples,
                one.pairs,
                one.unscored,
                one.order_pairs,
                f"{one.order_disagreements:,} of {one.order_pairs:,}" if one.order_pairs else NONE,
            )
            for one in every
        ),
        about="0 to 1, 95% interval below",
    )
    known = {_level(level) for level in LEVELS}
    levels = (*LEVELS, *sorted({level for one in every for level in one.levels if _level(level) not in known}))
    shares = Table(
        caption="Pairs at each level",
        first="system",
        headings=headings("judge", *levels),
        rows=tuple(row(one.system, one.judge.name, *_level_shares(one, levels)) for one in every),
        about="share of scored pairs",
        folded=True,
    )
    return Section(
        name="diversity",
        title="Procedural diversity",
        short="Diversity",
        paragraphs=(
            "The mean over prompts of the mean over pairs of samples of how different two plans are as procedures, "
            "from 0 (the same) to 1; a plan that does not serve the goal earns nothing by being different.",
        ),
        blocks=(
            main,
            *readings_table(
                "Diversity", ((f"{one.system}, {one.judge.name}", one.readings) for one in every), digits=3
            ),
            *figures,
            shares,
            published_table(published("diversity"), "Published diversity and accuracy on COIN"),
        ),
        warnings=tuple(
            comparability(judge, DIVERSITY_JUDGE) for judge in {one.judge.name: one.judge for one in every}.values()
        ),
    )


def _level_shares(one: DiversityScores, levels: Sequence[str]) -> Iterable[Cell]:
    counts = {_level(name): number for name, number in one.levels.items()}
    total = sum(counts.values())
    return (Cell(counts.get(_level(level), 0) / total if total else None, 0, percent=True) for level in levels)


def _level(name: str) -> float | str:
    try:
        return float(name)
    except ValueError:
        return name


def critical_section(board: Board) -> Section | None:
    """Critical failures (How2Score): each system by each judge, beside the controls."""
    every = [scores for _, scores in board.of(CriticalScores)]
    if not every:
        return None
    rows, read = [], list[tuple[str, Mapping[str, Interval]]]()
    for one in every:
        parts = (one.overall, *(one.datasets if len(one.datasets) > 1 else ()), *one.controls)
        names = ("all plans", *(part.name for part in parts[1:]))
        read += [(f"{one.system}, {name}", part.readings) for name, part in zip(names, parts, strict=True)]
        several = [part for part in one.datasets if len(one.datasets) > 1]
        for part, name in ((one.overall, "all plans"), *((part, dataset_name(part.name)) for part in several)):
            cells = (Cell(part.without), Cell(part.failures, 2), part.counts.plans, part.counts.unscored)
            rows.append(row(one.system, one.judge.name, name, *cells, part.counts.missing))
        for part in one.controls:
            cells = (Cell(part.without), Cell(part.failures, 2), part.counts.plans, part.counts.unscored)
            rows.append(row(CONTROL + part.name, one.judge.name, f"beside {one.system}", *cells, None, kind="control"))
    return Section(
        name="critical-failures",
        title="Critical failures",
        short="Critical failures",
        paragraphs=(
            "A judge compares each plan with the reference and lists what keeps it from reaching the goal (How2Score, "
            "arXiv 2602.08808). The score is the share of plans without a critical failure. A plan without a step that "
            "says anything has one by rule; a plan without a judgement is left out, and a table says what difference "
            "that can make. Intervals are 95%, clustered by video.",
        ),
        blocks=(
            Table(
                caption="Plans without a critical failure",
                first="system",
                headings=(
                    *headings("judge", "over"),
                    Heading("without a failure", "%"),
                    Heading("failures", "mean number a plan"),
                    *headings("plans scored", "unscored", "missing"),
                ),
                rows=tuple(rows),
                about="95% interval below",
            ),
            *readings_table("Plans without a critical failure, percent", read),
        ),
        findings=tuple(dict.fromkeys(sentence for one in every for sentence in one.findings)),
    )


def validity_section(board: Board, figures: Sequence[Figure]) -> Section | None:
    """Validity against task graphs, its components, the validity of each goal, and the agreement of judges with it."""
    every = [scores for _, scores in board.of(ValidityScores)]
    if not every:
        return None
    names = ordered_metrics(name for one in every for name in one.metrics)
    main = Table(
        caption="Validity and its components",
        first="system",
        headings=headings("graphs", *(METRICS.get(name, name) for name in names), "plans", "missing"),
        rows=tuple(
            row(
                one.system,
                one.graphs,
                *(metric_cell(one.metrics.get(name), name) for name in names),
                one.counts.plans,
                one.counts.missing,
            )
            for one in every
        ),
        about="95% interval below",
    )
    tables = []
    if goals := sorted({goal for one in every for goal in one.by_goal}):
        rows = tuple(row(goal, *(Cell(one.by_goal.get(goal), 2) for one in every)) for goal in goals)
        names = [one.system for one in every]
        tables.append(Table("Validity of each goal", "goal", headings(*names), rows, folded=True))
    agreement = tuple(
        row(one.system, other.judge.name, Cell(other.spearman, 2), Cell(other.kendall, 2), other.plans)
        for one in every
        for other in one.agreement
    )
    if agreement:
        names = ["judge", "Spearman", "Kendall", "plans"]
        about = "rank correlation over the same plans, 95% interval below"
        tables.append(Table("Agreement of judges with validity", "system", headings(*names), agreement, about))
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
        blocks=(main, *figures, *tables),
    )


def match_section(board: Board) -> Section | None:
    """Agreement with annotated continuations, each system beside its controls."""
    every = [scores for _, scores in board.of(MatchScores)]
    if not every:
        return None
    names = ordered_metrics(name for one in every for name in one.metrics)
    rows = []
    for one in every:
        cells = (metric_cell(one.metrics.get(name), name) for name in names)
        rows.append(row(one.system, *cells, Cell(None), one.counts.plans, one.counts.missing))
        for control in one.controls:
            cells = (metric_cell(control.metrics.get(name), name) for name in names)
            against = metric_cell(control.difference, MAIN, signed=True)
            about = f"beside {one.system}" if len(every) > 1 else ""
            rows.append(row(CONTROL + control.name, *cells, against, control.prompts, Cell(None), about=about))
    settings = dict.fromkeys(name for one in every for name in one.settings)
    described = tuple(row(one.system, *(one.settings.get(name, NONE) for name in settings)) for one in every)
    return Section(
        name="match",
        title="Agreement with annotated continuations",
        short="Agreement",
        paragraphs=(
            "No judge: a line of a plan matches the step of the annotated continuation that it is most alike by "
            "embedding, or none: where it is not alike enough, or is more alike a step that is done or the goal "
            "itself. Matched step F1 counts the steps in common, each as often as the annotation has it; in order, "
            "those of the longest common subsequence. A right plan that differs from the annotation counts as wrong. "
            "Controls are plans that no planner made, on the same examples. Intervals are clustered by goal.",
        ),
        blocks=(
            Table(
                caption="Matched steps",
                first="system",
                headings=headings(
                    *(METRICS.get(name, name) for name in names), "system minus control, in order", "plans", "missing"
                ),
                rows=tuple(rows),
                about="95% interval below; bold where that of the difference excludes 0",
            ),
            Table("How steps were matched", "system", headings(*settings), described, folded=True),
        ),
        findings=tuple(sentence for one in every for sentence in match_sentences(one)),
    )


def vpa_section(board: Board, figures: Sequence[Figure]) -> Section | None:
    """Visual planning for assistance: systems by horizon, then the published rows."""
    every = [scores for _, scores in board.of(VpaScores)]
    if not every:
        return None
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
            _vpa_table(every),
            *figures,
            published_table(published("vpa"), "Published results on CrossTask"),
            *_settings_tables(every),
        ),
        warnings=tuple(_vpa_warnings(every)),
    )


def _vpa_warnings(every: Sequence[VpaScores]) -> Iterable[str]:
    for one in every:
        if one.history == "oracle":
            yield f"{one.system} read the true history; published systems read a history from the video."
        if (sentence := one.settings.get("calibration", "")) and not sentence.startswith("calibrated"):
            yield f"{one.system}: {sentence}."
    if len({(one.protocol, one.taxonomy) for one in every}) > 1:
        yield "The systems differ in protocol or taxonomy: rows that differ there are not comparable."


def _vpa_table(every: Sequence[VpaScores]) -> Table:
    horizons = sorted({one.horizon for scores in every for one in scores.horizons})
    columns = [
        Heading(name, f"T={horizon}")
        for horizon in horizons
        for name in (("mAcc", "samples") if horizon == 1 else ("SR", "mAcc", "mIoU", "samples"))
    ]
    rows = []
    for scores in every:
        at = {one.horizon: one for one in scores.horizons}
        actions = f"{scores.taxonomy} actions" if scores.taxonomy.isdigit() else scores.taxonomy
        measures = [cell for horizon in horizons for cell in _horizon_cells(at.get(horizon), horizon)]
        about = "supervised" if scores.supervised else ""
        protocol = Cell(scores.protocol, note=actions)
        rows.append(row(scores.system, protocol, scores.history or "none", *measures, about=about))
    return Table(
        caption="CrossTask, first T actions",
        first="system",
        headings=headings("protocol", "history", *columns),
        rows=tuple(rows),
        about="percent, 95% interval clustered by video below",
    )


def _horizon_cells(one: HorizonScores | None, horizon: int) -> list[Cell]:
    if one is None:
        return [Cell(None)] * (2 if horizon == 1 else 4)
    samples = Cell(one.samples, note=f"{one.videos:,} videos")
    if horizon == 1:
        return [Cell(one.accuracy), samples]
    return [Cell(one.success_rate), Cell(one.accuracy), Cell(one.iou), samples]


def _settings_tables(every: Sequence[VpaScores]) -> Iterable[Table]:
    more = dict.fromkeys(name for scores in every for one in scores.horizons for name in one.more)
    if more:
        yield Table(
            caption="Further measures",
            first="system",
            headings=headings("T", *more),
            rows=tuple(
                row(scores.system, f"T={one.horizon}", *(Cell(one.more.get(name), 2) for name in more))
                for scores in every
                for one in scores.horizons
            ),
            notes=(
                "`batch`, `cumulative` and `bitwise` are other quantities that are called mIoU; none is comparable "
                "with the mean over samples.",
            ),
            folded=True,
        )
    if remap := dict.fromkeys(name for scores in every for name in scores.remap):
        rows = tuple(row(scores.system, *(Cell(scores.remap.get(name), 3) for name in remap)) for scores in every)
        yield Table("Mapping steps to actions", "system", headings(*remap), rows, folded=True)


def account_section(board: Board) -> Section:
    """The files that the report is made from, and the cost of judging."""
    cards = {
        system: tuple(
            dict.fromkeys(
                card for source in board.sources if source.scores.system == system for card in source.scores.decoding
            )
        )
        for system in board.systems
    }
    files = Table(
        caption="Files",
        first="file",
        headings=headings("kind", "system", "rows", "SHA-256"),
        rows=tuple(
            row(
                source.path.name,
                source.scores.kind,
                source.scores.system,
                "yes" if source.has_rows else "missing",
                source.sha256[:16],
            )
            for source in board.sources
        ),
        notes=("Where rows are missing there are tables, and neither pages of examples nor paired differences.",)
        if any(not source.has_rows for source in board.sources)
        else (),
    )
    return Section(
        name="files",
        title="What this is made from",
        short="Files",
        paragraphs=(f"The paper's judge of plans is {JUDGE}, its judge of pairs {DIVERSITY_JUDGE}.",),
        blocks=(*_ledger(board), _decoding_table(cards), files),
        warnings=tuple(_sampled_otherwise(cards)),
    )


def _decoding_table(cards: Mapping[str, tuple[Decoding, ...]]) -> Table:
    """How each system's plans were sampled."""
    rows = tuple(
        row(system, " | ".join(card.in_words() for card in own) or "not known") for system, own in cards.items()
    )
    return Table("How plans were sampled", "system", headings("decoding"), rows, folded=True)


def _sampled_otherwise(cards: Mapping[str, tuple[Decoding, ...]]) -> Iterable[str]:
    """A sentence for each system that was not sampled as the first one."""
    (first, own), *others = [(system, cards[system]) for system in cards if cards[system]] or [("", ())]
    for system, theirs in others:
        if note := decoding_note(own, theirs, (first, system)):
            yield note


def _ledger(board: Board) -> Iterable[Table]:
    judged = [source.scores for source in board.sources if isinstance(source.scores, _JUDGED)]
    names = dict.fromkeys(name for scores in judged for name in scores.ledger)
    rows = [
        row(scores.system, scores.judge.name, *(_amount(scores.ledger.get(name)) for name in names))
        for scores in judged
        if scores.ledger
    ]
    if rows:
        columns = headings("judge", *(name.replace("_", " ") for name in names))
        yield Table("What judging took", "system", columns, tuple(rows))


def _amount(value: float | None) -> Cell:
    return Cell(int(value)) if value is not None and float(value).is_integer() else Cell(value, 4)
