"""How good plans are, with what certainty, and the report that shows it."""
