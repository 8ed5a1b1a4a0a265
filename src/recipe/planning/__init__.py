"""From a goal and a history to plans: engines, the planner, re-ranking by the verifier."""
