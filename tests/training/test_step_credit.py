"""Credit for steps: which step a token belongs to, what it is paid, and that the expected gradient is the reward's."""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from recipe.artifacts import read_jsonl
from recipe.config import GRPOConfig
from recipe.errors import ComputeError, InputError
from recipe.models.checkpoints import load_reader
from recipe.reward.scorer import Outcome, PromptGroup, plain_reward, score_prefixes
from recipe.reward.watchdog import CompletionRecord
from recipe.text import Completion
from recipe.training.grpo import train_grpo
from recipe.training.loop import SilentGRPOTrainer
from recipe.training.step_credit import step_advantages, token_steps
from recipe.types import Reward

WORTH = {"boil": 0.5, "wait": -0.25, "pour": 1.0}


class GainScorer:
    """Each step adds what its first word is worth; fails for plans that end with `broken`; counts what it scores."""

    def __init__(self, broken: str = "") -> None:
        self.broken, self.calls, self.plans = broken, 0, list[tuple[str, ...]]()

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        self.calls += 1
        self.plans += [plan for group in groups for plan in group.plans]
        return [[self._outcome(plan) for plan in group.plans] for group in groups]

    def _outcome(self, plan: Sequence[str]) -> Outcome:
        if plan and plan[-1] == self.broken:
            return ComputeError("The encoder is down.")
        worth = (WORTH.get(step.split()[0].casefold(), len(step) / 100) for step in plan)
        return plain_reward(1.0 + sum(worth), len(plan))


# ----------------------------------------------------------------------------------------------------- the rewards


def test_beginnings_that_plans_share_are_scored_once_and_in_one_call() -> None:
    scorer = GainScorer(broken="wait")
    prompts = [("tea", ()), ("eggs", ()), ("tea", ())]
    plans = [("boil", "pour"), ("boil",), ("boil", "wait", "pour")]
    outcomes = score_prefixes(scorer, prompts, plans)
    assert scorer.calls == 1
    assert sorted(scorer.plans) == sorted([(), ("boil",)] * 2 + [plans[0], ("boil", "wait"), plans[2]])
    totals = [[one.total if isinstance(one, Reward) else None for one in own] for own in outcomes]
    assert totals == [[1.0, 1.5, 2.5], [1.0, 1.5], [1.0, 1.5, None, 2.25]]


def test_a_beginning_that_cannot_be_used_ends_no_other() -> None:
    class Refusing(GainScorer):
        def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
            if any("wait" in plan[-1:] for group in groups for plan in group.plans):
                raise InputError("a step is refused.")
            return super().score_groups(groups)

    [own] = score_prefixes(Refusing(), [("tea", ())], [("boil", "wait", "pour")])
    assert [isinstance(one, Reward) for one in own] == [True, True, False, True]


# ------------------------------------------------------------------------------------------------------ the tokens


@pytest.fixture(scope="module")
def tokenizer(base_model: Path) -> Any:
    return load_reader(str(base_model)).tokenizer


def placed(tokenizer: Any, text: str, *, cut: bool = False) -> list[tuple[str, int]]:
    """The pieces of a text with the step that each belongs to, neighbours of one step together; the end is `$`."""
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = tokens if cut else [*tokens, tokenizer.eos_token_id]
    steps = token_steps(tokenizer, ids, Completion.of(text, cut=cut))
    pieces = [tokenizer.decode([token]) if token != tokenizer.eos_token_id else "$" for token in ids]
    pairs = itertools.groupby(zip(steps, pieces, strict=True), lambda pair: pair[0])
    return [("".join(piece for _, piece in own), step) for step, own in pairs]


def test_a_step_holds_its_number_its_line_break_and_the_last_one_the_end(tokenizer: Any) -> None:
    assert placed(tokenizer, "1. boil\n2. pour") == [("1. boil\n", 0), ("2. pour$", 1)]
    assert placed(tokenizer, "1. boil\n2. pour\n") == [("1. boil\n", 0), ("2. pour\n", 1), ("$", 2)]


