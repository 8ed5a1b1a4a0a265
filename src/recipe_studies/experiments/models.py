"""The models that stages ask: folders of training runs, models from outside the run, and models behind endpoints."""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, field_validator

from recipe.artifacts import locked, read_json, write_json
from recipe.config import ModelConfig
from recipe.models.costs import Budget
from recipe.models.protocol import Answer

if TYPE_CHECKING:
    from recipe.models.model import Model


class EndpointModel(ModelConfig):
    """A model behind an endpoint, with one budget and one cache for all stages of a run folder."""

    endpoint: str
    """Base address of an OpenAI-compatible endpoint, such as http://localhost:8000/v1."""
    max_calls: Annotated[int, Field(ge=0)] | None = None
    """Most answers to pay for in all stages of the run folder, earlier calls included: as many as `cache` may hold."""

    @field_validator("max_tokens_total")
    @classmethod
    def _calls_only(cls, value: int | None) -> int | None:
        if value is not None:
            raise ValueError("tokens are not counted over several stages; give max_calls")
        return value

    def identity(self) -> dict[str, Any]:
        """What decides its answers, for the identity of a stage: address, speed, price and budget change none."""
        own = type(self).model_fields.keys() - ModelConfig.model_fields.keys()
        of_answers = ("model", "clips", "jpeg_quality", "max_pixels", "token_limit", "send_seed", "structured")
        values = {**self.fixed, **dict(self)}
        return {name: values[name] for name in (*of_answers, "extra_body", *sorted(own))}


class SharedBudget(Budget):
    """A budget of calls that all processes share whose answers go to one cache: as many as the cache may hold.

    The folder holds how many answers are paid for or promised to a process. Where no process is asking, that is the
    number of answers in it, so that a process that was killed keeps nothing reserved.
    """

    def __init__(self, calls: int | None, cache: Path) -> None:
        super().__init__(calls)
        self._cache, self._asking = cache, list[int]()

    def reserve(self, wanted: int, whole: bool = False) -> int:
        """As Budget does, of what the other processes have left."""
        if self.calls is None:
            return super().reserve(wanted, whole)
        with locked(self._cache, wait=True):
            asking = os.open(self._cache / "asking", os.O_RDWR | os.O_CREAT)
            try:
                # Every process that is asking holds it shared: whoever gets it alone may count what was paid for.
                # Where a process is killed, the kernel frees it.
                fcntl.flock(asking, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.calls_spent = count_answers(self._cache)
            except BlockingIOError:
                self.calls_spent = read_json(self._cache / "promised.json")
            try:
                allowed = super().reserve(wanted, whole)
            except BaseException:
                os.close(asking)
                raise
            fcntl.flock(asking, fcntl.LOCK_SH)  # as long as this process lives or until it settles
            self._asking.append(asking)
            write_json(self._cache / "promised.json", self.calls_spent)
            return allowed

    def settle(self, reserved: int, paid: Sequence[Answer]) -> None:
        """As Budget does, for the other processes, too."""
        if self.calls is None:
            super().settle(reserved, paid)
            return
        with locked(self._cache, wait=True):
            self.calls_spent = read_json(self._cache / "promised.json")
            super().settle(reserved, paid)
            write_json(self._cache / "promised.json", self.calls_spent)
            os.close(self._asking.pop())


def count_answers(cache: Path) -> int:
    """Number of answers in a cache."""
    return sum(1 for _ in cache.glob("??/*.json"))


@contextmanager
def open_stage_model(folder: Path, config: ModelConfig, *, is_external: bool = True) -> Iterator["Model"]:
    """A model while it is loaded: a training run's below `folder` unless it is external.

    A model behind an endpoint has the budget that all stages of the run folder share.
    """
    from recipe.models.model import open_model

    budget = None
    if isinstance(config, EndpointModel):
        budget = None if config.cache is None else SharedBudget(config.max_calls, config.cache)
    elif not is_external:
        config = config.model_copy(update={"model": str(folder / config.model)})
    with open_model(config, budget=budget) as model:
        yield model
