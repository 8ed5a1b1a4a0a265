"""RECIPE: procedural planning with rewards verified against narrated how-to videos.

    import recipe

    corpus = recipe.build_corpus("subtitles/", "corpora/mine")
    corpus.search(["boil the water", "pour it over the leaves"])
    corpus.narration("a video's id")

    history, goal = ["boil the water"], "make tea"
    plans = recipe.plan("runs/demo/grpo/model", goal=goal, history=history, count=8)
    verifier = recipe.Verifier(corpus, recipe.RewardConfig(verifier="grounded"))
    rewards = verifier.score(goal=goal, history=history, continuations=plans)
    recipe.audit_rewards(corpus, "tasks.jsonl").findings

`recipe.train_grpo` and `recipe.train_best_of_n` train a planner (docs/training.md).
Every setting is in `recipe.config`, every error in `recipe.errors`. More: docs/api.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recipe.api import audit_rewards, build_corpus, plan
    from recipe.config import RewardConfig
    from recipe.corpus.store import Corpus
    from recipe.plan_text import parse_plan
    from recipe.reward.verifier import Verifier
    from recipe.training.best_of_n import train_best_of_n
    from recipe.training.grpo import train_grpo
    from recipe.types import Example, Narration, Plan, Procedure, Reward

# Names resolve on first use, so that `import recipe` loads neither NumPy nor pydantic.
_HOMES = {
    "Corpus": "recipe.corpus.store",
    "Example": "recipe.types",
    "Narration": "recipe.types",
    "Plan": "recipe.types",
    "Procedure": "recipe.types",
    "Reward": "recipe.types",
    "RewardConfig": "recipe.config",
    "Verifier": "recipe.reward.verifier",
    "audit_rewards": "recipe.api",
    "build_corpus": "recipe.api",
    "parse_plan": "recipe.plan_text",
    "plan": "recipe.api",
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
    "audit_rewards",
    "build_corpus",
    "parse_plan",
    "plan",
    "train_best_of_n",
    "train_grpo",
]
__version__ = "0.3.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'recipe' has no attribute {name!r}")
    if _HOMES[name].startswith("recipe.training"):
        from recipe.errors import require_packages

        require_packages({"train": "training"})
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, for help and completion; without those of training, because help loads what is named here."""
    return [name for name in __all__ if not _HOMES[name].startswith("recipe.training")]
