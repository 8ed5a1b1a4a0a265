"""The reward over HTTP: one-sample requests of many clients, scored in batches by one verifier."""
