"""How a visual tower from scratch learns to see: the parts of single pictures, then words, then whole clips."""
