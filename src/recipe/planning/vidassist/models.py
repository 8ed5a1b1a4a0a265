"""Prompts for next actions, and the proposers and value functions that ask models.

The paper states no prompts; those here are text files of the package.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from recipe.artifacts import JsonObject, fingerprint
from recipe.config import SamplingConfig
from recipe.errors import InputError
from recipe.models.protocol import Answer, Chat, Engine, Refusal, read_plan, unanswered
from recipe.planning.vidassist.search import ActionsOf, CandidateStep, Proposal, State
from recipe.progress import SILENT, Progress
from recipe.prompting import fence, fill, json_object, packaged
from recipe.text import SYSTEM_PROMPT, final_answer, format_plan
from recipe.types import Plan, Procedure

Demonstrations = Mapping[str, Sequence[tuple[str, ...]]]
"""Goal to the steps of whole videos of it: the few shots."""
_PACKAGE = "recipe.planning.vidassist"
_NAMES = ("propose", "assess", "plan", "agent")


def prompts_sha256() -> str:
    """SHA-256 of all prompts, a planner's among them: results of two that differ are not comparable."""
    return fingerprint([SYSTEM_PROMPT, *(packaged(_PACKAGE, name) for name in _NAMES)])


def propose_chat(state: State, shown: Demonstrations) -> Chat:
    """Asks for the next action."""
    return _chat("propose", task=_task(state, shown))


def assess_chat(state: State, action: str, shown: Demonstrations) -> Chat:
    """Asks how good a partial plan is that goes on with `action`."""
    return _chat("assess", task=_task(state, shown, action))


def plan_chat(state: State, count: int, shown: Demonstrations) -> Chat:
    """Asks for the next `count` actions at once."""
    return _chat("plan", task=_task(state, shown), count=str(count))


def agent_chat(state: State, shown: Demonstrations) -> Chat:
    """Asks to continue a list of steps, as Huang et al. (2022) prompt: a task, and one line for each step."""
    lists = [_list(state.goal, steps) for steps in shown.get(state.goal, ())]
    lists.append(_list(state.goal, state.done))
    return _chat("agent", lists=fence("\n\n".join(lists)), number=str(len(state.done) + 1))


def _chat(name: str, **values: str) -> Chat:
    return [{"role": "user", "content": fill(packaged(_PACKAGE, name), values)}]


def _task(state: State, shown: Demonstrations, proposed: str | None = None) -> str:
    parts = [f"Task: {state.goal}"]
    for number, steps in enumerate(shown.get(state.goal, ()), start=1):
        parts.append(f"How another person did it, example {number}:\n{format_plan(steps)}")
    parts.append(f"Done so far:\n{_steps(state.observed)}")
    if state.planned:
        parts.append(f"Planned after that:\n{_steps(state.planned)}")
    if proposed is not None:
        parts.append(f"Proposed as the next action: {proposed}")
    return fence("\n".join(parts))


def _steps(steps: Sequence[str]) -> str:
    return format_plan(steps) if steps else "nothing yet"


def _list(goal: str, steps: Sequence[str]) -> str:
    lines = (f"Step {number}: {step}" for number, step in enumerate(steps, start=1))
    return "\n".join([f"Task: {goal}", *lines])


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
"""Schema of an answer, sent where the endpoint takes it."""
_READ = 2_000
"""Characters of an answer in which a score is looked for."""
_NUMBER = r"(?<![\d.\-])(\d+(?:\.\d+)?)(?!\d|\.\d|\s*(?:to|-|–)\s*\d)"
"""No part of another number, and not the beginning of a range."""
_PATTERNS = (
    re.compile(rf"\bscore\b\W{{0,12}}(?:is|of)?\W{{0,4}}{_NUMBER}", re.IGNORECASE),
    re.compile(rf"{_NUMBER}\s*(?:/|out of)\s*{_HIGHEST}\b", re.IGNORECASE),
    re.compile(rf"\A\W*{_NUMBER}\W*\Z"),
)


class Evaluation:
    """Partial-plan evaluation by a language model; 0 to 10 becomes 0 to 1.

    Its answer is parsed as JSON, else by pattern; there is no score where neither finds one from 0 to 10.
    """

    name = "evaluation"

    def __init__(self, engine: Engine, sampling: SamplingConfig, shown: Demonstrations) -> None:
        self._engine, self._sampling, self._shown = engine, sampling, shown

    def score(self, considered: Sequence[CandidateStep], progress: Progress = SILENT) -> list[float | None]:
        """All candidates of all partial plans are asked about at once; None for an answer without a score."""
        chats = [assess_chat(one.state, one.candidate.action, self._shown) for one in considered]
        answers = self._engine.outcomes(chats, 1, self._sampling, progress, schema=SCHEMA)
        return [_read(answer) for [answer] in answers]


