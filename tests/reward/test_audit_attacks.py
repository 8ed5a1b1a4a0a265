"""The best-of-64 attack and samples of language models, against rewards whose answers are known."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recipe.audit.attack import BEST_OF, KINDS, best_plans, composed_plans, mixed_vocabulary
from recipe.audit.measure import Extent, audit_rewards, audited_prompts, measure, measure_attack
from recipe.audit.perturb import AuditPrompt, build_prompts, select
from recipe.audit.samples import prompt_examples, prompt_id, read_samples, sample_file, with_samples
from recipe.audit.score import LengthScorer, NamedScorer, score_prompts
from recipe.corpus.encoders import HashEncoder
from recipe.data.examples import read_examples, write_examples
from recipe.errors import ComputeError, InputError
from recipe.planning.planner import prediction_of
from recipe.planning.prediction_files import write_predictions
from recipe.planning.predictions import Prediction
from recipe.reward.scorer import Outcome, PromptGroup, plain_reward
from recipe.types import Procedure, Reward, Step

PROCEDURES = [
    Procedure("home", f"g{goal}v{video}", f"make thing {goal}", tuple(Step(f"do {n} of {goal}") for n in range(7)))
    for goal in range(6)
    for video in range(2)
]
EMBED = HashEncoder(64).encode


class TrueShare:
    """Pays for the share of a plan's steps that belong to the goal, and a little for their number."""

    def __init__(self, refused: str = "") -> None:
        self.refused, self.calls = refused, list[int]()

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        self.calls.append(len(groups))
        return [[self._outcome(group.goal, plan) for plan in group.plans] for group in groups]

    def _outcome(self, goal: str, plan: Sequence[str]) -> Outcome:
        if self.refused and self.refused in plan:
            return ComputeError("refused.")
        own = [step for step in plan if step.endswith(f"of {goal.split()[-1]}")]
        return plain_reward(len(own) / max(len(plan), 1) + 0.001 * len(set(own)), len(plan))


@pytest.fixture(scope="module")
def prompts() -> list[AuditPrompt]:
    return build_prompts(select(PROCEDURES), EMBED)


def test_composed_plans_are_the_same_for_every_reward_and_of_all_lengths(prompts: list[AuditPrompt]) -> None:
    lengths, kinds = Counter[float](), Counter[str]()
    for prompt in prompts:
        plans, vocabulary = composed_plans(prompt), mixed_vocabulary(prompt)
        assert plans == composed_plans(prompt) != composed_plans(prompt, seed=1)
        assert len(plans) == BEST_OF == 64
        assert all(1 <= len(plan) <= 2 * len(prompt.true) for plan in plans)
        lengths.update(len(plan) / len(prompt.true) for plan in plans)
        kinds.update(vocabulary[step] for plan in plans for step in plan)
    assert max(lengths) == 2.0
    np.testing.assert_allclose([kinds[kind] / kinds.total() for kind in KINDS], 1 / 6, atol=0.02)


def test_the_best_plan_is_the_one_with_the_highest_reward(prompts: list[AuditPrompt]) -> None:
    scorer = TrueShare()
    for prompt, found in zip(prompts, best_plans(scorer, prompts), strict=True):
        plans = composed_plans(prompt)
        [[true, *totals]] = [
            [one.total for one in own if isinstance(one, Reward)]
            for own in TrueShare().score_groups([PromptGroup(prompt.goal, prompt.history, [prompt.true, *plans])])
        ]
        assert (found.reward, found.true_reward) == (max(totals), true)
        assert found.steps == plans[int(np.argmax(totals))]
        assert [mixed_vocabulary(prompt)[step] for step in found.steps] == list(found.kinds)
    assert scorer.calls == [len(prompts)]


def test_both_attacks_on_length_end_at_their_limit(prompts: list[AuditPrompt]) -> None:
    scorer = NamedScorer("length", LengthScorer())
    greedy, best = (measure_attack(scorer, prompts, kind) for kind in ("greedy", "best of"))
    assert greedy is not None
    assert best is not None
    assert (greedy.length_ratio, greedy.at_limit, greedy.beats_true.mean) == (3.0, 1.0, 1.0)
    assert best.at_limit == 1.0
    assert best.length_ratio == 2.0
    assert measure_attack(scorer, [], "best of") is None


def predictions(prompts: Sequence[AuditPrompt], *plans: Sequence[str]) -> list[Prediction]:
    return [Prediction(prompt_id(one), tuple(plan), sample) for one in prompts for sample, plan in enumerate(plans)]


