"""The audit's classes: their texts and figures, and what each puts in place of the true steps."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recipe.artifacts import to_json
from recipe.audit.classes import GROUP_OF, GROUPS
from recipe.audit.measure import Extent, audit_rewards
from recipe.audit.perturb import NEAREST, AuditPrompt, build_prompts, select
from recipe.audit.score import NamedScorer
from recipe.audit.wordings import in_phases, merged, vague, wordings
from recipe.corpus.encoders import HashEncoder
from recipe.reward.scorer import PromptGroup, plain_reward
from recipe.types import Procedure, Reward, Step

VERBS = ("boil", "cut", "lift", "mix", "press", "turn", "fill", "wipe", "hold")
THINGS = ("water", "board", "dough", "wheel", "pot", "cloth", "leaf", "bolt", "shelf", "soil", "string")
PROCEDURES = [
    Procedure(
        "home" if goal < 5 else "shop",
        f"g{goal}v{video}",
        f"make thing {THINGS[goal]}",
        tuple(
            Step(f"{VERBS[(3 * goal + 2 * n + video) % 9]} the {THINGS[(5 * goal + 4 * n) % 11]}")
            for n in range(5 + (goal + 3 * video) % 6)
        ),
    )
    for goal in range(8)
    for video in range(2)
]
GOLDEN = json.loads(Path(__file__).with_name("audit_classes.json").read_text())
"""Digests of prompts, and figures, as version 0.2 gave them."""
EMBED = HashEncoder(64).encode


class Sums:
    """Whole numbers made from the texts of a plan and its history: the same on every machine."""

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        return [[self._reward(group.history, plan) for plan in group.plans] for group in groups]

    def _reward(self, history: Sequence[str], plan: Sequence[str]) -> Reward:
        digests = [hashlib.sha256(step.encode()).digest()[:2] for step in (*history, *plan)]
        return plain_reward(sum(int.from_bytes(d) * (i + 1) for i, d in enumerate(digests)) % 1009, len(plan))


def digest(steps: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(steps).encode()).hexdigest()[:12]


@pytest.fixture(scope="module")
def prompts() -> list[AuditPrompt]:
    return build_prompts(select(PROCEDURES, 7, 6), EMBED, 7)


def test_the_prompts_are_those_of_old(prompts: list[AuditPrompt]) -> None:
    found = {
        f"{one.source}/{one.video_id}": {"history": digest(one.history), "padding": digest(one.padding)}
        | {name: digest(plan) for name, plan in one.variants.items()}
        for one in prompts
    }
    assert found == GOLDEN["prompts"]
    assert [list(one) for one in found.values()] == [list(one) for one in GOLDEN["prompts"].values()]


def test_the_figures_are_those_of_old(corpus: Any) -> None:
    extent = Extent(limit=6, seed=7, attacked=3)
    audit = audit_rewards([NamedScorer("sums", Sums())], corpus, PROCEDURES, EMBED, extent)
    found = {one.name: to_json(one) for one in audit.rewards}
    for name, expected in GOLDEN["rewards"].items():
        assert within(json.loads(json.dumps(found[name])), expected) == expected


def within(found: Any, expected: Any) -> Any:
    """Of the values the keys that `expected` holds: no bounds of intervals and no times; its floats to 1e-10."""
    if isinstance(expected, dict):
        return {key: within(found[key], value) for key, value in expected.items()}
    if isinstance(expected, list) and len(found) == len(expected):
        return [within(*pair) for pair in zip(found, expected, strict=True)]
    return expected if isinstance(expected, float) and found == pytest.approx(expected, abs=1e-10) else found


def test_every_class_that_policies_write_is_what_it_says(prompts: list[AuditPrompt]) -> None:
    whole = {one.video_id: tuple(step.text for step in one.steps) for one in PROCEDURES}
    tables = wordings()
    for prompt in prompts:
        made, true, goal, n = prompt.variants, prompt.true, prompt.goal, len(prompt.true)
        assert made["goal"] == (goal,)
        assert made["goal_generic"][0] == goal
        assert set(made["goal_generic"][1:]) <= set(tables.goal_endings)
        assert len(made["goal_generic"]) == len(set(made["goal_generic"])) == 3
        assert made["goal_half"] == (goal, *true[: n // 2])
        assert made["copied_history"] == prompt.history
        assert len(set(made["goal_reworded"])) == len(made["goal_reworded"]) == n
        assert all(
            line.endswith(goal.split(" ", 1)[1]) or goal.split(" ", 1)[1] in line for line in made["goal_reworded"]
        )
        assert set(made["safe_steps"]) <= set(tables.safe_steps)
        assert sorted(made["safe_steps"], key=tables.safe_steps.index) == list(made["safe_steps"])
        assert len(set(made["safe_steps"])) == n
        assert [line.split()[0] for line in made["vague"]] == [line.split()[0] for line in true]
        assert not set(" ".join(made["vague"]).split()) & set(THINGS)
        assert " ".join(made["merged"]).replace(" and ", " ").split() == " ".join(true).split()
        assert len(made["merged"]) in (1, -(-n // 3))
        assert len(made["split"]) == n + 2
        assert set(made["split"]) & set(true) == set(true) - {told_from(made["split"])}
        again = made["restarted"]
        assert again[-n:] == true
        assert 1 <= len(again) - n < n
        assert again[: len(again) - n] == true[: len(again) - n]
        donors = [
            steps for video, steps in whole.items() if steps[:n] == made["near_ordered"] and video != prompt.video_id
        ]
        assert donors


def told_from(split: Sequence[str]) -> str:
    [told] = [line.removeprefix("start to ") for line in split if line.startswith("start to ")]
    return told


def test_near_ordered_is_the_beginning_of_a_near_goal(prompts: list[AuditPrompt]) -> None:
    goals = {source: sorted({one.goal for one in PROCEDURES if one.source == source}) for source in ("home", "shop")}
    for prompt in prompts:
        vectors = EMBED([prompt.goal, *(others := [goal for goal in goals[prompt.source] if goal != prompt.goal])])
        order = np.argsort(-(vectors[1:] @ vectors[0]), kind="stable")
        near = {others[i] for i in order[:NEAREST]}
        n = len(prompt.true)
        donors = {
            one.goal for one in PROCEDURES if tuple(s.text for s in one.steps[:n]) == prompt.variants["near_ordered"]
        }
        assert donors & near


def test_the_words_of_the_classes_do_not_overlap() -> None:
    tables = wordings()
    assert not set(tables.safe_steps) & set(tables.fillers)
    assert len(set(tables.safe_steps)) == len(tables.safe_steps) >= 18
    assert len(tables.goal_templates + tables.templates) >= 18
    assert all(line.count("{}") == 1 for line in (*tables.goal_templates, *tables.phases))


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("Cut off the crust.", "Cut off it"),
        ("carefully whisk two eggs", "carefully whisk it"),
        ("frobnicate the widget", "frobnicate it"),
        ("wait", "wait"),
        ("take off", "take it"),
    ],
)
def test_a_vague_step_keeps_its_verb_only(step: str, expected: str) -> None:
    assert vague(step, 0) == expected
    assert vague(expected, 6) == expected


def test_merged_and_split_steps_read_as_sentences() -> None:
    assert merged(("Boil it.", "Warm the pot.", "USB in", "Wait"), 3) == ("Boil it and warm the pot and USB in", "Wait")
    assert merged(("Wait.",), 4) == ("Wait.",)
    assert in_phases("Pour it.")[0] == "start to pour it"


def test_a_groups_mean_is_the_mean_over_its_classes(corpus: Any) -> None:
    [sums, length, _] = audit_rewards(
        [NamedScorer("sums", Sums())], corpus, PROCEDURES, EMBED, Extent(attacked=0)
    ).rewards
    for one in (sums, length):
        for group, share in one.groups.items():
            members = [own.mean for name, own in one.classes.items() if GROUP_OF[name] == group]
            assert share.mean == pytest.approx(np.mean(members))
            assert share.reason if share.low is None else share.low <= share.mean
    assert length.groups["order"].mean == 0.5
    assert list(sums.groups) == list(GROUPS)
    assert sums.worst == min(sums.classes.values(), key=lambda share: share.mean)
