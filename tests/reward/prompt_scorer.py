"""A base for scorers in tests."""

from collections.abc import Sequence

from recipe.reward.scorer import Outcome, PromptGroup, try_groups
from recipe.types import Reward


class PromptScorer:
    """A scorer of one prompt at a time: `score` of a subclass."""

    def score(self, history: Sequence[str], plans: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        raise NotImplementedError

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        return try_groups(groups, lambda tried: [self.score(one.history, one.plans, one.goal) for one in tried])