def test_samples_are_averaged_by_prompt_and_then_over_prompts(prompts: list[AuditPrompt]) -> None:
    bad, good = ["wait"], [*prompts[0].true, *prompts[0].history]
    given = predictions(prompts[:1], bad, bad, bad, good) + predictions(prompts[1:2], bad)
    chosen, elsewhere = with_samples(prompts, {"lm": given})
    assert elsewhere == {"lm": 0}
    scored = score_prompts(NamedScorer("it", TrueShare()), chosen)
    found = measure("it", scored, {}, None, None).samples["lm"]
    assert found.true_wins.mean == pytest.approx((3 / 4 + 1) / 2)  # `good` has more true steps than the truth
    assert (found.true_wins.observations, found.samples, found.unscored) == (2, 5, 0)
    n, m = len(prompts[0].true), len(prompts[1].true)
    assert found.length_ratio == pytest.approx((3 / n + 7 / n + 1 / m) / 5)
    plain = measure("it", score_prompts(NamedScorer("it", TrueShare()), prompts), {}, None, None)
    assert measure("it", scored, {}, None, None).classes == plain.classes
    assert measure("it", scored, {}, None, None).mean == plain.mean


def test_a_sample_equal_to_the_truth_ties_and_one_without_steps_is_an_empty_plan(prompts: list[AuditPrompt]) -> None:
    chosen, _ = with_samples(prompts[:1], {"lm": predictions(prompts[:1], prompts[0].true, ())})
    found = measure("it", score_prompts(NamedScorer("it", TrueShare()), chosen), {}, None, None).samples["lm"]
    assert found.true_wins.mean == pytest.approx((0.5 + 1.0) / 2)
    assert found.without_steps == 0.5


def test_a_sample_that_cannot_be_scored_leaves_its_prompt_in_the_means(prompts: list[AuditPrompt]) -> None:
    chosen, _ = with_samples(prompts, {"lm": predictions(prompts, ["refused"], ["wait"])})
    scored = score_prompts(NamedScorer("it", TrueShare("refused")), chosen)
    assert scored.unscored == []
    found = measure("it", scored, {}, None, None).samples["lm"]
    assert (found.samples, found.unscored) == (len(prompts), len(prompts))
    alone, _ = with_samples(prompts, {"lm": predictions(prompts, ["refused"])})
    scored = score_prompts(NamedScorer("it", TrueShare("refused")), alone)
    assert measure("it", scored, {}, None, None).samples == {}


def test_samples_for_other_prompts_are_counted_and_only_those_are_an_error(prompts: list[AuditPrompt]) -> None:
    given = predictions(prompts, ["wait"])
    _, elsewhere = with_samples(prompts[:3], {"lm": given})
    assert elsewhere == {"lm": len(prompts) - 3}
    other = [replace(one, example_id=one.example_id + "0") for one in given]
    with pytest.raises(InputError, match=r"no sample of 'lm' is for an audited prompt \(audit/home/g0v0"):
        with_samples(prompts, {"lm": other})
    with pytest.raises(InputError, match="there are none"):
        with_samples(prompts, {"lm": []})


def test_prompts_are_written_as_examples_and_files_of_predictions_are_read(
    prompts: list[AuditPrompt], tmp_path: Path
) -> None:
    write_examples(tmp_path / "prompts.jsonl", prompt_examples(prompts))
    examples = read_examples(tmp_path / "prompts.jsonl")
    assert examples == prompt_examples(prompts)
    assert [one.continuation for one in examples] == [one.true for one in prompts]
    file = sample_file(tmp_path, "org/some model")
    assert file.name == "samples-org_some_model.jsonl"
    text = "1. boil\n2. pour\n1. boil\n2. wait"
    write_predictions(file, [prediction_of(examples[0].example_id, 0, text)])
    found = read_samples([str(file), f"other={file}"])
    assert list(found) == ["org_some_model", "other"]
    assert found["other"][0].steps == ("boil", "pour")
    with pytest.raises(InputError, match="'other' are given twice"):
        read_samples([f"other={file}", f"other={file}"])


def test_an_audit_shows_attacks_and_samples_of_all_rewards_beside_each_other(corpus: Any) -> None:
    _, prompts = audited_prompts(corpus, PROCEDURES, EMBED)
    audited = [NamedScorer("one", TrueShare()), NamedScorer("two", LengthScorer())]
    found = audit_rewards(
        audited, corpus, PROCEDURES, EMBED, Extent(attacked=4), samples={"lm": predictions(prompts, ["wait"])}
    )
    one, two, length, relevance = found.rewards
    for reward in (one, two, relevance):
        assert reward.best_of is not None
        assert reward.best_of.prompts == 4
    assert length.best_of is None
    assert one.samples["lm"].true_wins.mean == two.samples["lm"].true_wins.mean == 1.0
    assert list(length.samples) == ["lm"]
    [sentence] = [text for text in found.findings if text.startswith("The best of 64")]
    assert all(f"{name} " in sentence for name in ("one", "two", "relevance"))
    assert one.samples["lm"].samples == len(prompts)
    assert not math.isnan(one.samples["lm"].length_ratio)
