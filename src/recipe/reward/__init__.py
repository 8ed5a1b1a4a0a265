"""Rewards of plans: the paper's equations, the verifier that joins corpus and alignment, adapters."""
