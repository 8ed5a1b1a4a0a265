"""The bodies of requests to the planner page's service."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from recipe.config import RewardConfig
from recipe.config.reward import BUILT_IN
from recipe.evaluation.judge.verdicts import CRITERIA, HIGHEST
from recipe.prompting import visible
from recipe_apps.web.refusals import Refusal, Texts

# People type these: a longer history or step is a pasted text, and each step is encoded and aligned.
MAX_STEPS, MAX_CHARACTERS = 100, 500
"""Steps of a history, and characters of a goal or a step."""


class RunRequest(BaseModel):
    """The body of `POST /api/runs`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    goal: str
    history: Texts = []
    kind: Literal["plan", "reading"] = "plan"
    """A reading is what Phi sees in a clip."""
    plans: Annotated[int, Field(ge=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    clip: str | None = None
    until: Annotated[float, Field(gt=0)] | None = None
    """Seconds of the clip; frames from then on are not read."""
    key: Annotated[str, Field(max_length=100)] | None = None
    """Made by the client: the same key gives the same run, so that a request may be sent again."""

    @model_validator(mode="after")
    def _clip(self) -> Self:
        if (self.clip is None) != (self.until is None):
            raise ValueError("'clip' and 'until' go together; give both or none")
        if self.kind == "reading" and self.clip is None:
            raise ValueError("a reading needs 'clip' and 'until'")
        if self.clip is not None and self.history:
            raise ValueError("the history is given in words and as a clip; give one of them")
        return self


class DeviationRequest(BaseModel):
    """The body of `POST /api/runs/{id}/deviation`: what was done, from the beginning, by now."""

    model_config = ConfigDict(extra="forbid", strict=True)

    plan: Annotated[int, Field(ge=0)]
    history: Texts


class FeedbackRequest(BaseModel):
    """The body of `POST /api/runs/{id}/feedback`: on a step, on the whole plan, or both."""

    model_config = ConfigDict(extra="forbid", strict=True)

    plan: Annotated[int, Field(ge=0)]
    rater: Annotated[str, Field(max_length=100)] = ""
    step: Annotated[int, Field(ge=1)] | None = None
    verdict: Literal["keep", "reject", "correct"] | None = None
    text: str | None = None
    """The step as it should be, for `correct`."""
    scores: dict[str, Annotated[int, Field(ge=0, le=HIGHEST)]] = {}
    comment: Annotated[str, Field(max_length=2000)] = ""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if (self.step is None) != (self.verdict is None):
            raise ValueError("'step' and 'verdict' go together; give both or none")
        if (self.verdict == "correct") != (self.text is not None):
            raise ValueError("'text' is the corrected step; it goes with the verdict 'correct'")
        if unknown := sorted(set(self.scores) - set(CRITERIA)):
            raise ValueError(f"{unknown[0]!r} is no criterion; they are {', '.join(CRITERIA)}")
        if self.step is None and not self.scores and not self.comment.strip():
            raise ValueError("there is no feedback; give a step with a verdict, scores or a comment")
        return self


class SearchRequest(BaseModel):
    """The body of `POST /api/search`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    corpus: str
    """The id of the corpus that is meant: another one is refused."""
    steps: Annotated[Texts, Field(min_length=1)]
    k: Annotated[int, Field(ge=1, le=1000)] = 5


def _built_in(name: str) -> str:
    # No function of the user's own: whoever asks would have its module imported here.
    if name not in BUILT_IN:
        known = ", ".join(map(repr, BUILT_IN))
        raise ValueError(f"a server explains {known}; ask for a reward of your own without --server")
    return name


class ExplainRequest(BaseModel):
    """The body of `POST /api/explain`: a plan, and the reward that is to be explained, by default the paper's."""

    model_config = ConfigDict(extra="forbid", strict=True)

    corpus: str
    """As in a search."""
    goal: str
    history: Texts
    plan: Texts
    verifier: Annotated[str, AfterValidator(_built_in), Field(json_schema_extra={"enum": [*BUILT_IN]})] | None = None
    pool: Literal["history", "full", "own"] | None = None

    def config(self) -> RewardConfig:
        """The reward that is meant."""
        return RewardConfig(**self.model_dump(include={"verifier", "pool"}, exclude_none=True))


def clean_text(name: str, text: str) -> str:
    """A text in one line, without characters that hide others. Raises Refusal where it is blank or too long."""
    if len(text) > MAX_CHARACTERS:
        raise Refusal("too_long", f"{name} has {len(text):,} characters; this page takes at most {MAX_CHARACTERS}.")
    if not (clean := " ".join(visible(text).split())):
        raise Refusal("invalid_field", f"{name} is empty; give it words or leave it out.")
    return clean


def clean_steps(steps: Sequence[str]) -> tuple[str, ...]:
    """The steps of a history, each as `clean_text`. Raises Refusal."""
    if len(steps) > MAX_STEPS:
        raise Refusal("too_many_steps", f"The history has {len(steps):,} steps; at most {MAX_STEPS} are read.")
    return tuple(clean_text(f"Step {number} of the history", step) for number, step in enumerate(steps, 1))
