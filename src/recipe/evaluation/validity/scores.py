"""Validity against task graphs: every valid order scores full; and the agreement of judges with it.

Agreement with a judge is by rank. Spearman's rho is the correlation of the ranks, equal values sharing their mean rank;
its interval draws whole goals with replacement and ranks each draw again. Kendall's tau-b is given as well. Plans that
either scores by rule are left out: a missing or empty plan is 0 for both, which is no agreement.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np

from recipe.artifacts import to_json
from recipe.config.corpus import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.data.task_graphs import read_task_graphs
from recipe.errors import InputError, listed
from recipe.evaluation.judge.plans import SHORTENED
from recipe.evaluation.judge.verdicts import Judgement, read_verdicts
from recipe.evaluation.matching import Embed
from recipe.evaluation.measures import Measure, example_means
from recipe.evaluation.metrics import METRICS
from recipe.evaluation.scores import JudgeIdentity, Row, Scores, read_scores, rows_path
from recipe.evaluation.validity.measure import ScoredPlan, plan_metrics, score_predictions
from recipe.evaluation.validity.readings import (
    MARGIN,
    THRESHOLDS,
    GraphReader,
    PlanReader,
    WorldReader,
    shortened,
    shown,
    threshold_of,
)
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.prompting import visible
from recipe.report.elements import Cell, Figure, Section, Table, headings, row
from recipe.rows import from_json
from recipe.stats import Interval, kendall, spearman
from recipe.types import Example, Grades, Verdict
from recipe.world.load import load_world

RULE = "rule"
"""`Judgement.how` of a plan that no judge was shown."""
WORLD = "world"
"""Name of the graphs of the embedded world in scores."""
# Goals that are drawn at most: those where systems differ most.
_GOALS = 40


class ValidityMeasure(Measure):
    """Each line of a plan is mapped to a step of its goal's task graph, and the graph decides."""

    name = "validity"
    title = "validity"
    about = (
        "No judge: each line of a plan is mapped to a step of the goal's task graph, and the graph decides. Every "
        "valid order scores full. Order is the share of prerequisites respected, coverage the share of required "
        "steps named, clean the share of lines that add a new step of the goal; validity = order × F1(coverage, "
        "clean)."
    )
    main = "score"
    further = ("order", "coverage", "clean", "perfect", "steps")
    digits = 3
    scale = (0.0, 1.0)
    cluster = "goal"

    def __init__(
        self,
        graphs: Path | None = None,
        embed: Callable[[], Embed] | None = None,
        encoder: str = "minilm",
        threshold: float | None = None,
        split_lines: bool = False,
    ) -> None:
        """Without `graphs`, the world's; `embed` opens the encoder of this name.

        Raises InputError for settings that need graphs, and for graphs that cannot be read.
        """
        super().__init__()
        self.reader: PlanReader
        self.scored: list[ScoredPlan] = []
        if graphs is None:
            if threshold is not None or split_lines:
                problem = "--threshold and --split-lines go with --graphs"
                raise InputError(f"{problem}: the embedded world has its own wordings.")
            self.reader, self.identity = WorldReader(load_world()), {"graphs": WORLD}
            return
        read = read_task_graphs(graphs)
        embedded = open_encoder(EncoderConfig(name=encoder)).encode if embed is None else embed()
        # Of another encoder it is found in the graphs that are read.
        least = threshold if threshold is not None else THRESHOLDS.get(encoder)
        if least is None:
            least = threshold_of(read, embedded)
        self.reader = GraphReader(read, embedded, least, split_lines=split_lines)
        self.identity = {
            "graphs": graphs.stem,
            "encoder": encoder,
            "threshold": f"{least:g}",
            "margin": f"{MARGIN:g}",
            "lines": "split" if split_lines else "whole",
            "goals": str(len(read)),
        }
        self.settings = {name: value for name, value in self.identity.items() if name != "graphs"}

    @classmethod
    def open(cls, settings: Any, embed: Callable[[], Embed], model: Any = None) -> "ValidityMeasure":
        return cls(settings.graphs, embed, settings.encoder, settings.threshold)

    def knows(self, example: Example) -> bool:
        return self.reader.knows(example.goal)

    def require(self, examples: Sequence[Example]) -> None:
        if lost := sorted({example.goal for example in examples if not self.knows(example)}):
            raise InputError(f"goals without a task graph: {listed(lost)}; leave their examples out.")

    def known(self, examples: Sequence[Example], skip: bool = False) -> tuple[list[Example], dict[str, int]]:
        """The examples whose goals have a task graph, and how many others there are.

        Raises InputError for goals without one unless `skip`, and where no goal has one.
        """
        kept = [example for example in examples if self.knows(example)]
        skipped = {example.goal for example in examples if not self.knows(example)}
        if skipped and (not skip or not kept):
            others = f" {len(skipped)} such goals" if len(skipped) > 1 else " such a goal"
            lost = len(examples) - len(kept)
            count = f"{lost} of {len(examples)} examples have{others}; --skip-goals leaves them out."
            first = next(example for example in examples if example.goal in skipped)
            try:
                self.reader.read(first.goal, (), ())
            except InputError as error:
                raise InputError(f"{error} {count}") from None
        left_out = {"goals without a graph": len(skipped), "examples of these": len(examples) - len(kept)}
        return kept, left_out

    def rows(
        self, examples: Sequence[Example], predictions: Sequence[Prediction], progress: Progress = SILENT
    ) -> list[Row]:
        """A row for each plan: the lines that were read, the status and step of each, and the missing steps."""
        self.scored = score_predictions(self.reader, examples, predictions, progress)
        rows = []
        for plan, metrics in zip(self.scored, plan_metrics(self.scored), strict=True):
            reading = plan.reading
            assert reading is not None
            read = len(reading.lines) - reading.unread
            details = {
                "goal": visible(plan.goal),
                "steps": list(reading.lines[:read]),
                "statuses": [line.status for line in reading.statuses()[:read]],
                "nodes": list(reading.plan[:read]),
                "similarities": list(reading.similarities[:read]),
                "unread": reading.unread,
                "missing_steps": list(reading.missing()),
                "flags": [SHORTENED] if reading.unread or any(map(shortened, reading.lines)) else [],
            }
            rows.append(Row(plan.example_id, metrics, plan.sample, details=details))
        return rows

    def extras(self, rows: Sequence[Row], seed: int) -> dict[str, Any]:
        """Mean validity of each goal."""
        goals = {judgement.example_id: judgement.details["goal"] for judgement in rows}
        by_goal: dict[str, list[float]] = defaultdict(list)
        for name, means in example_means(self.plan_values(rows)).items():
            by_goal[goals[name]].append(means["score"])
        return {"by_goal": {goal: fmean(values) for goal, values in sorted(by_goal.items())}}

    @classmethod
    def sections(cls, scores: Sequence[Scores], every: Sequence[Scores]) -> list[Section]:
        """Adds the validity of each goal, and the agreement of judges with it."""
        [section] = super().sections(scores, every)
        tables = []
        goals = sorted({goal for scored in scores for goal in scored.extras["by_goal"]})
        rows = tuple(row(goal, *(Cell(scored.extras["by_goal"].get(goal), 2) for scored in scores)) for goal in goals)
        tables.append(
            Table("Validity of each goal", "goal", headings(*(scored.system for scored in scores)), rows, folded=True)
        )
        agreement = tuple(
            row(scored.system, other.judge.name, Cell(other.spearman, 2), Cell(other.kendall, 2), other.plans)
            for scored in scores
            for other in agreements(scored)
        )
        if agreement:
            columns = headings("judge", "Spearman", "Kendall", "plans")
            about = "rank correlation over the same plans, 95% interval below"
            tables.append(Table("Agreement of judges with validity", "system", columns, agreement, about))
        return [replace(section, blocks=(*section.blocks, *tables))]

    @classmethod
    def figures(cls, scores: Sequence[Scores]) -> list[Figure]:
        """Validity with its components, and each goal's validity."""
        from recipe.evaluation.metrics import regime_colours  # noqa: PLC0415
        from recipe.report.plots import Mark, inline_svg, intervals  # noqa: PLC0415 - matplotlib is for reports alone

        colours = regime_colours(scored.system for scored in scores)
        names = ("score", "order", "coverage", "clean")
        parts = [
            Mark(METRICS[name], scored.overall.values.get(name), scored.system) for name in names for scored in scores
        ]
        caption = "Validity and its components, 95% interval."
        drawn = [Figure(inline_svg(intervals(parts, colours=colours, xlim=cls.scale), "validity", caption), caption)]
        goals: dict[str, list[float]] = defaultdict(list)
        for scored in scores:
            for goal, value in scored.extras["by_goal"].items():
                goals[goal].append(value)
        apart = sorted(goals, key=lambda goal: (min(goals[goal]) - max(goals[goal]), goal))[:_GOALS]
        marks = [
            Mark(goal, Interval(scored.extras["by_goal"][goal]), scored.system)
            for goal in sorted(apart, key=lambda goal: (fmean(goals[goal]), goal))
            for scored in scores
            if goal in scored.extras["by_goal"]
        ]
        if marks:
            widest = f"the {len(apart)} of {len(goals)} goals where systems differ most"
            caption = f"Validity of {widest if len(apart) < len(goals) else 'each goal'}, the lowest first."
            drawn.append(
                Figure(inline_svg(intervals(marks, colours=colours, xlim=cls.scale), "goals", caption), caption)
            )
        return drawn


