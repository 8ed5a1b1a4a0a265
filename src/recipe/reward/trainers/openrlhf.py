"""OpenRLHF (read and run at 0.11.2): a function in a file; the service's `/get_reward` is the same by HTTP.

    --reward.remote_url reward.py        # a file with: from recipe.reward.trainers.openrlhf import reward_func
    --data.label_key label               # the text of {"goal": "...", "history": ["...", ...]}

OpenRLHF calls it in many threads with one sample each; these are scored together. A failure raises, and is counted
and logged here; OpenRLHF then logs it and leaves the sample without a reward, which stops the run.
"""

import re
from collections.abc import Sequence
from typing import Any

from recipe.errors import InputError
from recipe.reward.trainers.source import Row, read_rows, reward_source, row_of
from recipe.text import is_thought_token, open_thought
from recipe.types import Reward

# Marks of Qwen, Llama, Phi, DeepSeek, Gemma, Mistral, SmolVLM and BERT.
_SPECIAL = re.compile(
    r"<\|[^|<>\s]{1,64}\|>|<｜[^｜<>\s]{1,64}｜>|</?s>|<(?:pad|unk|bos|eos|end|start_of_turn|end_of_turn|end_of_utterance)>"
    r"|\[/?INST\]|\[(?:PAD|CLS|SEP|UNK)\]"
)
# Characters at the end of a prompt that may open a thought.
_END = 100


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any) -> dict[str, Any]:
    """{"rewards", "scores", "extra_logs"} of the samples. Raises InputError for one that cannot be read, and as
    `RewardSource.score_each`."""
    result = answer(reward_source().score_each(read_rows(_row, queries, prompts, labels)))
    # OpenRLHF takes a batch apart by its keys; a prompt without a history has no coverage.
    result["extra_logs"].pop("coverage", None)
    return result


def answer(rewards: Sequence[Reward]) -> dict[str, Any]:
    """What OpenRLHF reads; a name is logged where every sample has a number for it."""
    totals = [reward.total for reward in rewards]
    numbers = [reward.numbers for reward in rewards]
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


def _row(query: Any, prompt: Any, label: Any) -> Row:
    for name, value in (("query", query), ("prompt", prompt)):
        if not isinstance(value, str):
            raise InputError(f"the {name} is {value!r:.160}; give it as a text.")
    text = response_text(query, prompt)
    if text is None:
        raise InputError(f"the query does not begin with its prompt ({prompt[:40]!r}); send prompt and response.")
    return row_of(text, label)
