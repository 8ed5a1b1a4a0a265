"""A learning rate for the merger beside that of the adapters."""

from typing import Any

import torch

from recipe.training.policy import MERGER
from recipe.training.quiet import Unreported


class MergerRate(Unreported):
    """Mixed into a trainer, gives the merger a learning rate of its own; keeps the trainer silent, too."""

    merger_rate: float | None = None
    """None: the rate of the adapters."""

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """TRL's optimiser, with the merger in groups of its own after the others."""
        trainer: Any = self
        if trainer.optimizer is not None:
            return trainer.optimizer
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)  # type: ignore[misc]
        if self.merger_rate is None:
            return optimizer
        merger = {id(weight) for name, weight in trainer.model.named_parameters() if f".{MERGER}." in name}
        for group in list(optimizer.param_groups):
            mine = [weight for weight in group["params"] if id(weight) in merger]
            group["params"] = [weight for weight in group["params"] if id(weight) not in merger]
            if mine:
                optimizer.add_param_group({**group, "params": mine, "lr": self.merger_rate})
        return optimizer
