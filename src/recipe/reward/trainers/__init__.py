"""Between the reward and the trainers that call it: `batch` for our own, one module for each of the others."""

from recipe.reward.scorer import Prefetch, Scorer, TrainerReward, trainer_reward

__all__ = ["Prefetch", "Scorer", "TrainerReward", "trainer_reward"]
