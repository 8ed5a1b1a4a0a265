"""Credit for steps: what a plan earns, shared out to the tokens of its steps.

The reward of a plan is the sum of what its steps add, R(c) - R() = sum over k of R(c_1..k) - R(c_1..k-1). A token of
step k cannot change what was earned before it. It is therefore paid the reward to go,

    G_k = R(c) - R(c_1..k-1),      A_k = (G_k - b_k) / s

where b_k is the mean of G_k over the other plans of the group that come to step k, 0 where none does: what a plan earns
from there that ends before it. s is the standard deviation of the group's rewards. Neither R(c_1..k-1) nor b_k depends
on the tokens of step k and of later ones, so that the expected gradient (without s) is that of R(c), and what earlier
steps earned is no noise in it (Williams, Simple statistical gradient-following algorithms, 1992; Sutton and Barto,
Reinforcement learning, 2018, section 13.4). For the first step A_1 is the advantage of the whole plan.

That is so for a loss that sums over tokens, as `dr_grpo` does. `grpo` divides by the length of the completion, which
its later tokens decide, and bends the gradient of either credit (Liu et al., R1-Zero-like training, 2025).

The token that ends a step is the last one of the step, because it decides what the step is: if it were paid with the
next step, R(c_1..k) would depend on it, and the expected gradient would be another one. So is the token that ends the
plan. Where plans that go on from there earn more, b_k is higher, and the end is paid less.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import partial
from statistics import fmean, stdev

from transformers import PreTrainedTokenizerBase

from recipe.models.checkpoints import decode_completions
from recipe.text import Completion, plan_steps

PrefixRewards = Sequence[float | None]
"""The rewards of a plan's n + 1 beginnings, the empty plan first; None where one could not be computed."""
_LEAST = 1e-4
"""Added to the standard deviation, as TRL does."""


def token_steps(
    tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], completion: Completion, opening: str = ""
) -> list[int]:
    """The index of the step that each token of a completion belongs to; n for what follows the last of n steps.

    What stands before a step belongs to it, such as its number, and a thought to the first one. A token that reaches
    over a line break belongs to the earlier step, which it can change. The tokens of a malformed completion, and of
    one whose steps stand in one line, belong to the first step. `opening` is as in `decode_completions`.
    """
    lines = completion.text.splitlines(keepends=True)
    # How many steps are read after so many lines as they are read in the end, whatever follows: a list that begins
    # later makes other steps of the lines before it.
    settled = [0, *[len(completion.steps)] * len(lines)]
    for count in range(len(lines) - 1, 0, -1):
        read = plan_steps("".join(lines[:count]))
        settled[count] = min(settled[count + 1], _equal(read, completion.steps))
    if lines and lines[-1].splitlines() == [lines[-1]]:
        del settled[-1]  # nothing stands behind a line that does not end

    steps, covered = [0] * len(tokens), partial(_characters, tokenizer, tokens, completion.text, opening)
    end = 0
    for count in range(1, len(settled)):
        end += len(lines[count - 1])
        if settled[count] > settled[count - 1]:
            first = bisect_left(range(len(tokens)), end, key=covered)
            steps[first:] = [settled[count]] * (len(tokens) - first)
    return steps


def _characters(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int], text: str, opening: str, count: int) -> int:
    """How many characters of a completion's text its first `count` tokens hold.

    A character of several bytes may be written by several tokens, and what is decoded before the last of them differs
    from the text there.
    """
    [decoded] = decode_completions(tokenizer, [tokens[:count]], opening)
    return _equal(decoded, text)


def _equal(first: Sequence[str], second: Sequence[str]) -> int:
    """How many items, or characters, both begin with."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (own, other) in pairs if own != other), min(len(first), len(second)))


def step_advantages(
    rewards: Sequence[PrefixRewards], positions: Sequence[int], *, scaled: bool = True
) -> list[list[float]]:
    """The advantages A_k of the plans of one prompt, for as many positions k of each plan as its tokens have.

    A plan without a reward has 0 everywhere, and so have all plans where fewer than two have one. Where the reward of
    the plan before step k is missing, the step is paid as the whole plan is. Without `scaled`, s is 1.
    """
    whole = [own[-1] for own in rewards]
    known = [total for total in whole if total is not None]
    if len(known) < 2:
        return [[0.0] * count for count in positions]

    # [plan][position]; None for a plan that does not come so far, and where the reward before is missing.
    to_go: list[list[float | None]] = []
    for own, total, count in zip(rewards, whole, positions, strict=True):
        to_go.append([None if total is None or earned is None else total - earned for earned in own[:count]])

    advantages: list[list[float]] = []
    for plan, total in enumerate(whole):
        advantages.append([])
        for position, earned in enumerate(to_go[plan]):
            value, others = earned, [row[position] for row in to_go[:plan] + to_go[plan + 1 :] if position < len(row)]
            if earned is None:
                value, others = total, [*whole[:plan], *whole[plan + 1 :]]
            beside = [other for other in others if other is not None]
            baseline = fmean(beside) if beside else 0.0
            advantages[plan].append(0.0 if value is None else value - baseline)
    if not scaled:
        return advantages

    # Rewards may be equal where what earns them is not: the spread of the advantages themselves bounds them there.
    squares = [value**2 for row, total in zip(advantages, whole, strict=True) if total is not None for value in row]
    spread = max(stdev(known), math.sqrt(fmean(squares))) + _LEAST
    return [[value / spread for value in row] for row in advantages]
