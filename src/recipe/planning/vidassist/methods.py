"""The planning methods by name, VidAssist, the LLM baseline and the agent, with the prompts that their models read.

The paper states no prompts; those here are text files of the package.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from recipe.artifacts import JsonObject, fingerprint, write_json
from recipe.config.models import ModelConfig, SamplingConfig
from recipe.config.planning import AGENT_BETA, VidAssistConfig
from recipe.errors import InputError
from recipe.models.costs import Budget
from recipe.models.model import open_model
from recipe.models.protocol import Chat, Engine, Refusal, unanswered
from recipe.planning.planner import read_plan
from recipe.planning.prediction_files import write_predictions
from recipe.planning.vidassist.search import (
    ActionsOf,
    NextStep,
    PartialPlan,
    Proposal,
    Proposer,
    Search,
    State,
    Value,
    candidates_of,
    text_generation,
    text_mapping,
    translation,
)
from recipe.planning.vidassist.trace import manifest_of, predicted, summarize, write_trace
from recipe.progress import SILENT, Progress
from recipe.prompting import fence, fill, json_object, packaged
from recipe.text import SYSTEM_PROMPT, final_answer, format_plan
from recipe.types import Example, Plan, Procedure

Demonstrations = Mapping[str, Sequence[tuple[str, ...]]]
"""Goal to the steps of whole videos of it: the few shots."""
_PACKAGE = "recipe.planning.vidassist"
_BEAMS = (1, 2, 4)
_HIGHEST = 10
SCHEMA: JsonObject = {
    "name": "assessment",
    "schema": {
        "type": "object",
        "properties": {"score": {"type": "integer", "minimum": 0, "maximum": _HIGHEST}},
        "required": ["score"],
        "additionalProperties": False,
    },
}
"""Schema of an assessment, sent where the endpoint takes it."""
# Characters of an answer in which a score is looked for.
_READ = 2_000
# No part of another number, and not the beginning of a range.
_NUMBER = r"(?<![\d.\-])(\d+(?:\.\d+)?)(?!\d|\.\d|\s*(?:to|-|–)\s*\d)"
_PATTERNS = (
    re.compile(rf"\bscore\b\W{{0,12}}(?:is|of)?\W{{0,4}}{_NUMBER}", re.IGNORECASE),
    re.compile(rf"{_NUMBER}\s*(?:/|out of)\s*{_HIGHEST}\b", re.IGNORECASE),
    re.compile(rf"\A\W*{_NUMBER}\W*\Z"),
)


def prompt_chat(
    name: Literal["propose", "assess", "plan", "agent"],
    state: State,
    shown: Demonstrations,
    *,
    action: str | None = None,
    count: int = 0,
) -> Chat:
    """The chat of a packaged prompt about a state.

    `propose` asks for the next action, `assess` how good a partial plan is that goes on with `action`, `plan` for the
    next `count` actions at once, and `agent` to continue a list of steps, as Huang et al. (2022) prompt.
    """
    videos = shown.get(state.goal, ())
    if name == "agent":
        lists = [
            "\n".join(
                [f"Task: {state.goal}", *(f"Step {number}: {step}" for number, step in enumerate(steps, start=1))]
            )
            for steps in (*videos, state.done)
        ]
        values = {"lists": fence("\n\n".join(lists)), "number": str(len(state.done) + 1)}
    else:
        parts = [f"Task: {state.goal}"]
        for number, steps in enumerate(videos, start=1):
            parts.append(f"How another person did it, example {number}:\n{format_plan(steps)}")
        parts.append(f"Done so far:\n{format_plan(state.observed) if state.observed else 'nothing yet'}")
        if state.planned:
            parts.append(f"Planned after that:\n{format_plan(state.planned)}")
        if action is not None:
            parts.append(f"Proposed as the next action: {action}")
        values = {"task": fence("\n".join(parts))} | ({"count": str(count)} if name == "plan" else {})
    return [{"role": "user", "content": fill(packaged(_PACKAGE, name), values)}]


def demonstrations(
    procedures: Iterable[Procedure], goals: Iterable[str], count: int, seed: int = 0
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """`count` videos of each goal, drawn by `seed` whatever their order; none at all for `count` 0.

    Raises InputError where a goal has fewer with a step.
    """
    if count == 0:
        return {}
    videos: dict[str, list[Procedure]] = defaultdict(list)
    for procedure in procedures:
        if procedure.steps:
            videos[procedure.goal].append(procedure)
    drawn = {}
    for goal in dict.fromkeys(goals):
        if len(videos[goal]) < count:
            raise InputError(
                f"{len(videos[goal])} training videos are of the goal {goal!r} and {count} were asked for; "
                "lower --few-shot."
            )
        # By a hash of each video: neither their order in the file nor videos of other goals change what is drawn.
        order = sorted(videos[goal], key=lambda video: hashlib.sha256(f"{seed} {video.video_id}".encode()).digest())
        drawn[goal] = tuple(tuple(step.text for step in video.steps) for video in order[:count])
    return drawn


@dataclass(frozen=True)
class ModelProposer:
    """An engine asked by a prompt: the next action is the first step that its answer holds."""

    name: str
    engine: Engine
    sampling: SamplingConfig
    prompt: Literal["propose", "agent"] | None
    """None for the engine's own, with which a planner was trained to continue a history."""
    shown: Demonstrations

    def __call__(self, states: Sequence[State], count: int, progress: Progress = SILENT) -> list[list[Proposal]]:
        """`count` proposals for each state, in order; an answer without an action is one with an empty text."""
        if self.prompt is None:
            chats = [self.engine.prompt.chat(state.goal, state.done) for state in states]
        else:
            chats = [prompt_chat(self.prompt, state, self.shown) for state in states]
        proposals: list[list[Proposal]] = []
        for group in self.engine.outcomes(chats, count, self.sampling, progress, logprobs=True):
            proposals.append([])
            for answer in group:
                if isinstance(answer, Refusal):
                    proposals[-1].append(Proposal(self.name, "", answer.reason))
                    continue
                plan = read_plan(answer)
                step = plan.steps[0] if isinstance(plan, Plan) else ""
                proposals[-1].append(Proposal(self.name, step, answer.text or answer.refusal, answer.logprob))
        return proposals


