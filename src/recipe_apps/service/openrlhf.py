"""OpenRLHF's remote reward: `--reward.remote_url http://host:port/get_reward` (docs/service.md).

The query is the prompt followed by the response, decoded with special tokens; the label, the only side channel,
is JSON with the goal and the history.
"""

from pydantic import BaseModel, ConfigDict

from recipe.reward.scorer import PromptGroup
from recipe.reward.trainers.openrlhf import response_text
from recipe_apps.service.messages import ServiceSettings, checked, completion_steps
from recipe_apps.web.refusals import Refusal, Texts, parsed


class GetReward(BaseModel):
    """What OpenRLHF sends: one sample, or empty lists where there are several addresses."""

    model_config = ConfigDict(strict=True)

    query: Texts
    prompts: Texts
    labels: Texts


class Label(BaseModel):
    """The side channel."""

    model_config = ConfigDict(strict=True)

    goal: str
    history: Texts


def groups(message: GetReward, settings: ServiceSettings) -> list[PromptGroup]:
    """One group a sample. Raises Refusal."""
    if not len(message.query) == len(message.prompts) == len(message.labels):
        counts = f"{len(message.query)} queries, {len(message.prompts)} prompts and {len(message.labels)} labels"
        raise Refusal("invalid_field", f"There are {counts}; send one of each for a sample.")
    if len(message.query) > settings.queue:
        most = settings.queue
        raise Refusal("too_many_plans", f"The request holds {len(message.query)} plans; send at most {most} at once.")
    found = []
    for number, row in enumerate(zip(message.query, message.prompts, message.labels, strict=True)):
        try:
            found.append(_group(number, *row, settings))
        except Refusal as refused:
            named = f"Sample {number}: {refused.message}" if len(message.query) > 1 else refused.message
            raise Refusal(refused.code, named) from None
    return found


def _group(number: int, query: str, prompt: str, label: str, settings: ServiceSettings) -> PromptGroup:
    side = parsed(label, Label, within=f"labels.{number}")
    text = response_text(query, prompt)
    if text is None:
        problem = "the query does not begin with its prompt, so the response cannot be found"
        raise Refusal("invalid_field", f"Field 'query.{number}': {problem}; send prompt + response.")
    return checked(side.goal, side.history, [completion_steps(text, settings)], settings)
