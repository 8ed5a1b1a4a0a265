"""Asking any OpenAI-compatible endpoint: a vLLM server, or a hosted model (docs/planning.md)."""
