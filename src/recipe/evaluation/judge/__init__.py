"""Judges of plans by the paper's rubric."""
