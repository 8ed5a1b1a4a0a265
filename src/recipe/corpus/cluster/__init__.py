"""Building and searching on a Ray cluster."""
