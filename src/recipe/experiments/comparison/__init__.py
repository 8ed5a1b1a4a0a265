"""Rewards compared: GRPO on each from one base, with several seeds, and best-of-N without training."""
