"""Predictions as JSON lines: what `recipe plan` writes and what evaluation reads.

One object a line: `example_id` and `steps` are required, `steps` being empty for a completion without steps;
`sample` (0), `text`, `cut`, `malformed`, `reward`, `gated`, `kl`, `decoding` and `search` are optional.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field, PlainValidator

from recipe.artifacts import write_jsonl
from recipe.errors import InputError, listed
from recipe.models.sampling import Decoding, Setting, read_decoding
from recipe.rows import Count, Text, Texts, read_rows
from recipe.types import Example

_MOST = 10_000
"""Steps of a plan, far more than any context holds: measures compare each step with each of the reference."""


def _decoding(raw: object) -> Decoding | None:
    try:
        return None if raw is None else read_decoding(raw)
    except InputError as error:
        problem = f"no card of how the plan was sampled ({str(error).partition(';')[0]})"
        raise ValueError(f"{problem}; leave it out where it is not known") from None


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """How a plan was composed (`recipe.planning.search`), and what the search cost, of all plans of its prompt."""

    search: str
    width: Count
    samples: Count | None = None
    budget: Count | None = None
    spent: bool = False
    """Whether the budget ended the search."""
    tokens_in: Count = 0
    """Tokens that the model read, each time that it read them."""
    tokens_out: Count = 0
    encodings: Count = 0
    """Different steps that the scorer was shown."""
    rewards: Count = 0
    """Different plans that it rewarded."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """One sampled plan for one example."""

    example_id: Text
    steps: Annotated[Texts, Field(max_length=_MOST)]
    """Empty for a completion without steps."""
    sample: Count = 0
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
    decoding: Annotated[Decoding | None, PlainValidator(_decoding)] = None
    """How the completion was sampled, where it is known."""
    search: SearchRecord | None = None
    """How the plan was composed, where it was by a search."""


_FIELDS = tuple(field.name for field in fields(Prediction))


def write_predictions(path: Path, predictions: Iterable[Prediction]) -> int:
    """Write predictions as JSON lines, all or nothing; a field of None is left out. Returns their number."""
    # Not by `write_rows`: tens of thousands of samples share a few cards, each of which is made plain once.
    cards: dict[Decoding, dict[str, Setting]] = {}
    rows = []
    for prediction in predictions:
        row = {name: value for name in _FIELDS if (value := getattr(prediction, name)) is not None}
        if (card := prediction.decoding) is not None:
            row["decoding"] = cards.get(card) or cards.setdefault(card, card.settings())
        if prediction.search is not None:
            row["search"] = {name: value for name, value in asdict(prediction.search).items() if value is not None}
        rows.append(row)
    return write_jsonl(path, rows)


def read_predictions(path: Path) -> list[Prediction]:
    """The predictions of a file, in file order.

    Raises InputError with file, line, field and remedy for a field that is missing, unknown or of the wrong
    kind, and for a sample that occurs twice.
    """
    return [row for _, row in read_rows(path, Prediction, unique=("example_id", "sample"))]


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
    wanted = {example.example_id for example in examples}
    planned = {prediction.example_id for prediction in predictions}
    if unknown := sorted(planned - wanted - {example.example_id for example in known or ()}):
        raise InputError(
            f"{len(unknown)} of {len(planned)} planned examples are none of those given: {listed(unknown)}; "
            "give predictions and examples that belong together."
        )
    matched = [prediction for prediction in predictions if prediction.example_id in wanted]
    missing = tuple(example.example_id for example in examples if example.example_id not in planned)
    return MatchedPredictions(matched, missing, len(predictions) - len(matched))
