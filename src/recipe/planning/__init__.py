"""From a goal and a history to plans: engines that complete chats, the planner, re-ranking by the verifier."""
