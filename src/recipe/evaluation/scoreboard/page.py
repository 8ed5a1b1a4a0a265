"""The evaluation report as one HTML page that needs nothing but itself; its only script is pinned by its hash."""

from dataclasses import dataclass

from recipe.evaluation import measure_named
from recipe.evaluation.metrics import regime_colours
from recipe.evaluation.scoreboard.accuracy import SPLIT_NAMES, judge_results
from recipe.evaluation.scoreboard.sections import account_section, differences_sections
from recipe.evaluation.scoreboard.sources import ReportSources
from recipe.evaluation.scoreboard.views import (
    NO_EXPLANATIONS,
    ExampleViews,
    PlanExplanations,
    gather_views,
    page_data,
)
from recipe.report.colours import variable
from recipe.report.elements import Section
from recipe.report.html import page_environment, template
from recipe.report.markdown import render_markdown
from recipe.report.page import render

LISTED = 200
"""Examples that a reader without scripts sees."""
_NAME = 300


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
    sections += [*differences_sections(board), account_section(board)]
    return EvaluationReport(title, tuple(leaders), tuple(sections), board, gather_views(board))


def render_page(report: EvaluationReport, grounds: PlanExplanations = NO_EXPLANATIONS) -> str:
    """The whole page. The same report gives the same bytes; `grounds` explain some of its plans by their narrations."""
    colours = regime_colours(report.board.systems)
    dots = {name: variable(colour) for name, colour in colours.items()}
    listed = [(view.example_id, view.goal[:_NAME], len(view.plans)) for view in report.views.examples[:LISTED]]
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