def assess(
    steps: Sequence[NextStep],
    progress: Progress = SILENT,
    *,
    engine: Engine,
    sampling: SamplingConfig,
    shown: Demonstrations,
) -> list[float | None]:
    """Partial-plan evaluation by a language model, asked about all candidates of all partial plans at once.

    None for an answer without a score (`read_score`).
    """
    chats = [prompt_chat("assess", state, shown, action=candidate.action) for state, candidate in steps]
    answers = engine.outcomes(chats, 1, sampling, progress, schema=SCHEMA)
    return [
        None if isinstance(answer, Refusal) or unanswered(answer) else read_score(answer.text) for [answer] in answers
    ]


def read_score(text: str) -> float | None:
    """The score of an answer, JSON or else by pattern, as a share of the highest; None where none is from 0 to 10.

    >>> read_score('{"score": 7}'), read_score("I would say 7 out of 10."), read_score("good")
    (0.7, 0.7, None)
    """
    if (answer := final_answer(text)) is None:
        return None
    score = (json_object(answer) or {}).get("score")
    # In Python true of JSON is an integer.
    if not isinstance(score, int | float) or isinstance(score, bool):
        matches = (pattern.search(answer[:_READ]) for pattern in _PATTERNS)
        match = next(filter(None, matches), None)
        if match is None:
            return None
        score = float(match[1])
    return score / _HIGHEST if 0 <= score <= _HIGHEST else None


