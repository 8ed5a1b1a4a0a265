"""Predictions as JSON lines: what `recipe plan` writes and what evaluation reads.

One object a line: `example_id` and `steps` are required, `steps` being empty for a completion without steps;
`sample` (0), `text`, `cut`, `malformed`, `reward`, `gated`, `kl` and `decoding` are optional.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from recipe.artifacts import JsonObject, only_fields, read_jsonl, text_field, write_jsonl
from recipe.errors import InputError, listed
from recipe.models.protocol import Answer, read_plan
from recipe.models.sampling import Decoding, read_decoding
from recipe.types import Example, Plan, Reward

OPTIONAL = ("text", "cut", "malformed", "reward", "gated", "kl", "decoding")
_MOST = 10_000
"""Steps of a plan, far more than any context holds: measures compare each step with each of the reference."""
_FIELDS = ("example_id", "steps", "sample", *OPTIONAL)


@dataclass(frozen=True, slots=True)
class Prediction:
    """One sampled plan for one example."""

    example_id: str
    steps: tuple[str, ...]
    """Empty for a completion without steps."""
    sample: int = 0
    """Which of the samples of its example this is."""
    text: str | None = None
    """The raw completion, where it is known."""
    cut: bool | None = None
    """True where the limit of tokens ended the completion; its last line is no step where it does not end."""
    malformed: str | None = None
    """Why the completion holds no plan."""
    reward: float | None = None
    """The verifier's total, where it was asked."""
    gated: bool | None = None
    """Whether the verifier's gate closed."""
    kl: float | None = None
    """Log-likelihood of the completion under the model that wrote it minus that under the reference policy, in nats:
    its mean over samples estimates the KL divergence."""
    decoding: Decoding | None = None
    """How the completion was sampled, where it is known."""

    @classmethod
    def of(cls, example_id: str, sample: int, answer: Answer | str, reward: Reward | None = None) -> "Prediction":
        """The prediction that a model's answer, or the text of one, makes."""
        answer = Answer(answer) if isinstance(answer, str) else answer
        plan = read_plan(answer)
        steps, reason = (plan.steps, None) if isinstance(plan, Plan) else ((), plan.reason)
        total, gated = (reward.total, reward.gated) if reward else (None, None)
        text, cut = answer.text or answer.refusal, answer.cut or None
        return cls(example_id, steps, sample, text, cut, reason, total, gated, decoding=answer.decoding)


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> int:
    """Write predictions as JSON lines, all or nothing; returns their number."""
    return write_jsonl(path, map(_row, predictions))


def read_predictions(path: Path) -> list[Prediction]:
    """The predictions of a file, in file order.

    Raises InputError with file, line, field and remedy for a field that is missing, unknown or of the wrong
    kind, and for a sample that occurs twice.
    """
    seen: dict[tuple[str, int], int] = {}
    predictions = []
    for line, row in read_jsonl(path):
        only_fields(path, line, row, _FIELDS)
        prediction = _prediction(path, line, row)
        key = (prediction.example_id, prediction.sample)
        if (first := seen.setdefault(key, line)) != line:
            problem = f"sample {key[1]} of {key[0]!r} was already given in line {first}"
            raise InputError.at(path, problem, "number the samples of an example", line=line, field="sample")
        predictions.append(prediction)
    return predictions


def _row(prediction: Prediction) -> JsonObject:
    row: JsonObject = {
        "example_id": prediction.example_id,
        "sample": prediction.sample,
        "steps": list(prediction.steps),
    }
    optional = {name: getattr(prediction, name) for name in OPTIONAL}
    if prediction.decoding is not None:
        optional["decoding"] = prediction.decoding.settings()
    return row | {name: value for name, value in optional.items() if value is not None}


def _prediction(path: Path, line: int, row: JsonObject) -> Prediction:
    return Prediction(
        example_id=text_field(path, line, row, "example_id"),
        steps=_steps(path, line, row),
        sample=_typed(path, line, row, "sample", (int,), 0),
        text=_typed(path, line, row, "text", (str,), None),
        cut=_typed(path, line, row, "cut", (bool,), None),
        malformed=_typed(path, line, row, "malformed", (str,), None),
        reward=_typed(path, line, row, "reward", (float, int), None),
        gated=_typed(path, line, row, "gated", (bool,), None),
        kl=_typed(path, line, row, "kl", (float, int), None),
        decoding=_decoding(path, line, row),
    )


def _decoding(path: Path, line: int, row: JsonObject) -> Decoding | None:
    try:
        return None if row.get("decoding") is None else read_decoding(row["decoding"])
    except InputError as error:
        problem = f"no card of how the plan was sampled ({str(error).partition(';')[0]})"
        raise InputError.at(path, problem, "leave it out where it is not known", line=line, field="decoding") from None


def _steps(path: Path, line: int, row: JsonObject) -> tuple[str, ...]:
    steps = row.get("steps")
    if not isinstance(steps, list) or any(not isinstance(step, str) or not step.strip() for step in steps):
        remedy = "give a list of non-empty strings, empty where the completion holds no step"
        raise InputError.at(path, "no list of steps", remedy, line=line, field="steps")
    if len(steps) > _MOST:
        problem = f"the plan has {len(steps):,} steps"
        raise InputError.at(path, problem, f"give at most {_MOST:,}", line=line, field="steps")
    return tuple(step.strip() for step in steps)


def _typed(path: Path, line: int, row: JsonObject, field: str, kinds: tuple[type, ...], default: Any) -> Any:
    value = row.get(field, default)
    no_number = isinstance(value, int | float) and not -sys.float_info.max <= value <= sys.float_info.max
    if value is not default and (type(value) not in kinds or no_number):
        remedy = f"give a value of kind {kinds[0].__name__}, or leave it out"
        problem = f"{value!r:.60} is of the wrong kind"
        raise InputError.at(path, problem, remedy, line=line, field=field)
    return value


class MatchedPredictions(NamedTuple):
    """Predictions beside the examples that they are asked for."""

    predictions: list[Prediction]
    """Those for the examples asked for, in the order of the predictions."""
    missing: tuple[str, ...]
    """Ids of examples without a prediction, in the order of the examples."""
    elsewhere: int
    """Predictions for known examples that are not asked for, such as those of another split: left out."""


def match_predictions(
    examples: Sequence[Example], predictions: Sequence[Prediction], known: Sequence[Example] | None = None
) -> MatchedPredictions:
    """The predictions for these examples; `known` are all that may be planned for, where those are more.

    Raises InputError that names the first predictions for unknown examples: they were made for another file.
    """
    asked = {example.example_id for example in examples}
    planned = {prediction.example_id for prediction in predictions}
    if unknown := sorted(planned - asked - {example.example_id for example in known or ()}):
        raise InputError(
            f"{len(unknown)} of {len(planned)} planned examples are none of those given: {listed(unknown)}; "
            "give predictions and examples that belong together."
        )
    found_for = [prediction for prediction in predictions if prediction.example_id in asked]
    missing = tuple(example.example_id for example in examples if example.example_id not in planned)
    return MatchedPredictions(found_for, missing, len(predictions) - len(found_for))
