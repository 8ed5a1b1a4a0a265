"""A study as a page and Markdown: each table next to the paper's figures, its claims in sentences, and its figure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from recipe.artifacts import read_json, write_text
from recipe.errors import MissingExtra
from recipe.evaluation.metrics import readings_table, regime_colours
from recipe.report.elements import Block, Cell, Figure, Heading, Section, Table, TableRow, headings
from recipe.report.markdown import render_markdown
from recipe.report.page import render
from recipe.report.plots import Line, Mark, Point, curves, inline_svg, intervals, scatter
from recipe.rows import from_json
from recipe.stats import Interval
from recipe_studies.experiments.page import plans_side_by_side, run_section
from recipe_studies.experiments.results import SPLITS, Provenance
from recipe_studies.reproduce.data import REASONS, ExampleCounts
from recipe_studies.reproduce.findings import STEPS, ClaimFinding, TableFigures
from recipe_studies.reproduce.study import names, regime
from recipe_studies.reproduce.tables import PERCENTAGES, TABLES, table, weak

try:
    from matplotlib.figure import Figure as Drawing
except ModuleNotFoundError as error:
    raise MissingExtra("the report", "report") from error

RESULTS, PAGE, MARKDOWN = "results.json", "report.html", "report.md"
MEASURES = {"success_rate": "SR", "accuracy": "mAcc", "iou": "mIoU"}
VERDICTS = {
    "holds": "hold here",
    "does not hold": "do not",
    "cannot tell": "cannot be told",
    "not measured": "not measured",
}


@dataclass(frozen=True, slots=True)
class ScaleResults:
    """The tables of one scale."""

    scale: str
    title: str
    published: str
    """Scale of the paper whose figures are shown next to them."""
    seeds: tuple[int, ...]
    judge: str
    """What accuracy is: exact validity, or the judge's name."""
    tables: tuple[TableFigures, ...]
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader has to know of the data and of how it was run."""
    assessor: str = "the base"
    """VidAssist's own proposer, which assesses, too."""
    seconds: float = 0.0
    """Of all stages, one after the other."""
    examples: tuple[ExampleCounts, ...] = ()
    """How many examples there are of each dataset, and how many are left out."""


@dataclass(frozen=True, slots=True)
class StudyResults:
    """All that a study found."""

    title: str
    provenance: Provenance
    scales: tuple[ScaleResults, ...]

    @property
    def findings(self) -> tuple[ClaimFinding, ...]:
        """The claims of all tables, scale by scale."""
        return tuple(finding for scale in self.scales for made in scale.tables for finding in made.findings)


def rerender(output: Path) -> Path:
    """Write the page and its Markdown from the `results.json` in the same folder.

    Raises InputError if that is missing, and names a part that is missing or of the wrong kind.
    """
    path = output / RESULTS
    results = from_json(read_json(path), StudyResults, str(path))
    write_text(output / PAGE, render_page(results))
    write_text(output / MARKDOWN, render_markdown(results.title, summary(results), list(sections(results))))
    return output / PAGE


def render_page(results: StudyResults) -> str:
    """The whole page. The same results give the same page."""
    measured = [
        figure.regime for scale in results.scales for made in scale.tables for figure in (*made.figures, *made.controls)
    ]
    known = [name for paper in TABLES for name in paper.regimes]
    when = results.provenance.created.replace("T", " ").replace("+00:00", " UTC")
    return render(
        results.title,
        f"{when} · {results.provenance.device}",
        summary(results),
        list(sections(results)),
        colours=regime_colours(_regime_title(name) for name in (*known, *measured)),
    )


def summary(results: StudyResults) -> list[str]:
    """How many claims hold at each scale, in a sentence, and those that do not."""
    sentences = []
    for scale in results.scales:
        claims_here = [finding for made in scale.tables for finding in made.findings]
        counts = ", ".join(
            f"{count} {words}"
            for verdict, words in VERDICTS.items()
            if (count := sum(finding.verdict == verdict for finding in claims_here))
        )
        seeds = f"{len(scale.seeds)} seed{'s' if len(scale.seeds) > 1 else ''}"
        claims = (
            f"of {len(claims_here)} claims of the paper {counts}"
            if claims_here
            else "no claim of the paper is on these tables"
        )
        sentences.append(f"{scale.title}, {seeds}: {claims}.")
        sentences += [
            f"{scale.title}: {finding.words}" for finding in claims_here if finding.verdict == "does not hold"
        ]
    return sentences


