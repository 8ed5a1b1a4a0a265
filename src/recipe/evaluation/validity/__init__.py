"""Plans checked against task graphs."""
