"""From narrations to shards on disk: read once, staged, encoded by whoever is there."""
