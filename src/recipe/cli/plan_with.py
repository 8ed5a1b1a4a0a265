"""Who plans, and who tells the planner a video in words: a model on this machine or one at an endpoint."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from recipe.config import FrameConfig, SamplingConfig
    from recipe.engines.protocol import Engine
    from recipe.planning.planner import Planner


class Who(NamedTuple):
    """A model, and the endpoint that serves it, if one does."""

    model: str
    endpoint: str | None = None
    key_variable: str | None = None
    frames: "FrameConfig | None" = None
    """How large the frames may be that it is shown."""

    @contextmanager
    def engine(self) -> "Iterator[Engine]":
        """The engine that asks the model."""
        if self.endpoint is None:
            from recipe.engines.local import LocalEngine

            yield LocalEngine(self.model, frames=self.frames)
            return
        from recipe.config import EndpointConfig
        from recipe.engines.endpoint import EndpointEngine

        largest = None if self.frames is None else self.frames.max_pixels
        config = EndpointConfig(url=self.endpoint, model=self.model, key_variable=self.key_variable, max_pixels=largest)
        with EndpointEngine(config) as engine:
            yield engine

    @contextmanager
    def planner(self, sampling: "SamplingConfig") -> "Iterator[Planner]":
        """The planner that asks the model."""
        from recipe.planning.planner import Planner

        with self.engine() as engine:
            yield Planner(engine, sampling)
