"""How far a corpus covers prompts, as a scorer reports it, and which share of rewards came from the corpus."""

from collections.abc import Sequence

import numpy as np

from recipe.config import GroundedConfig
from recipe.reward.grounded import grounded_terms
from recipe.reward.scorer import Outcome, Prompt, PromptGroup, Scorer, batches, checked_outcomes
from recipe.types import Reward


def prompt_outcomes(scorer: Scorer, prompts: Sequence[Prompt]) -> list[Outcome]:
    """The reward of the empty plan of each prompt, in order: its `coverage` is the prompt's; a failure stays one."""
    distinct = [PromptGroup(goal, history, [()]) for goal, history in dict.fromkeys(prompts)]
    found: dict[Prompt, Outcome] = {}
    for batch in batches(distinct):
        for group, [outcome] in zip(batch, checked_outcomes(scorer, batch), strict=True):
            found[group.goal, group.history] = outcome
    return [found[prompt] for prompt in prompts]


def corpus_share(rewards: Sequence[Reward], prompts: Sequence[Prompt], config: GroundedConfig) -> float | None:
    """The corpus's share of the differences between rewards of one prompt, 0 to 1: what GRPO learns of it.

    Without price, R is a term K of the corpus (`recipe.reward.grounded.grounded_terms`) and others that read none. The
    share is sum |K - its mean| over the same sum for K and the others; means are over the completions of a prompt. None
    where nothing differs, or where rewards lack the grounded parts.
    """
    groups: dict[Prompt, list[tuple[float, float]]] = {}
    for reward, prompt in zip(rewards, prompts, strict=True):
        if not {"gain", "background", "relevance", "order"} <= reward.parts.keys():
            return None
        terms = grounded_terms(reward.parts, reward.steps, config)
        corpus = terms.pop("corpus", 0.0)
        groups.setdefault(prompt, []).append((corpus, sum(terms.values()) - terms.get("price", 0.0)))
    moved = np.zeros(2)
    for group in groups.values():
        table = np.array(group)
        moved += np.abs(table - table.mean(axis=0)).sum(axis=0)
    return float(moved[0] / moved.sum()) if moved.sum() > 1e-12 else None
