"""Commands of the studies, which `recipe` takes in by entry points."""
