"""Steps as they are written are the steps of the whole text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.models.protocol import Answer, ReplayEngine
from recipe.plan_text import plan_steps
from recipe.planning.planner import GrowingPlan, PlanDraft, Planner, Request
from recipe.text import planner_messages

TEXTS = st.text(st.sampled_from("ab12.)-* \n\r`:S"), max_size=60) | st.text(max_size=40)


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    ends = sorted({min(cut, len(text)) for cut in cuts} | {len(text)})
    starts = [0, *ends[:-1]]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def steps_of(pieces: list[str]) -> list[tuple[str, ...]]:
    """The steps that each piece completes, and those of the end."""
    plan = GrowingPlan()
    return [*(plan.grown(piece) for piece in pieces), plan.rest()]


@settings(max_examples=40, deadline=None)
@given(TEXTS, st.lists(st.integers(0, 60), max_size=8))
def test_the_steps_are_those_of_the_whole_text(text: str, cuts: list[int]) -> None:
    plan, shown = GrowingPlan(), tuple[str, ...]()
    for piece in [*pieces_of(text, cuts), None]:
        new = plan.rest() if piece is None else plan.grown(piece)
        shown = (*shown[: len(plan.steps) - len(new)], *new)
        assert shown == plan.steps
    assert shown == plan_steps(text)


def test_a_step_comes_when_the_next_begins() -> None:
    pieces = ["1. boil", " water\n", "2. steep", "\n3", ". serve"]
    assert steps_of(pieces) == [(), (), ("boil water",), (), ("steep",), ("serve",)]


def test_a_heading_waits_for_what_stands_below_it() -> None:
    pieces = ["1. Make tea\n", "   - boil water\n", "   - steep\n", "2. Serve\n"]
    assert steps_of(pieces) == [(), (), ("boil water",), ("steep",), ("Serve",)]


def test_lines_without_numbers_wait_for_the_end() -> None:
    assert steps_of(["Here is the rest\n", "1. boil\n"]) == [(), (), ("boil",)]
    assert steps_of(["boil\n", "steep\n"]) == [(), (), ("boil", "steep")]


def test_plans_are_written_side_by_side_and_one_can_be_stopped() -> None:
    request = Request("make tea", ("boil water",))
    texts = ["1. steep\n2. pour\n3. drink", "1. pour\n2. steep"]
    planner = Planner(ReplayEngine.record([planner_messages(request.goal, request.history)], [texts]))
    drafts = [PlanDraft(request, 0), PlanDraft(request, 1)]
    written = list(planner.write(drafts))
    for draft, text in enumerate(texts):
        own = [one for one in written if one.draft == draft]
        assert tuple(step for one in own for step in one.steps) == plan_steps(text)
        assert [one.outcome for one in own] == [None] * (len(own) - 1) + [Answer(text)]
    seen: list[int] = []
    for one in planner.write(drafts, lambda draft: draft == 0 and 0 in seen):
        seen.append(one.draft)
    assert seen.count(0) == 1
    assert one.outcome == Answer(texts[1])
