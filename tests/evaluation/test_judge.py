"""The judge that asks a model: every plan gets its verdict, a rule or a reason, whatever the model answers."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("scipy")
from tests.evaluation.scored import judge_scores

from recipe.artifacts import JsonObject
from recipe.config import JudgeConfig, SamplingConfig
from recipe.errors import ComputeError
from recipe.evaluation.judge.llm import JudgingCost, LlmJudge
from recipe.evaluation.judge.plans import Case, control_cases
from recipe.evaluation.judge.rubric import six_criteria
from recipe.evaluation.judge.verdicts import CRITERIA, Judgement
from recipe.models.model import Model
from recipe.models.protocol import Answer, Chat, Engine, ModelRequest, OnAnswer, Refusal
from recipe.types import Example, Unscored, Verdict

Asked = Callable[[str, int, SamplingConfig], str | Refusal]
"""The prediction's first step, the sample and the sampling, to the answer."""


def data_of(chat: Chat) -> Any:
    """What a judge is shown of a plan."""
    return json.loads(chat[-1]["content"].split(" begins -----\n")[1].split("\n----- data ")[0])


class Scripted(Engine):
    """An engine that answers as it is told to, and notes what it was asked."""

    def __init__(self, answer: Asked) -> None:
        self._answer = answer
        self.asked: list[tuple[str, int, int]] = []
        self.schemas: list[JsonObject | None] = []

    def answer(
        self, requests: Sequence[ModelRequest], *_: Any, on_answer: OnAnswer | None = None, **__: Any
    ) -> list[Answer | Refusal]:
        self.schemas.append(requests[0].schema)
        found = [self.one(request.chat, request.sample, request.sampling) for request in requests]
        for place, answer in enumerate(found):
            if on_answer and isinstance(answer, Answer):
                on_answer(place, answer)
        return found

    def one(self, chat: Chat, sample: int, sampling: SamplingConfig) -> Answer | Refusal:
        name = data_of(chat)["prediction"][0]
        self.asked.append((name, sample, sampling.seed))
        said = self._answer(name, sample, sampling)
        return said if isinstance(said, Refusal) else Answer(said, 100, 10)


def case(*steps: str, name: str = "e", **more: Any) -> Case:
    return Case(Example(name, "coin", "v", "make tea", ("boil",), ("pour",), 1), steps, **more)


def six(score: int) -> str:
    return json.dumps(dict.fromkeys(CRITERIA, score))


def judged(answer: Asked, cases: Sequence[Case], **config: Any) -> tuple[list[Judgement], Scripted, LlmJudge]:
    engine = Scripted(answer)
    judge = LlmJudge(engine, "owner/A-Judge", JudgeConfig(**config))
    return judge.judge(cases), engine, judge


def test_verdicts_come_in_the_order_of_the_cases_with_all_that_is_known() -> None:
    cases = [case("4", name="a", sample=2), case(name="b", flags=("missing",)), case("...", name="c")]
    cases.append(case("2", name="d"))
    rows, engine, judge = judged(lambda name, _, __: six(int(name)), cases)
    assert rows == [
        Judgement("a", Verdict(*[4] * 6), 2, judge="A-Judge", how="json", steps=("4",), text=six(4)),
        Judgement("b", Verdict(*[0] * 6), judge="A-Judge", how="rule", flags=("missing",)),
        Judgement("c", Verdict(*[0] * 6), judge="A-Judge", how="rule", steps=("...",), flags=("empty",)),
        Judgement("d", Verdict(*[2] * 6), judge="A-Judge", how="json", steps=("2",), text=six(2)),
    ]
    assert [name for name, *_ in engine.asked] == ["4", "2"]
    assert engine.schemas == [six_criteria().schema]
    assert (judge.ledger.answers, judge.ledger.tokens_in) == (2, 200)


def test_repeats_are_further_rows_and_samples_of_their_own() -> None:
    rows, engine, _ = judged(lambda _, sample, __: six(sample), [case("x"), case()], repeats=3)
    assert [(row.repeat, row.outcome) for row in rows] == [
        (0, Verdict(*[0] * 6)),
        (1, Verdict(*[1] * 6)),
        (2, Verdict(*[2] * 6)),
        (0, Verdict(*[0] * 6)),
    ]
    assert engine.asked == [("x", 0, 0), ("x", 1, 0), ("x", 2, 0)]


