"""Phi's prompts and what is read in its answers: no answer is an error, and no time that is wrong survives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.config import PhiConfig
from recipe.models.protocol import ReplayEngine
from recipe.perception.phi import Phi, Prompt, read_history, read_trace
from recipe.types import Frames, Step

CLIP = Frames(np.zeros((2, 4, 4, 3), np.uint8), np.array([0.0, 0.5]), 2.0)


def test_prompts_tell_the_goal_or_keep_it() -> None:
    for kind in ("history", "trace"):
        told, kept = Prompt.load(kind), Prompt.load(kind, goal=False)
        assert "The task is: make $5 tea {x}" in told.text("make $5 tea {x}")
        assert "tea" not in kept.text("make tea")
        assert "$" not in kept.text("make tea")
        assert told.hash != kept.hash
    assert len({Prompt.load("history").hash, Prompt.load("trace").hash}) == 2
    assert Prompt.load("history").hash == Prompt.load("history").hash


def test_phi_reads_histories_with_any_engine() -> None:
    chats = [Prompt.load("history").chat(CLIP, goal) for goal in ("make tea", "fly")]
    engine = ReplayEngine.record(chats, [["1. Boil water\n2. Pour"], ["I cannot see a step."]])
    assert Phi(engine).histories(["make tea", "fly"], [CLIP, CLIP])[0] == ("Boil water", "Pour")
    without = Prompt.load("history", goal=False).chat(CLIP, "")
    engine = ReplayEngine.record([without], [[" "]])
    assert Phi(engine, PhiConfig(goal=False)).histories(["whatever"], [CLIP]) == [()]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("1. Boil water\n2. boil water.\n3. Pour\n4. Boil water", ("Boil water", "Pour", "Boil water")),
        ("Sure! Here is the list:\n\n1. **Boil water**\n2. Pour", ("Boil water", "Pour")),
        ("- Boil water\n- Pour", ("Boil water", "Pour")),
        ("Boil water\nPour", ("Boil water", "Pour")),
        ("", ()),
        ("...\n---", ()),
        ("None.", ()),
        ('1. "none"', ()),
        ("None of the eggs is whole", ("None of the eggs is whole",)),
    ],
)
def test_histories(text: str, steps: tuple[str, ...]) -> None:
    assert read_history(text) == steps


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1. 00:05 - 00:12 Pour", Step("Pour", 5, 12)),
        ("1. 00:05-00:12: Pour", Step("Pour", 5, 12)),
        ("1) [0:05] Pour", Step("Pour", 5)),
        ("[00:05 - 00:12] - Pour", Step("Pour", 5, 12)),
        ("00:05 - Pour", Step("Pour", 5)),
        ("**00:05** Pour", Step("Pour", 5)),
        ("1. Pour (00:05 - 00:12)", Step("Pour", 5, 12)),
        ("1. Pour at 0:05", Step("Pour", 5)),
        ("1. Pour - 0:05", Step("Pour", 5)),
        ("2. 5s - 12.5s: Pour", Step("Pour", 5, 12.5)),
        ("2. Pour (5 seconds)", Step("Pour", 5)),
        ("3. 1:00:05 - 1:00:12 Pour", Step("Pour", 3605, 3612)),
        ("3. 60:05 Pour", Step("Pour", 3605)),
        ("4. Stir for 30 seconds", Step("Stir for 30 seconds")),
        ("4. 30 seconds of rest", Step("30 seconds of rest")),
        ("4. Add 2 eggs", Step("Add 2 eggs")),
        ("4. 2 eggs in", Step("2 eggs in")),
        ("4. Mix flour and water 1:2", Step("Mix flour and water 1:2")),
        ("4. Stir" + 30_000 * " " + "well", Step("Stir well")),
        ("5. 00:75 - 00:80 Pour", Step("Pour")),
        ("5. 00:12 - 00:05 Pour", Step("Pour")),
        ("5. 00:05 - 99:99 Pour", Step("Pour")),
        ("5. 01:59:59 Pour", Step("Pour")),
        ("5. 1:01:00 - 2:00:00 Pour", Step("Pour", 3660, 4000)),
    ],
)
def test_times(line: str, expected: Step) -> None:
    assert read_trace(line, 4000) == (expected,)


B, E, F = map(Step, "BEF")
WRONG = "1. 00:01 A\n2. 00:50 B\n3. 00:05 C\n4. 00:05 D\n5. E\n6. 00:02 F\n7. 00:09 - 00:10 G"


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("1. 00:05 - 00:07\n2. 00:06 Pour", (Step("Pour", 6),)),  # a line of nothing but a time
        ("I see nothing.", ()),
        ("", ()),
        ("none", ()),
        ("The steps are:\n00:01 Boil\n00:05 Pour", (Step("Boil", 1), Step("Pour", 5))),  # no step without a time
        (WRONG, (Step("A", 1), B, Step("C", 5), Step("D", 5), E, F, Step("G", 9, 10))),  # B costs none but its own
        # A stutter is one step with the time of all.
        (
            "1. 00:01 - 00:04 Stir\n2. 00:04 - 00:09 stir.\n3. Stir\n4. 00:10 Pour",
            (Step("Stir", 1, 9), Step("Pour", 10)),
        ),
    ],
)
def test_traces(text: str, steps: tuple[Step, ...]) -> None:
    assert read_trace(text, 60) == steps


@given(st.lists(st.none() | st.integers(0, 70), max_size=12))
def test_times_that_stay_never_go_back_and_are_as_many_as_can_be(starts: list[int | None]) -> None:
    lines = [f"{n}. {'' if start is None else f'00:{start:02d} '}step {n}" for n, start in enumerate(starts, 1)]
    found = read_trace("\n".join(lines), 50)
    assert [step.text for step in found] == [f"step {n}" for n in range(1, len(starts) + 1)]
    kept = [step.start for step in found if step.start is not None]
    assert kept == sorted(kept)
    assert all(step.start in (None, start) for step, start in zip(found, starts, strict=True))
    sound = [start for start in starts if start is not None and start < 50]
    best = [1] * len(sound)
    for place, start in enumerate(sound):
        best[place] = 1 + max((best[k] for k in range(place) if sound[k] <= start), default=0)
    assert len(kept) == max(best, default=0)


@given(st.text(max_size=200), st.floats(0.1, 1e4))
def test_no_answer_is_an_error(text: str, duration: float) -> None:
    for step in read_trace(text, duration):
        assert step.text.strip()
        assert step.start is None or 0 <= step.start < duration
        assert step.end is None or (step.start is not None and step.start <= step.end <= duration)
    assert all(step.strip() for step in read_history(text))
