"""verl (read and run at 0.9.1): a function of one sample, called for many samples at once.

    reward.custom_reward_function.path=pkg://recipe.reward.trainers.verl
    reward.custom_reward_function.name=compute_score
    +reward.custom_reward_function.reward_kwargs.corpus=corpora/mine

`extra_info`, or JSON in `reward_model.ground_truth`, holds goal and history. Samples that are awaited together are
scored together. A failure raises, and is counted and logged here. What follows is verl's own affair: the managers
`naive` and `dapo` let the error end the run; `rate_limited` books 0.0 for the sample.
"""

import asyncio
import math
from typing import Any

from recipe.reward.trainers.source import read_rows, reward_source, row_of
from recipe.types import Reward


async def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, **settings: Any
) -> dict[str, float]:
    """{"score": R, and each part of it}; `settings` are those of `reward_source`. Raises as `score_each`."""
    source = await asyncio.to_thread(reward_source, settings)
    [row] = read_rows(row_of, [solution_str], [extra_info], [ground_truth])
    return _result(await source.score_one(row))


def compute_score_sync(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None, **settings: Any
) -> dict[str, float]:
    """The same for the manager `remote`, which takes no asynchronous function."""
    rows = read_rows(row_of, [solution_str], [extra_info], [ground_truth])
    return _result(*reward_source(settings).score_each(rows))


def _result(reward: Reward) -> dict[str, float]:
    # verl asks every sample of a batch for the keys of its first; a prompt without a history has no coverage.
    unknown = {"coverage": math.nan} if reward.parts else {}
    return {"score": reward.total} | unknown | reward.numbers
