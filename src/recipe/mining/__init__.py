"""Labels mined from a corpus: the corpus as a source of continuations to imitate, besides its role as a verifier."""
