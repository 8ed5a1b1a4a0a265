"""Scores, controls, attack, coverage and measures of the audit, against rewards whose answers are known."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from prompt_scorer import PromptScorer, r0_of

from recipe.audit.measure import Extent, audit_rewards, length_correlation, measure
from recipe.audit.perturb import ALTERNATIVE, AuditPrompt, build_prompts, select
from recipe.audit.score import PADDED, LengthScorer, NamedScorer, controls
from recipe.errors import ComputeError, InputError
from recipe.reward.scorer import PromptGroup, score_or_raise
from recipe.types import Procedure, Reward, Step

GOALS = {
    "brew tea": ["boil the water", "warm the pot", "add the leaves", "pour the water", "wait", "serve the tea"],
    "fix a flat tyre": ["lift the car", "undo the bolts", "take the wheel off", "fit the spare", "lower the car"],
    "bake bread": ["weigh flour", "mix the dough", "knead it", "let it rise", "shape a loaf", "bake it", "cool it"],
    "pot a plant": ["fill a pot", "dig a hole", "loosen the roots", "set the plant", "press the soil", "water it"],
    "wash a dog": ["fetch the dog", "wet its coat", "rub in shampoo", "rinse the coat", "dry it with a towel"],
    "hang a shelf": ["mark the wall", "drill two holes", "push in plugs", "screw brackets", "lay the board on"],
    "sew a button": ["thread a needle", "knot the end", "place the button", "stitch through holes", "cut the rest"],
    "clean a fish": ["scrape the scales", "cut the belly", "pull the guts", "rinse the inside", "pat it dry"],
}
PROCEDURES = [
    Procedure("home", f"{goal} {video}", goal, tuple(Step(text) for text in steps))
    for goal, steps in GOALS.items()
    for video in range(2)
]


def reward(total: float, steps: int = 0, gated: bool = False) -> Reward:
    return Reward(total, 0.0, 0.0, 0.0, gated, steps, (), None)


class Knowing(PromptScorer):
    """Pays for the steps that are true of the goal, each once and in order; a fixed fee for any other."""

    def __init__(self, fee: float = 0.1) -> None:
        self.fee, self.calls = fee, 0

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        self.calls += 1
        true = GOALS[goal][len(history) :]
        return [reward(self._total(true, list(plan)), len(plan)) for plan in continuations]

    def _total(self, true: list[str], plan: list[str]) -> float:
        good = 0
        for step in plan:
            good += good < len(true) and step == true[good]
        return good - self.fee * (len(plan) - good)


class Failing(Knowing):
    """Cannot score one goal, and gives no number for another."""

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        if goal == "brew tea":
            raise ComputeError("the encoder failed.")
        return (
            [reward(math.nan)] * len(continuations)
            if goal == "bake bread"
            else super().score(history, continuations, goal)
        )


class ByLength:
    """Pays a function of the number of steps."""

    def __init__(self, pay: Callable[[int], float]) -> None:
        self.pay = pay

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        return [[reward(self.pay(len(plan)), len(plan)) for plan in group.plans] for group in groups]


@pytest.fixture
def prompts(corpus: Any) -> list[AuditPrompt]:
    return build_prompts(select(PROCEDURES), corpus.encoder.encode)


def measured(scorer: Any, prompts: list[AuditPrompt]) -> Any:
    return measure("it", NamedScorer("it", scorer).score(prompts), {}, None, None)


def test_length_tells_apart_by_length_alone(prompts: list[AuditPrompt]) -> None:
    found = measured(LengthScorer(), prompts)
    for name, share in found.classes.items():
        pairs = [(len(one.true), len(one.variants[name])) for one in prompts if name in one.variants]
        assert share.mean == pytest.approx(np.mean([(true > made) + (true == made) / 2 for true, made in pairs]))
    shorter, longer = ("half", "missing_middle", "empty"), ("true_plus_filler", "doubled", "too_long")
    assert {found.classes[name].mean for name in shorter} == {1.0}
    assert {found.classes[name].mean for name in longer} == {0.0}
    assert found.length_correlation == pytest.approx(1.0)
    assert found.worst.mean == 0.0


def test_a_reward_that_knows_the_truth_is_never_wrong(prompts: list[AuditPrompt]) -> None:
    found = measured(Knowing(), prompts)
    assert found.worst.mean == 1.0
    assert found.mean.mean == pytest.approx(1.0)
    assert found.alternative is not None
    assert found.alternative.mean == 0.5  # both videos of a goal are the same
    assert [point.true_wins for point in found.filler_curve] == [0.5] + [1.0] * 5
    rewards = [point.reward.mean for point in found.filler_curve]
    np.testing.assert_allclose(np.diff(rewards), -0.1 * np.diff(PADDED))


def test_relevance_is_a_control_that_reads_no_corpus(prompts: list[AuditPrompt], corpus: Any) -> None:
    length, relevance = controls(prompts, corpus.encoder.encode)
    assert (length.name, relevance.name) == ("length", "relevance")
    assert corpus.searches == 0
    steps = sorted({step for one in prompts for step in (*one.history, *one.true)})
    mean = corpus.encoder.encode(steps).mean(axis=0)
    one = prompts[3]
    [[found]] = score_or_raise(relevance.scorer, [PromptGroup(one.goal, one.history, [one.true])])
    assert found.total == pytest.approx(r0_of(corpus.encoder.encode, mean, one.goal, one.history, one.true), abs=1e-6)


def test_what_cannot_be_computed_is_unscored(prompts: list[AuditPrompt]) -> None:
    scored = NamedScorer("it", Failing()).score(prompts)
    assert len(scored.prompts) == len(prompts) - 4
    assert len(scored.unscored) == 4
    assert {one.split(": ")[1] for one in scored.unscored} == {
        "the encoder failed.",
        "The reward is not a finite number; check the scorer, and the corpus with",
    }
    found = measured(Failing(), prompts)
    assert found.prompts == len(prompts) - 4
    assert found.mean.mean == pytest.approx(1.0)
    with pytest.raises(ComputeError, match=r"it: not one prompt could be scored \(home/brew tea"):
        measured(Failing(), [prompt for prompt in prompts if prompt.goal == "brew tea"])


def test_correlation_with_length_is_of_all_but_the_alternative(prompts: list[AuditPrompt]) -> None:
    scored = NamedScorer("short", ByLength(lambda steps: -2.0 * steps)).score(prompts).prompts
    assert length_correlation(scored) == pytest.approx(-1.0)
    bent = [one._replace(rewards=one.rewards | {ALTERNATIVE: reward(1e6)}) for one in scored]
    assert length_correlation(bent) == pytest.approx(-1.0)
    assert length_correlation(NamedScorer("flat", ByLength(lambda _: 1.0)).score(prompts).prompts) is None


def test_a_corpus_of_the_procedures_covers_them_and_one_of_single_steps_does_not(corpus: Any) -> None:
    talk = {f"talk {n}": [f"thing {n} {m}" for m in range(5)] for n in range(24)}
    known = talk | {f"told {goal}": steps for goal, steps in GOALS.items()}
    steps = sorted(step for steps in GOALS.values() for step in steps)
    scattered = talk | {f"said {n}": [step, f"more of {n}"] for n, step in enumerate(steps)}
    covered, alike = (coverage_of(type(corpus)(talks)).coverage for talks in (known, scattered))
    assert covered.wins.mean > 0.85
    assert 0.25 < alike.wins.mean < 0.75


def coverage_of(corpus: Any, procedures: Sequence[Procedure] = PROCEDURES) -> Any:
    """An audit of the number of steps alone, for what it says of the corpus."""
    scorers = [NamedScorer("it", LengthScorer())]
    return audit_rewards(scorers, corpus, procedures, corpus.encoder.encode, Extent(attacked=0))


def test_coverage_says_where_it_cannot_tell(corpus: Any) -> None:
    same = [replace(PROCEDURES[n % 2], video_id=f"{n}") for n in range(5)]
    talks = {f"talk {n}": [f"thing {n} {m}" for m in range(5)] for n in range(9)}
    for chosen, reason in ((corpus, "a corpus of 5 narrations"), (type(corpus)(talks), "every source has one goal")):
        one_goal = coverage_of(chosen, same)
        assert one_goal.coverage is None
        assert one_goal.answer.startswith(f"Whether the corpus covers these tasks is not known: {reason}")
    [caution, *_] = one_goal.findings
    assert caution.endswith(
        "for any procedure, and are left out of the mean: offgoal, related, near_ordered, too_long."
    )
    assert one_goal.rewards[0].classes.keys().isdisjoint({"true", "offgoal", "related", "near_ordered", "too_long"})
    assert one_goal.rewards[0].attack is None


def audited(corpus: Any, given: Sequence[NamedScorer] = (), **scorers: Any) -> Any:
    chosen = [*given, *(NamedScorer(name, scorer) for name, scorer in scorers.items())]
    talks = {f"told {goal}": steps for goal, steps in GOALS.items()} | {"brew tea 1": GOALS["brew tea"]}
    return audit_rewards(chosen, type(corpus)(talks), PROCEDURES, corpus.encoder.encode, Extent(attacked=3))


def test_an_audit_holds_the_verifiers_and_both_controls(corpus: Any) -> None:
    scorers = [NamedScorer("knowing", Knowing(), "Too small."), NamedScorer("failing", Failing())]
    found = audited(corpus, scorers)
    assert found.findings[0] == "knowing: Too small."
    assert [one.name for one in found.rewards] == ["knowing", "failing", "length", "relevance"]
    assert found.procedures == {"home": len(PROCEDURES) - 1}
    assert found.left_out["narrated in the corpus"] == 1
    assert found.answer.startswith("The corpus covers these tasks: ")
    assert "Left out: 1 narrated in the corpus." in found.findings
    knowing, failing, length, relevance = found.rewards
    assert knowing.over_relevance is not None
    assert knowing.over_relevance.mean == pytest.approx(1.0 - relevance.mean.mean)
    assert len(failing.unscored) == 3
    assert any(one.startswith("failing could not score 3 prompts") for one in found.findings)
    assert length.attack is None
    assert relevance.over_relevance is None
    assert knowing.attack is not None
    assert (knowing.attack.length_ratio, knowing.attack.beats_true.mean) == (1.0, 0.5)
    assert len(knowing.mean_by_coverage) == 3


@pytest.mark.parametrize(("given", "told"), [(0, 0), (4, 0), (5, 1), (8, 8), (5, 0), (8, 3)])
def test_too_few_procedures_are_no_table(corpus: Any, given: int, told: int) -> None:
    procedures = [replace(PROCEDURES[n % len(PROCEDURES)], video_id=f"video {n}") for n in range(given)]
    talks = {f"video {n}": ["stir it", "wait"] for n in range(told)} | {f"talk {n}": ["so", "well"] for n in range(9)}

    if given - told >= 5:
        assert coverage_of(type(corpus)(talks), procedures).procedures == {"home": given - told}
        return
    with pytest.raises(InputError, match=rf"{given - told} of {given} procedures.* give 5") as raised:
        coverage_of(type(corpus)(talks), procedures)
    assert ("--exclude" in str(raised.value)) == (told > 0)


def test_what_cannot_be_audited_is_told_in_one_sentence(corpus: Any) -> None:
    encode = corpus.encoder.encode
    with pytest.raises(InputError, match=r"0 of 1 procedures.* 1 of fewer than 5 steps"):
        audit_rewards([], corpus, [Procedure("home", "v", "tea", (Step("wait"),))], encode)
    with pytest.raises(InputError, match="'length' is audited twice, or is a control's name"):
        audit_rewards([NamedScorer("length", LengthScorer())], corpus, PROCEDURES, encode)
