"""From the files that benchmarks publish to the examples a planner is trained and tested on."""
