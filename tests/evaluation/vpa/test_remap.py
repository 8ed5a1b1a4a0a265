"""From free words to actions: what maps to what, what is counted, and plans that no one should write."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from recipe.evaluation.vpa.protocol import END, Sample, Taxonomy
from recipe.evaluation.vpa.remap import MappedPlan, remap
from recipe.planning.admissible import Embed

CARDS = {"Brew Mint Tea": ("boil water", "pour tea", "stir"), "Patch a Kite": ("cut tape", "stir")}
TAXONOMY = Taxonomy(CARDS)


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """First letters of words, as a bag."""
    rows = np.full((len(texts), 128), 1e-3, dtype=np.float32)
    for row, text in enumerate(texts):
        for word in text.lower().split():
            rows[row, ord(word[0]) % 128] += 1
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def opened() -> Embed:
    return embed


def unopened() -> Embed:
    raise AssertionError("the encoder is not needed")


def samples(*goals: str) -> list[Sample]:
    return [Sample(f"s{n}", "v", "1", goal, (), ("stir", "stir"), None) for n, goal in enumerate(goals)]


TEA, KITE = "Brew Mint Tea", "Patch a Kite"


def one(
    steps: Sequence[str], goal: str = TEA, within: bool = False, width: int = 3,
    open_embed: Callable[[], Embed] = opened,
) -> MappedPlan:  # fmt: skip
    return remap(samples(goal), {"s0": steps}, TAXONOMY, open_embed, width, within)[0][0]


def test_actions_are_themselves_and_need_no_encoder() -> None:
    plan = one(["pour tea", END, "cut tape", "boil water"], open_embed=unopened)
    assert plan.actions == ("pour tea", END, "cut tape")
    assert plan.margins == plan.similarities == (None, None, None)


def test_other_words_go_to_the_nearest_action_with_a_margin() -> None:
    plan = one(["bring water", "pour tea"])
    assert plan.actions == ("boil water", "pour tea")
    assert plan.similarities[0] == pytest.approx(1.0, abs=1e-3)
    assert plan.margins[0] == pytest.approx(1.0, abs=0.01)
    assert plan.margins[1] is None


def test_the_goals_card_alone_is_a_setting_of_its_own() -> None:
    assert one(["cook till"], goal=TEA).actions == ("cut tape",)
    within = one(["cook till", "cut tape"], goal=TEA, within=True)
    assert set(within.actions) <= set(CARDS[TEA])
    assert within.margins[1] is not None  # an action of another card is mapped like any text


def test_measures_count_what_became_of_the_plans() -> None:
    goals = [TEA, TEA, TEA, KITE]
    plans = {"s0": ["boil water"], "s1": [], "s3": ["swirl", "bring water", "stir", "stir"]}
    mapped, measured = remap(samples(*goals), plans, TAXONOMY, opened, 2, low_margin=0.5)
    assert [plan.missing for plan in mapped] == [False, False, True, False]
    assert mapped[3].actions == ("stir", "boil water")
    margins = [margin for margin in mapped[3].margins if margin is not None]
    assert measured == {
        "steps": 3.0,
        "steps_that_are_actions": 1.0,
        "missing_predictions": 1.0,
        "empty_plans": 1.0,
        "shorter_plans": 1.0,
        "mean_margin": pytest.approx(np.mean(margins)),
        "share_below_margin": 0.0,
        "margin_asked_for": 0.5,
    }
    assert "mean_margin" not in remap(samples(TEA), {}, TAXONOMY, unopened, 2)[1]


def test_only_the_first_steps_are_read_however_many_and_long_there_are() -> None:
    plan = one(["swirl " * 2_000_000, *["bring water"] * 500], width=2)
    assert plan.actions == ("stir", "boil water")
    assert len(plan.steps[0]) < 1_001
    assert len(plan.steps) == 2


@pytest.mark.parametrize("step", ["\x00\x07", "\u202e", "\ud800", "\u200b\u2066"])
def test_a_step_without_a_character_to_see_is_no_step(step: str) -> None:
    assert one([step, "stir"]).steps == ("stir",)


def test_hidden_characters_and_other_languages_are_mapped_like_any_text() -> None:
    plan = one(["sti\x00r", "\ud800swirl", "чай налить"])
    assert plan.steps == ("sti r", "swirl", "чай налить")
    assert len(plan.actions) == 3
