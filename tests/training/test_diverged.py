"""Training that diverges stops before its weights are lost, and goes on from the checkpoint before."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer

from recipe.config import BaseModelConfig, BestOfNConfig, GRPOConfig, SFTConfig
from recipe.errors import ComputeError
from recipe.training import base, best_of_n
from recipe.training.base import train_base
from recipe.training.best_of_n import train_best_of_n
from recipe.training.grpo import SilentGRPOTrainer, train_grpo
from recipe.training.runs import Run
from recipe.training.sft import SilentSFTTrainer, train_sft

SAVED, DIVERGED, STEPS = 2, 4, 5
"""The checkpoint before, the step whose loss or gradient is not finite, and all steps."""


@pytest.fixture
def runs(
    base_model: Path, base_config: BaseModelConfig, examples_file: Path, tmp_path: Path
) -> dict[str, tuple[Any, Callable[..., Path]]]:
    shared = {"model": str(base_model), "examples": examples_file, "save_every": 2, "metrics": ()}
    reward = {"corpus": tmp_path / "none", "max_completion_tokens": 12}
    return {
        "base": (
            base_config.model_copy(update={"steps": STEPS, "save_every": 2, "output": tmp_path / "base"}),
            lambda config, _: train_base(config),
        ),
        "sft": (
            SFTConfig(**shared, epochs=2, batch_size=4, output=tmp_path / "sft"),
            lambda config, _: train_sft(config),
        ),
        "grpo": (
            GRPOConfig(**shared, **reward, steps=STEPS, prompts_per_step=2, output=tmp_path / "grpo"),
            lambda config, scorer: train_grpo(config, scorer),
        ),
        "best-of-n": (
            BestOfNConfig(
                **shared, **reward, rounds=1, n=2, epochs=2, batch_size=4, completions_at_once=8,
                output=tmp_path / "best-of-n",
            ),
            lambda config, scorer: train_best_of_n(config, scorer),
        ),
    }  # fmt: skip


def spoil(patch: pytest.MonkeyPatch, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Change the loss of step `DIVERGED` of every trainer."""
    passes = {"count": 0}

    def every_pass(compute: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def counted(*args: Any, **options: Any) -> torch.Tensor:
            passes["count"] += 1
            loss = compute(*args, **options)
            return change(loss) if passes["count"] == DIVERGED else loss

        return counted

    def by_step(compute: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def changed(self: Trainer, *args: Any, **options: Any) -> torch.Tensor:
            loss = compute(self, *args, **options)
            return change(loss) if self.state.global_step == DIVERGED - 1 else loss

        return changed

    patch.setattr(base.Batch, "loss", every_pass(base.Batch.loss))
    patch.setattr(best_of_n, "completion_loss", every_pass(best_of_n.completion_loss))
    patch.setattr(SilentSFTTrainer, "compute_loss", by_step(SilentSFTTrainer.compute_loss))
    patch.setattr(SilentGRPOTrainer, "_compute_loss", by_step(SilentGRPOTrainer._compute_loss))


def infinite_gradient(loss: torch.Tensor) -> torch.Tensor:
    """A finite loss whose gradient is not."""
    return loss + (loss - loss.detach()).sqrt()


def no_number(loss: torch.Tensor) -> torch.Tensor:
    return loss * torch.nan


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, no_number) for name in ("base", "grpo", "best-of-n")),
        *((name, infinite_gradient) for name in ("base", "sft")),
    ],
)
def test_a_run_stops_before_its_weights_are_lost(
    name: str, change: Any, runs: Any, scorer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, train = runs[name]
    with monkeypatch.context() as patch:
        spoil(patch, change)
        with pytest.raises(ComputeError, match=str(DIVERGED)):
            train(config, scorer)
    assert not (config.output / "model").exists()
    checkpoint = Run(config.output, config, {}).latest_checkpoint()
    assert checkpoint is not None
    assert checkpoint.name == f"checkpoint-{SAVED}"


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["base", "sft", "best-of-n"])
def test_weights_that_are_no_numbers_are_in_no_checkpoint(
    name: str, runs: Any, scorer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step before a checkpoint spoils the weights, and not the gradient."""
    config, train = runs[name]
    step = torch.optim.AdamW.step
    taken = {"count": 0}

    def spoiling(self: torch.optim.AdamW, *args: Any, **options: Any) -> Any:
        done = step(self, *args, **options)
        taken["count"] += 1
        if taken["count"] == DIVERGED:
            with torch.no_grad():
                self.param_groups[0]["params"][0].fill_(torch.nan)
        return done

    with monkeypatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", spoiling)
        with pytest.raises(ComputeError):
            train(config, scorer)
    checkpoint = Run(config.output, config, {}).latest_checkpoint()
    assert checkpoint is not None
    assert checkpoint.name == f"checkpoint-{SAVED}"
