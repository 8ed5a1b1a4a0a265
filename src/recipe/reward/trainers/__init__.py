"""The reward as trainers call it: `trainer_reward` for our own, one module for each of the others."""

from recipe.reward.scorer import Scorer, TrainerReward, trainer_reward

__all__ = ["Scorer", "TrainerReward", "trainer_reward"]
