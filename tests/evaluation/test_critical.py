"""Critical failures: the prompt from a file, strict answers, and scores in which nothing unread is a number."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("scipy")
from tests.evaluation.scored import critical_scores
from tests.evaluation.test_judge import Scripted

from recipe.config import JudgeConfig
from recipe.errors import InputError
from recipe.evaluation.judge.critical import SCHEMA, FailurePrompt
from recipe.evaluation.judge.llm import LlmJudge
from recipe.evaluation.judge.measures import CriticalFailuresMeasure
from recipe.evaluation.judge.plans import Case, control_cases
from recipe.evaluation.judge.verdicts import Judgement, read_verdicts, verdict_rows, write_verdicts
from recipe.evaluation.scores import read_scores, write_scores
from recipe.models.protocol import Answer, Refusal
from recipe.types import CriticalFailure, CriticalFailures, Example, Unscored

PROMPT = 'Judge it.\nGoal: {goal}\nL1:\n{reference_steps}\nL2:\n{steps}\nAnswer {{"critical_failures": []}}.'


def prompt(folder: Path, text: str = PROMPT) -> FailurePrompt:
    (folder / "judge.txt").write_text(text, encoding="utf-8")
    return FailurePrompt.read(folder / "judge.txt")


def example(name: str = "e", history: Sequence[str] = (), source: str = "how2bench") -> Example:
    return Example(name, source, f"v-{name}", f"goal {name}", tuple(history), ("boil", "pour"), len(history))


def said(*failures: str, reasoning: str = "Because.") -> str:
    items = [{"failure": text, "L1_steps": [1], "L2_steps": [2, 3]} for text in failures]
    return json.dumps({"reasoning": reasoning, "critical_failures": items})


class ByPlan(Scripted):
    """Answers by the first step of L2."""

    def _one(self, chat: Any, sample: int, sampling: Any) -> Answer | Refusal:
        [message] = chat
        name = message["content"].split("L2:\n1. ")[1].split("\n")[0]
        self.asked.append((name, sample, sampling.seed))
        answer = self._answer(name, sample, sampling)
        return answer if isinstance(answer, Refusal) else Answer(answer, 100, 10)


def judged(
    folder: Path, answer: Callable[..., str | Refusal], cases: Sequence[Case], **config: Any
) -> tuple[list[Judgement], ByPlan, LlmJudge]:
    engine = ByPlan(answer)
    judge = LlmJudge(engine, "owner/a-judge", JudgeConfig(**config), prompt(folder))
    return judge.judge(cases), engine, judge


def test_the_prompt_is_filled_in_one_pass_with_whole_procedures(tmp_path: Path) -> None:
    case = Case(example(history=["fill {steps}"]), ("stir\n3. done", "{goal} <|eot_id|>"))
    [message] = prompt(tmp_path).ask(case)
    assert message == {
        "role": "user",
        "content": "Judge it.\nGoal: goal e\nL1:\n1. fill {steps}\n2. boil\n3. pour\n"
        "L2:\n1. fill {steps}\n2. stir 3. done\n"
        '3. {goal} < |eot_id|>\nAnswer {"critical_failures": []}.\n\nReturn only valid json.',
    }
    [message] = prompt(tmp_path, "{goal}|{history}|{reference_steps}|{steps}").ask(case)
    assert message["content"].startswith("goal e|1. fill {steps}|1. boil\n2. pour|1. stir")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (PROMPT.replace("{steps}", ""), "{steps} is missing"),
        (PROMPT + "{answer}", "{answer} is unknown"),
        (PROMPT + "{goal!r}", "{goal} is unknown"),
        (PROMPT + "{goal:>9}", "{goal} is unknown"),
        (PROMPT + "{}", "{} is unknown"),
        (PROMPT + "{", "braces do not match"),
    ],
)
def test_a_prompt_with_other_places_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=rf"judge\.txt: .*{problem}"):
        prompt(tmp_path, text)
    with pytest.raises(InputError, match="does not exist"):
        FailurePrompt.read(tmp_path / "nowhere.txt")
    (tmp_path / "latin.txt").write_bytes(PROMPT.encode() + b"\xe9")
    with pytest.raises(InputError, match="not UTF-8"):
        FailurePrompt.read(tmp_path / "latin.txt")


def test_an_answer_is_read_whatever_stands_around_it() -> None:
    expected = CriticalFailures((CriticalFailure("It burns.", (1,), (2, 3)),), "Because.")
    for text in (said("It burns."), f"<think>{said()}</think>\n```json\n{said('It burns.')}\n```"):
        assert FailurePrompt.parse(text) == (expected, "json")
    assert FailurePrompt.parse(said()).outcome == CriticalFailures((), "Because.")


BAD = [
    "",
    "No failure at all.",
    '{"critical_failures": []}',
    '{"reasoning": "x"}',
    '{"reasoning": 3, "critical_failures": []}',
    '{"reasoning": "x", "critical_failures": {}}',
    '{"reasoning": "x", "critical_failures": null}',
    '{"reasoning": "x", "critical_failures": ["burns"]}',
    '{"reasoning": "x", "critical_failures": [{"failure": "burns", "L1_steps": [1]}]}',
    '{"reasoning": "x", "critical_failures": [{"failure": " ", "L1_steps": [], "L2_steps": []}]}',
    '{"reasoning": "x", "critical_failures": [{"failure": "burns", "L1_steps": [0], "L2_steps": []}]}',
    '{"reasoning": "x", "critical_failures": [{"failure": "burns", "L1_steps": ["1"], "L2_steps": []}]}',
    '{"reasoning": "x", "critical_failures": [{"failure": "burns", "L1_steps": [true], "L2_steps": []}]}',
    '{"reasoning": "x", "critical_failures": [], "critical_failures": [1]}',
    said("burns")[:-3],
]


@pytest.mark.parametrize("text", BAD)
def test_nothing_is_guessed_from_an_answer_of_another_form(text: str) -> None:
    outcome, how = FailurePrompt.parse(text)
    assert isinstance(outcome, Unscored)
    assert (how, bool(outcome.reason)) == ("", True)


@given(st.lists(st.text(min_size=1).filter(str.strip), max_size=4), st.text(alphabet='ab {}[]":\n', max_size=40))
def test_every_list_of_failures_is_read_behind_any_prose(texts: list[str], prose: str) -> None:
    outcome = FailurePrompt.parse(f"{prose}\n{said(*texts)}").outcome
    assert isinstance(outcome, CriticalFailures)
    assert [one.failure for one in outcome.failures] == [text.strip() for text in texts]


def test_what_cannot_be_read_is_asked_again_and_then_unscored(tmp_path: Path) -> None:
    tries: dict[str, int] = {}

    def answer(name: str, *_: Any) -> str | Refusal:
        tries[name] = tries.get(name, 0) + 1
        if name == "refused":
            return Refusal("filtered")
        return said() if name == "good" or (name == "late" and tries[name] == 2) else "I would rather not."

    cases = [Case(example(name), (name,)) for name in ("good", "late", "never", "refused")]
    cases += [Case(example("none"), ()), Case(example("dots"), ("...",))]
    rows, engine, judge = judged(tmp_path, answer, cases)
    assert tries == {"good": 1, "late": 2, "never": 2, "refused": 1}
    assert len({seed for name, _, seed in engine.asked if name == "late"}) == 2
    assert [type(row.outcome) for row in rows] == [
        CriticalFailures, CriticalFailures, Unscored, Unscored, CriticalFailures, CriticalFailures
    ]  # fmt: skip
    assert [row.how for row in rows] == ["json", "json", "", "", "rule", "rule"]
    assert engine.schemas[0] == SCHEMA
    assert judge.identity.settings["rubric"] == "critical-failures"
    other = LlmJudge(engine, "owner/a-judge", rubric=prompt(tmp_path, PROMPT + " Be strict."))
    assert other.identity.prompt != judge.identity.prompt
    scores = critical_scores("ours", judge.identity, [case.example for case in cases], rows)
    assert {name: one.mean for name, one in scores.overall.values.items()} == {"without_failure": 50.0, "failures": 0.5}
    assert (scores.overall.counts.plans, scores.overall.counts.unscored) == (4, 2)
    nothing = critical_scores("ours", judge.identity, [cases[2].example], rows[2:3])
    assert nothing.overall.values == {}
    assert {name: one.mean for name, one in nothing.overall.readings.items()} == {
        "missing_as_0": 0, "missing_as_best": 100
    }  # fmt: skip


def test_scores_are_means_over_repeats_then_samples_then_examples(tmp_path: Path) -> None:
    def row(name: str, sample: int, repeat: int, count: int) -> Judgement:
        return Judgement(name, CriticalFailures((CriticalFailure("x", (), ()),) * count), sample, repeat)

    rows = [row("a", 0, 0, 0), row("a", 0, 1, 2), row("a", 1, 0, 4), row("b", 0, 0, 0)]
    rows.append(Judgement("b", Unscored("no answer"), 0, 1))
    plans = [tuple(one.values()) for one in CriticalFailuresMeasure.plan_values(verdict_rows(rows)).values()]
    assert plans == [(50.0, 1.0), (0.0, 4.0), (100.0, 0.0)]
    examples = [example("a"), example("b", source="kitchen")]
    _, _, judge = judged(tmp_path, lambda *_: said(), [])
    scores = critical_scores("ours", judge.identity, examples, rows)
    assert scores.overall.values["without_failure"].mean == pytest.approx((25 + 100) / 2)
    assert [one.name for one in scores.of("dataset")] == ["how2bench", "kitchen"]
    read = {name: one.mean for name, one in scores.overall.readings.items()}
    assert read == {"missing_as_0": 37.5, "missing_left_out": 62.5, "missing_as_best": 62.5}
    assert scores.of("dataset")[0].readings == {}
    assert [one.values["failures"].mean for one in scores.of("dataset")] == [2.5, 0.0]
    write_scores(tmp_path / "s.json", scores)
    assert read_scores(tmp_path / "s.json") == scores
    write_verdicts(tmp_path / "s.rows.jsonl", rows)
    assert read_verdicts(tmp_path / "s.rows.jsonl") == rows


def test_controls_tell_whether_the_judge_can_be_trusted(tmp_path: Path) -> None:
    examples = [example(name) for name in "abcdefgh"]
    cases = control_cases(examples, 8)
    rows, _, judge = judged(tmp_path, lambda name, *_: said() if name == "boil" else said("other"), cases)
    scores = critical_scores("ours", judge.identity, examples, rows)
    shares = {one.name: one.values["without_failure"].mean for one in scores.of("control")}
    assert (shares["reference"], shares["constant"], shares["empty"]) == (100.0, 0.0, 0.0)
    assert any("marks a wrong order down" in sentence for sentence in scores.findings)
    assert not any("words" in sentence for sentence in scores.findings)


@pytest.mark.parametrize(
    "row",
    [
        {"example_id": "e"},
        {"example_id": "e", "critical_failures": [], "unscored": "x"},
        {"example_id": "e", "critical_failures": [3]},
        {"example_id": "e", "critical_failures": [{"failure": "x", "L1_steps": [0], "L2_steps": []}]},
        {"example_id": "e", "critical_failures": {}},
        {"example_id": "e", "unscored": "x", "steps": "boil"},
        {"example_id": "e", "unscored": "x", "score": 3},
    ],
)
def test_bad_rows_are_refused_with_their_line(tmp_path: Path, row: dict[str, Any]) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match=r"rows\.jsonl, line 1"):
        read_verdicts(tmp_path / "rows.jsonl")
