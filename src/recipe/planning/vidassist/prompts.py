"""What models are asked: the packaged prompts with a state in them. The paper states none; these are ours."""

from collections.abc import Mapping, Sequence

from recipe.artifacts import fingerprint
from recipe.engines.protocol import Chat
from recipe.planning.vidassist.state import State
from recipe.prompting import fence, fill, packaged
from recipe.text import SYSTEM_PROMPT, format_plan

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
