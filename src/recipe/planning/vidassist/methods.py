"""The methods by name, put together from a setting and the engines that it needs."""

from collections.abc import Sequence
from typing import NamedTuple

from recipe.engines.protocol import Engine
from recipe.errors import InputError
from recipe.planning.vidassist import proposers
from recipe.planning.vidassist.assessor import Evaluation
from recipe.planning.vidassist.baseline import written_at_once
from recipe.planning.vidassist.candidates import ActionsOf
from recipe.planning.vidassist.prompts import Demonstrations
from recipe.planning.vidassist.proposers import Proposer
from recipe.planning.vidassist.search import PartialPlan, Search
from recipe.planning.vidassist.settings import ValueName, VidAssistConfig
from recipe.planning.vidassist.state import State
from recipe.planning.vidassist.task_graph import TaskGraph
from recipe.planning.vidassist.values import TextGeneration, TextMapping, Translation, Value
from recipe.progress import SILENT, Progress


class Models(NamedTuple):
    """Who is asked."""

    model: Engine
    """The original proposer, the assessor and both baselines."""
    recipe: Engine | None = None
    """The planner that proposes, too."""


def plan_actions(
    starts: Sequence[State],
    config: VidAssistConfig,
    models: Models,
    actions: ActionsOf,
    shown: Demonstrations,
    progress: Progress = SILENT,
) -> list[PartialPlan]:
    """A plan from each start. Raises InputError where the setting needs a model that is not given, and what the engines
    raise."""
    if config.method == "llm":
        sampling = config.sampling(0.0, steps=config.horizon)
        return written_at_once(models.model, sampling, starts, config.horizon, actions, shown, progress)
    search = (
        _agent(config, models, actions, shown)
        if config.method == "agent"
        else _assisted(config, models, actions, shown)
    )
    return search.run(starts, progress)


def _agent(config: VidAssistConfig, models: Models, actions: ActionsOf, shown: Demonstrations) -> Search:
    """Huang et al. (2022): every step is sampled, translated to the nearest action, ranked, and appended."""
    proposer = proposers.agent(models.model, config.sampling(config.temperature), shown)
    values = (Translation(config.agent_beta),)
    return Search((proposer,), config.agent_samples, actions, values, {}, config.horizon)


def _assisted(config: VidAssistConfig, models: Models, actions: ActionsOf, shown: Demonstrations) -> Search:
    values = tuple(_value(name, config, models, actions, shown) for name in config.active)
    weights = {str(name): weight for name, weight in config.weights.items()}
    return Search(
        _proposers(config, models, shown), config.candidates, actions, values, weights, config.horizon, config.beam
    )


def _proposers(config: VidAssistConfig, models: Models, shown: Demonstrations) -> tuple[Proposer, ...]:
    sampling = config.sampling(config.temperature)
    found: list[Proposer] = []
    if config.proposers != "recipe":
        found.append(proposers.language_model(models.model, sampling, shown))
    if config.proposers != "original":
        if models.recipe is None:
            raise InputError("no planner is given that proposes; give --recipe-model, or --proposers original.")
        found.append(proposers.planner(models.recipe, sampling))
    return tuple(found)


def _value(
    name: ValueName, config: VidAssistConfig, models: Models, actions: ActionsOf, shown: Demonstrations
) -> Value:
    match name:
        case "generation":
            return TextGeneration()
        case "mapping":
            return TextMapping()
        case "evaluation":
            return Evaluation(models.model, config.sampling(0.0), shown)
        case "task_graph":
            return TaskGraph(shown, actions)
