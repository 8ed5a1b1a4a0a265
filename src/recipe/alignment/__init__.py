"""Alignment of steps with narration segments: similarity arrays in, score arrays out; knows no text.

`reference` is the paper in NumPy and the specification; `backends` chooses what computes batches.
"""
