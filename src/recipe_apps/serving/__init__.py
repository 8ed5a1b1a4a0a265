"""The planner page and its JSON API: plans written step by step, each step with the narrations that say so."""
