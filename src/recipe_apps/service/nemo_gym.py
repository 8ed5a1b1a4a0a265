"""NeMo-Gym's resources server: `/verify` echoes the rollout with its reward (docs/trainers.md)."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, Json
from pydantic_core import from_json, to_json

from recipe.reward.scorer import PromptGroup
from recipe.types import Reward
from recipe_apps.service.messages import ServiceSettings, checked, completion_steps
from recipe_apps.web.refusals import Refusal, Texts, read

# Fields of an earlier verdict, which a rollout that is verified again still carries.
_VERDICT = (
    "reward", "reward_components", "mask_sample", "failure_kind", "failure_reason",
    "_ng_failure_class", "_ng_failure_judge_error",
)  # fmt: skip


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

    def text(self) -> str:
        """The plan: the assistant's last message, without reasoning, tool calls and their results."""
        items = [item for item in self.output if (item.type, item.role) == ("message", "assistant")]
        content = (items[-1].content if items else None) or ""
        if isinstance(content, str):
            return content
        return "".join(part.text for part in content if part.type in ("output_text", "text"))


class Metadata(BaseModel):
    """The prompt in the request's metadata, whose values are texts: the history is a JSON list."""

    goal: str | None = None
    history: Texts | Json[Texts] | None = None


class CreateParams(BaseModel):
    """What the policy was asked with."""

    metadata: Metadata | None = None


class VerifyRequest(BaseModel):
    """A rollout: the request, the response, and the prompt, either next to them or in the metadata."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: CreateParams
    response: Response
    goal: str | None = None
    history: Texts | None = None

    def prompt(self) -> tuple[str, list[str]]:
        """Goal and history, from wherever they stand. Raises Refusal where one is missing."""
        metadata = self.responses_create_params.metadata or Metadata()
        goal = self.goal if self.goal is not None else metadata.goal
        history = self.history if self.history is not None else metadata.history
        for name, value in (("goal", goal), ("history", history)):
            if value is None:
                where = "next to 'response' or in 'responses_create_params.metadata'"
                raise Refusal("missing_field", f"Field {name!r} is missing; give it {where}.")
        return goal or "", history or []


def group(body: bytes, settings: ServiceSettings) -> PromptGroup:
    """The rollout in a body of `/verify` as a prompt and one plan. Raises Refusal."""
    message = read(body, VerifyRequest)
    return checked(*message.prompt(), [completion_steps(message.response.text(), settings)], settings)


def verdict(body: bytes, outcome: Reward | Refusal) -> bytes:
    """The rollout of a body as JSON with its reward and its parts, or marked as one that could not be verified.

    The protocol wants a number in `reward` even so; the failure class keeps the row out of the results, to be
    verified again, and the mask keeps it out of training.
    """
    rollout = {name: value for name, value in from_json(body).items() if name not in _VERDICT}
    if isinstance(outcome, Reward):
        return to_json(rollout | {"reward": outcome.total, "reward_components": outcome.numbers})
    failure = {
        "reward": 0.0,
        "reward_components": {},
        "mask_sample": True,
        "failure_reason": outcome.message,
        "_ng_failure_class": "judge_failed",
        "_ng_failure_judge_error": f"{outcome.code}: {outcome.message}",
    }
    return to_json(rollout | failure)
