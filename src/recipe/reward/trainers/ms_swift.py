"""ms-swift (read and run at 4.6.0): reward classes over the whole batch, by name.

    swift rlhf --rlhf_type grpo --external_plugins plugin.py --reward_funcs alignment ...
    # plugin.py: import recipe.reward.trainers.ms_swift            the dataset has the columns goal and history

A row that fails or cannot be read is None, and with it its whole group: ms-swift adds rewards up with `nansum`, so that
a lone None would count as 0 among its group's real rewards, while a group of nothing but None has advantage 0.
"""

import asyncio
import importlib
import logging
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from recipe.reward.trainers.source import Row, read_rows, reward_source

_LOG = logging.getLogger(__name__)


class AlignmentReward:
    """R of each completion, None for groups that cannot be scored: an `ORM` by shape."""

    def __init__(self, args: Any = None, **settings: Any) -> None:
        self.args, self._settings = args, settings

    def __call__(
        self, completions: Sequence[Any], goal: Sequence[Any], history: Sequence[Any], **_: Any
    ) -> list[float | None]:
        """Raises InputError where no row could be used so far."""
        return _totals(self._settings, completions, goal, history)


class AsyncAlignmentReward(AlignmentReward):
    """The same, for use with other asynchronous rewards: an `AsyncORM` by shape."""

    async def __call__(  # type: ignore[override]
        self, completions: Sequence[Any], goal: Sequence[Any], history: Sequence[Any], **_: Any
    ) -> list[float | None]:
        """Raises InputError where no row could be used so far."""
        return await asyncio.to_thread(_totals, self._settings, completions, goal, history)


def register(orms: MutableMapping[str, Any]) -> None:
    """Name the rewards in ms-swift's table, as importing this module does by itself where ms-swift is installed."""
    orms["alignment"] = AlignmentReward
    orms["alignment_async"] = AsyncAlignmentReward


def _totals(
    settings: Mapping[str, Any], completions: Sequence[Any], goals: Sequence[Any], histories: Sequence[Any]
) -> list[float | None]:
    rewards = reward_source(settings).score_or_none(read_rows(Row.of, completions, goals, histories))
    # A history may be a list or an array, and what cannot be read may be anything.
    prompts = [repr(prompt) for prompt in zip(goals, histories, strict=True)]
    lost = {prompt for prompt, reward in zip(prompts, rewards, strict=True) if reward is None}
    pairs = zip(prompts, rewards, strict=True)
    return [None if reward is None or prompt in lost else reward.total for prompt, reward in pairs]


try:
    register(importlib.import_module("swift.rewards").orms)
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "swift":
        raise
    _LOG.debug("ms-swift is not installed; its rewards are not registered")
