"""Whole runs of the method: corpus, base planner, SFT, GRPO, sampling, report, each stage once and in order."""
