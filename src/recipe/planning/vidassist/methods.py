"""The planning methods by name: VidAssist, the LLM baseline and the agent, with their settings and ablations."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from recipe.artifacts import JsonObject, fingerprint, write_json
from recipe.config import ModelConfig, SamplingConfig
from recipe.config.planning import ValueName, VidAssistConfig
from recipe.errors import InputError
from recipe.models.costs import Budget
from recipe.models.model import open_model
from recipe.models.protocol import Answer, Engine, Refusal, read_plan
from recipe.planning.predictions import write_predictions
from recipe.planning.vidassist.models import (
    Demonstrations,
    Evaluation,
    ModelProposer,
    TaskGraphScore,
    agent,
    language_model,
    plan_chat,
    planner,
    prompts_sha256,
)
from recipe.planning.vidassist.search import (
    ActionsOf,
    Option,
    Options,
    PartialPlan,
    Proposal,
    Search,
    State,
    TextGeneration,
    TextMapping,
    Translation,
    Value,
    candidates_of,
)
from recipe.planning.vidassist.trace import manifest_of, predicted, summarize, write_trace
from recipe.progress import SILENT, Progress
from recipe.types import Example, Plan

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


@contextmanager
def with_planner(
    model: Engine, settings: ModelConfig, recipe: ModelConfig | None, budget: Budget | None = None
) -> Iterator[Models]:
    """The open `model` of `settings` with the planner beside it; a planner of the same settings is opened once."""
    if recipe is None or recipe == settings:
        yield Models(model, None if recipe is None else model)
        return
    with open_model(recipe, budget=budget) as planner:
        yield Models(model, planner)


def write_plans(
    examples: Sequence[Example],
    config: VidAssistConfig,
    models: Models,
    actions: ActionsOf,
    shown: Demonstrations,
    output: Path,
    trace: Path,
    about: Mapping[str, object],
    progress: Progress = SILENT,
) -> JsonObject:
    """Plan for each example; write predictions, trace and manifest, each all or nothing; return the manifest.

    `about` names the models, the encoder, the histories and the actions in it. Raises as `plan_actions`.
    """
    starts = [State(example.goal, example.history) for example in examples]
    plans = plan_actions(starts, config, models, actions, shown, progress)
    pairs = [(example.example_id, plan) for example, plan in zip(examples, plans, strict=True)]
    manifest: JsonObject = {
        "output": output.name,
        "trace": trace.name,
        "settings": config.model_dump(mode="json"),
        "values": list(config.active) if config.method == "vidassist" else [],
        **about,
        "prompts": prompts_sha256(),
        "few_shot": fingerprint(shown) if shown else None,
        "samples": len(pairs),
        "counts": asdict(summarize(plans, config.horizon, assessed=config.method != "llm")),
    }
    write_trace(trace, pairs)
    write_predictions(output, (predicted(example_id, plan) for example_id, plan in pairs))
    write_json(manifest_of(output), manifest)
    return manifest


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


def _proposers(config: VidAssistConfig, models: Models, shown: Demonstrations) -> tuple[ModelProposer, ...]:
    sampling = config.sampling(config.temperature)
    found: list[ModelProposer] = []
    if config.proposers != "recipe":
        found.append(language_model(models.model, sampling, shown))
    if config.proposers != "original":
        if models.recipe is None:
            raise InputError("no planner is given that proposes; give --recipe-model, or vidassist.proposers=original.")
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
            return TaskGraphScore(shown, actions)
