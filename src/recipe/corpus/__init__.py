"""Narrations as an index: encoders, the on-disk store, its resumable build, and stage-1 search."""
