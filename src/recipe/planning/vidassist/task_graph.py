"""Few-shot knowledge: which videos are shown, and the task graph that is estimated from them.

VidAssist has a task-graph score with few shots; ours is first-order: among the shown videos of the goal, how often the
candidate came directly after the last step. In the zero-shot setting nothing is shown and the score is off.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from recipe.errors import InputError
from recipe.planning.vidassist.candidates import ActionsOf
from recipe.planning.vidassist.prompts import Demonstrations
from recipe.planning.vidassist.state import State
from recipe.planning.vidassist.values import Considered
from recipe.progress import SILENT, Progress
from recipe.types import Procedure

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


class TaskGraph:
    """The share of the times that the last step was followed by the candidate, in the shown videos of the goal."""

    name = "task_graph"

    def __init__(self, shown: Demonstrations, actions: ActionsOf) -> None:
        """Steps of the shown videos and of histories count as the action that they are mapped to."""
        self._actions = actions
        self._followed: dict[str, dict[str, Counter[str]]] = {goal: self._counted(goal, shown[goal]) for goal in shown}

    def score(self, considered: Sequence[Considered], progress: Progress = SILENT) -> list[float | None]:
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
