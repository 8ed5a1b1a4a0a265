"""What a run of plans came to, in numbers: what was short, what could not be told, who proposed what was chosen."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from recipe.planning.vidassist.search import Choice, PartialPlan


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts over the actions of plans."""

    plans: int
    actions: int
    short: int
    """Plans with fewer actions than the horizon, because nothing more was proposed."""
    candidates: int
    """Different actions that there were to choose from."""
    lost: int
    """Answers without an action."""
    unscored: int
    """Actions that were chosen although no value function told anything."""
    untold: dict[str, int] = field(default_factory=dict)
    """Candidates that a value function could not tell, by value function."""
    chosen_from: dict[str, int] = field(default_factory=dict)
    """Actions by who proposed them: `original`, `recipe`, or `original + recipe`."""


def summarize(plans: Sequence[PartialPlan], horizon: int, assessed: bool = True) -> Summary:
    """The counts of the plans; `assessed` says whether value functions were asked at all."""
    choices = [choice for plan in plans for choice in plan.choices]
    untold: Counter[str] = Counter()
    for choice in choices:
        for option in choice.among.options:
            untold.update({name: int(score is None) for name, score in option.scores.items()})
    return Summary(
        plans=len(plans),
        actions=len(choices),
        short=sum(len(plan.choices) < horizon for plan in plans),
        candidates=sum(len(choice.among.options) for choice in choices),
        lost=sum(len(choice.among.lost) for choice in choices),
        unscored=sum(choice.option.total is None for choice in choices) if assessed else 0,
        untold=dict(untold),
        chosen_from=dict(sorted(Counter(map(_sources, choices)).items())),
    )


def _sources(choice: Choice) -> str:
    return " + ".join(dict.fromkeys(proposal.source for proposal in choice.option.candidate.proposals))
