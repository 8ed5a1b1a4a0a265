"""OpenRLHF (read and run at 0.11.2): a function in a file; the service's `/get_reward` is the same by HTTP.

    --reward.remote_url reward.py        # a file with: from recipe.reward.trainers.openrlhf import reward_func
    --data.label_key label               # the text of {"goal": "...", "history": ["...", ...]}

OpenRLHF calls it in many threads with one sample each; these are scored together. A failure raises, and is counted
and logged here; OpenRLHF then logs it and leaves the sample without a reward, which stops the run.
"""

from collections.abc import Sequence
from typing import Any

from recipe.errors import InputError
from recipe.reward.scorer import Row, read_rows
from recipe.reward.trainers.source import reward_source, row_of
from recipe_apps.service.openrlhf import answer, response_text


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[Any], **_: Any) -> dict[str, Any]:
    """{"rewards", "scores", "extra_logs"} of the samples. Raises InputError for one that cannot be read, and as
    `RewardSource.score_each`."""
    result = answer(reward_source().score_each(read_rows(_row, queries, prompts, labels)))
    # OpenRLHF takes a batch apart by its keys; a prompt without a history has no coverage.
    result["extra_logs"].pop("coverage", None)
    return result


def _row(query: Any, prompt: Any, label: Any) -> Row:
    for name, value in (("query", query), ("prompt", prompt)):
        if not isinstance(value, str):
            raise InputError(f"the {name} is {value!r:.160}; give it as a text.")
    text = response_text(query, prompt)
    if text is None:
        raise InputError(f"the query does not begin with its prompt ({prompt[:40]!r}); send prompt and response.")
    return row_of(text, label)
