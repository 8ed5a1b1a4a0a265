"""What a reward can and cannot tell apart: perturbed continuations, their scores, measures and page."""
