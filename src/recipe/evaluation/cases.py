"""From predictions to the cases that a judge is shown: one plan each, beside its example, and no longer than a limit.

An example without a prediction is judged as an empty plan, which scores 0 by rule, or refused; a plan of millions of
characters is cut before anything else is done with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from recipe.config import JudgeConfig
from recipe.errors import InputError, listed
from recipe.planning.predictions import Prediction, match_predictions
from recipe.prompting import visible
from recipe.types import Example

Missing = Literal["zero", "refuse"]
"""What becomes of examples without a prediction: judged as empty plans, or an error."""
Samples = Literal["first", "all"]
"""Which samples of an example are judged: the first (Score@1), or each."""
MISSING, SHORTENED, EMPTY = "missing", "shortened", "empty"
"""Flags of cases and verdicts."""
_CUT = "…"


@dataclass(frozen=True, slots=True)
class Case:
    """One plan to be judged."""

    example: Example
    steps: tuple[str, ...]
    sample: int = 0
    control: str = ""
    """Name of the control that the plan is, empty for the system's own."""
    flags: tuple[str, ...] = ()
    left_out: int = 0
    """Further steps, not shown because the plan is too long."""
    cut: int = 0
    """Steps that are shown without their end."""


class Cases(NamedTuple):
    """What is to be judged."""

    cases: list[Case]
    elsewhere: int
    """Predictions for examples of other splits, left out."""
    unused: int
    """Further samples of examples, left out."""


def cases_of(
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    known: Sequence[Example] | None = None,
    missing: Missing = "zero",
    samples: Samples = "first",
    config: JudgeConfig | None = None,
) -> Cases:
    """The cases of `examples`, in their order, samples by number; `known` are the examples of all splits.

    Raises InputError for predictions for unknown examples, and for missing ones where those are refused.
    """
    matched = match_predictions(examples, predictions, known)
    if matched.missing and missing == "refuse":
        raise InputError(
            f"{len(matched.missing)} of {len(examples)} examples have no prediction: {listed(matched.missing)}; "
            "plan for them, or let them count as empty plans."
        )
    by_example: dict[str, list[Prediction]] = {}
    for prediction in matched.predictions:
        by_example.setdefault(prediction.example_id, []).append(prediction)
    limits, cases = config or JudgeConfig(), []
    for example in examples:
        planned = sorted(by_example.get(example.example_id, ()), key=lambda one: one.sample)
        chosen = planned[:1] if samples == "first" else planned
        cases += [bounded(Case(example, one.steps, one.sample), limits) for one in chosen]
        if not planned:
            cases.append(Case(example, (), flags=(MISSING,)))
    used = sum(MISSING not in case.flags for case in cases)
    return Cases(cases, matched.elsewhere, len(matched.predictions) - used)


def bounded(case: Case, config: JudgeConfig) -> Case:
    """The case with its plan in visible characters and within the limits; the same again where it is so already."""
    shown: list[str] = []
    cut, room = 0, config.max_characters
    for step in case.steps[: config.max_steps]:
        text = visible(step[: config.max_step_characters]).strip()
        if longer := len(step) > config.max_step_characters:
            text = text[: config.max_step_characters - 1] + _CUT
        if shown and len(text) > room:
            break
        room -= len(text)
        cut += longer
        shown.append(text)
    left_out = len(case.steps) - len(shown)
    flags = case.flags
    if (left_out or cut) and SHORTENED not in flags:
        flags = (*flags, SHORTENED)
    return replace(case, steps=tuple(shown), flags=flags, left_out=case.left_out + left_out, cut=case.cut + cut)


def actionable(steps: Sequence[str]) -> bool:
    """Whether any step says anything: the fatal rule gives 0 to a plan without a letter or digit.

    >>> actionable(["...", "Pour"]), actionable(["...", "-"]), actionable([])
    (True, False, False)
    """
    return any(char.isalnum() for step in steps for char in step)
