"""Attacks: what a policy is drawn to by a reward, and what a best-of-N choice takes.

The greedy attack grows a plan by whichever step, good or bad, raises the reward most. The plan starts empty, may use a
step again, and grows to three times the true length at most, or until three steps running brought nothing; its best
beginning is the attack. Of steps that raise the reward alike the true one is taken.

The best-of-64 attack needs no search: of 64 plans that are composed of the same steps at random, it is the one with the
highest reward. A reward under which it often beats the true continuation is not fit to choose among samples.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Literal, NamedTuple, get_args

from recipe.audit.perturb import AuditPrompt
from recipe.progress import Advance
from recipe.reward.scorer import Outcome, PromptGroup, Scorer, Steps, batches, outcomes_of
from recipe.types import Reward

Kind = Literal["true", "other goal", "filler", "paraphrased history", "history", "goal"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Where the steps of an attack come from, in the order in which equal rewards are decided."""
GREEDY_LENGTH = 3
"""Length of a greedy plan at most, in true lengths."""
PATIENCE = 3
"""Steps that may bring nothing before the attack gives up: a gate makes rewards flat in places."""
BEST_OF, BEST_OF_LENGTH = 64, 2
"""Composed plans of which the best is taken, and their length at most, in true lengths."""
_FILLERS = 8
# Rewordings of the goal that the attack may use, besides the goal itself.
_REWORDED = 4


class AttackPlan(NamedTuple):
    """The plan that the attack ends with."""

    prompt: AuditPrompt
    steps: Steps
    kinds: tuple[Kind, ...]
    """Where each step comes from."""
    reward: float
    true_reward: float
    """Of the true continuation."""

    @property
    def length_ratio(self) -> float:
        """Its length in true lengths."""
        return len(self.steps) / len(self.prompt.true)


def spread(prompts: Sequence[AuditPrompt], count: int) -> list[AuditPrompt]:
    """`count` of the prompts at even distances, all where there are fewer."""
    count = min(count, len(prompts))
    return [prompts[i * len(prompts) // count] for i in range(count)]


def greedy_plans(scorer: Scorer, prompts: Sequence[AuditPrompt], advance: Advance) -> list[AttackPlan]:
    """The greedy optimum for each prompt that can be scored; all plans grow together, so that each round is one call.

    `advance` counts the prompts that are finished.
    """
    vocabularies = [_mixed_vocabulary(prompt) for prompt in prompts]
    plans: list[Steps] = [()] * len(prompts)
    # The best beginning of each plan.
    best: list[Steps] = [()] * len(prompts)
    # Of the best beginning and of the true continuation; absent until the first round.
    rewards: dict[int, tuple[float, float]] = {}
    running = list(range(len(prompts)))
    while running:
        # No steps and the true continuation first, then the plan with each step.
        candidates = [
            [(*plans[index], step) for step in vocabularies[index]] if index in rewards else [(), prompts[index].true]
            for index in running
        ]
        groups = [
            PromptGroup(prompts[index].goal, prompts[index].history, own)
            for index, own in zip(running, candidates, strict=True)
        ]
        left = []
        for index, own, outcomes in zip(running, candidates, outcomes_of(scorer, groups), strict=True):
            totals = [outcome.total for outcome in outcomes if isinstance(outcome, Reward)]
            if len(totals) < len(outcomes):
                rewards.pop(index, None)  # a prompt that cannot be scored whole has no optimum
                continue
            if index not in rewards:
                rewards[index] = totals[0], totals[1]
            else:
                highest = max(totals)
                # `index` takes the earliest of equals, and true steps come first: the attack leaves the truth only
                # where that pays.
                plans[index] = own[totals.index(highest)]
                if highest > rewards[index][0]:
                    best[index], rewards[index] = plans[index], (highest, rewards[index][1])
            if len(plans[index]) < min(GREEDY_LENGTH * len(prompts[index].true), len(best[index]) + PATIENCE):
                left.append(index)
        advance(len(running) - len(left))
        running = left
    return [
        AttackPlan(prompt, best[index], tuple(vocabularies[index][step] for step in best[index]), *rewards[index])
        for index, prompt in enumerate(prompts)
        if index in rewards
    ]


def best_plans(scorer: Scorer, prompts: Sequence[AuditPrompt], seed: int, advance: Advance) -> list[AttackPlan]:
    """The best of the composed plans for each prompt that can be scored, the first of equals."""
    attacks = []
    candidates = [composed_plans(prompt, seed) for prompt in prompts]
    groups = [
        PromptGroup(prompt.goal, prompt.history, [prompt.true, *plans])
        for prompt, plans in zip(prompts, candidates, strict=True)
    ]
    outcomes: list[list[Outcome]] = []
    for batch in batches(groups):
        outcomes += outcomes_of(scorer, batch)
        advance(len(batch))
    for prompt, plans, own in zip(prompts, candidates, outcomes, strict=True):
        totals = [outcome.total for outcome in own if isinstance(outcome, Reward)]
        if len(totals) == len(own):
            true, *others = totals
            best = plans[others.index(max(others))]
            kinds = _mixed_vocabulary(prompt)
            attacks.append(AttackPlan(prompt, best, tuple(kinds[step] for step in best), max(others), true))
    return attacks


def composed_plans(prompt: AuditPrompt, seed: int) -> list[Steps]:
    """64 plans of 1 to 2n steps, the same for every reward.

    A step is drawn by its kind first, so that a kind does not weigh more for having more steps.
    """
    by_kind: dict[Kind, list[str]] = {}
    for step, kind in _mixed_vocabulary(prompt).items():
        by_kind.setdefault(kind, []).append(step)
    kinds = list(by_kind)
    random = Random("/".join((str(seed), prompt.source, prompt.video_id, "best of")))
    lengths = (random.randint(1, BEST_OF_LENGTH * len(prompt.true)) for _ in range(BEST_OF))
    return [tuple(random.choice(by_kind[random.choice(kinds)]) for _ in range(length)) for length in lengths]


def _mixed_vocabulary(prompt: AuditPrompt) -> dict[str, Kind]:
    """Steps with their kinds; a text that occurs in several is of the first."""
    paraphrased = prompt.variants.get("paraphrased_history", ())[: len(prompt.history)]
    sources: tuple[tuple[Kind, Steps], ...] = (
        ("true", prompt.true),
        ("other goal", prompt.variants.get("offgoal", ())),
        ("filler", prompt.padding[:_FILLERS]),
        ("paraphrased history", paraphrased),
        ("history", prompt.history),
        ("goal", (prompt.goal, *prompt.variants.get("goal_reworded", ())[:_REWORDED])),
    )
    vocabulary: dict[str, Kind] = {}
    for kind, steps in sources:
        for step in steps:
            vocabulary.setdefault(step, kind)
    return vocabulary


def composition(attacked: Sequence[AttackPlan]) -> dict[Kind, float]:
    """Share of each kind among all steps of the plans; empty where the plans hold none."""
    counts = Counter(kind for plan in attacked for kind in plan.kinds)
    total = counts.total()
    return {kind: counts[kind] / total for kind in KINDS} if total else {}
