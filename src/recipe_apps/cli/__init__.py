"""Commands of the apps, which `recipe` takes in by entry points."""
