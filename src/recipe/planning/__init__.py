"""From a goal and a history to plans: the planner, re-ranking by the verifier."""
