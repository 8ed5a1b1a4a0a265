"""The audit's prompts: what each corruption is made of, and that a prompt does not depend on what else is audited."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recipe.audit.classes import CORRUPTIONS
from recipe.audit.measure import audited_prompts
from recipe.audit.perturb import (
    ALTERNATIVE,
    TRUE,
    AuditProcedure,
    AuditPrompt,
    Embed,
    build_prompts,
    collapsed,
    cut_at,
    select,
)
from recipe.audit.wordings import wordings
from recipe.types import Narration, Procedure, Segment, Step


def audit_prompts(
    procedures: Sequence[Procedure], embed: Embed, seed: int = 0, limit: int | None = None
) -> list[AuditPrompt]:
    return build_prompts(select(procedures, seed, limit), embed, seed)


def embed(texts: Sequence[str]) -> NDArray[np.float32]:
    """A direction for each text, from its hash."""
    seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) for text in texts]
    vectors = np.stack([np.random.default_rng(seed).normal(size=8) for seed in seeds])
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def procedure(video_id: str, goal: str, steps: Sequence[str], source: str = "home") -> Procedure:
    return Procedure(source, video_id, goal, tuple(Step(text) for text in steps))


def kitchen(goals: int = 6, videos: int = 2, steps: int = 9) -> list[Procedure]:
    """Every step of every goal is told apart by its text."""
    return [
        procedure(f"g{goal}v{video}", f"goal {goal}", [f"do part {n} of {goal} by {video}" for n in range(steps)])
        for goal in range(goals)
        for video in range(videos)
    ]


steps_lists = st.lists(st.sampled_from("abcdefg"), min_size=5, max_size=24)


@settings(deadline=None, max_examples=40)
@given(st.lists(steps_lists, min_size=2, max_size=6), st.integers(0, 3))
def test_every_corruption_is_what_it_says(lists: list[list[str]], seed: int) -> None:
    made = [procedure(f"v{n}", f"goal {n % 3}", [f"put {step}" for step in steps]) for n, steps in enumerate(lists)]
    whole = {one.video_id: collapsed(one) for one in made}
    for prompt in audit_prompts(made, embed, seed):
        steps, true, n = whole[prompt.video_id].steps, prompt.true, len(prompt.true)
        assert prompt.history + true == steps
        assert len(prompt.history) >= 2
        assert n >= 3
        variants = prompt.variants
        assert set(variants) <= {TRUE, ALTERNATIVE, *CORRUPTIONS}
        assert all(variants[name] != true for name in CORRUPTIONS if name in variants)
        lengths = {name: len(plan) for name, plan in variants.items() if name not in (TRUE, ALTERNATIVE)}
        special = {
            "true_plus_filler": n + min(n, 8),
            "half": n // 2,
            "missing_middle": n - 1,
            "doubled": 2 * n,
            "too_long": 2 * n,
            "empty": 0,
            "goal": 1,
            "goal_generic": 3,
            "goal_half": 1 + n // 2,
            "copied_history": len(prompt.history),
            "split": n + 2,
        }
        if "merged" in variants:
            assert lengths.pop("merged") in (1, -(-n // 3))
        if "restarted" in variants:
            assert n < lengths.pop("restarted") < 2 * n
        assert lengths == {name: special.get(name, n) for name in lengths}
        for name in {"shuffled", "reversed", "swap_adjacent"} & set(variants):
            assert Counter(variants[name]) == Counter(true)
        if "swap_adjacent" in variants:
            assert sum(a != b for a, b in zip(variants["swap_adjacent"], true, strict=True)) == 2
        assert set(variants.get("repeat_history", ())) <= set(prompt.history)
        assert set(variants.get("filler", ())) <= set(wordings().fillers)
        assert variants["true_plus_filler"][:n] == true
        assert variants["doubled"][::2] == variants["doubled"][1::2] == true
        if "too_long" in variants:
            assert variants["too_long"][:n] == true


def test_foreign_steps_are_consecutive_and_at_the_same_relative_position() -> None:
    for prompt in audit_prompts(kitchen(), embed):
        n, own = len(prompt.true), prompt.goal.removeprefix("goal ")
        for name in ("offgoal", "related"):
            parts = [step.split() for step in prompt.variants[name]]
            assert len({(part[4], part[6]) for part in parts}) == 1
            assert parts[0][4] != own
            assert [int(part[2]) for part in parts] == list(range(9 - n, 9))
        assert prompt.variants["too_long"][n:] == prompt.variants["offgoal"]
        alternative = [step.split() for step in prompt.variants[ALTERNATIVE]]
        assert {part[4] for part in alternative} == {own}
        assert {part[6] for part in alternative} == {str(1 - int(prompt.video_id[-1]))}


def test_cuts_are_uniform() -> None:
    cuts = Counter(cut_at(AuditProcedure("home", f"v{n}", "goal", tuple("abcdefghij")), 0).at for n in range(3000))
    assert sorted(cuts) == [2, 3, 4, 5, 6, 7]
    assert sum((count - 500) ** 2 / 500 for count in cuts.values()) < 20.5  # 99.9% of chi squared, 5 degrees


def test_a_prompt_depends_neither_on_the_order_of_the_files_nor_on_the_limit() -> None:
    made = [*kitchen(), procedure("x", "goal 1", [f"tie {n}" for n in range(6)], source="away")]
    all_of_them = audit_prompts(made, embed, seed=3)
    assert audit_prompts(made[::-1], embed, seed=3) == all_of_them
    some = audit_prompts(made, embed, seed=3, limit=4)
    assert [prompt.source for prompt in some] == ["away"] + 4 * ["home"]
    assert all(prompt in all_of_them for prompt in some)
    assert {prompt.video_id for prompt in audit_prompts(made, embed, seed=3, limit=3)} < {p.video_id for p in some}
    assert audit_prompts(made, embed, seed=4, limit=4) != some


def test_with_one_goal_there_are_no_steps_of_other_goals() -> None:
    prompts = audit_prompts(kitchen(goals=1, videos=3), embed)
    assert len(prompts) == 3
    for prompt in prompts:
        assert {"offgoal", "related", "near_ordered", "too_long"}.isdisjoint(prompt.variants)
        assert ALTERNATIVE in prompt.variants


def test_goals_are_compared_without_case_and_space() -> None:
    made = [*kitchen(goals=2, videos=1), procedure("w", " Goal  0", [f"tie {n}" for n in range(9)])]
    prompts: dict[str, AuditPrompt] = {prompt.video_id: prompt for prompt in audit_prompts(made, embed)}
    assert prompts["g0v0"].variants[ALTERNATIVE][0].startswith("tie")
    assert "of 1 by" in prompts["w"].variants["offgoal"][0]


def test_what_is_left_out_is_counted() -> None:
    made = [
        *kitchen(goals=1),
        procedure("g0v0", "goal 0", list("abcdef")),
        procedure("told", "goal 0", list("abcdef")),
        procedure("short", "goal 0", ["a", "A", " a ", "b", "c", "d"]),
        procedure("long", "goal 0", [str(n) for n in range(21)]),
    ]
    selection = select(made, corpus_videos={"told"})
    assert selection.left_out == {
        "given twice": 1,
        "narrated in the corpus": 1,
        "of fewer than 5 steps": 1,
        "of more than 20 steps": 1,
    }
    assert {one.video_id for one in selection.usable} == {"g0v0", "g0v1"}


class Names:
    """A corpus of which only the ids matter."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def narration(self, index: int) -> Narration:
        return Narration(self.names[index], (Segment("stir"),))


def test_videos_of_the_corpus_are_known_by_the_names_of_their_files() -> None:
    names = ("a1B2c3D4e5F", "g6H7i8J9k0L", "1_7", "1_8", "1_9", "2_1", "2_2")
    steps = [[f"do {n} of {video}" for n in range(6)] for video in names]
    made = [procedure(name, "goal", texts) for name, texts in zip(names, steps, strict=True)]
    corpus: Any = Names("Tea-a1B2c3D4e5F", "v_g6H7i8J9k0L", "kitchen 1_7")
    selection, _ = audited_prompts(corpus, made, embed)
    assert {one.video_id for one in selection.audited} == {*names[2:]}
    assert (selection.left_out["narrated in the corpus"], selection.unclear) == (2, 1)


@pytest.mark.parametrize("steps", [list("abacadae"), list("aabbccddeeff")])
def test_collapsed_steps_never_repeat_their_neighbour(steps: list[str]) -> None:
    found = collapsed(procedure("v", "goal", steps)).steps
    assert all(a != b for a, b in pairwise(found))
    assert list(found) == [step for n, step in enumerate(steps) if n == 0 or steps[n - 1] != step]
