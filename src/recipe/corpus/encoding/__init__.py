"""Sentence encoders that wrap models."""