def sections(results: StudyResults) -> Iterator[Section]:
    """A section for each table of each scale, then how it was run."""
    for scale in results.scales:
        for made in scale.tables:
            paper = table(made.name)
            model = "Qwen2.5-VL-3B" if made.name == "video" else scale.published
            about = f"Accuracy in percent: {scale.judge}."
            if made.name == "vpa":
                about = (
                    "Percent; plans in free words are taken for the nearest actions. A regime's own row is its plan, "
                    "which the paper does not print. VidAssist's own proposer, which assesses, too, and the model of "
                    f"both LLM baselines is Llama-2-70B in the paper and here {scale.assessor}; with it, a planner "
                    "proposes half. All rows are on the same samples. The column 'history' says what each row is told "
                    "of what was done: what Phi read, as in the paper, or in the oracle's rows the annotated steps, "
                    "which no published row reads. Controls look at no video."
                )
            elif made.name == "diversity":
                about = f"Diversity from 0 to 1, accuracy in percent ({scale.judge})."
            elif made.figures:
                about += f" The paper's figures are of {model}, by its judge."
            several = f"{scale.title}: " if len(results.scales) > 1 else ""
            yield Section(
                name=f"{scale.scale}-{made.name}",
                title=f"{several}{paper.title}",
                short=f"{several}{made.name}",
                paragraphs=(f"In the paper: {paper.source}. {about}",),
                blocks=tuple(_blocks(scale, made)),
                findings=(*made.not_beaten, *made.notes),
            )
    counted = []
    for scale in results.scales:
        reasons = [reason for reason in REASONS if any(counts.left_out.get(reason) for counts in scale.examples)]
        rows = []
        for counts in scale.examples:
            cells = [Cell(counts.examples)]
            for reason in reasons:
                count = counts.left_out.get(reason, 0)
                cells.append(Cell(count, note=f"{100 * count / counts.examples:.1f}%" if count else ""))
            cells += [Cell(counts.used), Cell(counts.mixed if counts.role == "training" else None)]
            rows.append(TableRow(f"{counts.role}, {counts.input}, {_column_title(counts.dataset)}", tuple(cells)))
        columns = ("examples", *(REASONS[reason] for reason in reasons), "used", "in mixtures with weak ones")
        if rows:
            counted.append(Table(f"Examples, {scale.title}", "examples of", headings(*columns), tuple(rows)))
    if counted:
        text = "A test example that lacks what any system needs is left out for all systems. An example without a "
        text += "pseudo-trace, or without a cut point of it, is left out of the mixtures with weak examples alone."
        yield Section("examples", "Examples, and what is left out", "Examples", (text,), tuple(counted))
    notes = tuple(note for scale in results.scales for note in (*scale.notes, *scale.missing))
    if notes:
        yield Section("notes", "What to know of these figures", "Notes", findings=tuple(dict.fromkeys(notes)))
    yield run_section(results.provenance)


def _blocks(scale: ScaleResults, made: TableFigures) -> Iterator[Block]:
    if made.findings:
        # The paper's claims, one a row, with the measured difference and the verdict in each column.
        columns = list(dict.fromkeys(finding.column for finding in made.findings))
        known = {(finding.sentence, finding.column): finding for finding in made.findings}
        names = [Heading(name, _column_title(column)) for column in columns for name in ("difference", "verdict")]
        rows = []
        for claim in {finding.sentence: finding for finding in made.findings}.values():
            cells = []
            for column in columns:
                finding = known.get((claim.sentence, column))
                digits = 3 if column == "diversity" else 1
                cells.append(Cell(None if finding is None else finding.difference, digits, signed=True))
                cells.append(Cell(None if finding is None else finding.verdict))
            margins = dict.fromkeys(known[key].margin for key in known if key[0] == claim.sentence)
            within = ", ".join(f"{margin:g}" for margin in margins if margin)
            about = f"{claim.source}, within {within}" if within else claim.source
            rows.append(TableRow(claim.sentence, tuple(cells), about=about))
        yield Table("What the paper claims", "claim", tuple(names), tuple(rows))
    if made.figures:
        drawing, about = _drawn(made)
        model = "Qwen2.5-7B at every scale" if made.name == "vpa" else scale.published
        paper = (
            f"; hollow: the paper's, {model}" if any(figure.published is not None for figure in made.figures) else ""
        )
        caption = f"{about}, with 95% intervals{paper}."
        yield Figure(inline_svg(drawing, f"{scale.scale}-{made.name}-figure", caption), caption)
        yield made_table(scale, made)
    read = (
        (f"{_regime_title(figure.regime)}, {_column_title(figure.column)}", figure.readings) for figure in made.figures
    )
    yield from readings_table(table(made.name).title, read, 3 if made.name == "diversity" else 1)
    titled = [
        replace(prompt, plans=tuple(replace(plan, regime=_regime_title(plan.regime)) for plan in prompt.plans))
        for prompt in made.prompts
    ]
    yield from plans_side_by_side(titled)


