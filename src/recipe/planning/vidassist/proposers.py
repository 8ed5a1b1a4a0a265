"""Who proposes the next action: a prompted language model, or a planner such as RECIPE."""

from collections.abc import Callable, Sequence
from typing import Protocol

from recipe.config import SamplingConfig
from recipe.engines.protocol import Answer, Chat, Engine, Refused
from recipe.planning.planner import Request
from recipe.planning.vidassist.prompts import Demonstrations, agent_chat, propose_chat
from recipe.planning.vidassist.state import Proposal, State
from recipe.progress import SILENT, Progress
from recipe.text import plan_steps


class Proposer(Protocol):
    """Proposes next actions."""

    @property
    def name(self) -> str:
        """What its proposals are marked with."""
        ...

    def propose(self, states: Sequence[State], count: int, progress: Progress = SILENT) -> list[list[Proposal]]:
        """`count` proposals for each state, in order; an answer without an action is one with an empty text."""
        ...


class ModelProposer:
    """Any engine asked in any way: the next action is the first step that its answer holds."""

    def __init__(self, name: str, engine: Engine, write: Callable[[State], Chat], sampling: SamplingConfig) -> None:
        """`write` makes the chat."""
        self.name, self._engine, self._write, self._sampling = name, engine, write, sampling

    def propose(self, states: Sequence[State], count: int, progress: Progress = SILENT) -> list[list[Proposal]]:
        """Ask for all states at once."""
        chats = [self._write(state) for state in states]
        answers = self._engine.outcomes(chats, count, self._sampling, progress, logprobs=True)
        return [[self._read(answer) for answer in group] for group in answers]

    def _read(self, answer: Answer | Refused) -> Proposal:
        if isinstance(answer, Refused):
            return Proposal(self.name, "", answer.reason)
        return Proposal(self.name, next(iter(plan_steps(answer.text)), ""), answer.text, answer.logprob)


def language_model(engine: Engine, sampling: SamplingConfig, shown: Demonstrations) -> ModelProposer:
    """VidAssist's own proposer: a language model that is told goal, history and partial plan."""
    return ModelProposer("original", engine, lambda state: propose_chat(state, shown), sampling)


def planner(engine: Engine, sampling: SamplingConfig) -> ModelProposer:
    """A planner as proposer: the first step of its continuation of the history and the partial plan."""
    return ModelProposer("recipe", engine, lambda state: Request(state.goal, state.done).chat, sampling)


def agent(engine: Engine, sampling: SamplingConfig, shown: Demonstrations) -> ModelProposer:
    """The proposer of the LLM agent baseline, which continues a list of steps."""
    return ModelProposer("agent", engine, lambda state: agent_chat(state, shown), sampling)
