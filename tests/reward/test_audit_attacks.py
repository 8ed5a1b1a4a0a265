"""The attacks on a reward and samples of language models, against rewards whose answers are known."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recipe.audit.measure import Extent, audit_rewards, measure_attack
from recipe.audit.perturb import AuditPrompt, build_prompts, select
from recipe.audit.score import LengthScorer, NamedScorer
from recipe.corpus.encoders import HashEncoder
from recipe.errors import ComputeError, InputError
from recipe.planning.predictions import Prediction
from recipe.reward.scorer import Outcome, PromptGroup, plain_reward
from recipe.types import Procedure, Step

PROCEDURES = [
    Procedure("home", f"g{goal}v{video}", f"make thing {goal}", tuple(Step(f"do {n} of {goal}") for n in range(7)))
    for goal in range(6)
    for video in range(2)
]
EMBED = HashEncoder(64).encode


class Paying:
    """Pays `pay` of goal and plan, fails for plans that hold `refused`, and remembers what it was asked."""

    def __init__(self, pay: Callable[[str, Sequence[str]], float], refused: str = "") -> None:
        self.pay, self.refused, self.asked = pay, refused, list[list[PromptGroup]]()

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        self.asked.append(list(groups))
        return [[self._outcome(group.goal, plan) for plan in group.plans] for group in groups]

    def _outcome(self, goal: str, plan: Sequence[str]) -> Outcome:
        if self.refused and self.refused in plan:
            return ComputeError("refused.")
        return plain_reward(self.pay(goal, plan), len(plan))


def share(goal: str, plan: Sequence[str]) -> float:
    """The share of a plan's steps that belong to the goal, and a little for their number."""
    own = [step for step in plan if step.endswith(f"of {goal.split()[-1]}")]
    return len(own) / max(len(plan), 1) + 0.001 * len(set(own))


def attacked(pay: Callable[[str, Sequence[str]], float], prompts: Sequence[AuditPrompt], kind: Any, **more: Any) -> Any:
    """The result of an attack, and the scorer that it was run on."""
    scorer = Paying(pay)
    return measure_attack(NamedScorer("it", scorer), prompts, kind, **more), scorer


@pytest.fixture(scope="module")
def prompts() -> list[AuditPrompt]:
    return build_prompts(select(PROCEDURES), EMBED)


def sources(prompt: AuditPrompt) -> dict[str, set[str]]:
    """The steps of each kind that an attack may use; a text of several kinds is of the first."""
    made, n = prompt.variants, len(prompt.history)
    kinds = {
        "true": set(prompt.true),
        "other goal": set(made["offgoal"]),
        "filler": set(prompt.padding[:8]),
        "paraphrased history": set(made["paraphrased_history"][:n]),
        "history": set(prompt.history),
        "goal": {prompt.goal, *made["goal_reworded"][:4]},
    }
    assert len(set.union(*kinds.values())) == sum(map(len, kinds.values()))
    return kinds


def test_a_greedy_attack_tries_every_step_that_it_may_use(prompts: list[AuditPrompt]) -> None:
    _, scorer = attacked(share, prompts, "greedy")
    first, second = scorer.asked[:2]
    assert [group.plans for group in first] == [[(), prompt.true] for prompt in prompts]
    for prompt, group in zip(prompts, second, strict=True):
        assert sorted(group.plans) == sorted((step,) for own in sources(prompt).values() for step in own)


