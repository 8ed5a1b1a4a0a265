"""The audit's prompts: what each class puts in place of the true steps, and that a prompt depends on nothing else."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.artifacts import to_json
from recipe.audit.measure import Extent, audit_rewards, audited_prompts
from recipe.audit.perturb import AuditProcedure, AuditPrompt, build_prompts, cut_at, merged, select, wordings
from recipe.audit.score import NamedScorer
from recipe.corpus.encoders import HashEncoder
from recipe.reward.scorer import PromptGroup, plain_reward
from recipe.types import Narration, Procedure, Reward, Segment, Step

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
NEAREST = 3


def audit_prompts(procedures: Sequence[Procedure], seed: int = 0, limit: int | None = None) -> list[AuditPrompt]:
    return build_prompts(select(procedures, seed, limit), EMBED, seed)


def procedure(video_id: str, goal: str, steps: Sequence[str], source: str = "home") -> Procedure:
    return Procedure(source, video_id, goal, tuple(Step(text) for text in steps))


def kitchen(goals: int = 6, videos: int = 2, steps: int = 9) -> list[Procedure]:
    """Every step of every goal is told apart by its text."""
    return [
        procedure(f"g{goal}v{video}", f"goal {goal}", [f"do part {n} of {goal} by {video}" for n in range(steps)])
        for goal in range(goals)
        for video in range(videos)
    ]


class Sums:
    """Whole numbers made from the texts of a plan and its history: the same on every machine."""

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        return [[self._reward(group.history, plan) for plan in group.plans] for group in groups]

    def _reward(self, history: Sequence[str], plan: Sequence[str]) -> Reward:
        digests = [hashlib.sha256(step.encode()).digest()[:2] for step in (*history, *plan)]
        return plain_reward(sum(int.from_bytes(d) * (i + 1) for i, d in enumerate(digests)) % 1009, len(plan))


@pytest.fixture(scope="module")
def prompts() -> list[AuditPrompt]:
    return audit_prompts(PROCEDURES, 7, 6)


def test_the_prompts_are_those_of_old(prompts: list[AuditPrompt]) -> None:
    def digest(steps: Sequence[str]) -> str:
        return hashlib.sha256("\n".join(steps).encode()).hexdigest()[:12]

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


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.lists(st.sampled_from("abcdefg"), min_size=5, max_size=24), min_size=2, max_size=6), st.integers(0, 3)
)
def test_every_corruption_of_any_steps_is_what_it_says(lists: list[list[str]], seed: int) -> None:
    made = [procedure(f"v{n}", f"goal {n % 3}", [f"put {step}" for step in steps]) for n, steps in enumerate(lists)]
    whole = {f"v{n}": tuple(f"put {step}" for step, _ in groupby(steps)) for n, steps in enumerate(lists)}
    for prompt in audit_prompts(made, seed):
        true, n, plans = prompt.true, len(prompt.true), prompt.variants
        assert prompt.history + true == whole[prompt.video_id]
        assert len(prompt.history) >= 2
        assert n >= 3
        corrupted = {name: plan for name, plan in plans.items() if name not in ("true", "alternative")}
        assert true not in corrupted.values()
        for name in {"shuffled", "reversed", "swap_adjacent"} & set(plans):
            assert Counter(plans[name]) == Counter(true)
        if "swap_adjacent" in plans:
            assert sum(a != b for a, b in zip(plans["swap_adjacent"], true, strict=True)) == 2
        assert set(plans.get("repeat_history", ())) <= set(prompt.history)
        assert plans["true_plus_filler"][:n] == true
        assert len(plans["true_plus_filler"]) == n + min(n, 8)
        assert plans["doubled"][::2] == plans["doubled"][1::2] == true
        assert len(plans["missing_middle"]) == n - 1
        assert plans["half"] == true[: n // 2]
        if "too_long" in plans:
            assert plans["too_long"][:n] == true
        for name in {"offgoal", "related", "near_ordered", "repeat_last", "filler", "vague"} & set(plans):
            assert len(plans[name]) == n


def test_every_class_that_policies_write_is_what_it_says(prompts: list[AuditPrompt]) -> None:
    whole = {one.video_id: tuple(step.text for step in one.steps) for one in PROCEDURES}
    tables = wordings()
    for prompt in prompts:
        made, true, goal, n = prompt.variants, prompt.true, prompt.goal, len(prompt.true)
        assert set(made["filler"]) <= set(tables.fillers)
        assert made["goal"] == (goal,)
        assert made["goal_generic"][0] == goal
        assert set(made["goal_generic"][1:]) <= set(tables.goal_endings)
        assert len(made["goal_generic"]) == len(set(made["goal_generic"])) == 3
        assert made["goal_half"] == (goal, *true[: n // 2])
        assert made["copied_history"] == prompt.history
        assert len(set(made["goal_reworded"])) == len(made["goal_reworded"]) == n
        assert all(goal.split(" ", 1)[1] in line for line in made["goal_reworded"])
        assert set(made["safe_steps"]) <= set(tables.safe_steps)
        assert sorted(made["safe_steps"], key=tables.safe_steps.index) == list(made["safe_steps"])
        assert len(set(made["safe_steps"])) == n
        assert [line.split()[0] for line in made["vague"]] == [line.split()[0] for line in true]
        assert not set(" ".join(made["vague"]).split()) & set(THINGS)
        assert " ".join(made["merged"]).replace(" and ", " ").split() == " ".join(true).split()
        assert len(made["merged"]) in (1, -(-n // 3))
        assert len(made["split"]) == n + 2
        [told] = [line.removeprefix("start to ") for line in made["split"] if line.startswith("start to ")]
        assert set(made["split"]) & set(true) == set(true) - {told}
        again = made["restarted"]
        assert again[-n:] == true
        assert 1 <= len(again) - n < n
        assert again[: len(again) - n] == true[: len(again) - n]
        # The beginning of one of the nearest goals of the source.
        others = sorted({one.goal for one in PROCEDURES if one.source == prompt.source} - {goal})
        vectors = EMBED([goal, *others])
        near = {others[i] for i in np.argsort(-(vectors[1:] @ vectors[0]), kind="stable")[:NEAREST]}
        donors = {
            one.goal
            for one in PROCEDURES
            if whole[one.video_id][:n] == made["near_ordered"] and one.video_id != prompt.video_id
        }
        assert donors & near


def test_foreign_steps_are_consecutive_and_at_the_same_relative_position() -> None:
    for prompt in audit_prompts(kitchen()):
        n, own = len(prompt.true), prompt.goal.removeprefix("goal ")
        for name in ("offgoal", "related"):
            parts = [step.split() for step in prompt.variants[name]]
            assert len({(part[4], part[6]) for part in parts}) == 1
            assert parts[0][4] != own
            assert [int(part[2]) for part in parts] == list(range(9 - n, 9))
        assert prompt.variants["too_long"][n:] == prompt.variants["offgoal"]
        alternative = [step.split() for step in prompt.variants["alternative"]]
        assert {part[4] for part in alternative} == {own}
        assert {part[6] for part in alternative} == {str(1 - int(prompt.video_id[-1]))}


def test_cuts_are_uniform() -> None:
    cuts = Counter(cut_at(AuditProcedure("home", f"v{n}", "goal", tuple("abcdefghij")), 0).at for n in range(3000))
    assert sorted(cuts) == [2, 3, 4, 5, 6, 7]
    assert sum((count - 500) ** 2 / 500 for count in cuts.values()) < 20.5  # 99.9% of chi squared, 5 degrees


def test_a_prompt_depends_neither_on_the_order_of_the_files_nor_on_the_limit() -> None:
    made = [*kitchen(), procedure("x", "goal 1", [f"tie {n}" for n in range(6)], source="away")]
    all_of_them = audit_prompts(made, seed=3)
    assert audit_prompts(made[::-1], seed=3) == all_of_them
    some = audit_prompts(made, seed=3, limit=4)
    assert [prompt.source for prompt in some] == ["away"] + 4 * ["home"]
    assert all(prompt in all_of_them for prompt in some)
    assert {prompt.video_id for prompt in audit_prompts(made, seed=3, limit=3)} < {p.video_id for p in some}
    assert audit_prompts(made, seed=4, limit=4) != some


def test_with_one_goal_there_are_no_steps_of_other_goals_and_goals_are_compared_without_case_and_space() -> None:
    for prompt in audit_prompts(kitchen(goals=1, videos=3)):
        assert {"offgoal", "related", "near_ordered", "too_long"}.isdisjoint(prompt.variants)
        assert "alternative" in prompt.variants
    made = [*kitchen(goals=2, videos=1), procedure("w", " Goal  0", [f"tie {n}" for n in range(9)])]
    prompts = {prompt.video_id: prompt for prompt in audit_prompts(made)}
    assert prompts["g0v0"].variants["alternative"][0].startswith("tie")
    assert "of 1 by" in prompts["w"].variants["offgoal"][0]


class Names:
    """A corpus of which only the ids matter."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def narration(self, index: int) -> Narration:
        return Narration(self.names[index], (Segment("stir"),))


