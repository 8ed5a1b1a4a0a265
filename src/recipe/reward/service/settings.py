"""What a service accepts, and how long it works on it."""

from typing import Annotated

from pydantic import Field, SecretStr

from recipe.config import Positive, Settings

Seconds = Annotated[float, Field(gt=0)]


class ServiceSettings(Settings):
    """Limits of requests, and how they are batched."""

    max_steps: Positive = 200
    """Steps of a history or of a plan; more than a completion's token limit can write."""
    max_characters: Positive = 10_000
    """Characters of a step or a goal."""
    max_body: Positive = 4 << 20
    """Bytes of a request."""
    queue: Positive = 4096
    """Plans that may wait to be scored; requests beyond are told to come back."""
    timeout: Seconds = 60.0
    """Seconds after which a request that is not scored ends in an error; counted by the worker's clock."""
    batch: Positive = 64
    """Plans scored together."""
    linger: Annotated[float, Field(ge=0, le=1)] = 0.001
    """Seconds that the first request after a pause waits for company."""
    token: SecretStr | None = None
    """What clients must show; none: everyone may ask."""
