"""Leaving each source out: what is chosen without it, how it does there, and whether a change is warranted."""

import importlib
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from recipe.audit.perturb import AuditPrompt, build_prompts, select
from recipe.audit.score import LengthScorer, NamedScorer, prompt_means, win_table
from recipe.corpus.encoders import HashEncoder
from recipe.errors import ComputeError, InputError
from recipe.reward.scorer import Outcome, PromptGroup, plain_reward
from recipe.stats import macro_interval
from recipe.text import same_goal
from recipe.types import Procedure, Step

SOURCES = ("coin", "home", "shop")
PROCEDURES = [
    Procedure(
        source,
        f"{source}{goal}v{video}",
        f"{source} thing {goal}",
        tuple(Step(f"{n} of {source} {goal}") for n in range(7)),
    )
    for source in SOURCES
    for goal in range(10)
    for video in range(2)
]
EMBED = HashEncoder(64).encode


class Skill:
    """Pays the truth with a skill of 0 to 1 that depends on the source: that share of its plans in order is known."""

    def __init__(self, skill: Mapping[str, float], refused: str = "") -> None:
        self.skill, self.refused = skill, refused

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        return [[self._outcome(group, plan) for plan in group.plans] for group in groups]

    def _outcome(self, group: PromptGroup, plan: Sequence[str]) -> Outcome:
        source, _, goal = group.goal.split()
        if source == self.refused:
            return ComputeError("refused.")
        true = tuple(f"{n} of {source} {goal}" for n in range(len(group.history), 7))
        known = int(goal) < round(10 * self.skill[source])
        return plain_reward(float(known and tuple(plan) == true), len(plan))


def skilled(name: str, *skill: float) -> NamedScorer:
    return NamedScorer(name, Skill(dict(zip(SOURCES, skill, strict=True))))


@pytest.fixture
def study() -> ModuleType:
    return importlib.import_module("lodo")


@pytest.fixture(scope="module")
def prompts() -> list[AuditPrompt]:
    return build_prompts(select(PROCEDURES), EMBED)


def test_each_source_gets_what_is_best_on_the_others(study: ModuleType, prompts: list[AuditPrompt]) -> None:
    found = study.lodo(
        [skilled("old", 0.4, 0.4, 0.4), skilled("a", 1.0, 0.2, 0.2), skilled("b", 0.6, 0.6, 0.6)], prompts, EMBED
    )
    assert [(one.source, one.chosen) for one in found.left_out] == [("coin", "b"), ("home", "a"), ("shop", "a")]
    assert found.default == "old"
    assert found.figures["b"]["home"].mean.mean == pytest.approx(0.5 + 0.6 / 2)
    assert list(found.figures) == ["old", "a", "b", "relevance"]
    assert [one.over_default.mean for one in found.left_out] == pytest.approx([0.1, -0.1, -0.1])
    assert found.over_default.mean == pytest.approx(-0.1 / 3)
    assert not found.warranted
    assert found.figures["a"]["coin"].worst == found.figures["a"]["coin"].gaming_worst == 1.0


@pytest.mark.parametrize(
    ("old", "new", "chosen", "warranted", "verdict"),
    [
        ((0.0, 0.0, 0.2), (0.6, 0.6, 0.6), "new", True, "Changing the default from old to new is warranted"),
        ((0.0, 0.0, 0.5), (0.6, 0.6, 0.0), "new", False, "on shop"),  # a loss beyond its interval
        ((0.0, 0.0, 0.2), (0.6, 0.6, 0.0), "new", False, "on shop"),  # a loss whose interval is not known
        ((0.0, 0.0, 0.0), (0.0, 0.2, 0.2), "new", False, "not warranted"),  # a gain whose interval holds zero
        ((0.8, 0.8, 0.8), (0.2, 0.2, 0.2), "old", False, "not warranted"),
        ((0.8, 0.8, 0.8), (0.8, 0.8, 0.8), "old", False, "not warranted"),
    ],
)
def test_a_change_is_warranted_by_a_certain_gain_without_a_loss(
    study: ModuleType,
    prompts: list[AuditPrompt],
    old: tuple[float, ...],
    new: tuple[float, ...],
    chosen: str,
    warranted: bool,
    verdict: str,
) -> None:
    found = study.lodo([skilled("old", *old), skilled("new", *new)], prompts, EMBED)
    assert {one.chosen for one in found.left_out} == {chosen}
    assert found.warranted is warranted
    assert verdict in found.verdict
    gains = [(b - a) / 2 if chosen == "new" else 0.0 for a, b in zip(old, new, strict=True)]
    assert [one.over_default.mean for one in found.left_out] == pytest.approx(gains)
    assert found.over_default.mean == pytest.approx(np.mean(gains))
    if not any(gains):
        assert (found.over_default.reason, found.over_default.sign) == ("all equal", 0)


