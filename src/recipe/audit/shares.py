"""Shares of wins, P(true > corrupted) with ties half: by class, by group and over classes, and how they are written.

MEAN is the mean of the classes' shares; the same number is a mean over prompts of each prompt's weighted wins, and that
is what its interval resamples.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from recipe.audit.classes import CORRUPTIONS, GROUP_OF, GROUPS, Group
from recipe.audit.perturb import TRUE
from recipe.audit.score import ScoredPrompt, wins
from recipe.stats import Interval, mean_interval
from recipe.text import same_goal

Array = NDArray[np.float64]


def win_table(prompts: Sequence[ScoredPrompt], names: Collection[str] = CORRUPTIONS) -> Array:
    """Wins of the true continuation [prompts, classes]; NaN where a prompt has no such corruption."""
    table = np.full((len(prompts), len(names)), np.nan)
    for row, prompt in enumerate(prompts):
        for column, name in enumerate(names):
            if name in prompt.rewards:
                table[row, column] = wins(prompt.rewards[TRUE].total, prompt.rewards[name].total)
    return table


def prompt_means(table: Array) -> Array:
    """Values [prompts] whose mean is the mean over classes of the classes' means.

    >>> prompt_means(np.array([[1.0, 0.0], [1.0, np.nan]])).mean()
    np.float64(0.5)
    """
    known = np.isfinite(table)
    sizes = known.sum(axis=0)
    present = sizes > 0
    # Every class weighs the same, however many prompts have it.
    weights = len(table) / (present.sum() * np.maximum(sizes, 1))
    return np.asarray((np.where(known, table, 0.0) * weights).sum(axis=1), dtype=np.float64)


def group_means(table: Array, goals: Sequence[str]) -> dict[Group, Interval]:
    """The mean over the classes of each group that has any."""
    means = {}
    for group in GROUPS:
        own = table[:, [GROUP_OF[name] == group for name in CORRUPTIONS]]
        if np.isfinite(own).any():
            means[group] = mean_interval(prompt_means(own), goals)
    return means


def known_share(values: Sequence[float] | Array, goals: Sequence[str]) -> Interval | None:
    """The mean of what is known; None where nothing is."""
    known = [(value, goal) for value, goal in zip(values, goals, strict=True) if np.isfinite(value)]
    return mean_interval([value for value, _ in known], [goal for _, goal in known]) if known else None


def paired_difference(scored: Sequence[ScoredPrompt], baseline: Sequence[ScoredPrompt]) -> Interval | None:
    """MEAN less the baseline's, on the prompts that both scored."""
    common = {prompt.key for prompt in scored} & {prompt.key for prompt in baseline}
    if not common:
        return None
    first, second = ([prompt for prompt in prompts if prompt.key in common] for prompts in (scored, baseline))
    # Paired: both rewards judge the same prompts, whose difficulty falls out of the difference.
    gains = prompt_means(win_table(first)) - prompt_means(win_table(second))
    return mean_interval(gains, [same_goal(scored.prompt.goal) for scored in first])


def in_percent(share: Interval) -> Interval:
    """A share, or a difference of shares, in percent points."""
    low, high = (None if end is None else 100 * end for end in (share.low, share.high))
    return replace(share, mean=100 * share.mean, low=low, high=high)


def percent(share: float) -> str:
    """A share in percent without the sign, to the nearest whole number.

    >>> percent(0.553)
    '55'
    """
    return f"{100 * share:.0f}"


def bounds(share: Interval) -> str:
    """The 95% interval of a share in brackets, or why there is none.

    >>> bounds(Interval(0.5, 0.452, 0.61)), bounds(Interval(0.5, reason="one cluster"))
    (' [45, 61]', ' (no interval: one cluster)')
    """
    if share.low is None or share.high is None:
        return f" (no interval: {share.reason})" if share.reason else ""
    return f" [{percent(share.low)}, {percent(share.high)}]"
