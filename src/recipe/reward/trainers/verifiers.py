"""verifiers v1 (read and run at 0.4.0), and with it prime-rl: functions that score one trace.

    [env.taskset.task.rewards]
    alignment = { fn = "recipe.reward.trainers.verifiers:alignment", weight = 1.0 }
    [env.taskset.task.metrics]
    parts = { fn = "recipe.reward.trainers.verifiers:alignment_parts" }

The task's data has the fields `goal` and `history`. In a `vf.Task` of one's own: `alignment = vf.reward(alignment)`.
Traces that are scored at the same time are scored together. A failure raises, and is counted and logged here;
verifiers then marks the trace as errored and leaves its reward unset.
"""

import asyncio
from typing import Any

from recipe.reward.trainers.source import read_rows, reward_source, row_of
from recipe.types import Reward


async def alignment(task: Any, trace: Any) -> float:
    """R of the trace's last reply. Raises as `RewardSource.score_each`."""
    return (await _reward(task, trace)).total


async def alignment_parts(task: Any, trace: Any) -> dict[str, float]:
    """Every part of R, for metrics: verifiers would add them up if they were rewards."""
    return (await _reward(task, trace)).numbers


async def _reward(task: Any, trace: Any) -> Reward:
    source = await asyncio.to_thread(reward_source)
    # Plugged into a config it is handed the task's data, as a method the task itself.
    [row] = read_rows(row_of, [trace.last_reply], [getattr(task, "data", task)])
    return await source.score_one(row)