def test_the_average_weighs_sources_alike_and_draws_goals_within_them(
    study: ModuleType, prompts: list[AuditPrompt]
) -> None:
    uneven = [one for one in prompts if one.source != "coin" or "v0" in one.video_id]
    candidates = [skilled("old", 0.2, 0.4, 0.2), skilled("new", 0.6, 0.6, 0.6)]
    found = study.lodo(candidates, uneven, EMBED)
    gains, sources, goals = [], [], []
    for source in SOURCES:
        own = [one for one in uneven if one.source == source]
        own.sort(key=lambda one: one.video_id)
        old, new = (prompt_means(win_table(one.score(own).prompts)) for one in candidates)
        gains.append(new - old)
        sources += [source] * len(own)
        goals += [same_goal(one.goal) for one in own]
    assert found.over_default == macro_interval(np.concatenate(gains), sources, goals)
    assert found.over_default.mean == pytest.approx(np.mean([one.over_default.mean for one in found.left_out]))


def test_a_trained_reward_is_asked_for_once_a_source_and_never_scores_what_it_saw(
    study: ModuleType, prompts: list[AuditPrompt]
) -> None:
    asked: list[str] = []

    def without(source: str) -> Any:
        asked.append(source)
        seen = dict.fromkeys(SOURCES, 1.0) | {source: 0.6}
        return Skill(seen)

    found = study.lodo([skilled("old", 0.4, 0.4, 0.4), study.SourceScorer("trained", without)], prompts, EMBED)
    assert sorted(asked) == list(SOURCES)
    assert [found.figures["trained"][source].mean.mean for source in SOURCES] == pytest.approx([0.8] * 3)


def test_only_prompts_that_everyone_scored_are_compared(study: ModuleType, prompts: list[AuditPrompt]) -> None:
    with pytest.raises(ComputeError, match="no prompt of shop is scored by all"):
        study.lodo(
            [skilled("old", 0, 0, 0), NamedScorer("new", Skill(dict.fromkeys(SOURCES, 0.5), "shop"))], prompts, EMBED
        )
    scored = {one.name: one.score(prompts).prompts for one in (skilled("a", 1, 1, 1), skilled("b", 0, 0, 0))}
    control = NamedScorer("length", LengthScorer()).score(prompts).prompts
    scored["b"] = scored["b"][3:]
    found = study.leave_one_out(scored, "length", control)
    assert found.prompts == len(prompts) - 3
    assert found.figures["a"]["coin"].mean.observations == found.figures["b"]["coin"].mean.observations == 17


def test_what_cannot_be_compared_is_an_error(study: ModuleType, prompts: list[AuditPrompt]) -> None:
    with pytest.raises(InputError, match="at least two verifiers"):
        study.lodo([skilled("old", 0, 0, 0)], prompts, EMBED)
    with pytest.raises(InputError, match="two sources"):
        study.lodo(
            [skilled("old", 0, 0, 0), skilled("new", 0, 0, 0)], [one for one in prompts if one.source == "coin"], EMBED
        )
    with pytest.raises(InputError, match="'old' is given twice"):
        study.lodo([skilled("old", 0, 0, 0), skilled("old", 0, 0, 0)], prompts, EMBED)
