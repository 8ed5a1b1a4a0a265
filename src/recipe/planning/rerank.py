"""Best-of-N: of several plans for a request, the one that the verifier rewards most, without training."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from recipe.errors import InputError
from recipe.planning.planner import Request
from recipe.planning.predictions import Prediction
from recipe.progress import SILENT, Progress
from recipe.reward.trainers import Scorer
from recipe.types import Example, Malformed, Plan, Reward


@dataclass(frozen=True, slots=True)
class Ranked:
    """The plans of one request with their rewards, in the order they were sampled."""

    plans: tuple[Plan | Malformed, ...]
    rewards: tuple[Reward, ...]

    @property
    def best(self) -> int:
        """The sample with the highest reward; the earliest of equals."""
        return max(range(len(self.rewards)), key=lambda sample: self.rewards[sample].total)

    @property
    def order(self) -> tuple[int, ...]:
        """Samples by falling reward; equals in the order they were sampled."""
        return tuple(sorted(range(len(self.rewards)), key=lambda sample: -self.rewards[sample].total))

    @property
    def chosen(self) -> Plan | Malformed:
        """The plan with the highest reward."""
        return self.plans[self.best]


def rerank(
    scorer: Scorer,
    requests: Sequence[Request],
    plans: Sequence[Sequence[Plan | Malformed]],
    progress: Progress = SILENT,
) -> list[Ranked]:
    """Reward every plan of every request; a Malformed one is rewarded as a plan without steps."""
    ranked = []
    with progress.task("rewarding plans", total=sum(map(len, plans))) as advance:
        for request, group in zip(requests, plans, strict=True):
            continuations = [plan.steps if isinstance(plan, Plan) else () for plan in group]
            rewards = scorer.score(request.history, continuations, request.goal)
            ranked.append(Ranked(tuple(group), tuple(rewards)))
            advance(len(group))
    return ranked


def reward_predictions(
    scorer: Scorer,
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    progress: Progress = SILENT,
) -> list[Prediction]:
    """The predictions with their rewards, in the same order; raises InputError for an unknown example."""
    known = {example.example_id: example for example in examples}
    groups: dict[str, list[int]] = {}
    for place, prediction in enumerate(predictions):
        if prediction.example_id not in known:
            raise InputError(f"no example is called {prediction.example_id!r}; give the right file.")
        groups.setdefault(prediction.example_id, []).append(place)
    rewarded = list(predictions)
    with progress.task("rewarding plans", total=len(predictions)) as advance:
        for example_id, places in groups.items():
            example = known[example_id]
            continuations = [predictions[place].steps for place in places]
            rewards = scorer.score(example.history, continuations, example.goal)
            for place, reward in zip(places, rewards, strict=True):
                rewarded[place] = replace(predictions[place], reward=reward.total, gated=reward.gated)
            advance(len(places))
    return rewarded
