"""Plans from samples, with an error that says what a failed run keeps."""

from typing import TYPE_CHECKING

from recipe.cli import console
from recipe.cli.vpa.samples import Samples
from recipe.errors import ComputeError

if TYPE_CHECKING:
    from recipe.planning.vidassist.methods import Models
    from recipe.planning.vidassist.search import PartialPlan
    from recipe.planning.vidassist.settings import VidAssistConfig


def planned(samples: Samples, config: "VidAssistConfig", models: "Models") -> "list[PartialPlan]":
    """A plan for each sample. Raises what the engines raise."""
    from recipe.planning.vidassist.methods import plan_actions
    from recipe.planning.vidassist.state import State

    starts = [State(example.goal, example.history) for example in samples.examples]
    try:
        return plan_actions(starts, config, models, samples.actions, samples.shown, console.progress())
    except ComputeError as error:
        kept = "answers that came are kept, and the same command goes on from there"
        raise ComputeError(f"{str(error).removesuffix('.')}; {kept}.") from error
