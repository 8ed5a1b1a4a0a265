"""Controls that read no corpus: what a reward gains over them is what it verifies."""

from collections.abc import Sequence

import numpy as np

from recipe.reward.audit.corruptions import AuditPrompt, Embed
from recipe.reward.audit.scoring import Audited
from recipe.reward.prompts import PromptGroup
from recipe.reward.relevance import RelevanceScorer
from recipe.types import Reward

LENGTH, RELEVANCE = "length", "relevance"


class LengthScorer:
    """The number of steps as the reward; any other function of it has the same mean over the classes, 50%."""

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        """|c| of each continuation."""
        return [Reward(float(len(plan)), 0.0, 0.0, 0.0, False, len(plan), (), None) for plan in continuations]


def controls(prompts: Sequence[AuditPrompt], embed: Embed) -> list[Audited]:
    """`length`, and R0 as `relevance`, centred by the mean of the procedures' distinct steps."""
    steps = sorted({step for prompt in prompts for step in (*prompt.history, *prompt.true)})
    mean = np.asarray(embed(steps).mean(axis=0), dtype=np.float32)

    def prepare(groups: Sequence[PromptGroup]) -> None:
        embed([text for group in groups for text in (group.goal, *group.steps)])

    return [Audited(LENGTH, LengthScorer()), Audited(RELEVANCE, RelevanceScorer(embed, mean), prepare)]
