"""Whole studies: the demo, experiments, the paper's tables, and the video model of the world."""
