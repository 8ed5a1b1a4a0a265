"""The evaluation report as one HTML page that needs nothing but itself; its only script is pinned by its hash."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from recipe.artifacts import fingerprint
from recipe.evaluation import measure_named
from recipe.evaluation.compare import P_DIGITS, P_LEAST, SystemComparison, compare_systems
from recipe.evaluation.measures import Measure
from recipe.evaluation.metrics import readings_table, regime_colours
from recipe.evaluation.published import DIVERSITY_JUDGE, JUDGE
from recipe.evaluation.scoreboard.accuracy import SPLIT_NAMES, judge_results
from recipe.evaluation.scoreboard.sources import ReportSources, ScoredFile
from recipe.evaluation.scoreboard.views import NO_EXPLANATIONS, ExampleViews, PlanExplanations, gather_views, page_data
from recipe.models.sampling import Decoding, decoding_note
from recipe.report.colours import variable
from recipe.report.elements import NONE, Cell, Figure, Section, Table, TableRow, Value, headings, row
from recipe.report.html import page_environment, template
from recipe.report.markdown import render_markdown
from recipe.report.page import render
from recipe.report.plots import Mark, inline_svg, intervals
from recipe.stats import Interval, adjusted

# Pairs of systems that one measure compares at most: all of eight. Each draws a bootstrap and permutations.
_PAIRS = 28
# Examples that a reader without scripts sees, and the characters of a goal there.
_LISTED, _NAME = 200, 300


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """A report before it is written."""

    title: str
    leaders: tuple[str, ...]
    """The leading systems, one sentence each."""
    sections: tuple[Section, ...]
    board: ReportSources
    views: ExampleViews

    def markdown(self) -> str:
        """The report's sentences and tables."""
        return render_markdown(self.title, self.leaders, self.sections)


def make_report(board: ReportSources, title: str) -> EvaluationReport:
    """The report on all that the board holds. Raises ComputeError."""
    leaders = []
    for results in judge_results(source.scores for source in board.sources):
        for split in results.splits:
            rows = [
                (group.values["accuracy"], system.system)
                for system in results.scores
                for group in system.of("split")
                if group.name == split
            ]
            best, name = max(rows, key=lambda row: row[0].mean)
            bounds = "" if best.low is None or best.high is None else f" ({best.low:.1f} to {best.high:.1f})"
            lead = f"leads {len(rows)} systems with" if len(rows) > 1 else "reaches"
            over = f"{SPLIT_NAMES.get(split, split)}, by {results.name}"
            leaders.append(f"{over}: {name} {lead} {best.mean:.1f}% macro accuracy{bounds}.")
    every = [source.scores for source in board.sources]
    sections: list[Section] = []
    for measure in dict.fromkeys(scores.measure for scores in every):
        sections += measure_named(measure).sections([source.scores for source in board.of(measure)], every)
    sections += [*_differences_sections(board), _account_section(board)]
    return EvaluationReport(title, tuple(leaders), tuple(sections), board, gather_views(board))


def _differences_sections(board: ReportSources) -> list[Section]:
    """Every pair of systems that one measure measured alike; none where there is no pair with rows in common."""
    blocks: list[Table | Figure] = []
    for measure, compared, passed_over in _board_comparisons(board):
        judge = f" · judge: {compared[0].judge}" if compared[0].judge else ""
        title = f"{measure.metric_title(measure.main)}{judge}"
        corrected = iter(adjusted([line.result.p_value for pair in compared for line in pair.rows]))
        marks, rows, read = list[Mark](), list[TableRow](), list[tuple[str, Mapping[str, Interval]]]()
        for pair in compared:
            for line in pair.rows:
                result, systems = line.result, f"{pair.first} − {pair.second}"
                name = f"{systems}{f' · {line.over}' if line.over else ''}"
                marks.append(Mark(name, result.difference))
                read.append((name, line.readings))
                values: list[Value | Cell] = [
                    line.over or "all plans",
                    measure.cell(measure.main, result.difference, signed=True),
                    *(Cell(p_value, P_DIGITS, least=P_LEAST) for p_value in (result.p_value, next(corrected))),
                    Cell(result.effect, 2),
                    *(Cell(share, 0, percent=True) for share in (result.better, result.equal, result.worse)),
                    result.difference.observations,
                    pair.clusters,
                    sum(pair.left_out.values()),
                ]
                rows.append(row(systems, *values))
        caption = f"Paired differences in {title}, with their 95% intervals; right of 0 the first is better."
        drawn = intervals(marks, colours={}, unit="percent" if measure.unit else "", line=0)
        blocks.append(Figure(inline_svg(drawn, f"differences{len(blocks)}", caption), caption))
        columns = ("over", "difference", "p", "p, Holm", "effect d", "better", "equal", "worse", "examples", "clusters")
        blocks.append(
            Table(
                caption=f"Paired differences · {title}",
                first="first against second",
                headings=headings(*columns, "left out"),
                rows=tuple(rows),
                about="95% interval below",
                notes=(
                    "Left out: plans that only one of the two has, or that lack a value.",
                    *([f"{passed_over}; give fewer files for the others."] if passed_over else []),
                ),
            )
        )
        blocks += readings_table(f"Paired differences, {title}", read, measure.digits, signed=True)
    if not blocks:
        return []
    return [
        Section(
            name="differences",
            title="Systems against each other",
            short="Differences",
            paragraphs=(
                "First minus second on the plans that have a value for both. Intervals and p-values are clustered by "
                "video or goal, as the table says; by example where no --examples say which video each is from. Every "
                "dataset weighs the same. The p-value is from a sign-flip permutation test; next to it is the p-value "
                "adjusted by Holm for all comparisons in the table. The effect is Cohen's d of pairs. Bold where the "
                "interval excludes 0.",
            ),
            blocks=tuple(blocks),
        )
    ]


