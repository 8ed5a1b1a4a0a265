"""Asking any OpenAI-compatible endpoint: a vLLM server, or a hosted model (docs/planning.md)."""

from recipe.models.endpoint.engine import EndpointEngine

__all__ = ["EndpointEngine"]
