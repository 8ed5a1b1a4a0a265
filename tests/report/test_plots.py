"""Figures of reports: what is drawn where, and that no name can leave its text."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.axes import Axes

from recipe.report.colours import BLUE, GREEN, INK
from recipe.report.plots import Line, Mark, Point, curves, inline_svg, intervals, scatter, stacked
from recipe.stats import Interval

COLOURS = {"x": BLUE, "y": GREEN}


def marks(panel: Axes, shape: str) -> list[tuple[float, float, str]]:
    """Place and colour of the marks of a shape."""
    return [
        (float(line.get_xdata()[0]), round(float(line.get_ydata()[0]), 6), str(line.get_markeredgecolor()))
        for line in panel.lines
        if line.get_marker() == shape
    ]


def names(panel: Axes) -> list[str]:
    return [label.get_text() for label in panel.get_yticklabels()]


def test_series_share_a_row_and_a_missing_value_keeps_it() -> None:
    rows = [
        Mark("first", Interval(1, 0, 2), "x"),
        Mark("first", Interval(3), "y"),
        Mark("second", None, "x"),
        Mark("third", Interval(5)),
        Mark("first", Interval(4), hollow=True),
    ]
    [panel] = intervals(rows, colours=COLOURS, xlim=(0, 5), line=2).axes
    assert names(panel) == ["first", "second", "third"]
    (x, above, _), (y, below, _), third = marks(panel, "o")
    assert (x, y, third) == (1, 3, (5, 2, INK))
    assert above == -below < 0
    assert [(place, height) for place, height, _ in marks(panel, "D")] == [(4, 0)]
    assert [0, 2] in [list(line.get_xdata()) for line in panel.lines]


def test_without_marks_a_figure_is_empty() -> None:
    [panel] = intervals([], colours={}, xlim=(0, 1), unit="percent").axes
    assert names(panel) == []


def test_runs_of_a_row_stand_apart_and_panels_share_an_axis_with_a_unit() -> None:
    rows = [Mark("x", Interval(value), panel=panel) for panel in ("p", "q") for value in (1, 2, 3)]
    figure = intervals([*rows, Mark("x", Interval(90), panel="q")], colours=COLOURS, unit="percent")
    left, right = figure.axes
    assert [height for _, height, _ in marks(left, "o")] == pytest.approx([-0.55 / 3, 0, 0.55 / 3], abs=1e-6)
    assert {colour for *_, colour in marks(left, "o")} == {BLUE}
    assert left.get_xlim() == right.get_xlim()
    apart = intervals([*rows, Mark("x", Interval(90), panel="q")], colours=COLOURS)
    assert apart.axes[0].get_xlim() != apart.axes[1].get_xlim()


def test_series_without_a_colour_differ_by_shape() -> None:
    rows = [Mark(name, Interval(1), series) for name in ("x", "y") for series in ("cuts", "goals")]
    [panel] = intervals(rows, colours=COLOURS).axes
    for shape in ("o", "D"):
        assert [colour for *_, colour in marks(panel, shape)] == [BLUE, GREEN]


def test_a_running_mean_lies_over_one_run_and_over_several_their_mean() -> None:
    steps, values = range(12), [0.0, 3.0] * 6
    [panel, *hidden] = curves([Line("p", "x", steps, values)], colours=COLOURS, xlabel="step", smoothed=True).axes
    assert not any(other.get_visible() for other in hidden)
    assert list(panel.lines[0].get_ydata()) == values
    assert float(np.ptp(np.asarray(panel.lines[-1].get_ydata(), dtype=float)[1:-1])) == pytest.approx(1)
    runs = [Line("p", "x", (1, 2), (0.0, None)), Line("p", "x", (1, 2), (2.0, 4.0))]
    panel = curves(runs, colours=COLOURS, xlabel="step", smoothed=True).axes[0]
    thick = panel.lines[-1].get_ydata()
    assert thick[0] == 1
    assert np.isnan(thick[1])  # a step that one run did not log has no mean


def test_points_have_their_intervals_and_levels_their_names() -> None:
    lines = [
        Line("p", "x", ["0", "4"], [Interval(1, 0, 2), Interval(3)]),
        Line("p", "x", ["0", "4"], [5.0, 6.0], hollow=True),
    ]
    figure = curves(lines, colours=COLOURS, xlabel="n", ylabel="gain", levels={"p": [("base", 1.0), ("", 0.0)]})
    [panel] = figure.axes
    assert [(x, y) for x, y, _ in marks(panel, "D")] == [(0, 5)]
    assert [0, 2] in [list(line.get_ydata()) for line in panel.lines]
    assert [text.get_text() for text in panel.texts] == ["base"]


def test_bars_are_stacked_in_the_order_of_the_colours() -> None:
    rows = {"mine": {"y": 0.5, "x": 1.0}}
    [panel] = stacked(rows, colours=COLOURS, unit="lengths", line=1, notes={"mine": "more"}).axes
    assert [(bar.get_x(), bar.get_width()) for bar in panel.patches] == [(0, 1.0), (1.0, 0.5)]
    assert [text.get_text() for text in panel.texts] == ["more"]


def test_no_text_of_a_figure_is_read_as_a_formula_or_as_markup() -> None:
    name = "$x_$ & <b>"
    figure = scatter([Point(name, Interval(1, 0, 2), Interval(3))], colours={}, xlabel="x", ylabel="y")
    svg = inline_svg(figure, "points", "<i>" + "a" * 1000)
    assert "$x_$ &amp; &lt;b&gt;" in svg
    assert "<i>" not in svg
    assert "shortened" in svg