def test_what_is_left_out_is_counted_and_videos_are_known_by_the_names_of_their_files() -> None:
    made = [
        *kitchen(goals=3),
        procedure("g0v0", "goal 0", list("abcdef")),
        procedure("short", "goal 0", ["a", "A", " a ", "b", "c", "d"]),
        procedure("long", "goal 0", [str(n) for n in range(21)]),
        *(procedure(name, "goal", list("abcdef")) for name in ("a1B2c3D4e5F", "g6H7i8J9k0L", "1_7")),
    ]
    corpus: Any = Names("Tea-a1B2c3D4e5F", "v_g6H7i8J9k0L", "kitchen 1_7")
    selection, _ = audited_prompts(corpus, made, EMBED)
    assert list(selection.left_out.values()) == [1, 2, 1, 1]  # given twice, in the corpus, too short, too long
    assert {one.video_id for one in selection.audited} == {one.video_id for one in kitchen(goals=3)} | {"1_7"}
    assert selection.unclear == 1  # a short id may stand in a name by chance


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
    assert wordings().vague(step, 0) == expected
    assert wordings().vague(expected, 6) == expected


def test_merged_and_split_steps_read_as_sentences() -> None:
    assert merged(("Boil it.", "Warm the pot.", "USB in", "Wait"), 3) == ("Boil it and warm the pot and USB in", "Wait")
    assert merged(("Wait.",), 4) == ("Wait.",)
    assert wordings().in_phases("Pour it.")[0] == "start to pour it"


def test_a_mean_is_that_over_the_classes_however_many_prompts_have_them(corpus: Any) -> None:
    sums = NamedScorer("sums", Sums())
    # A source with one goal has no steps of other goals.
    made = [*PROCEDURES, *(procedure(f"x{n}", "alone", [f"tie {n} {k}" for k in range(7)], "away") for n in range(9))]
    rewards = audit_rewards([sums], corpus, made, EMBED, Extent(attacked=0)).rewards
    groups = {
        "order": {"shuffled", "reversed", "swap_adjacent"},
        "content": {"offgoal", "related", "near_ordered", "vague"},
    }
    for one in rewards:
        assert one.mean.mean == pytest.approx(np.mean([share.mean for share in one.classes.values()]))
        assert one.classes["offgoal"].observations < one.classes["vague"].observations
        for group, classes in groups.items():
            share = one.groups[group]  # type: ignore[index]
            assert share.mean == pytest.approx(np.mean([one.classes[name].mean for name in classes]))
            assert share.reason if share.low is None else share.low <= share.mean
        assert one.worst == min(one.classes.values(), key=lambda share: share.mean)
        assert list(one.groups) == ["order", "content", "length", "repetition", "gaming"]
    assert rewards[1].groups["order"].mean == 0.5  # of length