def _read(answer: Answer | Refusal) -> float | None:
    return None if isinstance(answer, Refusal) or unanswered(answer) else read_score(answer.text)


def read_score(text: str) -> float | None:
    """The score of an answer as a share of the highest; None where it holds none.

    >>> read_score('{"score": 7}'), read_score("I would say 7 out of 10."), read_score("good")
    (0.7, 0.7, None)
    """
    if (answer := final_answer(text)) is None:
        return None
    score = (json_object(answer) or {}).get("score")
    if isinstance(score, int | float) and not isinstance(score, bool):
        return _share(score)
    matches = (pattern.search(answer[:_READ]) for pattern in _PATTERNS)
    match = next(filter(None, matches), None)
    return None if match is None else _share(float(match[1]))


def _share(score: float) -> float | None:
    """None for what lies outside the scale: it is no score on it."""
    return score / _HIGHEST if 0 <= score <= _HIGHEST else None


class ModelProposer:
    """Any engine asked in any way: the next action is the first step that its answer holds."""

    def __init__(self, name: str, engine: Engine, write: Callable[[State], Chat], sampling: SamplingConfig) -> None:
        """`write` makes the chat."""
        self.name, self._engine, self._write, self._sampling = name, engine, write, sampling

    def propose(self, states: Sequence[State], count: int, progress: Progress = SILENT) -> list[list[Proposal]]:
        """`count` proposals for each state, in order; an answer without an action is one with an empty text."""
        chats = [self._write(state) for state in states]
        answers = self._engine.outcomes(chats, count, self._sampling, progress, logprobs=True)
        return [[self._read(answer) for answer in group] for group in answers]

    def _read(self, answer: Answer | Refusal) -> Proposal:
        if isinstance(answer, Refusal):
            return Proposal(self.name, "", answer.reason)
        plan = read_plan(answer)
        step = plan.steps[0] if isinstance(plan, Plan) else ""
        return Proposal(self.name, step, answer.text or answer.refusal, answer.logprob)


def language_model(engine: Engine, sampling: SamplingConfig, shown: Demonstrations) -> ModelProposer:
    """VidAssist's own proposer: a language model that reads goal, history and partial plan."""
    return ModelProposer("original", engine, lambda state: propose_chat(state, shown), sampling)


def planner(engine: Engine, sampling: SamplingConfig) -> ModelProposer:
    """A planner as proposer: the first step of its continuation of the history and the partial plan."""
    return ModelProposer("recipe", engine, lambda state: engine.prompt.chat(state.goal, state.done), sampling)


def agent(engine: Engine, sampling: SamplingConfig, shown: Demonstrations) -> ModelProposer:
    """The proposer of the LLM agent baseline, which continues a list of steps."""
    return ModelProposer("agent", engine, lambda state: agent_chat(state, shown), sampling)


_BEGINNING = ""


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
        first = sorted(videos[goal], key=lambda one: hashlib.sha256(f"{seed} {one.video_id}".encode()).digest())
        drawn[goal] = tuple(tuple(step.text for step in one.steps) for one in first[:count])
    return drawn


class TaskGraphScore:
    """The share of the times that the last step was followed by the candidate, in the shown videos of the goal.

    VidAssist has a task-graph score with few shots; ours is first-order. In the zero-shot setting it is off.
    """

    name = "task_graph"

    def __init__(self, shown: Demonstrations, actions: ActionsOf) -> None:
        """Steps of the shown videos and of histories count as the action that they are mapped to."""
        self._actions = actions
        self._followed: dict[str, dict[str, Counter[str]]] = {goal: self._counted(goal, shown[goal]) for goal in shown}

    def score(self, considered: Sequence[CandidateStep], progress: Progress = SILENT) -> list[float | None]:
        """None where the last step has no successor in the shown videos."""
        return [self._share(one.state, one.candidate.action) for one in considered]

    def _counted(self, goal: str, videos: Iterable[Sequence[str]]) -> dict[str, Counter[str]]:
        followed: dict[str, Counter[str]] = defaultdict(Counter)
        for steps in videos:
            named = [mapped.action for mapped in self._actions(goal).map(steps)]
            for before, after in zip([_BEGINNING, *named], named, strict=False):
                followed[before][after] += 1
        return followed

    def _share(self, state: State, action: str) -> float | None:
        last = _BEGINNING
        if state.done:
            [mapped] = self._actions(state.goal).map(state.done[-1:])
            last = mapped.action
        after = self._followed.get(state.goal, {}).get(last)
        return after[action] / after.total() if after else None
