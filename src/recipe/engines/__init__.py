"""Engines: a language model on this machine, an endpoint, or recorded completions, behind one protocol."""
