"""A budget of KL divergence for a whole plan: the weight of GRPO's KL term follows what training has spent.

The paper's weight is a constant (appendix A.4) on the mean over tokens, which bounds no plan: a long run drifts to
where the reward no longer measures quality (Gao et al., Scaling laws for reward model overoptimization, 2023). With a
budget B in nats, the weight follows the proportional controller of Ziegler et al., Fine-tuning language models from
human preferences, 2019, section 2.2, after every optimiser step:

    e      = clip((KL - B) / B, -1, 1)              KL: mean over the step's plans of the sum over a plan's tokens
    weight = weight 2^e                             kept between `beta` and `beta` x `MOST`

Theirs is a target, its error is cut at 0.2 and the factor is 1 + 0.1 e, for runs of thousands of steps. Ours is a
bound: below it the weight falls no further than to `beta`. With an error that is cut at 0.2 and a factor as fast as
ours, 30 steps swung the weight to 100 times `beta`, and the policy back to its reference. A weight of `MOST` times
`beta` leaves the reward without influence; a higher one would only take longer to come down again. A token's KL is
estimated as in TRL's `kl`, by exp(r) - r - 1 with r the log-ratio of the reference to the policy: without bias, never
negative (Schulman, Approximating KL divergence, 2020).
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

MOST = 250.0
"""Highest weight, in units of `beta`."""
LAST = 10
"""Steps at the end of a run in which the budget has to be kept."""
TOLERANCE = 1.1
"""A mean within a tenth of the budget counts as kept: the controller oscillates around it."""


def plan_kl(log_probs: torch.Tensor, reference: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Sum of the plans' KL divergences in nats, and the number of plans, as float64 [2].

    All arguments are [plans, tokens]: log-probabilities of what was written, and which tokens count; a plan without any
    does not count. The estimate is exact in expectation for plans that the policy wrote.
    """
    ratio = (reference - log_probs).double()
    tokens = (ratio.exp() - ratio - 1) * mask
    return torch.stack([tokens.sum(), (mask.sum(-1) > 0).double().sum()])


class KLBudget(TrainerCallback, ExportableState):  # type: ignore[misc]
    """The weight of the KL term under a budget; checkpoints hold it, so that a resumed run goes on with it."""

    def __init__(self, trainer: Any, budget: float, beta: float) -> None:
        """`budget` in nats a plan; `beta`, above 0, is the lowest weight and the first."""
        self._trainer, self._budget, self._beta = trainer, budget, beta

    def next_weight(self, weight: float, kl: float) -> float:
        """The weight of the next step after a step of `weight` whose plans had a mean KL of `kl` nats."""
        if math.isnan(kl):
            return weight
        error = min(1.0, kl / self._budget - 1)
        return min(self._beta * MOST, max(self._beta, weight * 2**error))

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Go on with the weight of the checkpoint."""
        held = state.stateful_callbacks.get(type(self).__name__)
        if held:
            self._trainer.beta = held["attributes"]["weight"]

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {"args": {}, "attributes": {"weight": self._trainer.beta}}


def unmet_budget(budget: float, kls: Sequence[float]) -> str | None:
    """A sentence where the last steps' mean KL of a plan (`kls`, nats, by step) is above the budget; else None."""
    spent = fmean(kls[-LAST:]) if kls else 0.0
    if spent <= TOLERANCE * budget:
        return None
    return (
        f"The KL budget of {budget:g} nats a plan was not met: the last {len(kls[-LAST:])} steps had {spent:.2f}; "
        "raise beta, lower learning_rate, or train more steps."
    )
