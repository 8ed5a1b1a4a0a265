"""A reward that is a function of the user's own: goal, history and plan in, a number out (docs/own.md)."""

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING

from recipe.config.reward import RewardConfig
from recipe.errors import FunctionFailed, RecipeError, first_line, quoted
from recipe.functions import Function, load_function, name_of, pinned
from recipe.reward.scorer import Failure, Method, Outcome, PromptGroup, plain_reward

if TYPE_CHECKING:
    from recipe.reward.embeddings import Vectors


class FunctionReward(Method):
    """`function(goal, history, plan) -> float` as a reward; history and plan are lists of steps.

    A plan for which the function raises, or gives no finite number, has a FunctionFailed in place of its reward. Raises
    InputError as `recipe.functions.load_function` where a name stands for the function.
    """

    def __init__(self, function: Function | str) -> None:
        self.name = function if isinstance(function, str) else name_of(function)
        self.function = load_function(function) if isinstance(function, str) else function

    def texts(self, group: PromptGroup) -> list[str]:
        """None: nothing is embedded."""
        return []

    def rewards(self, groups: Sequence[PromptGroup], vectors: Mapping[str, "Vectors"]) -> list[list[Outcome]]:
        """What the function says of each plan, in order. Raises its RecipeErrors that are no failure of a plan."""
        return self.score_groups(groups)

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        """The same: without a corpus it is a `Scorer` by itself."""
        return [[self._outcome(group, plan) for plan in group.plans] for group in groups]

    def _outcome(self, group: PromptGroup, plan: tuple[str, ...]) -> Outcome:
        try:
            value = self.function(group.goal, list(group.history), list(plan))
            number = float(value) if isinstance(value, Real) else math.nan  # an integer can be too large for one
        except Exception as error:  # whatever the user's code raises
            if isinstance(error, RecipeError) and not isinstance(error, Failure):
                raise  # of the run, as a service that is away
            problem = f"raised {type(error).__name__}: {first_line(error)}"
        else:
            if math.isfinite(number):
                return plain_reward(number, len(plan))
            problem = f"gave {quoted(repr(value))}, and a reward is a finite number"
        place = f"{self.name}, goal {quoted(group.goal)}, {len(group.history)} steps done, {len(plan)} planned"
        return FunctionFailed(f"{place}: it {problem}; correct the function.")


def pinned_reward(config: RewardConfig) -> RewardConfig:
    """The settings, where they name a function with the hash of its source file. Raises as `load_function`."""
    return config.model_copy(update={"verifier": pinned(config.verifier)}) if config.is_function else config
