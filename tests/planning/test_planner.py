"""Planner, replay, re-ranking and prediction files."""

import json
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recipe.config import SamplingConfig
from recipe.errors import InputError
from recipe.models.protocol import Answer, Engine, ModelRequest, Refusal, ReplayEngine
from recipe.models.sampling import decoding_of
from recipe.planning.planner import Planner, Request
from recipe.planning.prediction_files import MatchedPredictions, match_predictions, read_predictions, write_predictions
from recipe.planning.predictions import Prediction
from recipe.planning.rerank import rerank, reward_predictions
from recipe.reward.scorer import PromptGroup
from recipe.text import planner_messages
from recipe.types import Example, Frames, Malformed, Plan, Reward

TEA = Request("make tea", ("boil water",))
RICE = Request("boil rice")


def example(example_id: str, request: Request = TEA) -> Example:
    return Example(example_id, "toy", "v", request.goal, request.history, ("steep the tea",), 1)


def recorded(*pairs: tuple[Request, list[str]]) -> Planner:
    chats = [planner_messages(request.goal, request.history) for request, _ in pairs]
    return Planner(ReplayEngine.record(chats, [texts for _, texts in pairs]))


class LengthScorer:
    """Rewards a continuation with its number of steps."""

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        return [
            [Reward(float(len(steps)), 0.0, 0.0, 0.0, not steps, len(steps), (), None) for steps in group.plans]
            for group in groups
        ]


def test_plans_come_back_by_request_and_sample() -> None:
    planner = recorded((TEA, ["1. Steep\n2. Pour", ""]), (RICE, ["Rinse rice", "1. Boil"]))
    [tea, rice] = planner.plan([TEA, RICE], count=2)
    assert tea == [Plan(("Steep", "Pour")), Malformed("the completion is empty", "")]
    assert rice == [Plan(("Rinse rice",)), Plan(("Boil",))]


def test_of_many_clips_some_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from recipe.planning import planner

    alive, most, calls = list[weakref.ref[Any]](), list[int](), list[int]()

    class Shown(Engine):
        def answer(self, requests: Sequence[ModelRequest], *_: Any, **__: Any) -> list[Answer | Refusal]:
            calls.append(len(requests))
            most.append(sum(one() is not None for one in alive))
            return [Answer(f"1. Step {request.chat[-1]['content'][0]['text']}") for request in requests]

    def see(one: Example) -> Request:
        images = np.zeros((2, 8, 8, 3), np.uint8)
        alive.append(weakref.ref(images))
        return Request(one.goal, video=Frames(images, np.arange(2.0), 1.0))

    monkeypatch.setattr(planner, "FRAME_BYTES", 2 * (2 * 8 * 8 * 3) + 1)
    examples = [replace(example(f"t{n}"), goal=f"goal {n}") for n in range(8)]
    predictions = Planner(Shown()).predict(examples, 2, see=see)
    assert [(one.example_id, one.sample) for one in predictions] == [(f"t{n}", s) for n in range(8) for s in (0, 1)]
    assert all(f"goal {one.example_id[1:]}" in one.steps[0] for one in predictions)
    assert (calls, max(most)) == ([6, 6, 4], 3)


def test_replay_says_what_is_missing() -> None:
    with pytest.raises(InputError, match="1 of 2 completions are recorded"):
        recorded((TEA, ["1. Steep"])).plan([TEA], count=2)
    with pytest.raises(InputError, match="at least one"):
        recorded((TEA, [])).plan([TEA], count=0)


@pytest.mark.parametrize(("goal", "history"), [("", ()), ("  ", ()), ("make tea", ("boil", " "))])
def test_empty_requests_are_refused(goal: str, history: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="empty"):
        Request(goal, history)


def test_best_of_n_takes_the_highest_and_the_earliest_of_equals() -> None:
    plans: list[Plan | Malformed] = [Plan(("a",)), Plan(("b", "c")), Malformed("empty", ""), Plan(("d", "e"))]
    [ranked] = rerank(LengthScorer(), [TEA], [plans])
    assert ranked.chosen == plans[1]
    assert ranked.order == (1, 3, 0, 2)
    assert [reward.total for reward in ranked.rewards] == [1, 2, 0, 2]


def test_predictions_go_to_a_file_and_back(tmp_path: Path) -> None:
    planner = recorded((TEA, ["1. Steep\n2. Pour", ""]))
    predictions = planner.predict([example("t1")], count=2)
    rewarded = reward_predictions(LengthScorer(), [example("t1")], predictions)
    assert [(one.steps, one.reward, one.gated) for one in rewarded] == [
        (("Steep", "Pour"), 2.0, False),
        ((), 0.0, True),
    ]
    file = tmp_path / "predictions.jsonl"
    assert write_predictions(file, rewarded) == 2
    assert read_predictions(file) == rewarded
    card = decoding_of(SamplingConfig(imitate="checkpoint"), extra_body={"top_k": 20})
    compared = [replace(one, decoding=card) for one in rewarded]
    write_predictions(file, compared)
    assert read_predictions(file) == compared
    first = json.loads(file.read_text().splitlines()[0])["decoding"]
    assert (first["top_k"], first["top_p"]) == ([20, "user"], [None, "checkpoint"])
    file.write_text('{"example_id": "t1", "steps": ["Steep"]}\n')  # the plain form is enough
    assert read_predictions(file) == [Prediction("t1", ("Steep",))]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"example_id": "t1"}', "line 1, field 'steps'"),
        ('{"example_id": "t1", "steps": [], "sample": "0"}', "field 'sample'"),
        (
            '{"example_id": "t1", "steps": []}\n{"example_id": "t2", "steps": [], "decoding": {}}',
            "line 2, .*'decoding'",
        ),
        ('{"example_id": "t1", "steps": [], "rewrd": 1}', "'reward'"),
        ('{"example_id": "t1", "steps": []}\n{"example_id": "t1", "steps": []}', "line 2, field 'sample'"),
    ],
)
def test_a_bad_prediction_is_located(tmp_path: Path, row: str, message: str) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(row + "\n")
    with pytest.raises(InputError, match=message):
        read_predictions(file)


def test_predictions_for_other_splits_are_left_out_and_those_for_unknown_examples_named() -> None:
    everyone = [example("a"), example("b"), example("c")]
    predictions = [Prediction("b", ("y",)), Prediction("a", ("x",)), Prediction("b", (), sample=1)]
    assert match_predictions(everyone[::2], predictions, everyone) == MatchedPredictions(predictions[1:2], ("c",), 2)
    with pytest.raises(InputError, match=r"1 of 2 planned examples are none of those given: b; give"):
        match_predictions([example("a")], predictions)
    with pytest.raises(InputError, match=r"7 of 7 planned .* given: x0, x1, x2, x3, x4, \.\.\.;"):
        match_predictions(everyone, [Prediction(f"x{n}", ()) for n in range(7)])