def read_judged(path: Path) -> list[tuple[JudgeIdentity, list[Judgement]]]:
    """The judges of a file with their verdicts: scores of `recipe evaluate judge` with their rows, or rows alone.

    Raises InputError for scores of another kind and for a file without verdicts.
    """
    if path.suffix != ".jsonl":
        scores = read_scores(path)
        if scores.measure != "judge" or scores.judge is None:
            remedy = "give scores of `recipe evaluate judge`, or verdicts as JSON lines"
            raise InputError.at(path, f"these are scores of {scores.measure!r}", remedy, field="measure")
        return [(scores.judge, read_verdicts(rows_path(path)))]
    by_judge: dict[str, list[Judgement]] = defaultdict(list)
    for verdict in read_verdicts(path):
        by_judge[verdict.judge or path.stem].append(verdict)
    judges = []
    for name, rows in by_judge.items():
        ways = {row.how for row in rows}  # rows alone do not say more of their judge
        known: tuple[Literal["human", "proxy", "function"], ...] = ("human", "proxy", "function")
        kind: Literal["llm", "proxy", "function", "human"] = next((way for way in known if way in ways), "llm")
        judges.append((JudgeIdentity(name, kind), rows))
    return judges


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """Agreement of validity and a judge on the same plans."""

    judge: JudgeIdentity
    plans: int
    spearman: Interval | None
    kendall: float | None

    @property
    def sentence(self) -> str:
        """The agreement in words."""
        rho, tau = self.spearman, self.kendall
        if rho is None or tau is None:
            return f"{self.judge.name}: no rank correlation over {self.plans:,} plans, all equal to one of the two."
        bounds = f" (no interval: {rho.reason})" if rho.reason else ""
        if rho.low is not None and rho.high is not None:
            bounds = f" [{rho.low:.2f}, {rho.high:.2f}]"
        return f"{self.judge.name}: Spearman {rho.mean:.2f}{bounds}, Kendall {tau:.2f} over {self.plans:,} plans."


