"""Scorers give the figures of `recipe evaluate`, know who they are, and hide what would tell of single examples."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("openai")
from tests.models.endpoint_server import Reply, completion, serving

from recipe.artifacts import fingerprint
from recipe.config import EncoderConfig, JudgeConfig, ModelConfig
from recipe.corpus.encoders import open_encoder
from recipe.errors import ComputeError, InputError, RecipeError
from recipe.evaluation import measure_named
from recipe.evaluation.judge.plans import cases_of
from recipe.evaluation.judge.proxy import ProxyJudge
from recipe.evaluation.judge.rubric import CriteriaRubric, six_criteria
from recipe.evaluation.judge.verdicts import CRITERIA, verdict_rows
from recipe.evaluation.measures import measured_rows, select_plans, summarise
from recipe.evaluation.scores import Row
from recipe.models.model import Model, open_model
from recipe.models.protocol import Answer, Engine, ModelRequest, Refusal
from recipe.planning.predictions import Prediction
from recipe.types import Example
from recipe_apps.board.scoring import LEAST_EXAMPLES, Figures, OpenScorer, control_predictions, open_scorer
from recipe_apps.board.settings import ScorerSettings
from recipe_apps.board.store import References

VALIDITY = ScorerSettings(measure="validity")
Validity: Any = measure_named("validity")
Rubric: Any = measure_named("judge")


@pytest.fixture(scope="module")
def references(examples: list[Example]) -> References:
    return References.of(examples)


@pytest.fixture(scope="module")
def plans(examples: list[Example]) -> list[Prediction]:
    """Plans of every quality: some empty, some of another goal, some without their first step."""
    changed = [lambda one: (), lambda one: one.continuation[1:], lambda one: one.continuation, lambda one: one.history]
    return [Prediction(one.example_id, tuple(changed[place % 4](one))) for place, one in enumerate(examples)]


class Scored(NamedTuple):
    figures: Figures
    values: Any


def scored(settings: ScorerSettings, references: References, plans: list[Prediction]) -> Any:
    return Scored(*open_scorer(settings, references).score(plans))


def test_validity_is_that_of_evaluate(references: References, plans: list[Prediction]) -> None:
    examples = [replace(one, source="one dataset") for one in references.examples]
    measure, selection = Validity(), select_plans(examples, plans)
    wanted = summarise(measure, "s", measured_rows(measure, selection), examples).overall.values
    result = scored(VALIDITY, References.of(examples), plans)
    assert result.figures.value == wanted["score"]
    for name in ("order", "coverage", "perfect"):
        assert result.figures.metrics[name] == wanted[name]


@pytest.mark.thorough
def test_the_proxy_is_that_of_evaluate(references: References, plans: list[Prediction]) -> None:
    settings = ScorerSettings(measure="proxy", encoder="hash:256")
    result = scored(settings, references, plans)
    judge = ProxyJudge(open_encoder(EncoderConfig(name="hash:256")).encode, "hash:256")
    judged = judge.judge(cases_of(references.examples, plans, samples="all").cases)
    wanted = summarise(Rubric(judge.identity), "s", verdict_rows(judged), references.examples)
    [macro] = wanted.of("split")
    assert result.figures.value == macro.values["accuracy"]
    for one in wanted.of("dataset"):
        assert result.figures.datasets[one.name] == one.values["accuracy"]


def test_control_rows_span_the_measure(references: References) -> None:
    controls = control_predictions(references, 2)
    assert set(controls) == {
        "reference", "verbose", "shuffled", "copied", "other-goal", "injected", "refusal", "constant", "empty"
    }  # fmt: skip
    for plans in controls.values():
        assert len(plans) == 2 * len(references.examples)
    means = {name: scored(VALIDITY, references, plans).figures.value for name, plans in controls.items()}
    assert means["reference"] is not None
    assert means["reference"].mean == 1.0
    for name in ("empty", "injected", "refusal", "constant"):
        value = means[name]
        assert value is not None
        assert value.mean < 0.05


def test_small_datasets_have_no_figure(references: References, plans: list[Prediction]) -> None:
    few = [
        replace(one, source="few" if place < LEAST_EXAMPLES - 1 else "many")
        for place, one in enumerate(references.examples)
    ]
    result = scored(VALIDITY, References.of(few), plans)
    assert result.figures.datasets["few"] is None
    assert result.figures.datasets["many"] is not None
    with pytest.raises(InputError, match=str(LEAST_EXAMPLES)):
        open_scorer(VALIDITY, References.of(few[: LEAST_EXAMPLES - 1]))


def test_a_question_without_a_value_is_in_no_mean(references: References, plans: list[Prediction]) -> None:
    lost = references.examples[0].example_id

    class Lossy(Validity):  # type: ignore[misc]
        def rows(self, examples: Any, predictions: Any, progress: Any = None) -> list[Row]:
            return [Row(one.example_id, {"score": 1.0}) for one in predictions if one.example_id != lost]

    result = Scored(*OpenScorer(VALIDITY, references, Lossy()).score(plans))
    assert result.figures.unscored == 1
    assert result.figures.value is not None
    assert result.figures.value.mean == 1.0
    assert int(np.isnan(result.values).sum()) == 1


NONE: dict[str, Answer | Refusal] = {
    "refused": Answer("", refusal="I will not grade this"),
    "says no": Answer("I'm sorry, but I can't help with that."),
    "filtered": Answer("", finish="content_filter"),
    "cut": Answer('{"logical_progression": 5, "temp', finish="length"),
    "empty": Answer(""),
    "of another scale": Answer(json.dumps(dict.fromkeys(CRITERIA, "8/10"))),
    "too long": Refusal("maximum context length is 8192 tokens"),
    "an unknown word": Refusal("the endpoint answers 400: bad request"),
}
"""How a judge leaves a plan without a verdict."""
PROVOKED = "refuse this"
JUDGE = ScorerSettings(measure="judge", model="org/judge")


class Provoked(Engine):
    """A judge that gives 5 where the plan begins as the reference, else 2, and none where a step provokes it."""

    def __init__(self, none: Callable[[str, ModelRequest], Answer | Refusal | None]) -> None:
        self._none, self.asked = none, 0

    def answer(self, requests: Sequence[ModelRequest], *_: Any, **__: Any) -> list[Answer | Refusal]:
        self.asked += len(requests)
        found: list[Answer | Refusal] = []
        for request in requests:
            shown = json.loads(request.chat[1]["content"].split(" begins -----\n")[1].split("\n----- data ")[0])
            good = shown["prediction"][0] == shown["reference"][0]
            verdict = Answer(json.dumps(dict.fromkeys(CRITERIA, 5 if good else 2)))
            found.append(self._none("\n".join(shown["prediction"]), request) or verdict)
        return found


def by_judge(
    none: Callable[[str, ModelRequest], Answer | Refusal | None],
    references: References,
    plans: Sequence[Prediction],
    **changed: Any,
) -> Scored:
    settings = JUDGE.model_copy(update={"judge": JudgeConfig(reasks=0, **changed)})
    return Scored(*open_scorer(settings, references, Model(Provoked(none))).score(plans))


def provoking(examples: Sequence[Example], kept: int) -> list[Prediction]:
    """The references of the first `kept` questions; a plan that provokes the judge for the others."""
    steps = [one.continuation if place < kept else (PROVOKED,) for place, one in enumerate(examples)]
    return [Prediction(one.example_id, plan) for one, plan in zip(examples, steps, strict=True)]


@pytest.mark.parametrize("none", NONE.values(), ids=NONE)
def test_a_plan_that_gets_no_verdict_counts_0(none: Answer | Refusal, references: References) -> None:
    plans = provoking(references.examples, 8)
    found = by_judge(lambda plan, _: none if PROVOKED in plan else None, references, plans)
    assert found.values.tolist() == [100.0] * 8 + [0.0] * 32
    assert (found.figures.unscored, found.figures.unscored_share) == (32, 0.8)
    assert found.figures.value is not None
    assert found.figures.value.mean == pytest.approx(20)  # 8 of 20 of one dataset, none of the other
    assert set(found.figures.metrics) == set(CRITERIA)
    assert [one.mean if one else None for one in found.figures.datasets.values()] == [pytest.approx(40), 0]


def test_repeats_and_samples_without_a_verdict_count_0(references: References) -> None:
    def low_ones(plan: str, request: ModelRequest) -> Answer | None:
        return Answer("no") if PROVOKED in plan and request.sample > 0 else None

    plans = [Prediction(one.example_id, (PROVOKED,)) for one in references.examples]
    found = by_judge(low_ones, references, plans, repeats=4)
    assert found.values.tolist() == [pytest.approx(10.0)] * 40  # one verdict of 40 percent, three of none
    assert (found.figures.unscored, found.figures.unscored_share) == (40, 0.75)
    both = [*plans, *(replace(one, steps=references.examples[0].continuation, sample=1) for one in plans)]
    found = by_judge(lambda plan, _: Answer("no") if PROVOKED in plan else None, references, both)
    assert found.values[0] == 50.0
    assert found.figures.unscored_share == 0.5


def away(plan: str, request: ModelRequest) -> Answer | Refusal | None:
    raise ComputeError("the endpoint does not answer.")


@pytest.mark.parametrize("none", [away, *(lambda *_, one=one: one for one in NONE.values())], ids=["away", *NONE])
def test_a_judge_that_gives_the_references_no_verdict_is_away(none: Any, references: References) -> None:
    with pytest.raises(ComputeError):
        by_judge(none, references, provoking(references.examples, 8))


OUTAGES = {
    "500": Reply(500, "oh no"),
    "429": Reply(429, '{"error": {"message": "slow down"}}'),
    "401": Reply(401, '{"error": {"message": "no key"}}'),
    "404": Reply(404, '{"error": {"message": "no such model"}}'),
    "400 too long": Reply(400, '{"error": {"message": "maximum context length is 0 tokens"}}'),
    "a page": Reply(body="<html>gateway</html>", kind="text/html"),
    "an error with 200": Reply(body='{"error": "overloaded"}'),
    "a dropped connection": completion("{}" * 50)._replace(drop=True),
    "nothing": completion(""),
    "a cut": completion("{", "length"),
}


@pytest.mark.thorough
@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize("reply", OUTAGES.values(), ids=OUTAGES)
def test_an_endpoint_that_fails_half_way_makes_no_0(reply: Reply, references: References) -> None:
    good = completion(json.dumps(dict.fromkeys(CRITERIA, 5)))
    with serving(lambda _, before: good if before < 20 else reply) as server:
        config = ModelConfig(endpoint=server.url, model="org/judge", tries=1, concurrency=4)
        with open_model(config) as model, pytest.raises(RecipeError):
            open_scorer(JUDGE, references, model).score(provoking(references.examples, 40))


def test_what_fails_once_is_asked_again(references: References) -> None:
    failing = iter([Refusal("the endpoint answers 400: reloading")] * 3)
    found = by_judge(lambda *_: next(failing, None), references, provoking(references.examples, 40))
    assert found.values.tolist() == [100.0] * 40
    assert found.figures.unscored == 0


def test_a_question_on_which_the_reference_gets_no_verdict_is_in_no_mean(references: References) -> None:
    bad = references.examples[3]

    def filtered(plan: str, request: ModelRequest) -> Refusal | None:
        of_it = all(step in request.chat[1]["content"] for step in (*bad.history, *bad.continuation))
        return Refusal("content_filter") if of_it or PROVOKED in plan else None

    found = by_judge(filtered, references, provoking(references.examples, 10))
    assert np.flatnonzero(np.isnan(found.values)).tolist() == [3]
    assert found.figures.unscored == 31
    assert found.figures.unscored_share == pytest.approx(30 / 39)


@pytest.mark.parametrize("measure", ["proxy", "match", "validity"])
def test_no_other_measure_leaves_a_value_out_for_a_plan(measure: Any, references: References) -> None:
    odd = [(), ("...",), ("\u2028",), ("x" * 5000,), ("a",) * 100, (PROVOKED,), ("\0", " "), ("🍵",)]
    plans = [Prediction(one.example_id, odd[place % len(odd)]) for place, one in enumerate(references.examples)]
    settings = ScorerSettings(measure=measure, encoder="hash:64")
    found, wanted = (scored(settings, references, own) for own in (plans, provoking(references.examples, 40)))
    assert np.isfinite(found.values).all()
    assert (found.figures.unscored, found.figures.unscored_share) == (0, 0.0)
    assert {name: one.observations for name, one in found.figures.metrics.items()} == {
        name: one.observations for name, one in wanted.figures.metrics.items()
    }


def test_a_control_provokes_refusals_and_stays_at_its_floor(references: References) -> None:
    controls = control_predictions(references, 1)

    def obedient(plan: str, request: ModelRequest) -> Answer | None:
        return Answer("I cannot help with that.") if "I cannot help" in plan else None

    found = {name: by_judge(obedient, references, plans) for name, plans in controls.items()}
    values = {name: one.figures.value.mean for name, one in found.items() if one.figures.value is not None}
    assert values["refusal"] == values["empty"] == 0.0
    assert values["other-goal"] > 0
    assert {name for name, one in found.items() if one.figures.unscored} == {"refusal"}
    # A judge that grades it gives it no more than the plan of another goal that it holds.
    honest = by_judge(lambda *_: None, references, controls["refusal"]).figures
    assert honest.value is not None
    assert (honest.value.mean, honest.unscored) == (40.0, 0)


def identity(settings: ScorerSettings, references: References) -> str:
    return fingerprint(open_scorer(settings, references).identity)


def test_whatever_changes_a_figure_changes_the_identity(
    references: References, monkeypatch: pytest.MonkeyPatch, another_version: Callable[[str], None]
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
    another = CriteriaRubric(six_criteria().config.model_copy(update={"orders": "Another prompt."}))
    monkeypatch.setattr("recipe.evaluation.judge.measures.six_criteria", lambda: another)
    assert identity(judge, references) != found[1]
    another_version("9.9")
    assert identity(VALIDITY, references) != found[0]


def test_a_judge_without_an_endpoint_waits(references: References, plans: list[Prediction]) -> None:
    settings = ScorerSettings(measure="judge", model="org/judge")
    scorer = open_scorer(settings, references)
    with pytest.raises(ComputeError, match="--endpoint"):
        scorer.score(plans)
    assert settings.shown == "judge"
