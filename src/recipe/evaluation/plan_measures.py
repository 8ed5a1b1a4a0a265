"""One number a plan, for validation while training: validity, matched step F1 or the proxy judge's total.

The same computation as `recipe evaluate validity`, `match` and `judge --proxy`, without their files. Training is handed
the function and imports nothing from here.
"""

from collections.abc import Callable, Sequence

from recipe.config.corpus import EncoderConfig
from recipe.config.training import ValidationSettings
from recipe.corpus.encoders import open_encoder
from recipe.evaluation import measure_named
from recipe.planning.predictions import Prediction
from recipe.types import Example

PlanMeasure = Callable[[Sequence[Example], Sequence[Sequence[str]]], list[float | None]]
"""Of examples and a plan of each, the plans' values; None for a plan that cannot be measured."""
# By name: the measure, its metric, and the highest value of that.
_METRICS = {
    "validity": ("validity", "score", 1.0),
    "matched_f1": ("match", "matched_f1", 1.0),
    "proxy": ("proxy", "accuracy", 100.0),
}


def plan_measure(settings: ValidationSettings) -> PlanMeasure | None:
    """What validation chooses by; None for the reward, which training has. Values are between 0 and 1.

    Raises InputError for an encoder or task graphs that cannot be read.
    """
    if settings.measure == "reward":
        return None
    name, metric, highest = _METRICS[settings.measure]
    # The encoder is opened only by a measure that compares texts.
    measure = measure_named(name).open(settings, lambda: open_encoder(EncoderConfig(name=settings.encoder)).encode)

    def values(examples: Sequence[Example], plans: Sequence[Sequence[str]]) -> list[float | None]:
        known = {example.example_id: example for example in examples if measure.knows(example)}
        # An example comes with several plans: the place among all tells them apart.
        predictions = [
            Prediction(example.example_id, tuple(plan), index)
            for index, (example, plan) in enumerate(zip(examples, plans, strict=True))
            if example.example_id in known
        ]
        rows = measure.rows([*known.values()], predictions) if predictions else []
        scores = {row.sample: row.metrics[metric] / highest for row in rows if metric in row.metrics}
        return [scores.get(index) for index in range(len(plans))]

    return values
