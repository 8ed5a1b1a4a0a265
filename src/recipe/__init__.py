"""RECIPE: procedural planning with rewards verified against narrated how-to videos."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recipe.config import RewardConfig
    from recipe.corpus.store import Corpus
    from recipe.reward.verifier import Verifier
    from recipe.text import parse_plan
    from recipe.types import Example, Narration, Plan, Procedure, Reward

# Names resolve on first use, so that `import recipe` loads neither NumPy nor pydantic. Training is not imported above,
# because rooms below it import this module.
_HOMES = {
    "Corpus": "recipe.corpus.store",
    "Example": "recipe.types",
    "Narration": "recipe.types",
    "Plan": "recipe.types",
    "Procedure": "recipe.types",
    "Reward": "recipe.types",
    "RewardConfig": "recipe.config",
    "Verifier": "recipe.reward.verifier",
    "parse_plan": "recipe.text",
    "train_best_of_n": "recipe.training.best_of_n",
    "train_grpo": "recipe.training.grpo",
}

__all__ = [
    "Corpus",
    "Example",
    "Narration",
    "Plan",
    "Procedure",
    "Reward",
    "RewardConfig",
    "Verifier",
    "parse_plan",
    "train_best_of_n",
    "train_grpo",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'recipe' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