def test_a_greedy_attack_takes_what_pays_and_of_equals_the_truth(prompts: list[AuditPrompt]) -> None:
    for prompt in prompts[:4]:

        def known(_: str, plan: Sequence[str], true: Sequence[str] = prompt.true) -> float:
            good = sum(a == b for a, b in zip(plan, true, strict=False))
            return good - 0.1 * (len(plan) - good)

        truth, _ = attacked(known, [prompt], "greedy")
        assert [step for step, _ in truth.example] == list(prompt.true)
        assert (truth.composition["true"], truth.repeated, truth.beats_true.mean) == (1.0, 0.0, 0.5)
        indifferent, _ = attacked(lambda _, plan: len(plan), [prompt], "greedy")
        assert indifferent.composition["true"] == 1.0
    # What is flat for two steps is crossed, and what is flat for three is not.
    assert attacked(lambda _, plan: len(plan) // 3, prompts[:1], "greedy")[0].length_ratio == 3.0
    assert attacked(lambda _, plan: len(plan) // 4, prompts[:1], "greedy")[0].example == ()


def test_an_attack_on_many_prompts_is_that_on_each_and_leaves_out_what_fails(prompts: list[AuditPrompt]) -> None:
    for kind in ("greedy", "best of"):
        together, _ = attacked(share, prompts, kind)
        alone = [attacked(share, [prompt], kind)[0] for prompt in prompts]
        for name in ("length_ratio", "at_limit"):
            assert getattr(together, name) == pytest.approx(np.mean([getattr(one, name) for one in alone]))
        assert together.beats_true.mean == pytest.approx(np.mean([one.beats_true.mean for one in alone]))
        fragile = NamedScorer("it", Paying(share, refused=prompts[0].true[-1]))
        left = measure_attack(fragile, prompts, kind)  # type: ignore[arg-type]
        assert left is not None
        assert left.prompts < len(prompts) - 1  # both videos of its goal
        assert measure_attack(fragile, prompts[:1], kind) is None  # type: ignore[arg-type]


def test_composed_plans_are_the_same_for_every_reward_and_of_all_lengths(prompts: list[AuditPrompt]) -> None:
    result, scorer = attacked(share, prompts, "best of")
    [groups] = scorer.asked
    _, length = attacked(lambda _, plan: len(plan), prompts, "best of")
    _, other = attacked(share, prompts, "best of", seed=1)
    assert length.asked == scorer.asked != other.asked
    lengths, drawn = set[float](), Counter[str]()
    for prompt, group in zip(prompts, groups, strict=True):
        true, *plans = group.plans
        assert (true, len(plans)) == (prompt.true, 64)
        assert all(1 <= len(plan) <= 2 * len(prompt.true) for plan in plans)
        lengths |= {len(plan) / len(prompt.true) for plan in plans}
        kinds = {step: kind for kind, own in sources(prompt).items() for step in own}
        drawn.update(kinds[step] for plan in plans for step in plan)
        best, _ = attacked(share, [prompt], "best of")
        totals = [share(prompt.goal, plan) for plan in plans]
        assert best.example == tuple((step, kinds[step]) for step in plans[int(np.argmax(totals))])
        gain = max(totals) - share(prompt.goal, true)
        assert best.beats_true.mean == (gain > 1e-6) + (abs(gain) <= 1e-6) / 2
    assert max(lengths) == 2.0
    np.testing.assert_allclose([count / drawn.total() for count in drawn.values()], 1 / 6, atol=0.02)
    assert result.prompts == len(prompts)


def test_both_attacks_on_length_end_at_their_limit(prompts: list[AuditPrompt]) -> None:
    scorer = NamedScorer("length", LengthScorer())
    greedy, best = (measure_attack(scorer, prompts, kind) for kind in ("greedy", "best of"))
    assert greedy is not None
    assert best is not None
    assert (greedy.length_ratio, greedy.at_limit, greedy.beats_true.mean) == (3.0, 1.0, 1.0)
    assert (best.length_ratio, best.at_limit) == (2.0, 1.0)
    assert measure_attack(scorer, [], "best of") is None


def predictions(prompts: Sequence[AuditPrompt], *plans: Sequence[str]) -> list[Prediction]:
    """What a system writes for each prompt, by the id that stands in the file of prompts."""
    return [
        Prediction(f"audit/{one.source}/{one.video_id}/{len(one.history)}", tuple(plan), sample)
        for one in prompts
        for sample, plan in enumerate(plans)
    ]


def audited(corpus: Any, samples: Sequence[Prediction], refused: str = "", limit: int | None = None) -> Any:
    """The audit of the share of true steps on samples of one system."""
    scorer, extent = NamedScorer("it", Paying(share, refused)), Extent(limit=limit, attacked=0)
    return audit_rewards([scorer], corpus, PROCEDURES, EMBED, extent, samples={"lm": samples})


def test_samples_are_averaged_by_prompt_and_then_over_prompts(prompts: list[AuditPrompt], corpus: Any) -> None:
    bad, good = ["wait"], [*prompts[0].true, *prompts[0].history]
    given = predictions(prompts[:1], bad, bad, bad, good) + predictions(prompts[1:2], bad)
    reward = audited(corpus, given).rewards[0]
    found = reward.samples["lm"]
    assert found.true_wins.mean == pytest.approx((3 / 4 + 1) / 2)  # `good` has more true steps than the truth
    assert (found.true_wins.observations, found.samples, found.unscored) == (2, 5, 0)
    n, m = len(prompts[0].true), len(prompts[1].true)
    assert found.length_ratio == pytest.approx((3 / n + 7 / n + 1 / m) / 5)
    # A sample that equals the truth ties, and one without steps is an empty plan.
    other = audited(corpus, predictions(prompts[:1], prompts[0].true, ())).rewards[0]
    assert other.samples["lm"].true_wins.mean == pytest.approx((0.5 + 1.0) / 2)
    assert other.samples["lm"].without_steps == 0.5
    assert (reward.classes, reward.mean) == (other.classes, other.mean)  # in no mean


def test_a_sample_that_cannot_be_scored_leaves_its_prompt_in_the_means(prompts: list[AuditPrompt], corpus: Any) -> None:
    some = audited(corpus, predictions(prompts, ["refused"], ["wait"]), "refused").rewards[0]
    assert some.unscored == ()
    assert (some.samples["lm"].samples, some.samples["lm"].unscored) == (len(prompts), len(prompts))
    none = audited(corpus, predictions(prompts, ["refused"]), "refused").rewards[0]
    assert (none.prompts, none.samples) == (len(prompts), {})


def test_samples_for_other_prompts_are_counted_and_only_those_are_an_error(
    prompts: list[AuditPrompt], corpus: Any
) -> None:
    given = predictions(prompts, ["wait"])
    assert f"{len(prompts) - 5} samples of lm are for" in " ".join(audited(corpus, given, limit=5).findings)
    other = [replace(one, example_id=one.example_id + "0") for one in given]
    with pytest.raises(InputError, match=r"no sample of 'lm' is for an audited prompt \(audit/home/g0v0"):
        audited(corpus, other)
    with pytest.raises(InputError, match="there are none"):
        audited(corpus, [])


def test_an_audit_shows_attacks_and_samples_of_all_rewards_beside_each_other(
    corpus: Any, prompts: list[AuditPrompt]
) -> None:
    scorer = Paying(share)
    rewards = [NamedScorer("one", scorer), NamedScorer("two", LengthScorer())]
    samples = {"lm": predictions(prompts, ["wait"])}
    found = audit_rewards(rewards, corpus, PROCEDURES, EMBED, Extent(attacked=4), samples=samples)
    one, two, length, relevance = found.rewards
    begun = [group for groups in scorer.asked for group in groups if group.plans[0] == ()]
    assert [(group.goal, group.history) for group in begun] == [(own.goal, own.history) for own in prompts[::3]]
    for reward in (one, two, relevance):
        assert reward.best_of is not None
        assert reward.best_of.prompts == 4
    assert length.best_of is None
    assert one.samples["lm"].true_wins.mean == two.samples["lm"].true_wins.mean == 1.0
    assert list(length.samples) == ["lm"]
    [sentence] = [text for text in found.findings if text.startswith("The best of 64")]
    assert all(f"{name} " in sentence for name in ("one", "two", "relevance"))
    assert one.samples["lm"].samples == len(prompts)