def test_what_stands_before_and_behind_a_list_is_no_step(tokenizer: Any) -> None:
    text = "Here is the rest\n\n- boil\n  the water\n- pour\nEnjoy it"
    assert placed(tokenizer, text) == [
        ("Here is the rest\n\n- boil\n", 0), ("  the water\n- pour\n", 1), ("Enjoy it$", 2),
    ]  # fmt: skip
    assert placed(tokenizer, "<think>\n1. a\n2. b\n</think>\n1. boil\n2. pour")[0][0].endswith("1. boil\n")


def test_without_a_step_in_a_line_of_its_own_the_whole_plan_is_one(tokenizer: Any) -> None:
    for text in ("  ", '["boil", "pour"]', '{"steps": [\n"boil",\n"pour"\n]}', "<think> 1. boil"):
        assert [step for _, step in placed(tokenizer, text)] == [0]


def test_a_line_that_was_cut_is_no_step(tokenizer: Any) -> None:
    assert placed(tokenizer, "1. boil\n2. po", cut=True) == [("1. boil\n", 0), ("2. po", 1)]
    assert placed(tokenizer, "1. bo", cut=True) == [("1. bo", 0)]


words = st.text(
    st.sampled_from("abcé ß漢字🍵👩‍🍳0123.,-–*_`#|<>'\"") | st.characters(categories=["L", "N", "P", "S"]), max_size=12
)


@settings(max_examples=150, deadline=None)
@given(lines=st.lists(words.map(lambda text: f"x{text}x"), min_size=1, max_size=6), ended=st.booleans())
def test_a_token_belongs_to_the_line_in_which_it_begins(tokenizer: Any, lines: list[str], ended: bool) -> None:
    text = "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1)) + "\n" * ended
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    completion = Completion.of(tokenizer.decode(ids[:-1]))  # some characters are written otherwise
    if len(completion.steps) != len(lines):
        return  # what looks like a mark of a thought or of a turn
    before = [tokenizer.decode(ids[:count]).count("\n") for count in range(len(ids))]
    assert token_steps(tokenizer, ids, completion) == before


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.sampled_from('ab1.2-\n\n#<think></>{}[]",|*漢🍵 '), max_size=60), cut=st.booleans())
def test_steps_never_fall_and_are_no_more_than_the_plan_has(tokenizer: Any, text: str, cut: bool) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    completion = Completion.of(tokenizer.decode(ids), cut=cut)
    steps = token_steps(tokenizer, ids, completion)
    assert len(steps) == len(ids)
    assert steps == sorted(steps)
    assert all(0 <= step <= len(completion.steps) for step in steps)


# ------------------------------------------------------------------------------------------------------ advantages

ENDS, BREAK = "$", "/"
Policy = dict[str, NDArray[np.float64]]


def steps_of(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.removesuffix(ENDS).split(BREAK) if line)


def by_line(text: str) -> list[int]:
    """The step of each symbol: how many lines with words a break has ended before it."""
    return [len(steps_of(text[: text[:at].rfind(BREAK) + 1])) for at in range(len(text))]


def whole(text: str) -> list[int]:
    return [0] * len(text)


def score(policy: Policy, symbols: str, text: str, paid: Sequence[float]) -> tuple[float, NDArray[np.float64]]:
    """The probability of a text, and the gradient of its symbols' log-probabilities, each times what it is paid."""
    probability, states = 1.0, list(policy)
    gradient = np.zeros((len(states), len(symbols) + 1))
    for at, symbol in enumerate(text):
        chances = np.exp(policy[text[:at]]) / np.exp(policy[text[:at]]).sum()
        place = (symbols + ENDS).index(symbol)
        probability *= chances[place]
        row = states.index(text[:at])
        gradient[row] -= paid[at] * chances
        gradient[row, place] += paid[at]
    return probability, gradient


