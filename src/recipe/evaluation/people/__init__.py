"""Ratings of people, and agreement between people and judges."""
