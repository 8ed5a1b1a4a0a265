"""What people open: the planner page, the evaluation board, the reward service, and the web ground under them."""