class Enumeration:
    """Every group of two plans of a policy: the mean of its gradient, and its variance, for any way of paying.

    The policy writes up to so many symbols, and an end where it writes fewer; its logits depend on the text so far.
    """

    def __init__(self, symbols: str, longest: int, reward: Callable[[tuple[str, ...]], float], steps_of: Any) -> None:
        self.symbols, self.reward, self.steps_of = symbols, reward, steps_of
        texts = ["".join(own) for length in range(longest + 1) for own in itertools.product(symbols, repeat=length)]
        draw = np.random.default_rng(3)
        self.policy = {text: draw.normal(size=len(symbols) + 1) for text in texts if len(text) < longest}
        self.texts = [text + ENDS * (len(text) < longest) for text in texts]

    def true_gradient(self) -> NDArray[np.float64]:
        """Of the expected reward."""
        paid = ([self.reward(self.steps_of(text))] * len(text) for text in self.texts)
        pairs = (score(self.policy, self.symbols, *pair) for pair in zip(self.texts, paid, strict=True))
        return np.sum([chance * gradient for chance, gradient in pairs], axis=0)

    def moments(self, placing: Callable[[str], list[int]]) -> tuple[NDArray[np.float64], float]:
        """The mean over groups of the mean gradient of a group's plans, and the sum of its variances."""
        mean, square = np.zeros((len(self.policy), len(self.symbols) + 1)), 0.0
        for group in itertools.product(self.texts, repeat=2):
            plans, places = [self.steps_of(text) for text in group], [placing(text) for text in group]
            earned = [[self.reward(plan[:end]) for end in range(len(plan) + 1)] for plan in plans]
            paid = step_advantages(earned, [max(own) + 1 for own in places], scaled=False)
            chance, gradient = 1.0, np.zeros_like(mean)
            for text, own, where in zip(group, paid, places, strict=True):
                likely, moved = score(self.policy, self.symbols, text, [own[at] for at in where])
                chance *= likely
                gradient += moved / 2
            mean += chance * gradient
            square += chance * float((gradient**2).sum())
        return mean, square - float((mean**2).sum())


def any_reward(plan: tuple[str, ...]) -> float:
    return random.Random(BREAK.join(plan)).uniform(-1, 1)


def test_the_expected_gradient_is_that_of_the_plans_reward() -> None:
    """Of any reward; steps are lines of several words, which a break ends, an end, or the limit."""
    exact = Enumeration("ab/", 3, any_reward, steps_of)
    for placing in (by_line, whole):
        np.testing.assert_allclose(exact.moments(placing)[0], exact.true_gradient(), atol=1e-12)


def test_a_break_that_is_paid_with_the_next_step_bends_the_gradient() -> None:
    def late(text: str) -> list[int]:
        return [place + (symbol in (BREAK, ENDS) and at > 0 and text[at - 1] != BREAK)
                for at, (place, symbol) in enumerate(zip(by_line(text), text, strict=True))]  # fmt: skip

    exact = Enumeration("ab/", 3, any_reward, steps_of)
    assert np.abs(exact.moments(late)[0] - exact.true_gradient()).max() > 1e-3


def test_the_variance_is_lower_where_steps_earn_by_themselves() -> None:
    """Steps are single symbols, so that the end is a decision of its own."""

    def letters(text: str) -> tuple[str, ...]:
        return tuple(text.removesuffix(ENDS))

    def additive(plan: tuple[str, ...]) -> float:
        return sum(1.0 if step == "a" else -1.0 for step in plan)

    exact = Enumeration("ab", 5, additive, letters)
    mean, variance = exact.moments(lambda text: list(range(len(text))))
    np.testing.assert_allclose(mean, exact.true_gradient(), atol=1e-12)
    assert variance < 0.8 * exact.moments(whole)[1]


def test_a_step_behind_a_beginning_without_a_reward_is_paid_as_the_plan() -> None:
    paid = step_advantages([[0.0, None, 3.0], [0.0, 1.0, 1.0], [0.0, 1.0, None]], [2, 2, 2], scaled=False)
    assert paid == [[2.0, 2.0], [-2.0, 0.0], [0.0, 0.0]]
    assert step_advantages([[0.0, 1.0], [0.0, None]], [1, 1]) == [[0.0], [0.0]], "nothing to compare with"


