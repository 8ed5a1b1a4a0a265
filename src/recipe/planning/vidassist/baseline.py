"""The LLM baseline: one call writes the whole plan, and each step is mapped to an admissible action afterwards."""

from collections.abc import Sequence

from recipe.config import SamplingConfig
from recipe.engines.protocol import Answer, Engine, Refused
from recipe.planning.vidassist.candidates import ActionsOf, candidates_of
from recipe.planning.vidassist.prompts import Demonstrations, plan_chat
from recipe.planning.vidassist.search import Option, Options, PartialPlan
from recipe.planning.vidassist.state import Proposal, State
from recipe.progress import SILENT, Progress
from recipe.text import plan_steps


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


def _proposals(answer: Answer | Refused, horizon: int) -> list[Proposal]:
    if isinstance(answer, Refused):
        return []
    return [Proposal("llm", step, step) for step in plan_steps(answer.text)[:horizon]]


def _mapped(start: State, proposals: Sequence[Proposal], actions: ActionsOf) -> PartialPlan:
    """The plan of the proposals, each the only option of its step."""
    plan = PartialPlan(start)
    candidates = candidates_of([start] * len(proposals), [[one] for one in proposals], actions)
    for [candidate] in candidates:
        [plan] = plan.extended(Options((Option(candidate, {}, None),)))
    return plan
