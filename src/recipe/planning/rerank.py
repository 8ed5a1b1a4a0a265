"""Best-of-N: of several plans for a request, the one that the verifier rewards most, without training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from recipe.errors import InputError
from recipe.planning.planner import Request
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.reward.scorer import PromptGroup, Scorer, batches, score_or_raise
from recipe.types import Example, Malformed, Plan, Reward


@dataclass(frozen=True, slots=True)
class RankedPlans:
    """The plans of one request with their rewards, in the order they were sampled."""

    plans: tuple[Plan | Malformed, ...]
    rewards: tuple[Reward, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """Samples by falling reward; equals in the order they were sampled."""
        return tuple(sorted(range(len(self.rewards)), key=lambda sample: -self.rewards[sample].total))

    @property
    def chosen(self) -> Plan | Malformed:
        """The plan with the highest reward; the earliest of equals."""
        return self.plans[self.order[0]]


def rerank(
    scorer: Scorer,
    requests: Sequence[Request],
    plans: Sequence[Sequence[Plan | Malformed]],
    progress: Progress = SILENT,
) -> list[RankedPlans]:
    """Reward every plan of every request; a Malformed one is rewarded as a plan without steps.

    Raises ComputeError, CorpusError or InputError where a plan has no reward.
    """
    groups = [
        PromptGroup.of(request.goal, request.history, [plan.steps if isinstance(plan, Plan) else () for plan in own])
        for request, own in zip(requests, plans, strict=True)
    ]
    rewards = _rewards(scorer, groups, progress)
    return [RankedPlans(tuple(own), tuple(earned)) for own, earned in zip(plans, rewards, strict=True)]


def reward_predictions(
    scorer: Scorer, examples: Sequence[Example], predictions: Sequence[Prediction], progress: Progress = SILENT
) -> list[Prediction]:
    """The predictions with their rewards, in the same order.

    Raises InputError for an unknown example, and ComputeError, CorpusError or InputError where a plan has no reward.
    """
    known = {example.example_id: example for example in examples}
    places: dict[str, list[int]] = {}
    for place, prediction in enumerate(predictions):
        if prediction.example_id not in known:
            raise InputError(f"no example is called {prediction.example_id!r}; give the right file.")
        places.setdefault(prediction.example_id, []).append(place)
    groups = [
        PromptGroup.of(known[name].goal, known[name].history, [predictions[place].steps for place in own])
        for name, own in places.items()
    ]
    rewarded = list(predictions)
    earned = _rewards(scorer, groups, progress, [f"example {name}" for name in places])
    for own, rewards in zip(places.values(), earned, strict=True):
        for place, reward in zip(own, rewards, strict=True):
            rewarded[place] = replace(predictions[place], reward=reward.total, gated=reward.gated)
    return rewarded


def _rewards(
    scorer: Scorer, groups: Sequence[PromptGroup], progress: Progress, names: Sequence[str] = ()
) -> list[list[Reward]]:
    rewards: list[list[Reward]] = []
    with progress.task("rewarding plans", total=sum(len(group.plans) for group in groups)) as advance:
        for batch in batches(groups):
            rewards += score_or_raise(scorer, batch, names[len(rewards) :])
            advance(sum(len(group.plans) for group in batch))
    return rewards