def _board_comparisons(board: ReportSources) -> list[tuple[type[Measure], list[SystemComparison], str]]:
    """The comparisons of pairs of systems in the main metric, by measure and identity, and how many are not made.

    Pairs without a plan in common are left out.
    """
    alike: dict[str, list[ScoredFile]] = {}
    for source in board.sources:
        if source.rows is not None:
            key = fingerprint([source.scores.measure, source.scores.identity])
            alike.setdefault(key, []).append(source)
    comparisons = []
    for sources in alike.values():
        measure = measure_named(sources[0].scores.measure)
        compared = []
        # The later system first: files usually come in the order of what was tried, so that a gain is positive.
        pairs = list(combinations(sources, 2))
        for second, first in pairs[:_PAIRS]:
            valued = (
                {plan for plan, metrics in side.values[None].items() if measure.main in metrics}
                for side in (first, second)
            )
            if set.intersection(*valued):
                compared.append(compare_systems(first, second, board.examples, (measure.main,)))
        if compared:
            lost = len(pairs) - _PAIRS
            comparisons.append(
                (measure, compared, f"{lost} of {len(pairs)} pairs are not compared" if lost > 0 else "")
            )
    return comparisons


def _account_section(board: ReportSources) -> Section:
    """The files that the report is made from, how plans were sampled, and the cost of judging."""
    cards: dict[str, tuple[Decoding, ...]] = {
        system: tuple(
            dict.fromkeys(
                card for source in board.sources if source.scores.system == system for card in source.scores.decoding
            )
        )
        for system in board.systems
    }
    tables = []
    names = dict.fromkeys(name for source in board.sources for name in source.scores.ledger)
    if names:
        spent = tuple(
            row(
                scores.system,
                scores.judge.name if scores.judge else NONE,
                *(
                    Cell(int(amount)) if amount is not None and amount == int(amount) else Cell(amount, 4)
                    for amount in amounts
                ),
            )
            for scores in (source.scores for source in board.sources)
            if scores.ledger
            for amounts in [[scores.ledger.get(name) for name in names]]
        )
        tables.append(
            Table("What judging took", "system", headings("judge", *(name.replace("_", " ") for name in names)), spent)
        )
    sampled = tuple(
        row(system, " | ".join(card.in_words() for card in own) or "not known") for system, own in cards.items()
    )
    tables.append(Table("How plans were sampled", "system", headings("decoding"), sampled, folded=True))
    lost = any(source.rows is None for source in board.sources)
    note = "Where rows are missing there are tables, and neither pages of examples nor paired differences."
    tables.append(
        Table(
            caption="Files",
            first="file",
            headings=headings("measure", "system", "rows", "SHA-256"),
            rows=tuple(
                row(
                    source.path.name,
                    source.scores.measure,
                    source.scores.system,
                    "missing" if source.rows is None else "yes",
                    source.sha256[:16],
                )
                for source in board.sources
            ),
            notes=(note,) if lost else (),
        )
    )
    # Each system that was not sampled as the first one whose cards are known.
    (first, own), *others = [(system, own) for system, own in cards.items() if own] or [("", ())]
    otherwise = (decoding_note(own, theirs, (first, system)) for system, theirs in others)
    return Section(
        name="files",
        title="What this is made from",
        short="Files",
        paragraphs=(f"The paper's judge of plans is {JUDGE}, its judge of pairs {DIVERSITY_JUDGE}.",),
        blocks=tuple(tables),
        warnings=tuple(filter(None, otherwise)),
    )


def render_page(report: EvaluationReport, grounds: PlanExplanations = NO_EXPLANATIONS) -> str:
    """The whole page. The same report gives the same bytes; `grounds` explain some of its plans by their narrations."""
    colours = regime_colours(report.board.systems)
    dots = {name: variable(colour) for name, colour in colours.items()}
    listed = [(view.example_id, view.goal[:_NAME], len(view.plans)) for view in report.views.examples[:_LISTED]]
    values = {"examples": report.views.examples, "listed": listed, "grounds": grounds.elements}
    macros = vars(page_environment("recipe.evaluation").get_template("scoreboard.html.jinja").make_module(values))
    return render(
        report.title,
        macros["navigation"](),
        report.leaders,
        report.sections,
        colours=colours,
        views=macros["views"](),
        style=template("recipe.evaluation", "scoreboard.css") + template("recipe.explain", "alignment.css"),
        script=template("recipe.explain", "alignment.js") + template("recipe.evaluation", "scoreboard.js"),
        data=page_data(report.board, report.views, dots, grounds.names or {}),
    )
