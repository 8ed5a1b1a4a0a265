"""What a reward can and cannot tell apart: corrupted continuations, their comparison with true ones, an attack."""
