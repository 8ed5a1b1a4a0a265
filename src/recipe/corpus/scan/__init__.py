"""Exact stage 1 on the processor: codes, kernels, and the proof of each result."""
