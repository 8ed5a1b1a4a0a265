"""A judge that is a function of the user's own: goal, history, plan and reference in, a score by criterion out."""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, Literal

from recipe.errors import ComputeError, CorpusError, FunctionFailed, InputError, RecipeError, first_line, quoted
from recipe.evaluation.judge.llm import by_rule
from recipe.evaluation.judge.plans import Case, actionable
from recipe.evaluation.judge.rubric import CriteriaRubric, six_criteria
from recipe.evaluation.judge.verdicts import Judgement
from recipe.evaluation.scores import JudgeIdentity
from recipe.functions import Function, load_function, name_of, pinned
from recipe.progress import SILENT, Progress
from recipe.types import Grades, Unscored


class FunctionJudge:
    """`function(goal, history, plan, reference) -> {criterion: number}` as a judge, on the scale of a rubric.

    Without a rubric, criteria and scale are the paper's. All but the goal are lists of steps. Raises InputError as
    `recipe.functions.load_function` where a name stands for the function.
    """

    def __init__(
        self,
        function: Function | str,
        rubric: CriteriaRubric | None = None,
        history: Literal["annotated", "perceived"] = "annotated",
    ) -> None:
        self._name = pinned(function) if isinstance(function, str) else name_of(function)
        self._function = load_function(self._name) if isinstance(function, str) else function
        self._rubric = rubric or six_criteria()
        settings = {"history": history} | self._rubric.described()
        shown = self._name.partition("@")[0]
        self.identity = JudgeIdentity(shown, "function", self._name, self._rubric.prompt, settings)

    def judge(self, cases: Sequence[Case], progress: Progress = SILENT) -> list[Judgement]:
        """The scores of each case, in order; a plan without an actionable step gets the lowest by rule.

        A plan for which the function raises, or gives something else than a number on the scale for each criterion, is
        unscored. Raises FunctionFailed where that is so of every plan.
        """
        judged = []
        with progress.task("judging plans", len(cases)) as advance:
            for case in cases:
                if actionable(case.steps):
                    outcome = self._outcome(case)
                    judged.append(
                        Judgement(
                            case.example.example_id,
                            outcome,
                            sample=case.sample,
                            control=case.control,
                            judge=self.identity.name,
                            how="" if isinstance(outcome, Unscored) else "function",
                            steps=case.steps,
                            flags=case.flags,
                        )
                    )
                else:
                    judged.append(by_rule(case, self.identity.name, self._rubric.nothing))
                advance(1)
        asked = [row.outcome for row in judged if row.how != "rule"]
        reasons = [outcome.reason for outcome in asked if isinstance(outcome, Unscored)]
        if reasons and len(reasons) == len(asked):
            raise FunctionFailed(f"No plan could be judged. {reasons[0]}")
        return judged

    def _outcome(self, case: Case) -> Grades | Unscored:
        example, config = case.example, self._rubric.config
        try:
            value: Any = self._function(
                example.goal, list(example.history), list(case.steps), list(example.continuation)
            )
        except Exception as error:  # whatever the user's code raises
            if isinstance(error, RecipeError) and not isinstance(error, ComputeError | CorpusError | InputError):
                raise  # of the run, as a service that is away
            return self._unscored(case, f"it raised {type(error).__name__}: {first_line(error)}")
        if not isinstance(value, Mapping) or set(value) != set(config.criteria):
            due = ", ".join(config.criteria)
            return self._unscored(case, f"it gave {quoted(repr(value))}, and a number for each of {due} is due")
        for name, score in value.items():
            # An integer can be too large for a float.
            if not isinstance(score, Real) or not config.lowest <= score <= config.highest:  # type: ignore[operator]
                scale = f"{config.lowest} to {config.highest}"
                return self._unscored(case, f"its {name} is {quoted(repr(score))}, and no number from {scale}")
        return self._rubric.grades({name: float(score) for name, score in value.items()})

    def _unscored(self, case: Case, problem: str) -> Unscored:
        return Unscored(f"{self._name}, example {case.example.example_id}: {problem}; correct the function.")
