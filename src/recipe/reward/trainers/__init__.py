"""The reward as other trainers call it, a module for each."""
