"""The Video configuration: a policy that reads the frames before the cut (paper, section 3.1)."""
