"""The exact quality of a plan: its steps are mapped to the task graph of the goal.

    order    = respected pairs / pairs         over pairs (a, b) where b is new in the plan and waits for a
    coverage = required steps named / required over the required steps that the history lacks
    clean    = useful lines / lines            useful is the first line that names a new step of the goal
    score    = order * 2 coverage clean / (coverage + clean)

A pair is respected if a is in the history or comes earlier in the plan; a required step that is nowhere breaks the
pairs that wait for it. Optional steps may be left out, and count like any other if they are there; one that comes too
late, because a step of the history should have waited for it, breaks that pair too. Only the plan is judged: a
history out of order costs nothing. After a history that a valid order begins with, the score is 1 for the valid
completions and for nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from recipe.errors import InputError
from recipe.types import Reward
from recipe.world.graph import TaskGraph, World

PlanKey = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Validity:
    """The quality of one plan against its task graph; every share is of the plan's lines."""

    score: float
    order: float
    coverage: float
    clean: float
    repeated: float
    """Share of lines that name a step the plan has named before."""
    copied: float
    """Share of lines that name a step of the history."""
    alien: float
    """Share of lines that name a step of other goals only."""
    unrecognised: float
    """Share of lines that name no step of the world."""
    steps: int
    """Number of lines."""
    perfect: bool
    """A valid completion: the score is 1."""

    def reward(self) -> Reward:
        """The score as a reward of which nothing is aligned and nothing gated."""
        return Reward(
            total=self.score,
            aligned_history=0.0,
            aligned_full=0.0,
            rho=0.0,
            gated=False,
            steps=self.steps,
            pool=(),
            best_narration=None,
            parts={"order": self.order, "coverage": self.coverage, "clean": self.clean},
        )


def plan_key(world: World, goal: str, steps: Sequence[str]) -> PlanKey:
    """The step ids a plan says, None for a line that says none; plans with equal keys differ in wording only.

    Raises InputError for an unknown goal.
    """
    own = world.graph(goal).after
    return tuple(world.recogniser.step(step, own) for step in steps)


def score_plan(world: World, goal: str, history: Sequence[str], steps: Sequence[str]) -> Validity:
    """The validity of `steps` as what remains to be done for `goal` after `history`.

    A plan without lines scores 0. Raises InputError for an unknown goal.
    """
    return score_key(world.graph(goal), plan_key(world, goal, history), plan_key(world, goal, steps))


def score_key(graph: TaskGraph, history: PlanKey, plan: PlanKey) -> Validity:
    """As `score_plan`, of step ids."""
    done = set(graph.after).intersection(history)
    line_of: dict[str, int] = {}
    counts = dict.fromkeys(("repeated", "copied", "alien", "unrecognised"), 0)
    for index, step in enumerate(plan):
        if step is None:
            counts["unrecognised"] += 1
        elif step not in graph.after:
            counts["alien"] += 1
        elif step in done:
            counts["copied"] += 1
        elif step in line_of:
            counts["repeated"] += 1
        else:
            line_of[step] = index
    total = len(plan)
    shares = {name: count / total if total else 0.0 for name, count in counts.items()}
    needed = graph.required - done
    coverage = (len(needed & line_of.keys()) / len(needed) if needed else 1.0) if total else 0.0
    clean = len(line_of) / total if total else 0.0

    # The share of respected pairs; 1 where nothing has to wait, 0 where the plan holds no step of the goal.
    present = done | line_of.keys()
    pairs = [(earlier, later) for later in line_of for earlier in graph.before(later, present)]
    chosen = graph.optional & line_of.keys()
    # Pairs within the history are not judged, but one that the plan completes too late is the plan's.
    missed = sum(len(chosen & graph.before(later, present)) for later in done) if chosen else 0
    order = 1.0 if line_of else 0.0
    if pairs or missed:
        # Behind every line: a step that is nowhere breaks each pair that waits for it.
        never = max(line_of.values()) + 1
        kept = sum(earlier in done or line_of.get(earlier, never) < line_of[later] for earlier, later in pairs)
        order = kept / (len(pairs) + missed)
    # The share of respected pairs times the harmonic mean of coverage and clean, which is 0 where one of them is.
    score = order * 2 * coverage * clean / (coverage + clean) if coverage * clean else 0.0
    return Validity(score, order, coverage, clean, **shares, steps=total, perfect=score == 1.0)


class ValidityScorer:
    """Rewards a plan with its validity against the goal's task graph."""

    def __init__(self, world: World) -> None:
        self._world = world

    def score_groups(
        self, groups: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]]
    ) -> list[list[Reward | InputError]]:
        """The validity of each plan of groups (goal, history, plans); an InputError for those of an unknown goal."""
        outcomes: list[list[Reward | InputError]] = []
        for goal, history, plans in groups:
            try:
                outcomes.append([score_plan(self._world, goal, history, plan).reward() for plan in plans])
            except InputError as error:
                outcomes.append([error] * len(plans))
        return outcomes
