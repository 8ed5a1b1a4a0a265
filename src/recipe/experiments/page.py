"""Results as one HTML page that needs nothing but itself: inline style, inline figures, readable on paper and phone."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from recipe.artifacts import write_text
from recipe.errors import MissingExtra
from recipe.evaluation.metrics import METRICS, SHARES, metric_cell, ordered_metrics, regime_colours
from recipe.evaluation.validity.measure import Difference, Scores
from recipe.evaluation.validity.readings import STATUSES
from recipe.experiments import plots
from recipe.experiments.results import MAIN, SPLITS, Curve, Results, ShownPrompt, load_results
from recipe.report.colours import DARK, variable
from recipe.report.html import template
from recipe.report.numbers import format_number, format_seconds
from recipe.report.plots import inline_svg
from recipe.stats import Interval

try:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup
except ModuleNotFoundError as error:
    raise MissingExtra("the report", "report") from error


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawn figure and the sentence below it."""

    svg: Markup
    caption: str


def render_html(results: Results) -> str:
    """The whole page. The same results give the same page."""
    page = template("recipe.experiments", "report.html.jinja")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "cell": lambda value, metric: metric_cell(value, metric).text,
        "bounds": lambda value, metric: metric_cell(value, metric).small,
        "signed": lambda value, metric: metric_cell(value, metric, signed=True).text,
        "signed_bounds": lambda value, metric: metric_cell(value, metric, signed=True).small,
        "seconds": format_seconds,
        "number": format_number,
    }
    return environment.from_string(page).render(
        results=results,
        figures=_figures(results),
        tables=[(split, _metrics(rows), rows) for split, rows in _by_split(results)],
        exact=any("score" in row.metrics for row in results.scores),
        agreement=any("f1" in row.metrics for row in results.scores),
        changes=_changes(results.differences),
        seeds=_seeds(results.by_seed),
        metrics=METRICS,
        splits=SPLITS,
        shares=SHARES,
        statuses=STATUSES,
        shows_statuses=any(line.status != "unknown" for line in _lines(results.prompts)),
        colours=regime_colours(_regimes(results)),
        light=[(variable(colour), colour) for colour in DARK],
        dark=[(variable(colour), shade) for colour, shade in DARK.items()],
        variable=variable,
        highest_reward=max((plan.parts.total for plan in results.hand_made if plan.parts.total > 0), default=1.0),
        longest_stage=max((stage.seconds for stage in results.stages), default=1.0) or 1.0,
    )


def write_html(results: Results, target: Path) -> None:
    """Write the page, all or nothing."""
    write_text(target, render_html(results))


def rerender(run_dir: Path) -> Path:
    """Write `report.html` again from the `report.json` beside it; raises InputError when that is missing."""
    target = run_dir / "report.html"
    write_html(load_results(run_dir / "report.json"), target)
    return target


def _figures(results: Results) -> dict[str, list[Figure]]:
    """The figures that the results hold data for, by section."""
    drawn: dict[str, list[Figure]] = {}

    def draw(section: str, figure: Any, caption: str) -> None:
        if figure is not None:
            shown = drawn.setdefault(section, [])
            name = f"{section}{len(shown)}"
            shown.append(Figure(Markup(inline_svg(figure, name, escape(caption))), caption))

    main = results.main_metric()
    if any(main in row.metrics for row in results.scores):
        draw("means", plots.means_figure(results, main), f"{MAIN[main]}: mean and 95% interval by regime.")
    _draw_training(results.curves, draw)
    if results.by_seed:
        baseline = results.by_seed[0].baseline
        caption = f"Every run alone: its mean difference to {baseline} on the same prompts, with its 95% interval."
        measured = {one.metric: None for one in results.by_seed}
        metric = next(name for name in (*MAIN, *measured) if name in measured)
        draw("seeds", plots.seeds_figure(results.by_seed, metric, METRICS[metric]), caption)
    if results.differences:
        caption = f"Mean difference to {results.differences[0].baseline} on the same prompts, with its 95% interval."
        draw("differences", plots.differences_figure(results.differences), caption)
    if results.rerankings:
        draw("reranking", plots.reranking_figure(results.rerankings), _reranking_caption(results))
    if results.lengths:
        draw("lengths", plots.lengths_figure(results.lengths), "Share of plans by number of steps.")
    return drawn


def _draw_training(curves: Sequence[Curve], draw: Callable[[str, Any, str], None]) -> None:
    """One run in its own figures; several by series, all in one."""
    if len(curves) > 1:
        caption = "Means over each step's own completions, smoothed: a thin line is one run, a thick one their mean."
        draw("training", plots.curves_figure(curves), caption)
        return
    for curve in curves:
        if "reward" in curve.series:
            seed = "" if curve.seed is None else f", seed {curve.seed}"
            draw("training", plots.over_optimisation_figure(curve), _training_caption(curve.regime + seed, curve))
        draw("training", plots.training_figure(curves), "What else was logged while training, as above.")


def _training_caption(run: str, curve: Curve) -> str:
    window = plots.smoothing_window(len(curve.steps))
    smooth = f" (faint) and the running mean over {window} steps" if window > 1 else ""
    return f"{run}: means over each step's own completions{smooth}."


def _reranking_caption(results: Results) -> str:
    first = results.rerankings[0]
    several = len({one.verifier for one in results.rerankings}) > 1
    chooser = "each reward pays" if several else f"the {first.verifier} verifier rewards"
    return (
        f"{first.count} samples of {first.regime} for each prompt: their mean, the one that {chooser} most, and the "
        "best there is. Nothing is trained."
    )


def _by_split(results: Results) -> list[tuple[str, list[Scores]]]:
    return [(split, [row for row in results.scores if row.split == split]) for split in results.splits()]


def _metrics(rows: Sequence[Scores]) -> list[str]:
    """Every metric of the rows, those in METRICS first and in their order; `malformed` only where it occurs."""
    present = dict.fromkeys(name for row in rows for name in row.metrics)
    if all(row.metrics["malformed"].mean == 0 for row in rows if "malformed" in row.metrics):
        present.pop("malformed", None)
    return ordered_metrics(present)


def _changes(differences: Sequence[Difference]) -> list[tuple[str, list[str], list[tuple[str, dict[str, Interval]]]]]:
    """Differences as (split, metrics, rows), a row being a regime and its differences by metric."""
    splits: dict[str, dict[str, dict[str, Interval]]] = {}
    for one in differences:
        splits.setdefault(one.split, {}).setdefault(one.regime, {})[one.metric] = one.value
    ordered = {split: dict.fromkeys(name for row in rows.values() for name in row) for split, rows in splits.items()}
    return [(split, list(ordered[split]), list(rows.items())) for split, rows in splits.items()]


def _seeds(by_seed: Sequence[Difference]) -> list[tuple[str, list[str], list[tuple[str, dict[str, Interval]]]]]:
    """As `_changes`, a row being one run."""
    return _changes([replace(one, regime=f"{one.regime}, seed {one.seed}") for one in by_seed])


def _regimes(results: Results) -> Iterable[str]:
    shown = [plan.regime for prompt in results.prompts for plan in prompt.plans]
    compared = [one.regime for one in results.differences]
    return dict.fromkeys((*results.regimes(), *compared, *shown))


def _lines(prompts: Sequence[ShownPrompt]) -> Iterable[Any]:
    return (line for prompt in prompts for plan in prompt.plans for line in plan.lines)