def task_graph_score(
    steps: Sequence[NextStep], _progress: Progress = SILENT, *, shown: Demonstrations, actions: ActionsOf
) -> list[float | None]:
    """The share of the times that the last step was followed by the candidate, in the shown videos of the goal.

    Steps of the shown videos and of histories count as the action that they are mapped to. None where the last step
    has no successor in the shown videos. VidAssist has a task-graph score with few shots; ours is first-order.
    """
    beginning = ""
    followed: dict[str, dict[str, Counter[str]]] = {}
    scores: list[float | None] = []
    for state, candidate in steps:
        if state.goal not in followed:
            followed[state.goal] = defaultdict(Counter)
            for video in shown.get(state.goal, ()):
                names = [match.action for match in actions(state.goal).map(video)]
                for before, after in zip([beginning, *names], names, strict=False):
                    followed[state.goal][before][after] += 1
        last = actions(state.goal).map(state.done[-1:])[0].action if state.done else beginning
        after_last = followed[state.goal].get(last)
        scores.append(after_last[candidate.action] / after_last.total() if after_last else None)
    return scores


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
    settings: dict[str, VidAssistConfig] = {}
    for name, change in changes.items():
        changed = VidAssistConfig.model_validate(config.model_dump() | change)
        if changed not in settings.values():
            settings[name] = changed
    return settings


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
    """The open `model` of `settings` and the planner, which are one model if their settings are the same."""
    if recipe is None or recipe == settings:
        yield Models(model, None if recipe is None else model)
        return
    with open_model(recipe, budget=budget) as planner:
        yield Models(model, planner)


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
        # One call writes each plan, and each step is mapped to an admissible action afterwards.
        states = list(dict.fromkeys(starts))
        chats = [prompt_chat("plan", state, shown, count=config.horizon) for state in states]
        answers = models.model.outcomes(chats, 1, config.sampling(0.0, steps=config.horizon), progress)
        plans: dict[State, PartialPlan] = {}
        for state, [answer] in zip(states, answers, strict=True):
            written = None if isinstance(answer, Refusal) else read_plan(answer)
            steps = written.steps[: config.horizon] if isinstance(written, Plan) else ()
            plans[state] = PartialPlan(state)
            proposals = [[Proposal("llm", step, step)] for step in steps]
            for candidates in candidates_of([state] * len(steps), proposals, actions):
                [plans[state]] = plans[state].extended(tuple(candidates))
        return [plans[start] for start in starts]

    sampling = config.sampling(config.temperature)
    if config.method == "agent":
        # Huang et al. (2022): every step is sampled, translated to the nearest action, ranked, and appended.
        proposer = ModelProposer("agent", models.model, sampling, "agent", shown)
        values: dict[str, Value] = {"translation": partial(translation, beta=AGENT_BETA)}
        return Search((proposer,), config.agent_samples, actions, values, config.horizon).run(starts, progress)

    proposers: list[Proposer] = []
    if config.proposers != "recipe":
        proposers.append(ModelProposer("original", models.model, sampling, "propose", shown))
    if config.proposers != "original":
        if models.recipe is None:
            raise InputError("no planner is given that proposes; give --recipe-model, or vidassist.proposers=original.")
        proposers.append(ModelProposer("recipe", models.recipe, sampling, None, {}))
    every: dict[str, Value] = {
        "generation": text_generation,
        "mapping": text_mapping,
        "evaluation": partial(assess, engine=models.model, sampling=config.sampling(0.0), shown=shown),
        "task_graph": partial(task_graph_score, shown=shown, actions=actions),
    }
    values = {name: every[name] for name in config.active}
    search = Search(tuple(proposers), config.candidates, actions, values, config.horizon, config.beam)
    return search.run(starts, progress)


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
    # Of all prompts, a planner's among them: results of two that differ are not comparable.
    prompts = [SYSTEM_PROMPT, *(packaged(_PACKAGE, name) for name in ("propose", "assess", "plan", "agent"))]
    manifest: JsonObject = {
        "output": output.name,
        "trace": trace.name,
        "settings": config.model_dump(mode="json"),
        "values": list(config.active) if config.method == "vidassist" else [],
        **about,
        "prompts": fingerprint(prompts),
        "few_shot": fingerprint(shown) if shown else None,
        "samples": len(pairs),
        "counts": summarize(plans, config.horizon, assessed=config.method != "llm"),
    }
    write_trace(trace, pairs)
    write_predictions(output, (predicted(example_id, plan) for example_id, plan in pairs))
    # Last: where it is, the plans that it counts are there, too.
    write_json(manifest_of(output), manifest)
    return manifest
