"""The models that plan next actions: each on this machine or at an endpoint, with kept answers and one budget."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recipe.cli import endpoint_options as endpoints
from recipe.cli.local_model import model_identity

if TYPE_CHECKING:
    from recipe.engines.budget import Budget
    from recipe.engines.protocol import Engine
    from recipe.planning.vidassist.methods import Models


class Named(NamedTuple):
    """A model and where it is."""

    name: str
    endpoint: endpoints.Asked | None
    revision: str | None = None
    device: str | None = None

    @contextmanager
    def engine(self, cache: Path) -> "Iterator[Engine]":
        """The engine that asks it and keeps its answers."""
        if self.endpoint is not None:
            from recipe.engines.endpoint import EndpointEngine

            with EndpointEngine(self.endpoint.config(self.name), cache) as remote:
                yield remote
            return
        from recipe.engines.cache import AnswerCache
        from recipe.engines.kept import KeptEngine
        from recipe.engines.local import LocalEngine

        identity = model_identity(self.name, self.revision, AnswerCache(cache))
        yield KeptEngine(LocalEngine(self.name, self.revision, self.device), identity, cache)

    def told(self) -> dict[str, Any]:
        """What a manifest says of it."""
        address = None if self.endpoint is None else self.endpoint.url
        return {"model": self.name, "revision": self.revision, "endpoint": address}


class Asked(NamedTuple):
    """Who is asked, where answers are kept, and what they may cost."""

    model: Named
    recipe: Named | None
    cache: Path
    budget: "Budget"

    @contextmanager
    def opened(self) -> "Iterator[Models]":
        """The models, ready to be asked; the same one is opened once."""
        from recipe.engines.budget import BudgetEngine
        from recipe.planning.vidassist.methods import Models

        with ExitStack() as stack:
            engines = {
                named: BudgetEngine(stack.enter_context(named.engine(self.cache)), self.budget)
                for named in dict.fromkeys(filter(None, (self.model, self.recipe)))
            }
            yield Models(engines[self.model], None if self.recipe is None else engines[self.recipe])
