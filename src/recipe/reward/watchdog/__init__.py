"""A watch over training: what the live completions say of how the reward is being earned."""

from recipe.reward.watchdog.readings import Reading, Rollout, copied_share, read_step, repeated_share
from recipe.reward.watchdog.records import Record, as_rollout, read_records, replay
from recipe.reward.watchdog.watch import Finding, Watchdog

__all__ = [
    "Finding",
    "Reading",
    "Record",
    "Rollout",
    "Watchdog",
    "as_rollout",
    "copied_share",
    "read_records",
    "read_step",
    "repeated_share",
    "replay",
]
