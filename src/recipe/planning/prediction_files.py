"""Files of predictions as JSON lines, and the predictions that belong to examples."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import NamedTuple

from recipe.artifacts import write_jsonl
from recipe.errors import InputError, listed
from recipe.models.sampling import Decoding, Setting
from recipe.planning.predictions import Prediction
from recipe.tables import read_rows
from recipe.types import Example

_FIELDS = tuple(field.name for field in fields(Prediction))


def write_predictions(path: Path | str, predictions: Iterable[Prediction]) -> int:
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


def read_predictions(path: Path | str) -> list[Prediction]:
    """The predictions of a file, in file order.

    Raises InputError with file, line, field and remedy for a field that is missing, unknown or of the wrong
    kind, and for a sample that occurs twice.
    """
    return [row for _, row in read_rows(path, Prediction, unique=("example_id", "sample"))]


class MatchedPredictions(NamedTuple):
    """Predictions matched with the examples that they are asked for."""

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
