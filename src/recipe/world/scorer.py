"""Exact validity as a reward: the ceiling of what a verifier could pay, since it knows what no corpus says."""

from collections.abc import Sequence

from recipe.types import Reward
from recipe.world.graph import World
from recipe.world.validity import Validity, score_plan


class ValidityScorer:
    """Rewards a plan with its validity against the goal's task graph; nothing is aligned and nothing gated."""

    def __init__(self, world: World) -> None:
        self._world = world

    def score(self, history: Sequence[str], continuations: Sequence[Sequence[str]], goal: str) -> list[Reward]:
        """The validity of each continuation, in order. Raises InputError for an unknown goal."""
        return [_reward(score_plan(self._world, goal, history, plan)) for plan in continuations]


def _reward(validity: Validity) -> Reward:
    return Reward(
        total=validity.score,
        aligned_history=0.0,
        aligned_full=0.0,
        rho=0.0,
        gated=False,
        steps=validity.steps,
        pool=(),
        best_narration=None,
        parts={"order": validity.order, "coverage": validity.coverage, "clean": validity.clean},
    )
