"""Settings of `recipe plan`, and of a planner of next actions; where VidAssist's own are not known, they are ours."""

from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from recipe.config.base import Batched, Positive, Seeded, Settings
from recipe.config.models import SamplingConfig
from recipe.config.reward import VerifierName

Method = Literal["vidassist", "agent", "llm"]
Proposers = Literal["both", "original", "recipe"]
ValueName = Literal["generation", "mapping", "evaluation", "task_graph"]
VALUES: tuple[ValueName, ...] = get_args(ValueName)
AGENT_BETA = 0.3
"""Weight of the mean log-probability in the agent baseline's ranking, as published (Huang et al., 2022)."""


class PlanConfig(Settings):
    """How `recipe plan` asks a planner, which examples it leaves out, and by which reward it ranks plans."""

    prompt: str | None = None
    """`plain`, `one-example` or a file (docs/planning.md). Left out: what the model was trained with."""
    phi: str | None = None
    """Model that describes the video for a planner that reads text (Socratic)."""
    phi_endpoint: str | None = None
    """Address of the endpoint that serves `phi`."""
    skip_missing: bool = False
    """Leave out examples without a video or a history of Phi."""
    verifier: VerifierName | None = None
    """The grounded reward, the paper's, or `module:function`, a function of yours (docs/own.md); `r0` and `length` are
    controls. Left out: as `config` says, and without it the grounded one."""
    config: Path | None = None
    """Reward settings, a TOML file."""


class SearchConfig(Settings):
    """Whether plans are composed step by step by a verifier, and how (docs/planning.md)."""

    search: Literal["none", "recombine"] = "none"
    """`recombine` composes a plan from the steps of sampled plans; `none` takes whole plans."""
    width: Positive = 4
    """Beginnings of plans that the search keeps."""
    samples: Positive = 8
    """Whole plans that are sampled."""
    budget: Positive | None = None
    """Most different steps to encode for a prompt; then the best plan so far is taken. Left out: no bound."""


class VidAssistConfig(Seeded, Batched):
    """How the next actions of a task are planned (paper, appendix "VidAssist integration").

    The seed draws the proposals and the shown videos.
    """

    fixed = MappingProxyType({"agent_beta": AGENT_BETA, "weights": {}})

    method: Method = "vidassist"
    """`vidassist`; `agent`, the LLM agent baseline; `llm`, the LLM baseline."""
    horizon: Positive = 4
    """T, actions of a plan; plans for a smaller one are its beginnings."""
    beam: Positive = 1
    """Partial plans kept at each level; 1 is the paper's wording."""
    proposers: Proposers = "both"
    """Who proposes: a prompted model, a planner such as RECIPE, or both."""
    candidates: Positive = 2
    """Proposals of each proposer for a partial plan (paper: two)."""
    values: tuple[ValueName, ...] = VALUES
    """Value functions; `task_graph` is off where no video is shown."""
    few_shot: Annotated[int, Field(ge=0)] = 0
    """Training videos of the goal that models are shown; 0 is zero-shot."""
    temperature: Annotated[float, Field(ge=0)] = 0.7
    """Of proposals; the LLM baseline and the assessor are asked at 0."""
    max_tokens: Positive = 48
    """Of one proposal or assessment; of one step of the LLM baseline's plan."""
    agent_samples: Positive = 10
    """Steps that the agent baseline samples before it takes one (Huang et al., 2022)."""

    @model_validator(mode="after")
    def _something_tells(self) -> Self:
        if self.method == "vidassist" and not self.active:
            raise ValueError("no value function is left that distinguishes candidates; leave one on")
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
