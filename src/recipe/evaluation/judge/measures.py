"""Plans judged by a rubric of criteria, the paper's or another."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from recipe.artifacts import to_json
from recipe.errors import ComputeError
from recipe.evaluation.judge.llm import Judge, LlmJudge
from recipe.evaluation.judge.plans import CONTROLS, Case, cases_of
from recipe.evaluation.judge.rubric import six_criteria
from recipe.evaluation.judge.verdicts import CRITERIA, HIGHEST, control_findings, read_verdicts, verdict_rows
from recipe.evaluation.measures import Measure, example_means
from recipe.evaluation.scores import JudgeIdentity, PlanId, Row, Scores
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.report.elements import Section
from recipe.types import Example


class RubricMeasure(Measure):
    """Accuracy by the paper's six criteria, or by those of a rubric that the judge's identity names.

    Rows are verdicts, including those on control plans, which show how far to trust the judge.
    """

    name = "judge"
    title = "accuracy"
    main = "accuracy"
    further = CRITERIA
    bounds = {"accuracy": (0.0, 100.0)} | dict.fromkeys(CRITERIA, (0.0, float(HIGHEST)))
    unit = "%"
    digits = 1
    scale = (0.0, 100.0)
    controls = tuple(CONTROLS)

    def __init__(self, identity: JudgeIdentity, judge: Judge | None = None) -> None:
        """`judge` gives the verdicts; without it others make the rows."""
        super().__init__()
        self.identity = {"judge": to_json(identity)}
        self.judge = judge

    @classmethod
    def read_rows(cls, path: Path) -> list[Row]:
        return verdict_rows(read_verdicts(path))

    def extras(self, rows: Sequence[Row], seed: int) -> dict[str, Any]:
        """Verdicts of each plan, by how many ways they were obtained, and how far the repeats of a plan differ.

        `repeat_deviation` is the mean over plans of the standard deviation of their repeats, in percent; None where no
        plan has two verdicts.
        """
        by_plan: dict[PlanId, list[float]] = {}
        for row in rows:
            if not row.control and not row.unscored:
                by_plan.setdefault(row.plan, []).append(row.metrics[self.main])
        # One verdict has no standard deviation.
        deviations = [stdev(values) for values in by_plan.values() if len(values) > 1]
        ways = Counter(how for row in rows if not row.control and (how := row.details["how"]))
        return {
            "repeats": 1 + max((row.details["repeat"] for row in rows), default=0),
            "repeat_deviation": fmean(deviations) if deviations else None,
            "how": dict(sorted(ways.items())),
        }

    def findings(self, rows: Sequence[Row], examples: Sequence[Example], seed: int) -> list[str]:
        by_id = {example.example_id: example for example in examples}
        controls = {name: [row for row in rows if row.control == name] for name in self.controls}
        values = {
            name: {
                example: metrics[self.main]
                for example, metrics in example_means(self.plan_values(controls[name])).items()
            }
            for name in self.controls
        }
        return control_findings(by_id, values, controls, seed)

    @classmethod
    def open(cls, settings: Any, embed: Callable[[], Any], model: Any = None) -> "RubricMeasure":
        judge = None if model is None else LlmJudge(model, settings.model, settings.judge)
        opened = cls(JudgeIdentity("", "llm"), judge)
        opened.identity = {
            "model": settings.model,
            "weights": settings.weights,
            "prompt": six_criteria().prompt,
            "missing verdicts": "0",
            "settings": settings.judge.model_dump(exclude={"batch_size"}),
        }
        return opened

    def rows(
        self, examples: Sequence[Example], predictions: Sequence[Prediction], progress: Progress = SILENT
    ) -> list[Row]:
        """A row for each verdict. What was not judged is asked about again, together with the references.

        A plan whose reference gets no verdict either has none because of its example, and has no row. Raises
        ComputeError where no reference gets one: the judge is away.
        """
        if self.judge is None:
            raise ComputeError("no judge is asked here; give the worker its --endpoint.")
        cases = cases_of(examples, predictions, samples="all").cases
        rows = verdict_rows(self.judge.judge(cases, progress))
        lost = {row.plan: row.unscored for row in rows if row.unscored}
        if not lost:
            return rows
        names = {plan.example_id for plan in lost}
        # First, so that an answer to one tells the endpoint's engine that refusals concern single chats.
        unscored = [
            Case(example, example.continuation, control="reference")
            for example in examples
            if example.example_id in names
        ]
        unscored += [case for case in cases if PlanId(case.example.example_id, case.sample) in lost]
        again = verdict_rows(self.judge.judge(unscored, progress))
        able = {
            judgement.example_id
            for judgement in again
            if judgement.control and judgement.details["how"] != "rule" and not judgement.unscored
        }
        if not able:
            raise ComputeError(f"the judge gives references no verdict, either: {next(iter(lost.values()))}.")
        kept = [row for row in rows if row.plan not in lost]
        return kept + [judgement for judgement in again if not judgement.control and judgement.example_id in able]

    @classmethod
    def sections(cls, scores: Sequence[Scores], every: Sequence[Scores]) -> list[Section]:
        """A section for each judge."""
        # The report's own libraries, which no other command needs.
        from recipe.evaluation.scoreboard.accuracy import accuracy_sections  # noqa: PLC0415

        return accuracy_sections(scores, cls)
