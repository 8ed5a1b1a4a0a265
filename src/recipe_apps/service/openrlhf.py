"""OpenRLHF's remote reward: `--reward.remote_url http://host:port/get_reward` (docs/service.md).

The query is the prompt followed by the response, decoded with special tokens; the label, the only side channel,
is JSON with the goal and the history.
"""

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict

from recipe.reward.scorer import PromptGroup
from recipe.reward.wire import reward_numbers
from recipe.text import is_thought_token, open_thought
from recipe.types import Reward
from recipe_apps.service.messages import ServiceSettings, checked, completion_steps
from recipe_apps.web.refusals import Refusal, Texts, parsed

_SPECIAL = re.compile(
    r"<\|[^|<>\s]{1,64}\|>|<｜[^｜<>\s]{1,64}｜>|</?s>|<(?:pad|unk|bos|eos|end|start_of_turn|end_of_turn|end_of_utterance)>"
    r"|\[/?INST\]|\[(?:PAD|CLS|SEP|UNK)\]"
)
"""Marks of Qwen, Llama, Phi, DeepSeek, Gemma, Mistral, SmolVLM and BERT."""


_END = 100
"""Characters at the end of a prompt that may open a thought."""


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


def answer(rewards: Sequence[Reward]) -> dict[str, Any]:
    """What OpenRLHF reads; a name is logged where every sample has a number for it."""
    totals = [reward.total for reward in rewards]
    numbers = [reward_numbers(reward) for reward in rewards]
    names = [name for name in (numbers[0] if numbers else ()) if all(name in row for row in numbers)]
    return {"rewards": totals, "scores": totals, "extra_logs": {name: [row[name] for row in numbers] for name in names}}


def response_text(query: str, prompt: str) -> str | None:
    """What follows the prompt, without special tokens; None where the query does not begin with its prompt.

    Decoding may add a first token or move spaces, so where the texts differ only marks and spaces are let pass. Tags of
    a thought stay, and one that the end of the prompt opens is put in front.

    >>> response_text("<s>user: tea<|end|> 1. Boil water</s>", "user: tea<|end|>")
    ' 1. Boil water'
    """
    opening = open_thought(prompt[-_END:])
    at = query.find(prompt)
    if at >= 0 and not _SPECIAL.sub("", query[:at]).strip():
        return opening + _SPECIAL.sub(_tag_or_nothing, query[at + len(prompt) :])
    bare, end = _SPECIAL.sub(_tag_or_nothing, query), 0
    for word in _SPECIAL.sub(_tag_or_nothing, prompt).split():  # a pattern of a long prompt takes seconds to compile
        while bare[end : end + 1].isspace():
            end += 1
        if not bare.startswith(word, end):
            return None
        end += len(word)
    return opening + bare[end:]


def _tag_or_nothing(mark: re.Match[str]) -> str:
    return mark[0] if is_thought_token(mark[0]) else ""


def _group(number: int, query: str, prompt: str, label: str, settings: ServiceSettings) -> PromptGroup:
    side = parsed(label, Label, within=f"labels.{number}")
    text = response_text(query, prompt)
    if text is None:
        problem = "the query does not begin with its prompt, so the response cannot be found"
        raise Refusal("invalid_field", f"Field 'query.{number}': {problem}; send prompt + response.")
    return checked(side.goal, side.history, [completion_steps(text, settings)], settings)
