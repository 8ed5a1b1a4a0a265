"""A watchdog of training: it finds, from live completions and their rewards, how the reward is being earned."""

from recipe.reward.watchdog.records import StepRecord, as_rollout, read_records, replay
from recipe.reward.watchdog.rollouts import Rollout, StepStatistics, copied_share, repeated_share, step_statistics
from recipe.reward.watchdog.watch import Finding, Watchdog

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
