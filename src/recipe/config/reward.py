"""Settings of the verifier."""

from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator

from recipe.config.base import FUNCTION_NAME, Fraction, Positive, Settings

BUILT_IN = {"paper": True, "grounded": True, "r0": False, "length": False}
"""The rewards that have a name of their own, and whether each aligns plans with narrations."""


def known_verifier(name: str) -> str:
    """The name, where it is that of a reward or of a function. Raises ValueError."""
    if name not in BUILT_IN and FUNCTION_NAME.fullmatch(name) is None:
        known = ", ".join(map(repr, BUILT_IN))
        raise ValueError(f"input should be one of {known}, or module:function for a function of your own")
    return name


VerifierName = Annotated[str, AfterValidator(known_verifier)]


EPSILON = 1e-6
"""Guard of the division by the remaining gap 1 - A(h); stated: appendix A.3."""
REPEATS, ORDER = 0.1, 1.0
"""Grounded: share of its similarities that a repeated step loses, and lambda, weight of the vote on order."""


class GroundedConfig(Settings):
    """The grounded verifier (docs/reward.md); symbols as in `recipe.reward.grounded`."""

    written_if_set: ClassVar[frozenset[str]] = frozenset({"self_trained", "self_trained_anyway"})
    fixed = MappingProxyType({"repeats": REPEATS, "order": ORDER})

    candidates: Positive = 150
    """Narrations that stage 1 finds for the goal, and as many for the history: the pool is chosen among them."""
    pool_size: Positive = 100
    """Narrations in P."""
    background_size: Positive = 50
    """Narrations in Q, the level that any text reaches."""
    relevance: Annotated[float, Field(ge=0)] = 0.25
    """rho, weight of the part that reads no corpus."""
    horizon: Annotated[float, Field(gt=0)] = 8.0
    """H, steps that a plan is expected to have."""
    price: Annotated[float, Field(ge=0)] = 0.04
    """phi, cost of each step of a plan, as a share of the score of a step of the history."""
    trust: tuple[float, float] | None = None
    """Coverages of a prompt between which the corpus replaces what is assumed without it: relevance, and that repeats
    and lines near the goal count less in narrations. None: at no coverage."""
    self_trained: str = ""
    """Folder of `recipe reward self-train`: a net trained on this corpus is added to the reward. Empty: none."""
    self_trained_anyway: bool = False
    """Use that net even where its own test says that it should not be used."""

    @field_validator("trust")
    @classmethod
    def _rising(cls, value: tuple[float, float] | None) -> tuple[float, float] | None:
        if value is not None and not value[0] < value[1]:
            raise ValueError(f"the second coverage, {value[1]:g}, must be above the first, {value[0]:g}")
        return value


class RewardConfig(Settings):
    """The verifier (paper, section 3.2 and appendix A.3)."""

    fixed = MappingProxyType({"epsilon": EPSILON})

    verifier: VerifierName = "paper"
    """The reward: `paper`, to which all settings below belong, `grounded` with its own, or `module:function`, a
    function of yours (docs/own.md); records have the hash of its source file behind it. `r0` (relevance to goal and
    history) and `length` (number of steps) read no narrations: they are baselines; do not train on them."""
    grounded: GroundedConfig = GroundedConfig()
    pool: Literal["history", "full", "own"] = "history"
    """Which steps retrieve the pool: those of h for both scores, those of h + c for both, or each its own."""
    pool_size: Positive = 25  # stated: section 3.2
    """K, narrations kept by stage 1."""
    gap: Annotated[float, Field(le=0)] = -0.05  # stated: section 3.2
    """g, the gap penalty of stage 2."""
    tau: Fraction = 0.10  # stated, as the next: appendix A.3
    """Progress threshold of the gate."""
    alpha: Annotated[float, Field(gt=0)] = 2.0
    """Penalty slope below the gate."""
    stage2: bool = True
    """Off: A_mono in place of A_NW (ablation)."""
    history_baseline: bool = True
    """Off: A(h) = 0 (ablation)."""
    relative_progress: bool = True
    """Off: rho = A(h + c) - A(h) (ablation)."""
    gate: Literal["on", "off", "plain"] = "on"
    """Off: R = rho. Plain: R = A(h + c). Both are readings of the ablation (docs/reward.md)."""

    def contrast_problem(self, narrations: int) -> str | None:
        """Why a corpus of so many narrations is too small for the grounded reward; None where it is not.

        It contrasts narrations near a prompt, P, with others far from it, Q, which is drawn from what is not in P.
        """
        near, far = self.grounded.pool_size, self.grounded.background_size
        if self.verifier != "grounded" or narrations >= near + far:
            return None
        left = "none is" if narrations <= near else f"only {narrations - near} are"
        size = max(narrations // 4, 1)
        return (
            f"The grounded reward compares {near} narrations near a prompt with {far} far from it, and the corpus has "
            f"{narrations}: where {near} are near, {left} left to compare with, and the reward says little; "
            f"add narrations of other activities, or set grounded.pool_size and grounded.background_size to "
            f"about {size} each."
        )

    @property
    def scale(self) -> str:
        """What the number of a reward means, in a few words."""
        if self.is_function:
            return "as this function of yours says"
        if self.verifier == "paper":
            return "at most 1" + ("; below 0 the gate refuses the plan" if self.gate == "on" else "")
        if self.verifier == "grounded":
            return "0 is a plan that adds nothing"
        return "a control that reads no corpus" if self.verifier in ("r0", "length") else f"as {self.verifier} says"

    @property
    def aligns(self) -> bool:
        """Whether plans are aligned with narrations: not by a control and not by a function of the user's own."""
        return BUILT_IN.get(self.verifier, False)

    @property
    def is_function(self) -> bool:
        """Whether a function of the user's own rewards."""
        return ":" in self.verifier
