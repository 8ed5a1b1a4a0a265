"""Scorers give the figures of `recipe evaluate`, know who they are, and hide what would tell of single examples."""

from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from recipe.artifacts import fingerprint
from recipe.board.scoring import LEAST, MEASURES, Scorer, control_predictions, label_of, open_scorer
from recipe.board.store import References
from recipe.config.board import ScorerSettings
from recipe.config.models import JudgeConfig
from recipe.errors import ComputeError, InputError, RecipeError
from recipe.evaluation.judge.plans import cases_of
from recipe.evaluation.judge.verdicts import judge_scores
from recipe.evaluation.plan_measures import open_reader
from recipe.evaluation.validity.measure import score_plans
from recipe.evaluation.validity.scores import select_plans, validity_scores
from recipe.planning.predictions import Prediction
from recipe.types import Example

VALIDITY = ScorerSettings(measure="validity")


@pytest.fixture(scope="module")
def references(examples: list[Example]) -> References:
    return References.of(examples)


@pytest.fixture(scope="module")
def plans(examples: list[Example]) -> list[Prediction]:
    """Plans of every quality: some empty, some of another goal, some without their first step."""
    changed = [lambda one: (), lambda one: one.continuation[1:], lambda one: one.continuation, lambda one: one.history]
    return [Prediction(one.example_id, tuple(changed[place % 4](one))) for place, one in enumerate(examples)]


def scored(settings: ScorerSettings, references: References, plans: list[Prediction]) -> Any:
    with open_scorer(settings, references) as scorer:
        return scorer.score(plans)


def test_validity_is_that_of_evaluate(references: References, plans: list[Prediction]) -> None:
    examples = [replace(one, source="one dataset") for one in references.examples]
    reader, _, _ = open_reader(None, "", None)
    selection = select_plans(examples, plans, reader)
    found = score_plans(reader, selection.examples, selection.predictions)
    wanted = validity_scores("s", "world", selection, found).metrics
    result = scored(VALIDITY, References.of(examples), plans)
    assert result.figures.value == wanted["score"]
    for name in ("order", "coverage", "perfect"):
        assert result.figures.metrics[name] == wanted[name]


def test_the_proxy_is_that_of_evaluate(references: References, plans: list[Prediction]) -> None:
    settings = ScorerSettings(measure="proxy")
    with open_scorer(settings, references) as scorer:
        result = scorer.score(plans)
        judge = scorer._inner._judge  # type: ignore[attr-defined]
        judged = judge.judge(cases_of(references.examples, plans, samples="all").cases)
    wanted = judge_scores("s", judge.identity, references.examples, judged)
    [macro] = wanted.macro
    assert result.figures.value == macro.accuracy
    for one in wanted.datasets:
        assert result.figures.datasets[one.dataset] == one.accuracy


def test_each_dataset_weighs_the_same(references: References, plans: list[Prediction]) -> None:
    result = scored(VALIDITY, references, plans)
    by_dataset: dict[str, list[float]] = {}
    for one, value in zip(references.examples, result.values, strict=True):
        by_dataset.setdefault(one.source, []).append(value)
    assert result.figures.value.mean == pytest.approx(fmean(fmean(values) for values in by_dataset.values()))


def test_several_plans_of_an_example_are_averaged(references: References) -> None:
    plans = []
    for one in references.examples:
        plans += [Prediction(one.example_id, one.continuation, 0), Prediction(one.example_id, (), 1)]
    result = scored(VALIDITY, references, plans)
    assert result.figures.value.mean == pytest.approx(0.5)


def test_control_rows_span_the_measure(references: References) -> None:
    controls = control_predictions(references, 2)
    assert set(controls) == {
        "reference", "verbose", "shuffled", "copied", "other-goal", "injected", "constant", "empty"
    }  # fmt: skip
    for plans in controls.values():
        assert len(plans) == 2 * len(references.examples)
    with open_scorer(VALIDITY, references) as scorer:
        means = {name: scorer.score(plans).figures.value for name, plans in controls.items()}
    assert means["reference"] is not None
    assert means["reference"].mean == 1.0
    for name in ("empty", "injected", "constant"):
        value = means[name]
        assert value is not None
        assert value.mean < 0.05


def test_small_datasets_have_no_figure(references: References, plans: list[Prediction]) -> None:
    few = [replace(one, source="few" if place < LEAST - 1 else "many") for place, one in enumerate(references.examples)]
    result = scored(VALIDITY, References.of(few), plans)
    assert result.figures.datasets["few"] is None
    assert result.figures.datasets["many"] is not None
    with pytest.raises(InputError, match=str(LEAST)), open_scorer(VALIDITY, References.of(few[: LEAST - 1])):
        pass


def test_what_is_unscored_is_in_no_mean(references: References, plans: list[Prediction]) -> None:
    lost = references.examples[0].example_id

    class Lossy:
        def means(self, predictions: Any) -> dict[str, dict[str, float]]:
            return {one.example_id: {"score": 1.0} for one in predictions if one.example_id != lost}

    result = Scorer(VALIDITY, references, Lossy(), {}).score(plans)
    assert result.figures.unscored == 1
    assert result.figures.value is not None
    assert result.figures.value.mean == 1.0
    assert int(np.isnan(result.values).sum()) == 1


def identity(settings: ScorerSettings, references: References) -> str:
    with open_scorer(settings, references) as scorer:
        return fingerprint(scorer.identity)


def test_whatever_changes_a_figure_changes_the_identity(
    references: References, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = ScorerSettings(measure="judge", model="org/judge")
    others = [
        VALIDITY,
        judge,
        judge.model_copy(update={"model": "org/other"}),
        judge.model_copy(update={"weights": "a1b2"}),
        judge.model_copy(update={"judge": JudgeConfig(temperature=0.5)}),
        judge.model_copy(update={"judge": JudgeConfig(repeats=2)}),
    ]
    found = [identity(settings, references) for settings in others]
    assert len(set(found)) == len(found)
    assert identity(judge.model_copy(update={"label": "another name"}), references) == found[1]
    assert identity(judge.model_copy(update={"judge": JudgeConfig(batch_size=2)}), references) == found[1]
    changed = [replace(references.examples[0], continuation=("another step",)), *references.examples[1:]]
    assert identity(judge, References.of(changed)) != found[1]
    monkeypatch.setattr("recipe.board.scoring.prompt_hash", lambda: "another prompt")
    assert identity(judge, references) != found[1]
    monkeypatch.setattr("recipe.board.scoring.__version__", "9.9")
    assert identity(VALIDITY, references) != found[0]


def test_a_judge_without_an_endpoint_waits(references: References, plans: list[Prediction]) -> None:
    settings = ScorerSettings(measure="judge", model="org/judge")
    with open_scorer(settings, references) as scorer, pytest.raises(ComputeError, match="--endpoint"):
        scorer.score(plans)
    assert label_of(settings) == "judge"


@pytest.mark.parametrize(
    "settings",
    [
        ScorerSettings(measure="judge"),
        ScorerSettings(measure="vpa"),
        ScorerSettings(measure="proxy", graphs="graphs"),  # type: ignore[arg-type]
        ScorerSettings(measure="proxy", encoder="no/such/folder"),
    ],
)
def test_settings_that_cannot_be_used(settings: ScorerSettings, references: References) -> None:
    with pytest.raises(RecipeError), open_scorer(settings, references):
        pass


def test_every_measure_has_its_words() -> None:
    for measure, kind in MEASURES.items():
        assert label_of(ScorerSettings(measure=measure, model="a/b"))
        assert kind.unit in ("%", "")
