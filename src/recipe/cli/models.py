"""The settings of every command that asks a model, and the model that they open."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from recipe.cli.flags import SettingsTable
from recipe.config import FrameConfig, ModelConfig, SearchConfig
from recipe.errors import ComputeError, InputError

if TYPE_CHECKING:
    from recipe.models.costs import Budget
    from recipe.models.model import Model

ASKED = "The model and how it is asked"
FLAGS = (
    "model", "revision", "engine", "device", "endpoint", "key_variable", "concurrency", "cache", "replay", "max_calls"
)  # fmt: skip
"""Keys of a model that people type."""
MODEL = SettingsTable(ModelConfig, FLAGS, ASKED)
"""Of a command that needs a model."""
JUDGE = SettingsTable(ModelConfig, FLAGS, ASKED, names={"model": "--model --judge"}, defaults={"model": ""})
"""Of a command whose judge may be a model."""

SEARCH = SettingsTable(SearchConfig, ("search", "width", "samples", "budget"), "Search while planning")
"""Of a command that plans."""


def require_searchable(search: SearchConfig, corpus: Path | None) -> None:
    """Raises InputError for a search without a corpus, and for settings of a search without one."""
    if search.search != "none" and corpus is None:
        raise InputError(
            f"--search {search.search} goes with --corpus, whose verifier chooses the steps; give the folder."
        )
    if search.search == "none" and (given := sorted(search.model_fields_set - {"search"})):
        raise InputError(f"--{given[0]} goes with --search recombine; give both.")


def with_cache(settings: ModelConfig, output: Path | None) -> ModelConfig:
    """The settings with a cache next to the output, unless they name a folder."""
    if settings.cache is not None or output is None:
        return settings
    return settings.model_copy(update={"cache": output.with_name(f"{output.name}.cache")})


def phi_settings(planner: ModelConfig, phi: str | None, endpoint: str | None) -> ModelConfig | None:
    """The settings of Phi, asked as the planner is but for its own model and endpoint; None without Phi.

    Raises InputError for an endpoint without a model.
    """
    if phi is None:
        if endpoint:
            raise InputError("the endpoint of Phi goes with its model; give the model's name by --phi or plan.phi.")
        return None
    return planner.model_copy(update={"model": phi, "endpoint": endpoint, "revision": None})


@contextmanager
def open_for_command(
    settings: ModelConfig, frames: FrameConfig | None = None, budget: "Budget | None" = None
) -> "Iterator[Model]":
    """The model of the settings; an error tells that its answers are kept where they are."""
    from recipe.models.model import open_model

    try:
        with open_model(settings, frames=frames, budget=budget) as model:
            yield model
    except ComputeError as error:
        if settings.cache is None:
            raise
        kept = "received answers are kept, and the same command resumes from there"
        raise ComputeError(f"{str(error).removesuffix('.')}; {kept}.") from error
