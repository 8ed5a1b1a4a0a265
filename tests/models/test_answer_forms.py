"""Every reader of what a model writes, with every form in which an endpoint gives it: read or missing, never wrong."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("openai")
from recipe.config import JudgeConfig, SamplingConfig
from recipe.evaluation.diversity.judges import LlmDiversityJudge, Question
from recipe.evaluation.judge.llm import LlmJudge
from recipe.evaluation.judge.plans import Case
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe.models.endpoint.wire import parse_completion
from recipe.models.protocol import Answer, Engine, Refusal, unanswered
from recipe.perception.phi import read_history, read_trace
from recipe.plan_text import plan_steps
from recipe.planning.planner import PlanDraft, Planner, Request, prediction_of, read_plan
from recipe.planning.vidassist.methods import ModelProposer, assess
from recipe.planning.vidassist.search import Candidate, State
from recipe.types import Example, Plan, Verdict

STEPS = ("rinse the rice", "simmer it", "fluff it")
OTHERS = ("grill the fish", "salt it")
EXAMPLE = Example("e", "coin", "v", "cook rice", ("open the bag",), STEPS, 1)


def listed(steps: tuple[str, ...]) -> str:
    return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1))


class Fixed(Engine):
    """Gives one answer to all."""

    def __init__(self, given: Answer) -> None:
        self.given = given

    def answer(self, requests: Any, *_: object, on_answer: Any = None, **__: object) -> list[Answer | Refusal]:
        for place, _ in enumerate(requests):
            if on_answer:
                on_answer(place, self.given)
        return [self.given for _ in requests]


def judged(answer: Answer) -> int | None:
    [row, *_] = LlmJudge(Fixed(answer), "m", JudgeConfig()).judge([Case(EXAMPLE, STEPS)])
    return row.outcome.total if isinstance(row.outcome, Verdict) else None


def level(answer: Answer) -> float | None:
    [rating] = LlmDiversityJudge(Fixed(answer), "m").compare([Question(EXAMPLE, STEPS, OTHERS)])
    return rating.level


def assessed(answer: Answer) -> float | None:
    step = (State("cook rice", ("open the bag",)), Candidate("simmer it"))
    [score] = assess([step], engine=Fixed(answer), sampling=SamplingConfig(), shown={})
    return score


def proposed(answer: Answer) -> tuple[str, ...]:
    proposer = ModelProposer("original", Fixed(answer), SamplingConfig(), "propose", {})
    [[proposal]] = proposer([State("cook rice", ("open the bag",))], 1)
    return (proposal.text,) if proposal.text else ()


def predicted(answer: Answer) -> tuple[str, ...]:
    prediction = prediction_of("e", 0, answer)
    assert (prediction.malformed is None) == bool(prediction.steps)
    assert bool(prediction.cut) == answer.cut
    return prediction.steps


def planned(answer: Answer) -> tuple[str, ...]:
    plan = read_plan(answer)
    return plan.steps if isinstance(plan, Plan) else ()


def streamed(answer: Answer) -> tuple[str, ...]:
    steps: tuple[str, ...] = ()
    for written in Planner(Pieces(answer), SamplingConfig()).write([PlanDraft(Request("cook rice"))]):
        steps = steps[: written.before] + written.steps
    return steps


class Pieces(Fixed):
    """Gives its answer in pieces of three letters."""

    def stream_all(self, requests: Any, stopped: Any = None) -> Any:
        text = self.given.text
        yield from ((0, text[at : at + 3]) for at in range(0, len(text), 3))
        yield 0, self.given


def phi_history(answer: Answer) -> tuple[str, ...] | None:
    return None if unanswered(answer, whole=False) else read_history(answer.text, cut=answer.cut)


def phi_trace(answer: Answer) -> tuple[str, ...] | None:
    trace = read_trace(answer.text, 60, cut=answer.cut)
    return None if unanswered(answer, whole=False) else tuple(step.text for step in trace)


class Reader(NamedTuple):
    """A reader, what it is to read, and what it is not to read."""

    read: Callable[[Answer], Any]
    right: str
    value: Any
    wrong: str
    missing: Any = None


LISTS = {
    "plan": planned,
    "prediction": predicted,
    "stream": streamed,
    "adapters, service": lambda answer: plan_steps(answer.text),
}
READERS = {
    "verdict": Reader(judged, json.dumps(dict.fromkeys(CRITERIA, 4)), 24, json.dumps(dict.fromkeys(CRITERIA, 1))),
    "verdict in words": Reader(
        judged, "\n".join(f"{name}: 4" for name in CRITERIA), 24, "\n".join(f"{name}: 1" for name in CRITERIA)
    ),
    "diversity": Reader(level, '{"score": 0.75}', 0.75, '{"score": 0.25}'),
    "diversity in words": Reader(level, "Score: 0.75", 0.75, "Score: 0.25"),
    "assessment": Reader(assessed, '{"score": 7}', 0.7, '{"score": 2}'),
    "assessment in words": Reader(assessed, "7 out of 10", 0.7, "2 out of 10"),
    "history": Reader(phi_history, listed(STEPS), STEPS, listed(OTHERS)),
    "trace": Reader(phi_trace, listed(STEPS), STEPS, listed(OTHERS)),
    "proposal": Reader(proposed, listed(STEPS), STEPS[:1], listed(OTHERS), ()),
    **{name: Reader(read, listed(STEPS), STEPS, listed(OTHERS), ()) for name, read in LISTS.items()},
}


def answer(content: Any, finish: str = "stop", **more: Any) -> Answer:
    """The answer in an endpoint's response."""
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **more}, "finish_reason": finish}
    return parse_completion(json.dumps({"choices": [choice]}).encode(), 0.0)