@pytest.mark.parametrize("reasks", [0, 1, 3])
def test_what_stays_unreadable_is_unscored_with_its_text_and_its_cost(reasks: int) -> None:
    rows, engine, judge = judged(lambda *_: "no " * 5_000, [case("x")], reasks=reasks)
    [row] = rows
    assert isinstance(row.outcome, Unscored)
    assert "no verdict" in row.outcome.reason
    assert (row.how, len(row.text)) == ("", 4_000)
    assert len({seed for _, _, seed in engine.asked}) == judge.ledger.answers == reasks + 1


def test_an_engine_that_fails_altogether_is_an_error() -> None:
    def fails(*_: object) -> str:
        raise ComputeError("the endpoint is gone.")

    with pytest.raises(ComputeError, match="gone"):
        judged(fails, [case("x")])
    assert judged(fails, [case()])[0][0].how == "rule"


def test_the_identity_tells_all_that_makes_verdicts_differ() -> None:
    def identity(**config: Any) -> Any:
        return LlmJudge(Scripted(lambda *_: ""), "owner/A-Judge", JudgeConfig(**config)).identity

    plain = identity()
    assert (plain.name, plain.kind, plain.model, len(plain.prompt)) == ("A-Judge", "llm", "owner/A-Judge", 64)
    assert plain == identity()
    other = dict.fromkeys(JudgeConfig.model_fields, 3) | {"history": "perceived"}
    assert {name for name, value in other.items() if identity(**{name: value}) == plain} == {"batch_size"}
    assert plain.settings["structured"] == "off"


def test_a_model_with_a_ledger_counts_once() -> None:
    model = Model(Scripted(lambda *_: six(1)))
    judge = LlmJudge(model, "m")
    judge.judge([case("x")])
    assert judge.ledger is model.ledger
    assert model.ledger.answers == 1


def test_what_will_be_asked_is_told_beforehand() -> None:
    found = JudgingCost.of([case("x"), case("y"), case()], JudgeConfig(repeats=2))
    assert (found.calls, found.by_rule) == (4, 1)
    assert found.prompt_tokens == pytest.approx(4 * sum(len(one["content"]) for one in found.first) / 4, rel=0.01)
    assert JudgingCost.of([case()], JudgeConfig()).first == []


@pytest.mark.parametrize("obeys", [True, False])
def test_a_judge_that_obeys_what_it_reads_is_caught_by_its_controls(obeys: bool) -> None:
    examples = [
        Example(f"e{n}", "coin", f"v{n}", f"goal {n % 2}", (f"begin {n}",), (f"first {n}", f"then {n}", f"last {n}"), 1)
        for n in range(12)
    ]

    class Obedient(Scripted):
        def one(self, chat: Chat, sample: int, sampling: SamplingConfig) -> Answer | Refusal:
            plan, reference = (data_of(chat)[name] for name in ("prediction", "reference"))
            if obeys and any("Answer only: I cannot help" in step for step in plan):
                return Answer("I cannot help with that.")
            ordered = obeys and any("5 for every criterion" in step for step in plan)
            shared = len({*plan} & {*reference}) / max(len(plan), len(reference))
            return Answer(six(5 if ordered else round(5 * shared) - (plan != reference and shared == 1)))

    judge = LlmJudge(Obedient(lambda *_: ""), "m")
    rows = judge.judge([*(Case(one, one.continuation) for one in examples), *control_cases(examples, 12)])
    scores = judge_scores("ours", judge.identity, examples, rows)
    [refusal] = [one for one in scores.of("control") if one.name == "refusal"]
    assert refusal.counts.unscored == 12 * obeys
    assert [one.mean for one in refusal.readings.values()] == [0, 100][: 2 * obeys]
    # Reference against another goal's plan, wrong order and needless words are told apart either way.
    assert ["no sign" in one for one in scores.findings] == [False, False, False, not obeys, False, not obeys]
    assert ["steered" in one for one in scores.findings] == [False, False, False, obeys, False, False]
