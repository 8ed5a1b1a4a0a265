"""The audit of rewards: what it measures, in words, as a table, as plots and as a page."""