READ = {
    "whole": lambda right, wrong: answer(right),
    "thought closed": lambda right, wrong: answer(f"<think>{wrong}</think>\n{right}"),
    "lone tag": lambda right, wrong: answer(f"{wrong}\n</think>\n{right}"),
    "two thoughts": lambda right, wrong: answer(f"<think>a</think>{wrong}<thinking>b</thinking>\n{right}"),
    "thought beside": lambda right, wrong: answer(right, reasoning_content=wrong),
    "thought beside, newer": lambda right, wrong: answer(right, reasoning=wrong),
    "parts": lambda right, wrong: answer([{"type": "text", "text": right}]),
    "parts of a text": lambda right, wrong: answer([{"type": "text", "text": part} for part in (right[:9], right[9:])]),
    "parts with thought": lambda right, wrong: answer(
        [{"type": "thinking", "thinking": [{"type": "text", "text": wrong}]}, {"type": "text", "text": right}]
    ),
    "wrapped": lambda right, wrong: answer(f"<think>{wrong}</think><answer>\n{right}\n</answer>"),
}
MISSING = {
    "thought open": lambda right, wrong: answer(f"<think>{wrong}\n"),
    "thought open, cut": lambda right, wrong: answer(f"[THINK]{wrong} and", "length"),
    "thought opened again": lambda right, wrong: answer(f"{right}\n<think>{wrong}"),
    "thought alone": lambda right, wrong: answer(None, "length", reasoning_content=wrong),
    "thought alone, another word": lambda right, wrong: answer(None, "model_length", reasoning_content=wrong),
    "filtered": lambda right, wrong: answer(right, "content_filter"),
    "filtered, another word": lambda right, wrong: answer(right, "SAFETY"),
    "refused": lambda right, wrong: answer(None, refusal=f"I cannot. {wrong}"),
    "parts of thought": lambda right, wrong: answer(
        [{"type": "thinking", "thinking": [{"type": "text", "text": wrong}]}], "length"
    ),
}


