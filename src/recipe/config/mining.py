"""Settings of pseudo-labels: continuations mined from a corpus of narrations."""

from typing import Annotated, Literal

from pydantic import Field

from recipe.config.base import Flag, Positive, Settings


class MiningConfig(Settings):
    """How continuations are mined; the paper (section 4.3, SFT-HT100M) leaves the procedure open."""

    pool_size: Positive = 25
    """Stated (appendix A.3), of the verifier. K, narrations that stage 1 finds for a history."""
    min_similarity: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """Ours. Least A_mono of a history with its narration; examples below it are left out."""
    steps: Positive | None = None
    """Ours. Most segments in a continuation; left out: as many as the example's own has steps, and 8 from titles."""
    segments: Annotated[Literal["all", "step-like"] | None, Flag("--segments")] = None
    """Ours. Which segments can be steps; left out: all after a history, only step-like ones from titles."""
    threshold: float = 0.35
    """Ours. Least score of a step-like segment: 0 is that of small talk, 1 that of steps (docs/data.md)."""
    cuts: Positive = 4
    """Ours. Cut points of a narration, from titles; fewer where it is short."""
