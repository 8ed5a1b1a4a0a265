"""A reward as JSON, the same in files, records of training and over HTTP, and as the numbers that trainers log."""

from functools import cache
from typing import Any

from pydantic import TypeAdapter

from recipe.types import Reward


def reward_row(reward: Reward) -> dict[str, Any]:
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
        "pool": [hit._asdict() for hit in reward.pool],
    }


def rewards_of_rows(rows: Any) -> list[Reward]:
    """The rewards that `reward_row` wrote; further fields are ignored, and a pool may hold [narration, score].

    Raises pydantic's ValidationError, which names the field.
    """
    return _rewards().validate_python(rows)


def reward_numbers(reward: Reward) -> dict[str, float]:
    """The parts of a reward that are numbers; a coverage that the verifier does not report is left out."""
    numbers = {
        "aligned_history": reward.aligned_history,
        "aligned_full": reward.aligned_full,
        "rho": reward.rho,
        "gated": float(reward.gated),
        "steps": float(reward.steps),
        "abstained": float(reward.abstained),
    }
    return numbers | ({} if reward.coverage is None else {"coverage": reward.coverage}) | reward.parts


@cache
def _rewards() -> TypeAdapter[list[Reward]]:
    return TypeAdapter(list[Reward])
