"""EasyR1 (contract read at b44b311b66): a function of the whole batch, in a file.

    worker.reward.reward_function=reward.py:compute_score
    # reward.py: from recipe.reward.trainers.easyr1 import REWARD_NAME, REWARD_TYPE, compute_score

EasyR1 passes no dataset columns but `ground_truth`: the text of {"goal": "...", "history": ["...", ...]}. EasyR1 has
no place for a row without a reward, so a failure raises, is counted and logged here, and stops the run.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from recipe.reward.trainers.source import read_rows, reward_source, row_of

REWARD_NAME = "alignment"
REWARD_TYPE = "batch"


def compute_score(reward_inputs: Sequence[Mapping[str, Any]], **settings: Any) -> list[dict[str, float]]:
    """{"overall": R, and each part of it} for each row; `settings` are those of `reward_source`.

    Raises InputError for a row that cannot be read, and as `RewardSource.score_each`.
    """
    columns = ([inputs.get(name) for inputs in reward_inputs] for name in ("response", "ground_truth"))
    rows = read_rows(row_of, *columns)
    rewards = reward_source(settings).score_each(rows)
    return [{"overall": reward.total} | reward.numbers for reward in rewards]
