"""Coverage of tasks as one self-contained page: the law's curve with the tasks on it, and the tasks as a table."""

from pathlib import Path

import numpy as np

from recipe.artifacts import write_json, write_text
from recipe.audit.coverage import CoverageLaw, CoverageReport
from recipe.errors import MissingExtra
from recipe.report.colours import BLUE, DARK_GREY, GREEN, INK, MUTED, VERMILION
from recipe.report.elements import Figure, Section
from recipe.report.page import render
from recipe.report.plots import DASHED, STYLE, inline_svg, new_figure

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure as Drawing
except ModuleNotFoundError as error:
    raise MissingExtra("the coverage page", "report") from error

DATA, PAGE = "coverage.json", "coverage.html"
VIDEOS = (0, 1, 2, 4, 8, 16)
"""Ticks of the upper axis."""
_CAPTION = (
    "How much oftener than relevance, a control that reads no corpus, the reward is expected to prefer the true plan, "
    "by the match: how well narrations match what is done. Dark band: 95% of the "
    "fitted curve; light band: 95% for a data set that the law has not seen. Circles: measured sources with the given "
    "number of covering videos; green: sources that it was not fitted on. Marks on the curve: tasks that the corpus "
    "knows, in orange where no gain is certain. Above: as many covering step lists."
)


@mpl.rc_context(STYLE)
def _law_figure(law: CoverageLaw, report: CoverageReport) -> Drawing:
    """The curve with its bands and measured points, and the tasks of the report on it."""
    matches = [task.match for task in report.tasks]
    cells = law.record.get("cells", [])
    right = max([0.6, *matches, *(cell["match"] for cell in cells)]) * 1.05
    grid = np.linspace(min([0.1, *matches]), right, 200)
    figure = new_figure(7.6, 4.0)
    panel = figure.subplots()
    around = [law.interval(float(match)) for match in grid]
    low, high = ([100 * (getattr(gain, end) or 0.0) for gain in around] for end in ("low", "high"))
    panel.fill_between(grid, low, high, color=BLUE, alpha=0.10, linewidth=0)
    low, high = ((100 * np.interp(grid, law.grid, end)).tolist() for end in (law.low, law.high))
    panel.fill_between(grid, low, high, color=BLUE, alpha=0.22, linewidth=0)
    panel.plot(grid, [100 * law.gain(float(match)) for match in grid], color=BLUE, linewidth=2)
    panel.axhline(0, color=MUTED, linewidth=0.8, linestyle=DASHED)
    for cell in cells:
        unseen = cell["source"] in law.record.get("tests", {})
        panel.plot(
            cell["match"],
            100 * cell["gain"],
            "D" if unseen else "o",
            markersize=4.5,
            color=GREEN if unseen else DARK_GREY,
            markerfacecolor="none",
        )
        number = "speech" if cell["videos"] is None else "all" if cell["videos"] > max(VIDEOS) else str(cell["videos"])
        panel.annotate(number, (cell["match"], 100 * cell["gain"]), (4, 3), textcoords="offset points", fontsize=7.5,
                       color=MUTED)  # fmt: skip
    for task in report.tasks:
        if task.gain is None:
            continue
        colour = BLUE if task.covered else VERMILION
        panel.plot(task.match, 100 * law.gain(task.match), "|", color=colour, markersize=13, markeredgewidth=1.6)
    panel.set_xlim(grid[0], right)
    panel.set_xlabel("match")
    panel.set_ylabel("gain over relevance, points")
    ticks = [law.zero + law.one_video * np.log1p(law.growth * count) for count in VIDEOS]
    upper = panel.secondary_xaxis("top")
    upper.set_xticks(ticks, [str(count) for count in VIDEOS])
    upper.set_xlabel("covering videos, as step lists", color=INK)
    upper.spines["top"].set_visible(False)
    return figure


def _render_coverage(report: CoverageReport) -> str:
    """The whole page; the same report gives the same page."""
    sections = [Section("tasks", "The tasks, least covered first", "Tasks", blocks=(report.table(),))]
    if report.law is not None:
        figure = Figure(inline_svg(_law_figure(report.law, report), "law", _CAPTION), _CAPTION)
        sections.append(Section("law", "The coverage law", "Law", blocks=(figure,)))
    settings = " · ".join(f"{name} {value}" for name, value in report.settings.items())
    return render("Which tasks the corpus covers", settings, (report.answer, *report.cautions), sections)


def write_coverage(report: CoverageReport, folder: Path) -> list[Path]:
    """Write data and page into a folder, each all or nothing; returns the files."""
    written = [folder / DATA, folder / PAGE]
    write_json(written[0], report.to_json())
    write_text(written[1], _render_coverage(report))
    return written
