"""A reward as JSON, and as the flat numbers that trainers log."""

from typing import Any

from recipe.types import Reward


def reward_fields(reward: Reward) -> dict[str, Any]:
    """Every field of a reward, by the names it has in Python."""
    return {
        "total": reward.total,
        "aligned_history": reward.aligned_history,
        "aligned_full": reward.aligned_full,
        "rho": reward.rho,
        "gated": reward.gated,
        "steps": reward.steps,
        "coverage": reward.coverage,
        "abstained": reward.abstained,
        "parts": reward.parts,
        "best_narration": reward.best_narration,
        "pool": [{"narration": hit.narration, "score": hit.score} for hit in reward.pool],
    }


def reward_numbers(reward: Reward) -> dict[str, float]:
    """The parts of a reward that are numbers; a coverage that the verifier does not tell is left out."""
    numbers = {
        "aligned_history": reward.aligned_history,
        "aligned_full": reward.aligned_full,
        "rho": reward.rho,
        "gated": float(reward.gated),
        "steps": float(reward.steps),
        "abstained": float(reward.abstained),
    }
    known = {} if reward.coverage is None else {"coverage": reward.coverage}
    return numbers | known | reward.parts
