"""TRL's `GRPOTrainer` (read and run at 1.16.0): an asynchronous reward function over the whole batch.

    from recipe.reward.trainers.trl import alignment_reward
    GRPOTrainer(..., reward_funcs=[alignment_reward])      # the dataset has the columns prompt, goal and history

A row that fails or cannot be read is None: TRL leaves it out of its group and gives it advantage 0. Every part of the
reward is logged as a metric, its mean over the rows that have one, and as a column of the table of completions.
"""

import asyncio
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from recipe.reward.trainers.source import RewardSource, Row, read_rows, reward_source


async def alignment_reward(
    completions: Sequence[Any],
    goal: Sequence[Any],
    history: Sequence[Any],
    log_extra: Callable[[str, list[Any]], object] | None = None,
    log_metric: Callable[[str, float], object] | None = None,
    source: RewardSource | None = None,
    **_: Any,
) -> list[float | None]:
    """R of each completion, None where it cannot be computed; `functools.partial` sets another `source`.

    Raises InputError where no row could be used so far.
    """
    if source is None:
        source = await asyncio.to_thread(reward_source)
    rewards = await asyncio.to_thread(source.score_or_none, read_rows(Row.of, completions, goal, history))
    numbers = [{} if reward is None else reward.numbers for reward in rewards]
    for name in dict.fromkeys(name for row in numbers for name in row):
        values = [row.get(name) for row in numbers]
        if log_extra is not None:
            log_extra(name, values)
        if log_metric is not None:
            log_metric(name, fmean(value for value in values if value is not None))
    if log_metric is not None and rewards:
        log_metric("unscored", sum(reward is None for reward in rewards) / len(rewards))
    return [None if reward is None else reward.total for reward in rewards]
