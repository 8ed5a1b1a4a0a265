"""From frames to what Qwen2.5-VL reads: patches and their grid, in plain torch."""
