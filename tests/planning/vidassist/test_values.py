"""What speaks for a candidate: likelihoods, cosines, the assessor's answers, the task graph."""

import math
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planning.vidassist.toys import ACTIONS, GOAL, START, ScriptedEngine, actions_of

from recipe.config import SamplingConfig
from recipe.errors import InputError
from recipe.models.protocol import Answer, Refusal
from recipe.planning.vidassist.methods import assess, demonstrations, read_score, task_graph_score
from recipe.planning.vidassist.search import (
    NextStep,
    Proposal,
    State,
    candidates_of,
    text_generation,
    text_mapping,
    translation,
)
from recipe.types import Procedure, Step

BOIL, ADD, POUR, STIR = ACTIONS


def considered(*proposals: tuple[str, float | None], state: State = START) -> list[NextStep]:
    told = [Proposal("toy", text, text, logprob) for text, logprob in proposals]
    [candidates] = candidates_of([state], [told], actions_of)
    return [(state, candidate) for candidate in candidates]


def test_merged_proposals_keep_their_highest_score() -> None:
    [stir, pour] = considered(("stir~", -0.5), ("stir", -2.0), ("pour~", None))
    assert text_generation([stir, pour]) == [round(math.exp(-0.5), 6), None]
    assert text_mapping([stir, pour]) == [1.0, 0.8]


@given(st.floats(-50, 0), st.floats(-50, 0))
def test_likelihoods_and_cosines_lie_between_0_and_1_and_keep_their_order(first: float, second: float) -> None:
    low, high = sorted([first, second])
    [less], [more] = (text_generation(considered(("stir", logprob))) for logprob in (low, high))
    assert less is not None
    assert more is not None
    assert 0 <= less <= more <= 1


def test_the_agent_ranks_by_cosine_and_likelihood() -> None:
    scores = translation(considered(("stir~", -0.1), ("stir~ it", -2.0), ("pour", -2.0), ("add", None)), beta=0.3)
    assert scores == [pytest.approx(0.6 - 0.03), pytest.approx(1.0 - 0.6), None]
    assert translation(considered(("stir~", None), ("pour", None)), beta=0.3) == [pytest.approx(0.6), 1.0]


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"score": 7}', 0.7),
        ('{"score": 0}', 0.0),
        ('Here you are:\n```json\n{"score": 10, "why": "fits"}\n```', 1.0),
        ('{"score": 7', 0.7),
        ('{"score": "7"}', 0.7),
        ("Score: 7.5", 0.75),
        ("I would give it a score of 4.", 0.4),
        ("7/10", 0.7),
        ("I say 3 out of 10, because 2 steps are missing.", 0.3),
        (" 8. ", 0.8),
        ("On a score from 0 to 10 it is fine", None),
        ("score (0 to 10): unknown", None),
        ("score: -3", None),
        ('{"score": 11}', None),
        ('{"score": -1}', None),
        ('{"score": true}', None),
        ('{"score": NaN}', None),
        (f'{{"score": 1{"0" * 400}}}', None),
        ("score: 85", None),
        ("yes", None),
        ("", None),
        ("5 " * 1_000_000, None),
    ],
)  # fmt: skip
def test_scores_are_read_from_json_then_by_pattern_and_else_not_told(text: str, score: float | None) -> None:
    assert read_score(text) == score


@given(st.text())
def test_no_answer_breaks_the_reader(text: str) -> None:
    score = read_score(text)
    assert score is None or 0 <= score <= 1


def test_the_assessor_is_asked_about_all_candidates_at_once() -> None:
    def answer(text: str, sample: int) -> str | Answer | Refusal:
        if "next action: stir" in text:
            return '{"score": 9}'
        return Refusal("too long") if "next action: pour milk" in text else "no idea"

    engine = ScriptedEngine(answer)
    found = considered(("stir", None), ("pour", None), ("boil", None))
    assert assess(found, engine=engine, sampling=SamplingConfig(temperature=0), shown={}) == [0.9, None, None]
    assert engine.batches == [3]


def video(name: str, *steps: str, goal: str = GOAL) -> Procedure:
    return Procedure("toy", name, goal, tuple(Step(step) for step in steps))


def test_the_task_graph_counts_what_came_next() -> None:
    shown = {GOAL: ((BOIL, ADD, STIR), ("Boil it", POUR), (BOIL, ADD, STIR, ADD))}
    graph = partial(task_graph_score, shown=shown, actions=actions_of)
    assert graph(considered(("boil", None), ("stir", None))) == [1.0, 0.0]
    after_boil = START.then(BOIL)
    assert graph(considered(("add", None), ("pour", None), ("stir", None), state=after_boil)) == [
        pytest.approx(2 / 3), pytest.approx(1 / 3), 0.0,
    ]  # fmt: skip
    told_by_phi = State(GOAL, ("Boiling the kettle",))
    assert graph(considered(("add", None), state=told_by_phi)) == [pytest.approx(2 / 3)]


def test_the_task_graph_does_not_tell_what_it_has_not_seen() -> None:
    graph = partial(task_graph_score, shown={GOAL: ((BOIL, ADD),)}, actions=actions_of)
    assert graph(considered(("stir", None), state=START.then(POUR))) == [None]
    assert graph(considered(("stir", None), state=State("fly", ()))) == [None]


def test_demonstrations_do_not_depend_on_the_order_of_the_videos() -> None:
    videos = [video(f"v{number}", BOIL, f"step {number}") for number in range(6)]
    videos.append(video("empty"))
    first = demonstrations(videos, [GOAL, GOAL], 2, seed=3)
    assert first == demonstrations(videos[::-1], [GOAL], 2, seed=3)
    assert len(first[GOAL]) == 2
    assert len({demonstrations(videos, [GOAL], 2, seed)[GOAL] for seed in range(20)}) > 1
    assert demonstrations(videos, [GOAL], 0) == {}
    with pytest.raises(InputError, match="6 training videos are of the goal 'make tea' and 7 were asked for"):
        demonstrations(videos, [GOAL], 7)