def made_table(scale: ScaleResults, made: TableFigures) -> Table:
    """The measured figures of a table next to the published ones."""
    every = (*made.figures, *made.controls)
    values = {(figure.regime, figure.column): figure for figure in every}
    printed = {column for (_, column), figure in values.items() if figure.published is not None}
    names: list[Heading] = [*headings(*made.labels)]
    for column in made.columns:
        names.append(Heading("here", _column_title(column)))
        if column in printed:
            names.append(Heading("paper", _column_title(column)))
    rows = []
    for name in dict.fromkeys(figure.regime for figure in every):
        cells: list[Cell] = [Cell(known.get(name)) for known in made.labels.values()]
        for column in made.columns:
            figure = values.get((name, column))
            digits = 3 if column == "diversity" else 1
            cells.append(Cell(None if figure is None else figure.value, digits))
            if column in printed:
                cells.append(Cell(None if figure is None else figure.published, digits))
        rows.append(TableRow(_regime_title(name), tuple(cells)))
    several = len(scale.seeds) > 1
    about = "95% interval over seeds and prompts" if several else "95% interval over prompts; one seed"
    return Table(f"{table(made.name).title}, {scale.title}", "regime", tuple(names), tuple(rows), about)


def _column_title(column: str) -> str:
    """A column in words.

    >>> _column_title("3.success_rate"), _column_title("test_goals"), _column_title("coin")
    ('T = 3, SR', 'held-out goals', 'coin')
    """
    if "." in column:
        horizon, measure = column.split(".")
        return f"T = {horizon}, {MEASURES[measure]}"
    return SPLITS.get(column, column)


def _regime_title(name: str) -> str:
    """A regime or a row of next actions as tables show it; a frontier model is called by its name."""
    searched = next((row for paper in TABLES for row in paper.rows if row.name == name != row.regime), None)
    if searched is not None:
        return searched.title
    return regime(name).title if name in names("regimes") else name


def _drawn(made: TableFigures) -> tuple[Drawing, str]:
    """The figures of a table as a drawing, the paper's hollow, and what is drawn."""
    values = {(figure.regime, figure.column): figure for figure in made.figures}
    regimes = dict.fromkeys(figure.regime for figure in made.figures)
    # One regime has one colour on the whole page.
    known_regimes = [name for paper in TABLES for name in paper.regimes]
    colours = regime_colours(_regime_title(name) for name in (*known_regimes, *regimes))
    if made.name == "weak":
        # RL and SFT over the share of weak examples, one panel a split; the base is a line across.
        titles = {"rl": _regime_title("rl"), "sft": "SFT"}
        lines, levels = [], {}
        for column in made.columns:
            panel = _column_title(column)
            for kind, title in titles.items():
                shares = {weak(kind, percent): percent for percent in PERCENTAGES}
                known = [(share, figure) for name, share in shares.items() if (figure := values.get((name, column)))]
                paper = [(share, figure.published) for share, figure in known if figure.published is not None]
                lines.append(Line(panel, title, [share for share, _ in known], [figure.value for _, figure in known]))
                lines.append(
                    Line(panel, title, [share for share, _ in paper], [value for _, value in paper], hollow=True)
                )
            if base := values.get(("base", column)):
                levels[panel] = [("base", base.value.mean)]
        of_kinds = {title: colours[_regime_title(weak(kind, 0))] for kind, title in titles.items()}
        xlabel, ylabel = "weak examples, percent", "accuracy, percent"
        drawing = curves(lines, colours=of_kinds, xlabel=xlabel, ylabel=ylabel, levels=levels)
        return drawing, "Accuracy by share of weak examples"
    if made.name == "steps":
        lines = []
        for column in made.columns:
            # The base has seen no step.
            steps = [int(made.labels[STEPS].get(name, 0)) for name in regimes]
            lines.append(Line(_column_title(column), "RL", steps, [values[name, column].value for name in regimes]))
        drawn = {"RL": colours[_regime_title("rl")]}
        return curves(lines, colours=drawn, xlabel="steps of GRPO", ylabel="accuracy, percent"), "Accuracy by steps"
    if made.name == "diversity":
        points = []
        for name in regimes:
            title, across, up = _regime_title(name), values[name, "diversity"], values[name, "accuracy"]
            points.append(Point(title, across.value, up.value))
            if across.published is not None and up.published is not None:
                points.append(Point(f"{title}, paper", Interval(across.published), Interval(up.published), True))
        xlabel, ylabel = "diversity of a prompt's plans, 0 to 1", "accuracy, percent"
        return scatter(points, colours=colours, xlabel=xlabel, ylabel=ylabel), "Diversity and accuracy"
    # Each regime's mean and interval, one panel for each of the last two columns.
    shown = [column for column in made.columns if column in ("in-domain", "zero-shot")] or list(made.columns)[-2:]
    marks = []
    for column in shown:
        for name in regimes:
            figure = values.get((name, column))
            marks.append(
                Mark(_regime_title(name), None if figure is None else figure.value, panel=_column_title(column))
            )
            if figure is not None and figure.published is not None:
                marks.append(marks[-1]._replace(value=Interval(figure.published), hollow=True))
    return intervals(marks, colours=colours), "Means"
