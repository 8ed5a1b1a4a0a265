"""The settings of a comparison of rewards; those in `configs/verifiers-*.toml` are TOML files of this shape."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from recipe.config import RewardConfig, load_config, parse_config
from recipe.experiments.settings import Experiment, ExperimentConfig, WorldSource, cut_down

VerifierName = Literal["paper", "grounded"]
RewardName = Literal["paper", "grounded", "validity"]
"""What a GRPO run is paid by: a verifier, or the exact validity that only a world knows."""
RankerName = Literal["paper", "grounded", "relevance"]
"""What chooses among samples: a verifier, or R0, which reads no corpus (recipe.reward.relevance)."""
VERIFIERS = ("paper", "grounded")
QUICK_SEEDS = 2


class ComparisonConfig(Experiment):
    """One base planner, GRPO from it on every reward with every seed and one budget, best-of-N by every ranker."""

    kind: Literal["comparison"]
    rewards: Annotated[tuple[RewardName, ...], Field(min_length=1)] = ("paper", "grounded")
    """What GRPO is paid by; each in a run of its own for every seed."""
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (0, 1, 2)
    """Seeds of the GRPO runs; data, base and samples have `seed`."""
    rankers: Annotated[tuple[RankerName, ...], Field(min_length=1)] = ("paper", "grounded", "relevance")
    """What chooses among the base's samples, and also rewards the plans of every run."""
    verifiers: Mapping[VerifierName, dict[str, Any]] = Field(default_factory=dict)
    """Keys of RewardConfig for a verifier that differs from its defaults."""

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        if "validity" in self.rewards and not isinstance(self.source, WorldSource):
            raise ValueError("reward 'validity' is known on a world only; leave it out")
        for name in ("rewards", "seeds", "rankers"):
            given = getattr(self, name)
            if len(set(given)) < len(given):
                raise ValueError(f"something stands twice in {name}; name each once")
        return self

    def verifier(self, name: VerifierName) -> RewardConfig:
        """The settings of a verifier. Raises ConfigError."""
        return parse_config({"verifier": name, **self.verifiers.get(name, {})}, RewardConfig, f"[verifiers.{name}]")


def load_experiment(path: Path, *, quick: bool = False) -> ExperimentConfig | ComparisonConfig:
    """The experiment of a TOML file, a comparison where it says `kind = "comparison"`. Raises ConfigError."""
    if not _has_kind(path):
        config = load_config(path, ExperimentConfig)
        return cut_down(config) if quick else config
    comparison = load_config(path, ComparisonConfig)
    if not quick:
        return comparison
    return cut_down(comparison).model_copy(update={"seeds": comparison.seeds[:QUICK_SEEDS]})


def _has_kind(path: Path) -> bool:
    try:
        return "kind" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return False  # whoever loads the file says what is wrong with it
