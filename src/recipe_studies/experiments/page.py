"""The results of an experiment as one self-contained HTML page: style and figures are inline."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from recipe.artifacts import write_text
from recipe.errors import MissingExtra
from recipe.evaluation.metrics import (
    CONTROL,
    METRICS,
    Difference,
    control_sentences,
    metric_cell,
    ordered_metrics,
    regime_colours,
)
from recipe.evaluation.validity.readings import STATUSES
from recipe.report.elements import (
    Block,
    Cell,
    Figure,
    Heading,
    MarkedStep,
    NamedValues,
    PlanColumn,
    Plans,
    Section,
    Table,
    headings,
    row,
)
from recipe.report.numbers import format_number, format_seconds
from recipe.report.page import render
from recipe.report.plots import inline_svg, new_figure, smoothing_window
from recipe_studies.experiments import plots
from recipe_studies.experiments.findings import headline
from recipe_studies.experiments.plots import SERIES, SERIES_OF_ONE_RUN
from recipe_studies.experiments.results import (
    KEPT,
    MAIN,
    SPLITS,
    Curve,
    Provenance,
    Results,
    ShownPlan,
    ShownPrompt,
    StageTime,
    load_results,
)
from recipe_studies.experiments.study import BASE, GREEDY

try:
    from matplotlib.figure import Figure as Drawing
except ModuleNotFoundError as error:
    raise MissingExtra("the report", "report") from error

EXACT = (
    "Validity is exact: each line of a plan is mapped to a step of the goal's task graph. Order is the share of "
    "prerequisites respected, coverage the share of required steps named, clean the share of lines that add a new "
    "step of the goal; validity = order × F1(coverage, clean). Repeated steps are in the plan or the history "
    "already, foreign ones are no steps of the goal."
)
MATCHED = (
    "There is no exact measure of a plan here. A line of a plan matches the step of the annotated continuation that it "
    "is most alike by embedding, or none: where it is not alike enough, or is more alike a step that is done or the "
    "goal itself. Matched step F1 counts the steps in common, each as often as the annotation has it, matched step F1 "
    "in order those in the same order (longest common subsequence). Step F1 without a floor takes each line for the "
    "annotated step nearest to it, and so pays for the goal and for what is done. A right plan that differs counts as "
    "wrong. Controls are plans that no planner made; a regime that does not beat them has planned nothing that the "
    "measure can see."
)
AGREEMENT = (
    "There is no exact measure of a plan here. Each line of a plan is taken for the annotated step nearest to it "
    "by embedding, and the plan is compared with the one continuation that was annotated: step F1 counts the "
    "steps in common, step F1 in order those in the same order (longest common subsequence). A right plan that "
    "differs counts as wrong."
)
REWARD = "There is no exact measure of a plan here; the reward is the verifier's score, not the quality of a plan."
TRAINING = "The trainer sees only the reward; exact validity and length of the same completions are shown next to it."
TOGETHER = 4
"""Runs at most whose validations are drawn in the picture that the page begins with."""
KEY_REGIMES = "By regime: plans for test prompts, mean and 95% interval."
KEY_DRIFT = (
    "By drift: the same measure on validation prompts while a reward trains, from the base on; what is ringed is kept "
    "and tested, the base where nothing was better. Where a line falls and its reward rises, training pays the reward "
    "and no longer the plans."
)
KEY_CURVES = "While each reward trains: means over each step's own plans, smoothed."
BOLD = "bold where the interval excludes 0"


def render_html(results: Results) -> str:
    """The whole page. The same results give the same page."""
    names = (
        *results.regimes(),
        *(scores.regime for scores in results.controls),
        *(change.regime for change in results.differences),
        *(plan.regime for prompt in results.prompts for plan in prompt.plans),
    )
    shown, provenance, sections = headline(results), results.provenance, list(_report_sections(results))
    # The picture that the page begins with, in one or two parts; none where there is nothing to draw.
    lead: Sequence[Block]
    first = _begins_with(results)
    if results.opening is not None:
        lead = (
            *_figures("key", (plots.training_figure(results.curves, plots.KEY_SERIES), KEY_CURVES)),
            _key_table(results),
        )
    elif first == "plans":
        lead = _means_figure(results)
    elif first == "differences":
        # The head of the page is read in seconds: the main metric and the length.
        lead = _differences_figure(results, "key", (results.main_metric(), "steps"))
    else:
        means = plots.means_figure(results, new_figure(5.6, 4.0, gap=0.06))
        pair = _figures("key", (means, KEY_REGIMES), (plots.drift_figure(results.validations), KEY_DRIFT))
        lead = (Figure("".join(part.svg for part in pair), f"{KEY_REGIMES} {KEY_DRIFT}"),)
    seconds = sum(stage.seconds for stage in results.stages)
    run = (
        provenance.created.replace("T", " ").replace("+00:00", " UTC"),
        provenance.device,
        f"seed{'s' if len(provenance.seeds) > 1 else ''} {', '.join(map(str, provenance.seeds))}"
        * bool(provenance.seeds),
        f"{format_seconds(seconds)} of work" * bool(results.stages),
    )
    return render(
        results.title,
        " · ".join(filter(None, run)),
        shown,
        sections,
        opening=() if results.opening is None else tuple(plans_side_by_side([results.opening])),
        lead=lead,
        folded=results.summary if list(results.summary) != list(shown) else (),
        colours=regime_colours(names),
    )


def rerender(run_dir: Path) -> Path:
    """Write `report.html` from the `report.json` in the same folder; raises InputError when that is missing."""
    results = load_results(run_dir / "report.json")
    write_text(run_dir / "report.html", render_html(results))
    return run_dir / "report.html"


def _report_sections(results: Results) -> Iterator[Section]:
    """The sections that the results hold data for."""
    known = {name for scores in results.scores for name in scores.metrics}
    exact, first = "score" in known, _begins_with(results)
    if results.scores:
        paragraph = EXACT if exact else MATCHED if "matched_f1" in known else AGREEMENT if "f1" in known else REWARD
        means = _means_figure(results) if first == "differences" else ()  # the other pictures hold them
        yield Section("plans", "Plans by regime", "Plans by regime", (paragraph,), (*means, *_score_tables(results)))
    if results.differences:
        figure = _differences_figure(results, "differences")
        kept = {row.regime for row in results.differences if row.baseline == BASE and results.kept_base(row.regime)}
        tables = _difference_tables(results.differences, "regime", kept)
        title = f"Against {results.differences[0].baseline}, prompt by prompt"
        yield Section("differences", title, "Differences", blocks=(*figure, *tables), folded=True)
    if results.control_differences:
        blocks = []
        for split, name in dict.fromkeys((row.split, row.metric) for row in results.control_differences):
            own = {
                (row.regime, row.baseline): row.value
                for row in results.control_differences
                if (row.split, row.metric) == (split, name)
            }
            regimes, controls = (list(dict.fromkeys(names)) for names in zip(*own, strict=True))
            rows = (
                row(regime, *(metric_cell(own.get((regime, control)), name, signed=True) for control in controls))
                for regime in regimes
            )
            columns = headings(*(control.removeprefix(CONTROL) for control in controls))
            about = f"{METRICS.get(name, name)}: regime minus control on the same prompts; {BOLD}"
            blocks.append(Table(SPLITS.get(split, split), "regime", columns, tuple(rows), about))
        sentences = tuple(control_sentences(results.control_differences))
        yield Section("controls", "Against the controls", "Controls", blocks=tuple(blocks), findings=sentences)
    if results.by_seed:
        baselines = " or ".join(dict.fromkeys(row.baseline for row in results.by_seed))
        metrics = {row.metric for row in results.by_seed}
        shown = next(name for name in (*MAIN, results.by_seed[0].metric) if name in metrics)
        caption = f"Every run alone: its mean difference to {baselines} on the same prompts, with its 95% interval."
        figure = _figures("seeds", (plots.seeds_figure(results.by_seed, shown), caption))
        runs = [replace(row, regime=f"{row.regime}, seed {row.seed}") for row in results.by_seed]
        kept = {
            run.regime
            for row, run in zip(results.by_seed, runs, strict=True)
            if row.baseline == BASE and results.kept_base(row.regime, row.seed)
        }
        tables = _difference_tables(runs, "run", kept)
        yield Section("seeds", "Seed by seed", "Seeds", blocks=(*figure, *tables))
    training: list[Table | Figure] = [*_training_figures(results.curves)]
    if results.costs:
        rows = (
            row(
                cost.regime, Cell(cost.reward_seconds, 3), Cell(cost.step_seconds, 2), Cell(cost.share, 1, percent=True)
            )
            for cost in results.costs
        )
        columns = headings("reward, seconds a step", "whole step, seconds", "share")
        about = "means over the steps of all runs"
        training.append(Table("Cost of the reward", "regime", columns, tuple(rows), about))
    if training:
        paragraphs = (TRAINING,) if exact else ()
        yield Section("training", "What training did", "Training", paragraphs, tuple(training), folded=True)
    if results.alarms:
        paragraph = "The watchdog sees the completions of training and their rewards, never the truth."
        sentences = tuple(dict.fromkeys(alarm.words for alarm in results.alarms))
        yield Section("watchdog", "Findings of the watchdog", "Watchdog", (paragraph,), findings=sentences)
    if results.rerankings:
        reranking = results.rerankings[0]
        several = len({choice.verifier for choice in results.rerankings}) > 1
        caption = (
            f"{reranking.count} samples of {reranking.regime} for each prompt: their mean, the one that "
            f"{'each reward' if several else f'the {reranking.verifier} verifier'} scores highest, and the best there "
            "is. Nothing is trained."
        )
        figure = _figures("reranking", (plots.reranking_figure(results.rerankings), caption))
        title = f"Best of {reranking.count}, without training"
        yield Section("reranking", title, "Best of N", blocks=figure)
    if results.lengths:
        figure = _figures("lengths", (plots.lengths_figure(results.lengths), "Share of plans by number of steps."))
        yield Section("lengths", "How long the plans are", "Length", blocks=figure, folded=True)
    if results.prompts:
        plans = tuple(plans_side_by_side(results.prompts))
        yield Section("samples", "Plans side by side", "Samples", blocks=plans, folded=True)
    yield run_section(results.provenance, results.stages)
    if results.caveats:
        yield Section("caveats", "Caveats", "Caveats", findings=results.caveats)


def run_section(provenance: Provenance, stages: Sequence[StageTime] = ()) -> Section:
    """How results were made, and how long it took."""
    rows = tuple(row(stage.name, format_seconds(stage.seconds), stage.detail) for stage in stages)
    times = (Table("Stages", "stage", headings("time", "of which"), rows),) if rows else ()
    pairs = (
        ("command", provenance.command),
        *provenance.data.items(),
        *((name, value or "defaults") for name, value in provenance.settings.items()),
        ("versions", ", ".join(f"{name} {version}" for name, version in provenance.versions.items())),
    )
    settings = NamedValues(
        tuple((name, value) for name, value in pairs if value or name not in ("command", "versions"))
    )
    return Section("run", "How it was run", "How it was run", blocks=(*times, settings), folded=True)


def _figures(section: str, *drawings: tuple[Drawing | None, str]) -> tuple[Figure, ...]:
    """The drawings of a section that there are, each with its caption."""
    return tuple(
        Figure(inline_svg(drawing, f"{section}{number}", caption), caption)
        for number, (drawing, caption) in enumerate(drawings)
        if drawing is not None
    )


def plans_side_by_side(prompts: Sequence[ShownPrompt]) -> Iterator[Plans]:
    """The plans for each prompt; the meanings of their marks stand before the first."""
    marked = any(line.status != "unknown" for prompt in prompts for plan in prompt.plans for line in plan.lines)
    legend = tuple(MarkedStep(meaning, mark, status) for status, (mark, meaning) in STATUSES.items()) if marked else ()
    for prompt in prompts:
        history = f"Done: {'; '.join(prompt.history) or 'nothing yet'}."
        where = SPLITS.get(prompt.split, prompt.split)
        yield Plans(tuple(map(_plan_column, prompt.plans)), prompt.goal, where, history, legend)
        legend = ()


def _plan_column(plan: ShownPlan) -> PlanColumn:
    values = {"validity": plan.validity, "reward": plan.reward}
    known = [f"{name} {format_number(value)}" for name, value in values.items() if value is not None]
    about = ", ".join([*known, *([] if plan.accuracy is None else [f"accuracy {plan.accuracy:.0f}%"])])
    steps = []
    for line, quote in zip_longest(plan.lines, plan.quotes):
        mark, meaning = STATUSES.get(line.status, ("", ""))
        said, source = "", ""
        if quote is not None:
            said = f"“{quote.text}”"
            source = f"{quote.video_id} {quote.time}, {quote.narrations} of the {quote.about} videos about this"
        steps.append(MarkedStep(line.text, mark, line.status, hint=meaning, quote=said, source=source))
    return PlanColumn(plan.regime, tuple(steps), about, f"Forgotten: {'; '.join(plan.missing)}." * bool(plan.missing))


def _key_table(results: Results) -> Table:
    """The main metric of each regime with its difference to the base, a split a pair of columns."""
    metric = results.main_metric()
    means = {(own.regime, own.split): own.metrics for own in results.scores}
    gains = {
        (own.regime, own.split): own.value
        for own in results.differences
        if own.metric == metric and own.baseline in (BASE, f"{BASE}{GREEDY}")
    }
    columns = [
        Heading(name, SPLITS.get(split, split))
        for split in results.splits()
        for name in (MAIN[metric].lower(), "against the base", "steps")
    ]
    rows = []
    for regime in dict.fromkeys(own.regime for own in results.scores):
        cells = list[Cell]()
        for split in results.splits():
            own = means[regime, split]
            cells += [
                Cell(own[metric].mean, 3),
                metric_cell(gains.get((regime, split)), metric, signed=True),
                Cell(own["steps"].mean, 1),
            ]
        rows.append(row(regime, *cells))
    about = f"greedy plans against the base's greedy plans, others against its samples; {BOLD}"
    return Table("What each one gains", "regime", tuple(columns), tuple(rows), about)


def _means_figure(results: Results) -> tuple[Figure, ...]:
    main = results.main_metric()
    if all(main not in scores.metrics for scores in results.scores):
        return ()
    return _figures("means", (plots.means_figure(results), f"{MAIN[main]}: mean and 95% interval by regime."))


def _score_tables(results: Results) -> Iterator[Table | Figure]:
    """Every metric of each split, those in METRICS first and in their order; `malformed` only where it occurs."""
    for split in results.splits():
        rows = [scores for scores in (*results.scores, *results.controls) if scores.split == split]
        present = dict.fromkeys(name for scores in rows for name in scores.metrics)
        if all(scores.metrics["malformed"].mean == 0 for scores in rows if "malformed" in scores.metrics):
            present.pop("malformed", None)
        metrics = ordered_metrics(present)
        yield Table(
            SPLITS.get(split, split),
            "regime",
            headings(*(METRICS.get(name, name) for name in metrics)),
            tuple(
                row(scores.regime, *(metric_cell(scores.metrics.get(name), name) for name in metrics))
                for scores in rows
            ),
            f"{rows[0].prompts} prompts, {rows[0].samples} samples each; mean and 95% interval, clustered by goal",
        )


def _difference_tables(differences: Sequence[Difference], first: str, kept: Container[str]) -> Iterator[Table]:
    """A table for each split and baseline; the rows of `kept` say that validation kept the base."""
    for split, baseline in dict.fromkeys((change.split, change.baseline) for change in differences):
        own = {
            (change.regime, change.metric): change.value
            for change in differences
            if (change.split, change.baseline) == (split, baseline)
        }
        regimes, metrics = (list(dict.fromkeys(names)) for names in zip(*own, strict=True))
        yield Table(
            SPLITS.get(split, split),
            first,
            headings(*(METRICS.get(name, name) for name in metrics)),
            tuple(
                row(regime, KEPT, *[None] * (len(metrics) - 1))
                if regime in kept
                else row(regime, *(metric_cell(own.get((regime, name)), name, signed=True) for name in metrics))
                for regime in regimes
            ),
            f"difference to {baseline}; {BOLD}",
        )


def _training_figures(curves: Sequence[Curve]) -> tuple[Figure, ...]:
    """Series of all runs, one panel each; of a run alone more of them."""
    if len(curves) == 1:
        [curve] = curves
        run = curve.regime if curve.seed is None else f"{curve.regime}, seed {curve.seed}"
        window = smoothing_window(len(curve.steps))
        smooth = f" (faint) and the running mean over {window} steps" if window > 1 else ""
        caption = f"{run}: means over each step's own completions{smooth}."
        return _figures("training", (plots.training_figure(curves, SERIES_OF_ONE_RUN), caption))
    caption = "Means over each step's own completions, smoothed: a thin line is one run, a thick one their mean."
    return _figures("training", (plots.training_figure(curves, SERIES), caption))


def _differences_figure(results: Results, section: str, metrics: Sequence[str] = plots.CHANGES) -> tuple[Figure, ...]:
    if not results.differences:
        return ()
    baseline = results.differences[0].baseline
    own = [change for change in results.differences if change.baseline in (baseline, f"{baseline}{GREEDY}")]
    greedy = "; greedy plans against greedy plans" if len({change.baseline for change in own}) > 1 else ""
    caption = f"Mean difference to {baseline} on the same prompts, with its 95% interval{greedy}."
    return _figures(section, (plots.differences_figure(own, metrics), caption))


def _begins_with(results: Results) -> Literal["validations", "differences", "plans"]:
    """The section whose figure is the picture that the page begins with."""
    if results.scores and 0 < len(results.validations) <= TOGETHER:
        return "validations"
    metrics = (results.main_metric(), "steps")
    return "differences" if any(row.metric in metrics for row in results.differences) else "plans"
