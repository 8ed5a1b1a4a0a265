"""OpenRLHF's remote reward: `--reward.remote_url http://host:port/get_reward` (docs/trainers.md).

The query is the prompt followed by the response, decoded with special tokens; the label, the only side channel,
is JSON with the goal and the history.
"""

from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from recipe.reward.scorer import PromptGroup
from recipe.reward.trainers.openrlhf import response_text
from recipe_apps.service.messages import QUEUE, ServiceSettings, checked, completion_steps
from recipe_apps.web.refusals import Refusal, Texts, parsed, read


class GetReward(BaseModel):
    """What OpenRLHF sends: one sample, or empty lists where there are several addresses."""

    model_config = ConfigDict(strict=True)

    query: Texts
    prompts: Texts
    labels: Texts

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        if not len(self.query) == len(self.prompts) == len(self.labels):
            counts = f"{len(self.query)} queries, {len(self.prompts)} prompts and {len(self.labels)} labels"
            raise ValueError(f"there are {counts}; send one of each for a sample")
        return self


class Label(BaseModel):
    """The side channel."""

    model_config = ConfigDict(strict=True)

    goal: str
    history: Texts


def groups(body: bytes, settings: ServiceSettings) -> list[PromptGroup]:
    """The samples of a body of `/get_reward`, each a group of one plan. Raises Refusal."""
    message = read(body, GetReward)
    if len(message.query) > QUEUE:
        raise Refusal("too_many_plans", f"The request holds {len(message.query)} plans; send at most {QUEUE} at once.")
    samples = []
    for number, (query, prompt, label) in enumerate(zip(message.query, message.prompts, message.labels, strict=True)):
        try:
            task = parsed(label, Label, within=f"labels.{number}")
            if (text := response_text(query, prompt)) is None:
                problem = "the query does not begin with its prompt, so the response cannot be found"
                raise Refusal("invalid_field", f"Field 'query.{number}': {problem}; send prompt + response.")
            samples.append(checked(task.goal, task.history, [completion_steps(text, settings)], settings))
        except Refusal as refused:
            named = f"Sample {number}: {refused.message}" if len(message.query) > 1 else refused.message
            raise Refusal(refused.code, named) from None
    return samples
