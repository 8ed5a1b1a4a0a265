"""Measures of plans with their uncertainty, and the evaluation report."""
