"""The planner page of `recipe serve`: its templates, its JSON API, and the runs behind it."""
