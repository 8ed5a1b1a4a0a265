"""Procedural diversity: how different the plans are that a system writes for one prompt."""
