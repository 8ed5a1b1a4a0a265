"""The order of a plan by a language model: is the plan likelier than the same steps in another order?

    L(c) = mean over k of tanh(2 [log p(c | g, h) - log p(c_k | g, h)] / words(c))

c_k are random orders of the steps of c. Both texts hold the same lines, so that topic, style, length and copies of the
history cancel: a likelihood alone prefers copies. A corpus knows the order of the tasks that it covers; a language
model knows a little of any.
"""

from collections.abc import Callable, Sequence
from math import tanh
from random import Random

from recipe.errors import ComputeError
from recipe.progress import LOADING
from recipe.reward.embeddings import LruCache
from recipe.reward.scorer import Prompt, PromptGroup, Steps
from recipe.text import format_plan

Likelihood = Callable[[Sequence[Prompt], Sequence[str]], list[float]]
"""(prompts, texts of plans) -> log-probability in nats of each text as the reply to its prompt."""

POLICY = "policy"
"""In place of a model's name: the reference of a training run."""
_SCALE = 2.0
"""A word that is e times as likely in this order counts tanh(2)."""
_TRIES = 20
_PLANS_KEPT = 32_768


class PlanOrder:
    """L of plans by one frozen model; those of plans seen last are kept. Safe to share between threads."""

    def __init__(self, likelihood: Likelihood, permutations: int) -> None:
        self._likelihood, self._permutations = likelihood, permutations
        self._kept = LruCache[tuple[Prompt, Steps], float](_PLANS_KEPT)

    def __call__(self, groups: Sequence[PromptGroup]) -> list[list[float]]:
        """L of each plan of each group, -1 to 1; 0 for a plan of fewer than two different steps.

        Raises ComputeError where the model gives no number.
        """
        orders: dict[tuple[Prompt, Steps], float] = {}
        prompts, texts, counts = list[Prompt](), list[str](), dict[tuple[Prompt, Steps], int]()
        for group in groups:
            for plan in group.plans:
                key = (group.goal, group.history), plan
                if key in orders or key in counts:
                    continue
                if (kept := self._kept.get(key)) is not None:
                    orders[key] = kept
                elif shuffled := other_orders(plan, self._permutations):
                    counts[key] = len(shuffled)
                    prompts += [key[0]] * (1 + len(shuffled))
                    texts += map(format_plan, (plan, *shuffled))
                else:
                    orders[key] = 0.0
        likelihoods = iter(self._likelihood(prompts, texts) if texts else ())
        for key, count in counts.items():
            own, *others = (next(likelihoods) for _ in range(1 + count))
            words = sum(len(step.split()) for step in key[1])
            value = sum(tanh(_SCALE * (own - other) / words) for other in others) / count
            if value != value:
                raise ComputeError("The language model's likelihoods hold NaN; check its weights.")
            orders[key] = value
            self._kept.put(key, value)
        return [[orders[(group.goal, group.history), plan] for plan in group.plans] for group in groups]


def other_orders(plan: Steps, count: int) -> list[Steps]:
    """Up to `count` different random orders of the steps, none of them the plan's own; drawn from its texts.

    >>> other_orders(("boil", "pour"), 3)
    [('pour', 'boil')]
    """
    random = Random("\n".join(plan))
    orders: dict[Steps, None] = {}
    for _ in range(_TRIES * count):
        order = tuple(random.sample(plan, len(plan)))
        if order != plan:
            orders[order] = None
        if len(orders) == count:
            break
    return list(orders)


def open_likelihood(model: str) -> Likelihood:
    """The likelihood of a model folder or hub id on this machine. Raises InputError for a model that cannot be read."""
    LOADING.info("loading model %r ...", model)
    from recipe.models.local import LocalEngine  # noqa: PLC0415 - loads torch

    engine = LocalEngine(model)

    def likelihood(prompts: Sequence[Prompt], texts: Sequence[str]) -> list[float]:
        return engine.log_likelihood([engine.prompt.chat(*prompt) for prompt in prompts], texts)

    return likelihood
