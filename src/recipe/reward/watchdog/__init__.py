"""A watchdog of training: it finds, from live completions and their rewards, how the reward is being earned."""

from recipe.reward.watchdog.rollouts import (
    Rollout,
    StepRecord,
    StepStatistics,
    as_rollout,
    copied_share,
    read_records,
    repeated_share,
    step_statistics,
)
from recipe.reward.watchdog.watch import Finding, Watchdog, replay

__all__ = [
    "Finding",
    "Rollout",
    "StepRecord",
    "StepStatistics",
    "Watchdog",
    "as_rollout",
    "copied_share",
    "read_records",
    "repeated_share",
    "replay",
    "step_statistics",
]
