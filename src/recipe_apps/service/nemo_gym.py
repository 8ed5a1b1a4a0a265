"""NeMo-Gym's resources server: `/verify` echoes the rollout with its reward (docs/service.md)."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, Json

from recipe.reward.scorer import PromptGroup
from recipe.reward.wire import reward_numbers
from recipe.types import Reward
from recipe_apps.service.messages import ServiceSettings, checked, completion_steps
from recipe_apps.web.refusals import Refusal, Texts

_VERDICT = (
    "reward", "reward_components", "mask_sample", "failure_kind", "failure_reason",
    "_ng_failure_class", "_ng_failure_judge_error",
)  # fmt: skip
"""Fields of an earlier verdict, which a rollout that is verified again still carries."""


class Part(BaseModel):
    """A piece of a message; only text is read."""

    type: str = ""
    text: str = ""


class Item(BaseModel):
    """An item of a response: a message, reasoning, a tool call."""

    type: str = "message"
    role: str = "assistant"
    content: Annotated[list[Part], Field(fail_fast=True)] | str | None = None


class Response(BaseModel):
    """The part of an OpenAI Responses object that is read."""

    output: Annotated[list[Item], Field(fail_fast=True)]


class Metadata(BaseModel):
    """The prompt in the request's metadata, whose values are texts: the history is a JSON list."""

    goal: str | None = None
    history: Texts | Json[Texts] | None = None


class CreateParams(BaseModel):
    """What the policy was asked with."""

    metadata: Metadata | None = None


class VerifyRequest(BaseModel):
    """A rollout: what was asked, what was answered, and the prompt beside it or in the metadata."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: CreateParams
    response: Response
    goal: str | None = None
    history: Texts | None = None


def group(message: VerifyRequest, settings: ServiceSettings) -> PromptGroup:
    """The rollout as a prompt and one plan. Raises Refusal."""
    metadata = message.responses_create_params.metadata or Metadata()
    goal = message.goal if message.goal is not None else metadata.goal
    history = message.history if message.history is not None else metadata.history
    for name, value in (("goal", goal), ("history", history)):
        if value is None:
            where = "beside 'response' or in 'responses_create_params.metadata'"
            raise Refusal("missing_field", f"Field {name!r} is missing; give it {where}.")
    return checked(goal or "", history or [], [completion_steps(_text(message.response), settings)], settings)


def verdict(rollout: dict[str, Any], reward: Reward) -> dict[str, Any]:
    """The rollout with its reward and the reward's parts."""
    return _bare(rollout) | {"reward": reward.total, "reward_components": reward_numbers(reward)}


def failure(rollout: dict[str, Any], refusal: Refusal) -> dict[str, Any]:
    """The rollout, marked as one that could not be verified.

    The protocol wants a number in `reward` even so; the failure class keeps the row out of the results, to be
    verified again, and the mask keeps it out of training.
    """
    return _bare(rollout) | {
        "reward": 0.0,
        "reward_components": {},
        "mask_sample": True,
        "failure_reason": refusal.message,
        "_ng_failure_class": "judge_failed",
        "_ng_failure_judge_error": f"{refusal.code}: {refusal.message}",
    }


def _bare(rollout: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in rollout.items() if name not in _VERDICT}


def _text(response: Response) -> str:
    """The text of the assistant's last message; reasoning, tool calls and their results are no part of the plan."""
    messages: Sequence[Item] = [item for item in response.output if (item.type, item.role) == ("message", "assistant")]
    content = messages[-1].content if messages else None
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content if part.type in ("output_text", "text"))
