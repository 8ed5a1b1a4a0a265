"""Limits of the planner page's service."""

from typing import Annotated

from pydantic import Field, SecretStr

from recipe.config import Positive, Settings


class PageSettings(Settings):
    """Limits of what people send, of what is under way, and of how long it is kept in memory."""

    max_plans: Positive = 8
    """Plans of one run."""
    plans: Positive = 4
    """Plans of a run that does not say how many."""
    max_steps: Positive = 100
    """Steps of a history."""
    max_characters: Positive = 500
    """Characters of a goal or a step."""
    max_body: Positive = 256 << 10
    """Bytes of a request other than a clip."""
    max_clip: Positive = 512 << 20
    """Bytes of a clip."""
    max_clip_seconds: Annotated[float, Field(gt=0)] = 3600.0
    """Length of a clip."""
    clips: Positive = 16
    """Clips on disk at once."""
    decoders: Positive = 2
    """Clips that are looked at as they arrive, and as many that are decoded for a run, at once."""
    probe_seconds: Positive = 20
    """Processor time that looking at a clip may take, and two thirds of what may pass by the clock."""
    decode_seconds: Positive = 120
    """The same for decoding a clip up to its cut."""
    queue: Positive = 64
    """Runs that may wait; further ones are refused with `queue_full`."""
    readers: Positive = 256
    """Readers of events at once; further ones are refused with `too_many_readers`."""
    readers_per_run: Positive = 16
    """Of those, of one run."""
    per_address: Annotated[int, Field(ge=0)] = 0
    """Readers of events and runs that wait, of one address at once; 0: half of all. Behind a proxy all visitors share
    one address."""
    keep_seconds: Annotated[float, Field(gt=0)] = 900.0
    """Seconds that a run is known after its end, and a clip after its last use."""
    absent_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Seconds after which a run that nobody reads is cancelled."""
    drain_seconds: Annotated[float, Field(gt=0)] = 30.0
    """Seconds that runs have to end once the service is told to."""
    token: SecretStr | None = None
    """What clients must send; without one, everyone who reaches the address may ask."""
