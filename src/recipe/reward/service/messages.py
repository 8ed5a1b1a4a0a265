"""Limits of the reward service, and the bodies of its requests."""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from recipe.config import Positive, Settings
from recipe.reward.scorer import PromptGroup
from recipe.text import plan_steps
from recipe.web.refusals import Refusal


class ServiceSettings(Settings):
    """Limits of requests, and how they are batched."""

    max_steps: Positive = 200
    """Steps of a history or of a plan; more than a completion's token limit can write."""
    max_characters: Positive = 10_000
    """Characters of a step or a goal."""
    max_body: Positive = 4 << 20
    """Bytes of a request."""
    queue: Positive = 4096
    """Plans that may wait to be scored; requests beyond are refused with `queue_full`."""
    timeout: Annotated[float, Field(gt=0)] = 60.0
    """Seconds after which a request that is not scored ends in an error; counted by the worker's clock."""
    batch: Positive = 64
    """Plans scored together."""
    linger: Annotated[float, Field(ge=0, le=1)] = 0.001
    """Seconds that the first request after a pause waits for others to be scored with it."""
    token: SecretStr | None = None
    """What clients must send; without one, everyone may ask."""


class ScoreRequest(BaseModel):
    """The body of `/score`: one plan as steps or as a completion's text, or several plans of one prompt."""

    model_config = ConfigDict(extra="forbid", strict=True)

    goal: str
    history: list[str]
    continuation: list[str] | None = None
    completion: str | None = None
    continuations: list[list[str]] | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if sum(form is not None for form in (self.continuation, self.completion, self.continuations)) != 1:
            raise ValueError("give exactly one of 'continuation', 'completion' and 'continuations'")
        return self

    @property
    def plans(self) -> list[Sequence[str]]:
        """The plans, each as steps."""
        if self.completion is not None:
            return [plan_steps(self.completion)]
        return [*(self.continuations or [])] if self.continuation is None else [self.continuation]


def checked(
    goal: str, history: Sequence[str], plans: Sequence[Sequence[str]], settings: ServiceSettings
) -> PromptGroup:
    """A prompt and its plans, within the limits. Raises Refusal."""
    _check_text("The goal", goal, settings)
    _check_steps("The history", history, settings)
    for number, plan in enumerate(plans, start=1):
        _check_steps("The plan" if len(plans) == 1 else f"Plan {number}", plan, settings)
    return PromptGroup(goal, tuple(history), [tuple(plan) for plan in plans])


def _check_steps(name: str, steps: Sequence[str], settings: ServiceSettings) -> None:
    if len(steps) > settings.max_steps:
        most = settings.max_steps
        raise Refusal("too_many_steps", f"{name} has {len(steps)} steps; this service takes at most {most}.")
    for number, step in enumerate(steps, start=1):
        _check_text(f"{name}'s step {number}", step, settings)


def _check_text(name: str, text: str, settings: ServiceSettings) -> None:
    if not text or text.isspace():
        raise Refusal("invalid_field", f"{name} is blank; give it words or leave it out.")
    if len(text) > settings.max_characters:
        most = settings.max_characters
        raise Refusal("too_long", f"{name} has {len(text)} characters; this service takes at most {most}.")