def agreement_with(
    judge: JudgeIdentity, rows: Sequence[Judgement], scored: Sequence[ScoredPlan], seed: int = 0
) -> JudgeAgreement:
    """Agreement over the plans that have a verdict; repeats of a verdict are averaged.

    A correlation is None where all plans are equal to one of the two. Raises InputError where no plan has a verdict, or
    a verdict is on another plan of the same name.
    """
    # By example and sample: a judge's repeats are averaged before ranks are taken.
    totals: dict[tuple[str, int], list[float]] = defaultdict(list)
    steps: dict[tuple[str, int], tuple[str, ...]] = {}
    for judgement in rows:
        outcome = judgement.outcome
        if not judgement.control and judgement.how != RULE and isinstance(outcome, Verdict | Grades):
            total = outcome.total if isinstance(outcome, Verdict) else outcome.percent
            totals[judgement.example_id, judgement.sample].append(total)
            steps[judgement.example_id, judgement.sample] = judgement.steps
    shared = [
        plan for plan in scored if plan.validity is not None and plan.steps and (plan.example_id, plan.sample) in totals
    ]
    if not shared:
        raise InputError(f"{judge.name} gave no verdict on any of these plans; give verdicts on the same predictions.")
    for plan in shared:
        # A judge sees the plan from its start, each line as it is read here; rows of people may lack it.
        judged = steps[plan.example_id, plan.sample]
        if judged and tuple(shown(text) for text in plan.texts[: len(judged)]) != tuple(judged):
            raise InputError(
                f"{judge.name} judged another plan as sample {plan.sample} of {plan.example_id!r}; "
                "give verdicts on the same predictions."
            )
    ours = np.array([plan.validity.score for plan in shared if plan.validity is not None])
    theirs = np.array([fmean(totals[plan.example_id, plan.sample]) for plan in shared])
    return JudgeAgreement(
        judge, len(shared), spearman(ours, theirs, [plan.goal for plan in shared], seed), kendall(ours, theirs)
    )


def agreements(scores: Scores) -> list[JudgeAgreement]:
    """The agreement of judges that scores of validity hold."""
    held = scores.extras.get("agreement", [])
    return [from_json(to_json(raw), JudgeAgreement, f"the agreement of {scores.system}") for raw in held]
