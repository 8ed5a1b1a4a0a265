"""Scorers: the measures of `recipe evaluate` on a submission, and the identity that tells one scorer from another.

A scorer gives each example one number, the mean over its plans. The figure of a submission is the mean over datasets of
their means, so that every dataset weighs the same; its interval draws whole videos, or whole goals.

A verdict that is missing because of the plan counts 0, and is counted: a plan may be written to make the judge refuse.
What the judge could not do for other reasons is no 0. An endpoint that is away raises. Where some plans have no
verdict, they are asked about again together with the references of their questions: a question whose reference gets
none either has no value for that plan, and a judge that gives no reference a verdict is away.

The identity covers the measure, its settings, the judge with its prompt, the version of this program and the
references. Figures of two identities are never in one table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from recipe import __version__
from recipe.artifacts import JsonObject
from recipe.config import EncoderConfig
from recipe.corpus.encoders import open_encoder
from recipe.errors import InputError
from recipe.evaluation import board_measures, measure_named
from recipe.evaluation.judge.plans import control_cases
from recipe.evaluation.matching import Embed
from recipe.evaluation.measures import Measure, example_means
from recipe.planning.predictions import Prediction
from recipe.stats import Interval, macro_interval
from recipe_apps.board.settings import ScorerSettings
from recipe_apps.board.store import References

if TYPE_CHECKING:
    from recipe.models.model import Model

Array = NDArray[np.float64]
LEAST_EXAMPLES = 20
"""Examples below which no figure of them is shown: fewer would tell too much of each."""

MOST_UNSCORED = 0.05
"""Share of verdicts that a system with a place may lack. So much of a scale is open between missing as 0 and missing as
the best: 5 of 100 points, about what a board of some hundred questions can tell apart."""
# Texts whose embeddings a scorer keeps.
_REMEMBERED = 200_000


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one submission on one board."""

    value: Interval | None
    """In the unit of the measure; None where nothing could be scored."""
    datasets: dict[str, Interval | None]
    """None for a dataset of fewer than `LEAST_EXAMPLES` examples."""
    metrics: dict[str, Interval]
    """Further metrics, the mean over datasets each."""
    unscored: int
    """Examples that lack a verdict or a value."""
    unscored_share: float
    """Share of the verdicts that are missing because of the plans, which count 0."""


class OpenScorer:
    """One scorer, opened on its references."""

    def __init__(self, settings: ScorerSettings, references: References, measure: Measure) -> None:
        self.settings, self.references, self.measure = settings, references, measure
        self.identity: JsonObject = {
            "measure": settings.measure,
            "references": references.sha,
            "program": __version__,
            "scorer": measure.identity,
        }

    def score(self, predictions: Sequence[Prediction]) -> tuple[Figures, Array]:
        """The figures of a submission, and the main metric of each example [examples], NaN where there is none.

        Raises ComputeError where it cannot be scored now.
        """
        examples, main = self.references.examples, self.measure.main
        rows = self.measure.rows(examples, predictions)
        # A verdict that is missing because of the plan counts as the worst.
        means = example_means(self.measure.plan_values(rows, 0))
        unscored: dict[str, list[bool]] = {}
        for row in rows:
            unscored.setdefault(row.example_id, []).append(bool(row.unscored))
        names = dict.fromkeys(name for values in means.values() for name in values)
        names = dict.fromkeys(name for name in (main, *(self.measure.further or names)) if name in names)
        columns = {
            name: np.array([means.get(example.example_id, {}).get(name, np.nan) for example in examples])
            for name in names
        }
        values = columns.pop(main, np.full(len(examples), np.nan))
        missing = np.array(
            [
                fmean(unscored[example.example_id]) if example.example_id in means else np.nan
                for example in examples
            ]
        )  # fmt: skip
        clusters = np.array([self.measure.cluster_of(example) for example in examples])
        datasets = np.array([example.source for example in examples])

        def mean_over(column: Array, within: NDArray[np.bool_]) -> Interval | None:
            known = within & np.isfinite(column)
            if not known.any():
                return None
            return macro_interval(column[known], datasets[known].tolist(), clusters[known].tolist())

        everywhere = np.full(len(examples), True)
        metrics = {name: mean_over(column, everywhere) for name, column in columns.items()}
        figures = Figures(
            value=mean_over(values, everywhere),
            datasets={
                name: mean_over(values, own) if (own := datasets == name).sum() >= LEAST_EXAMPLES else None
                for name in dict.fromkeys(datasets.tolist())
            },
            metrics={name: value for name, value in metrics.items() if value is not None},
            unscored=int((missing != 0).sum()),
            unscored_share=float(np.nanmean(missing)) if np.isfinite(missing).any() else 0.0,
        )
        return figures, values


def control_predictions(references: References, plans: int) -> dict[str, list[Prediction]]:
    """Control rows by name: plans of `recipe evaluate judge`'s controls for every example, `plans` times each.

    An example that a control has no plan for, such as a shuffled single step, gets an empty plan there.
    """
    examples = references.examples
    controls: dict[str, dict[str, tuple[str, ...]]] = {}
    for case in control_cases(examples, len(examples)):
        controls.setdefault(case.control, {})[case.example.example_id] = case.steps
    return {
        control: [
            Prediction(example.example_id, steps.get(example.example_id, ()), sample)
            for example in examples
            for sample in range(plans)
        ]
        for control, steps in controls.items()
    }


def open_scorer(settings: ScorerSettings, references: References, model: "Model | None" = None) -> OpenScorer:
    """The scorer of these settings on a set of references; a judge asks `model`, and is not asked without it.

    Raises InputError for settings, encoders or graphs that cannot be used.
    """
    if settings.measure not in (known := board_measures()):
        raise InputError(f"measure {settings.measure!r} is unknown; known are {', '.join(known)}.")
    if settings.measure == "judge" and not settings.model:
        raise InputError("a scorer with measure = 'judge' needs 'model', the judge's name at its endpoint.")
    if settings.measure == "vpa" and settings.root is None:
        raise InputError("a scorer with measure = 'vpa' needs 'root', the folder with CrossTask.")
    if settings.graphs is not None and settings.measure != "validity":
        raise InputError("'graphs' goes with measure = 'validity'; remove the key.")
    if len(references.examples) < LEAST_EXAMPLES:
        raise InputError(f"a track needs {LEAST_EXAMPLES} examples or more, so that no figure tells of single ones.")
    with TemporaryDirectory(prefix="recipe-board-") as parent:
        folder = Path(parent, "graphs")  # its name is a part of the measure's identity
        folder.mkdir()
        for name, content in (references.graphs or {}).items():
            (folder / Path(name).name).write_text(content, encoding="utf-8")
        with_graphs = settings.model_copy(update={"graphs": None if references.graphs is None else folder})
        measure = measure_named(settings.measure).open(with_graphs, lambda: _encoder(settings), model)
    measure.require(references.examples)
    return OpenScorer(settings, references, measure)


def _encoder(settings: ScorerSettings) -> Embed:
    """The encoder, which embeds a text once: questions and references come again with every submission."""
    embed = open_encoder(EncoderConfig(name=settings.encoder)).encode
    known: dict[str, NDArray[np.float32]] = {}

    def remembered(texts: Sequence[str]) -> NDArray[np.float32]:
        if new := [text for text in dict.fromkeys(texts) if text not in known]:
            if len(known) > _REMEMBERED:
                known.clear()
                new = list(dict.fromkeys(texts))
            known.update(zip(new, embed(new), strict=True))
        return np.stack([known[text] for text in texts]) if texts else embed(texts)

    return remembered
