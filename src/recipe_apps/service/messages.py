"""Limits of the reward service, and the bodies of its requests."""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from recipe.config import Positive, Settings
from recipe.errors import HALVES
from recipe.plan_text import plan_steps
from recipe.reward.scorer import PromptGroup
from recipe_apps.web.refusals import Refusal, Texts, read

# What `str.splitlines` splits at.
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"


MAX_BODY = 4 << 20
"""Bytes of a request: twenty completions of the largest size."""
# A trainer's largest batch: 512 prompts of 8 roll-outs, all sent at once.
QUEUE = 4096
"""Plans of one client, an address, that may wait to be scored; requests beyond are refused with `queue_full`. Four
times as many may wait in all."""
# Characters of a step or a goal.
# An encoder reads the first few hundred tokens of a text; what is longer is no step.
_MAX_CHARACTERS = 10_000
# Lines of a completion; more than its token limit can write.
# Lines cost more than characters: each is looked at for a step.
_MAX_LINES = 20_000


class ServiceSettings(Settings):
    """Limits of requests that a trainer's completions or a slow encoder may need higher."""

    max_steps: Positive = 200
    """Steps of a history or of a plan; more than a completion's token limit can write."""
    max_completion: Positive = 200_000
    """Characters of a completion, or of the steps of a history or a plan together."""
    timeout: Annotated[float, Field(gt=0)] = 60.0
    """Seconds after which a request that is not scored ends in an error; counted by the worker's clock."""


class ScoreRequest(BaseModel):
    """The body of `/score`: one plan as steps or as a completion's text, or several plans of one prompt."""

    model_config = ConfigDict(extra="forbid", strict=True)

    goal: str
    history: Texts
    continuation: Texts | None = None
    completion: str | None = None
    continuations: Annotated[list[Texts], Field(fail_fast=True)] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if sum(form is not None for form in (self.continuation, self.completion, self.continuations)) != 1:
            raise ValueError("give exactly one of 'continuation', 'completion' and 'continuations'")
        return self


def score_group(body: bytes, settings: ServiceSettings) -> tuple[PromptGroup, bool]:
    """The prompt and the plans of a body of `/score`, and whether it holds one plan. Raises Refusal."""
    message = read(body, ScoreRequest)
    if message.completion is not None:
        plans: Sequence[Sequence[str]] = [completion_steps(message.completion, settings)]
    elif message.continuation is not None:
        plans = [message.continuation]
    else:
        plans = message.continuations or []
    return checked(message.goal, message.history, plans, settings), message.continuations is None


def completion_steps(text: str, settings: ServiceSettings) -> Sequence[str]:
    """The steps of a completion, which is not parsed where it is too long. Raises Refusal."""
    _check_length("The completion", len(text), settings.max_completion)
    if (lines := sum(map(text.count, _LINE_ENDS))) > _MAX_LINES:
        problem = f"more than {lines} lines; this service takes at most {_MAX_LINES}"
        raise Refusal("too_long", f"The completion has {problem}.")
    return plan_steps(text)


def checked(
    goal: str, history: Sequence[str], plans: Sequence[Sequence[str]], settings: ServiceSettings
) -> PromptGroup:
    """A prompt and its plans, within the limits. Raises Refusal."""
    if len(plans) > QUEUE:
        raise Refusal("too_many_plans", f"The request holds {len(plans)} plans; send at most {QUEUE} at once.")
    for number, steps in enumerate(([goal], history, *plans), start=-1):
        name = {-1: "The goal", 0: "The history"}.get(number) or ("The plan" if len(plans) == 1 else f"Plan {number}")
        if number >= 0:
            if len(steps) > settings.max_steps:
                most = settings.max_steps
                raise Refusal("too_many_steps", f"{name} has {len(steps)} steps; this service takes at most {most}.")
            _check_length(name, sum(map(len, steps)), settings.max_completion)
        for index, text in enumerate(steps, start=1):
            problem = "is blank; give it words or leave it out" if not text or text.isspace() else None
            if not text.isascii() and HALVES.search(text):
                problem = "holds half a character; repair or remove it"
            # A body can hold hundreds of thousands of texts: they are named only where something is wrong.
            if problem or len(text) > _MAX_CHARACTERS:
                named = name if number < 0 else f"{name}'s step {index}"
                if problem:
                    raise Refusal("invalid_field", f"{named} {problem}.")
                _check_length(named, len(text), _MAX_CHARACTERS)
    return PromptGroup(goal, tuple(history), [tuple(plan) for plan in plans])


def _check_length(name: str, length: int, most: int) -> None:
    if length > most:
        raise Refusal("too_long", f"{name} has {length} characters; this service takes at most {most}.")
