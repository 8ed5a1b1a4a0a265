"""The same search on GPUs, by Triton."""
