"""The paper's reward (RECIPE, section 3.2, equations 7 and 8) as pure functions of two alignment scores."""

from typing import NamedTuple

from recipe.config import RewardConfig


class PaperReward(NamedTuple):
    """The parts that the two scores A(h) and A(h + c) determine."""

    baseline: float
    """A(h), or 0 without the history baseline."""
    rho: float
    gated: bool
    total: float


def paper_reward(aligned_history: float, aligned_full: float, config: RewardConfig) -> PaperReward:
    """R of a completion from A(h) and A(h + c), with the ablations of `config`.

    >>> paper_reward(0.2, 0.6, RewardConfig())
    PaperReward(baseline=0.2, rho=0.49999999999999994, gated=False, total=0.6)
    >>> paper_reward(0.2, 0.2, RewardConfig()).total
    -0.2
    """
    baseline = aligned_history if config.history_baseline else 0.0
    rho = relative_progress(baseline, aligned_full, config)
    gated = config.gate and rho < config.tau
    return PaperReward(baseline, rho, gated, penalty(rho, config) if gated else aligned_full)


def relative_progress(baseline: float, aligned_full: float, config: RewardConfig) -> float:
    """rho = (A(h + c) - A(h)) / max(1 - A(h), epsilon), or its numerator alone (equation 7, ablation)."""
    progress = aligned_full - baseline
    return progress / max(1.0 - baseline, config.epsilon) if config.relative_progress else progress


def penalty(rho: float, config: RewardConfig) -> float:
    """clip(alpha (rho - tau), -1, 0), the branch below the gate (equation 8)."""
    return min(max(config.alpha * (rho - config.tau), -1.0), 0.0)
