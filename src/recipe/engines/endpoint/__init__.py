"""Asking any OpenAI-compatible endpoint: a vLLM server, or a hosted model (docs/endpoints.md).

`engine` puts together: `questions` says what is asked and `messages` how a chat is sent; `host` asks patiently over the
`connections`, reads the `answers` and tells `failures` apart; `fields` learns what a host does not take.
"""

from recipe.engines.endpoint.engine import EndpointEngine

__all__ = ["EndpointEngine"]