@pytest.mark.parametrize("form", READ)
@pytest.mark.parametrize("name", READERS)
def test_an_answer_is_read(name: str, form: str) -> None:
    reader = READERS[name]
    assert reader.read(READ[form](reader.right, reader.wrong)) == reader.value


@pytest.mark.parametrize("form", MISSING)
@pytest.mark.parametrize("name", READERS)
def test_what_is_no_answer_has_no_value(name: str, form: str) -> None:
    reader = READERS[name]
    found = MISSING[form](reader.right, reader.wrong)
    if name == "adapters, service":  # they see the text alone
        assert form.startswith("filtered") or reader.read(found) == reader.missing
    else:
        assert reader.read(found) == reader.missing
        assert unanswered(found)


@pytest.mark.parametrize("name", READERS)
def test_a_cut_answer_is_no_value_or_a_list_of_whole_lines(name: str) -> None:
    reader = READERS[name]
    for end in range(1, len(reader.right)):
        found = reader.read(answer(reader.right[:end], "length"))
        if isinstance(reader.value, tuple) and name != "adapters, service":
            whole = reader.value[: reader.right[:end].count("\n")]
            assert found == whole
        elif not isinstance(reader.value, tuple):
            assert found is None


ROWS = [f"| {n} | {step} |" for n, step in enumerate(STEPS, start=1)]
PLAN_FORMS = {
    "JSON": json.dumps(STEPS),
    "JSON with numbers": json.dumps({"steps": [{"step": n, "action": step} for n, step in enumerate(STEPS, start=1)]}),
    "JSON in a fence": f"```json\n{json.dumps({'steps': STEPS}, indent=2)}\n```",
    "headings": "\n".join(f"### {number}. {step}\nTake your time." for number, step in enumerate(STEPS, start=1)),
    "table": "\n".join(["| Step | Action |", "|---|---|", *ROWS]),
    "keycaps": "Sure!\n" + "\n".join(f"{n}\ufe0f\u20e3 {step}" for n, step in enumerate(STEPS, start=1)) + "\n\nEnjoy!",
    "a line": " ".join(f"{n}. {step}" for n, step in enumerate(STEPS, start=1)),
    "box": f"\\boxed{{{listed(STEPS)}}}",
    "below a heading": f"1. Cook\n   a. {STEPS[0]}\n   b. {STEPS[1]}\n2. Serve\n   a. {STEPS[2]}",
    "XML": "<steps>" + "".join(f"<step>{step}</step>" for step in STEPS) + "</steps>",
    "YAML": "steps:\n" + "\n".join(f"  - {step}" for step in STEPS),
}
NO_PLANS = {
    "JSON that is cut off": '{"steps": ["rinse the rice", "simm',
    "code": "```python\nprint('rice')\n```",
    "running text": "Rinse the rice. Then simmer it. Fluff it at the end.",
    "refusal in words": "I cannot help with that.",
}
PLANNERS = [name for name, reader in READERS.items() if isinstance(reader.value, tuple)]


@pytest.mark.parametrize("name", PLANNERS)
@pytest.mark.parametrize("form", PLAN_FORMS)
def test_further_forms_of_a_plan(name: str, form: str) -> None:
    reader = READERS[name]
    assert reader.read(answer(PLAN_FORMS[form])) == reader.value
    assert reader.read(answer(f"<think>{reader.wrong}</think>{PLAN_FORMS[form]}")) == reader.value


@pytest.mark.parametrize("name", PLANNERS)
@pytest.mark.parametrize("form", NO_PLANS)
def test_no_reader_takes_what_is_no_plan_for_one(name: str, form: str) -> None:
    assert not READERS[name].read(answer(NO_PLANS[form]))


@given(st.lists(st.sampled_from(["<think>", "</think>", "1. a\n", "2. b\n", "c\n", "[THINK]", "[/THINK]"]), max_size=8))
def test_steps_as_they_are_written_are_those_of_the_whole(parts: list[str]) -> None:
    text = "".join(parts)
    assert streamed(Answer(text)) == plan_steps(text)
