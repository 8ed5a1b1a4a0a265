"""Steps as they are written are the steps of the whole text."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from recipe.planning.planner import steps_as_written
from recipe.text import plan_steps

TEXTS = st.text(st.sampled_from("ab12.)-* \n\r`:S"), max_size=60) | st.text(max_size=40)


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    ends = sorted({min(cut, len(text)) for cut in cuts} | {len(text)})
    starts = [0, *ends[:-1]]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


@given(TEXTS, st.lists(st.integers(0, 60), max_size=8))
def test_the_steps_are_those_of_the_whole_text(text: str, cuts: list[int]) -> None:
    assert tuple(steps_as_written(pieces_of(text, cuts))) == plan_steps(text)


def test_a_step_comes_when_its_line_is_complete() -> None:
    asked = []

    def pieces() -> Iterator[str]:
        for piece in ["1. boil", " water\n", "2. steep", "\n3. serve"]:
            asked.append(piece)
            yield piece

    steps = steps_as_written(pieces())
    assert next(steps) == "boil water"
    assert asked == ["1. boil", " water\n"]
    assert list(steps) == ["steep", "serve"]


def test_lines_without_numbers_wait_for_the_end() -> None:
    assert list(steps_as_written(["Here is the rest\n", "1. boil\n"])) == ["boil"]
    assert list(steps_as_written(["boil\n", "steep\n"])) == ["boil", "steep"]