earnings = st.lists(st.none() | st.floats(-2, 2), min_size=1, max_size=6)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(earnings, st.booleans()), min_size=2, max_size=6))
def test_first_steps_are_paid_as_plans_are_and_no_group_is_paid_more_than_its_spread(drawn: Any) -> None:
    rewards, positions = [own for own, _ in drawn], [max(len(own) - 1 + more, 1) for own, more in drawn]
    plain = step_advantages(rewards, positions, scaled=False)
    scaled = step_advantages(rewards, positions)
    assert [len(own) for own in plain] == [len(own) for own in scaled] == positions
    totals = [own[-1] for own in rewards]
    known = [total for total in totals if total is not None]
    for total, own in zip(totals, plain, strict=True):
        if total is None or len(known) < 2:
            assert not any(own)
    everything = [value for total, own in zip(totals, scaled, strict=True) if total is not None for value in own]
    assert math.fsum(value**2 for value in everything) <= len(everything)
    if len(known) == len(totals) and all(own[0] == 0.0 for own in rewards):
        others = [(sum(known) - total) / (len(known) - 1) for total in known]
        assert [own[0] for own in plain] == pytest.approx([a - b for a, b in zip(known, others, strict=True)])
        assert math.fsum(own[0] for own in plain) == pytest.approx(0, abs=1e-9)


def test_a_plan_that_ends_early_pays_for_what_others_earn_behind() -> None:
    short, long = [0.0, 1.0], [0.0, 1.0, 3.0]
    assert step_advantages([short, long], [2, 2], scaled=False) == [[-2.0, -2.0], [2.0, 2.0]]
    worse = [0.0, 1.0, 0.5]
    assert step_advantages([short, worse], [2, 2], scaled=False) == [[0.5, 0.5], [-0.5, -0.5]]
    assert step_advantages([short, long], [1, 2], scaled=False) == [[-2.0], [2.0, 2.0]], "nobody else comes to step 2"


# -------------------------------------------------------------------------------------------------------- a run


def test_the_loss_gets_the_advantage_of_each_token(
    base_model: Path, grpo_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []
    plain = SilentGRPOTrainer._compute_loss

    def recording(self: Any, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        seen.append({name: inputs[name].clone() for name in ("advantages", "completion_ids", "completion_mask")})
        return plain(self, model, inputs)

    monkeypatch.setattr(SilentGRPOTrainer, "_compute_loss", recording)
    config = GRPOConfig(
        **grpo_settings | {"model": str(base_model), "credit": "steps", "steps": 1, "max_completion_tokens": 40}
    )
    train_grpo(config, GainScorer())
    [batch] = seen
    assert batch["advantages"].shape == batch["completion_ids"].shape
    assert not (batch["advantages"] * (1 - batch["completion_mask"])).any()

    file = config.output / "completions" / "step-00001.jsonl"
    records = [CompletionRecord.of_row(file, line, row) for line, row in read_jsonl(file)]
    tokenizer = load_reader(str(base_model)).tokenizer
    rows = {
        tuple(ids[mask.bool()].tolist()): paid[mask.bool()].tolist()
        for ids, mask, paid in zip(batch["completion_ids"], batch["completion_mask"], batch["advantages"], strict=True)
    }
    texts = {tokenizer.decode(list(ids), skip_special_tokens=True): ids for ids in rows}
    for first in range(0, len(records), config.group_size):
        group = records[first : first + config.group_size]
        ids = [texts[record.completion.text] for record in group]
        places = [token_steps(tokenizer, own, record.completion) for own, record in zip(ids, group, strict=True)]
        paid = step_advantages([one.prefix_rewards for one in group], [max(own) + 1 for own in places])
        for own, where, advantages in zip(ids, places, paid, strict=True):
            assert rows[own] == pytest.approx([advantages[at] for at in where], abs=1e-5)
    for record in records:
        assert len(record.prefix_rewards) == len(record.completion.steps) + 1
        assert record.reward is not None
        assert record.prefix_rewards[-1] == record.reward.total
    metrics: Iterator[dict[str, Any]] = (row for _, row in read_jsonl(config.output / "metrics.jsonl"))
    assert 0 <= next(metrics)["losing_steps"] <= 1
