"""The planning methods by name: VidAssist, the LLM baseline and the agent, with their settings and ablations."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from recipe.config import SamplingConfig
from recipe.config.planning import ValueName, VidAssistConfig
from recipe.errors import InputError
from recipe.models.protocol import Answer, Engine, Refusal, read_plan
from recipe.planning.vidassist.models import (
    Demonstrations,
    Evaluation,
    TaskGraph,
    agent,
    language_model,
    plan_chat,
    planner,
)
from recipe.planning.vidassist.search import (
    ActionsOf,
    Option,
    Options,
    PartialPlan,
    Proposal,
    Proposer,
    Search,
    State,
    TextGeneration,
    TextMapping,
    Translation,
    Value,
    candidates_of,
)
from recipe.progress import SILENT, Progress
from recipe.types import Plan

_BEAMS = (1, 2, 4)


def ablations(config: VidAssistConfig) -> dict[str, VidAssistConfig]:
    """Name to setting: who proposes, each value function left out, other beams, and the two baselines.

    The given setting comes first, and none twice. A baseline has none but itself.
    """
    changes: dict[str, dict[str, Any]] = {"as given": {}}
    if config.method == "vidassist":
        if config.proposers == "both":
            changes |= {f"{name} alone": {"proposers": name} for name in ("original", "recipe")}
        if len(config.active) > 1:
            left = {name: [other for other in config.active if other != name] for name in config.active}
            changes |= {f"without {name}": {"values": values} for name, values in left.items()}
        changes |= {f"beam {beam}": {"beam": beam} for beam in _BEAMS}
        changes |= {f"{method} baseline": {"method": method} for method in ("agent", "llm")}
    found: dict[str, VidAssistConfig] = {}
    for name, change in changes.items():
        changed = VidAssistConfig.model_validate(config.model_dump() | change)
        if changed not in found.values():
            found[name] = changed
    return found


def written_at_once(
    engine: Engine,
    sampling: SamplingConfig,
    starts: Sequence[State],
    horizon: int,
    actions: ActionsOf,
    shown: Demonstrations,
    progress: Progress = SILENT,
) -> list[PartialPlan]:
    """The LLM baseline: one call writes each plan, and each step is mapped to an admissible action afterwards.

    A plan holds at most `horizon` actions; what an answer holds beyond is cut off.
    """
    states = list(dict.fromkeys(starts))
    answers = engine.outcomes([plan_chat(state, horizon, shown) for state in states], 1, sampling, progress)
    plans = {
        state: _mapped(state, _proposals(answer, horizon), actions)
        for state, [answer] in zip(states, answers, strict=True)
    }
    return [plans[start] for start in starts]


def _proposals(answer: Answer | Refusal, horizon: int) -> list[Proposal]:
    plan = None if isinstance(answer, Refusal) else read_plan(answer)
    return [Proposal("llm", step, step) for step in plan.steps[:horizon]] if isinstance(plan, Plan) else []


def _mapped(start: State, proposals: Sequence[Proposal], actions: ActionsOf) -> PartialPlan:
    """The plan of the proposals, each the only option of its step."""
    plan = PartialPlan(start)
    candidates = candidates_of([start] * len(proposals), [[one] for one in proposals], actions)
    for [candidate] in candidates:
        [plan] = plan.extended(Options((Option(candidate, {}, None),)))
    return plan


class Models(NamedTuple):
    """The engines that a method asks."""

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
    proposer = agent(models.model, config.sampling(config.temperature), shown)
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
        found.append(language_model(models.model, sampling, shown))
    if config.proposers != "original":
        if models.recipe is None:
            raise InputError("no planner is given that proposes; give --recipe-model, or --proposers original.")
        found.append(planner(models.recipe, sampling))
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
