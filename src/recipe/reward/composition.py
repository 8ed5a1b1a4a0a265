"""Plans composed of sampled ones: the first steps of one, and what another goes on with at the same place.

A choice among N plans takes a plan with all of its steps. Where one plan begins well and another ends well, a composed
plan has both, and no further plan is written for it: N plans of n steps give up to N (N - 1) n more to choose among,
at the price of their rewards. What bounds a choice among N samples does not bound this one. Where a step depended on
its place alone, a composed plan would be one more sample; but another plan's steps may follow what the policy would
never have them follow, so that ln N - (N - 1) / N nats a plan (`recipe.training.best_of_n`) is no limit, and neither is
the logarithm of all candidates. docs/results/planning.md has what it finds on the embedded world.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter

from recipe.reward.scorer import Prompt, PromptGroup, Scorer, Steps, batches, outcomes_of
from recipe.types import Reward


def crossings(plans: Sequence[Steps]) -> list[Steps]:
    """What two of the plans give, cut at the same place: no plan twice, none of `plans`, and none that repeats a step.

    >>> crossings([("boil", "pour"), ("heat", "pour", "serve")])
    [('boil', 'pour', 'serve'), ('heat', 'pour')]
    """
    crossed = (
        plan[:cut] + other[cut:]
        for plan in plans
        for other in plans
        for cut in range(1, min(len(plan), len(other)) + 1)
    )
    given = set(plans)
    return [plan for plan in dict.fromkeys(crossed) if plan not in given and len(set(plan)) == len(plan)]


def compose(
    scorer: Scorer, prompts: Sequence[Prompt], sampled: Sequence[Mapping[Steps, float]]
) -> list[tuple[Steps, float]]:
    """For each prompt the plan with the highest reward among the sampled ones, with their rewards, and their crossings.

    Of equals the first, the sampled before the composed. A composed plan without a reward is not chosen. `sampled` has
    a plan for each prompt at least. Raises as `recipe.reward.scorer.outcomes_of`.
    """
    best = [max(own.items(), key=itemgetter(1)) for own in sampled]
    crossed = [crossings([*own]) for own in sampled]
    open_to = [place for place, plans in enumerate(crossed) if plans]
    groups = [PromptGroup(*prompts[place], crossed[place]) for place in open_to]
    outcomes = [own for batch in batches(groups) for own in outcomes_of(scorer, batch, log=True)]
    for place, group, own in zip(open_to, groups, outcomes, strict=True):
        for plan, outcome in zip(group.plans, own, strict=True):
            if isinstance(outcome, Reward) and outcome.total > best[place][1]:
                best[place] = plan, outcome.total
    return best
