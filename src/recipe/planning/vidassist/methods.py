"""The planning methods by name: VidAssist, the LLM baseline and the agent, with their settings and ablations."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

from pydantic import Field, model_validator

from recipe.config import Positive, SamplingConfig, Settings
from recipe.errors import InputError
from recipe.models.protocol import Answer, Engine, Refusal
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
from recipe.text import plan_steps

# The settings of a planner of next actions. Where VidAssist's own are not known, the defaults are ours.


Method = Literal["vidassist", "agent", "llm"]
Proposers = Literal["both", "original", "recipe"]
ValueName = Literal["generation", "mapping", "evaluation", "task_graph"]
VALUES: tuple[ValueName, ...] = get_args(ValueName)
Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class VidAssistConfig(Settings):
    """How the next actions of a task are planned (paper, appendix "VidAssist integration")."""

    method: Method = "vidassist"
    """`vidassist`; `agent`, the LLM agent baseline; `llm`, the LLM baseline."""
    horizon: Positive = 4
    """T, actions of a plan; the plans for a smaller one are its beginnings."""
    beam: Positive = 1
    """Partial plans kept at each level; 1 is the paper's wording."""
    proposers: Proposers = "both"
    """Who proposes: a prompted model, a planner such as RECIPE, or both."""
    candidates: Positive = 2
    """Proposals of each proposer for a partial plan (paper: two)."""
    values: tuple[ValueName, ...] = VALUES
    """Value functions; `task_graph` is off where no video is shown."""
    weights: dict[ValueName, Weight] = Field(default_factory=dict)
    """Weight of a value function; 1 where none is given."""
    few_shot: Annotated[int, Field(ge=0)] = 0
    """Training videos of the goal that models are shown; 0 is zero-shot."""
    temperature: Annotated[float, Field(ge=0)] = 0.7
    """Of proposals; the LLM baseline and the assessor are asked at 0."""
    max_tokens: Positive = 48
    """Of one proposal or assessment; of one step of the LLM baseline's plan."""
    agent_samples: Positive = 10
    """Steps that the agent baseline samples before it takes one (Huang et al., 2022)."""
    agent_beta: Annotated[float, Field(ge=0)] = 0.3
    """Weight of the mean log-probability in the agent baseline's ranking (Huang et al., 2022)."""
    batch_size: Positive = 64
    """Answers that a model on this machine writes at once."""
    seed: int = 0
    """Of proposals and of the choice of shown videos."""

    @model_validator(mode="after")
    def _something_tells(self) -> Self:
        if self.method == "vidassist" and not self.active:
            raise ValueError("no value function is left that tells candidates apart; leave one on")
        return self

    @property
    def active(self) -> tuple[ValueName, ...]:
        """The value functions that are used."""
        return tuple(name for name in VALUES if name in self.values and (name != "task_graph" or self.few_shot))

    def sampling(self, temperature: float, steps: int = 1) -> SamplingConfig:
        """How an answer of so many steps is sampled."""
        return SamplingConfig(
            temperature=temperature, max_tokens=steps * self.max_tokens, batch_size=self.batch_size, seed=self.seed
        )


# The settings beside a setting: who proposes, each value function left out, other beams, and the two baselines.


_BEAMS = (1, 2, 4)


def ablations(config: VidAssistConfig) -> dict[str, VidAssistConfig]:
    """Name to setting; the given one comes first, and none twice. A baseline has none but itself."""
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


# The LLM baseline: one call writes the whole plan, and each step is mapped to an admissible action afterwards.


def written_at_once(
    engine: Engine,
    sampling: SamplingConfig,
    starts: Sequence[State],
    horizon: int,
    actions: ActionsOf,
    shown: Demonstrations,
    progress: Progress = SILENT,
) -> list[PartialPlan]:
    """A plan of at most `horizon` actions from each start; what an answer holds beyond is cut off."""
    states = list(dict.fromkeys(starts))
    answers = engine.outcomes([plan_chat(state, horizon, shown) for state in states], 1, sampling, progress)
    plans = {
        state: _mapped(state, _proposals(answer, horizon), actions)
        for state, [answer] in zip(states, answers, strict=True)
    }
    return [plans[start] for start in starts]


def _proposals(answer: Answer | Refusal, horizon: int) -> list[Proposal]:
    if isinstance(answer, Refusal):
        return []
    return [Proposal("llm", step, step) for step in plan_steps(answer.text)[:horizon]]


def _mapped(start: State, proposals: Sequence[Proposal], actions: ActionsOf) -> PartialPlan:
    """The plan of the proposals, each the only option of its step."""
    plan = PartialPlan(start)
    candidates = candidates_of([start] * len(proposals), [[one] for one in proposals], actions)
    for [candidate] in candidates:
        [plan] = plan.extended(Options((Option(candidate, {}, None),)))
    return plan


# The methods by name, put together from a setting and the engines that it needs.


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
