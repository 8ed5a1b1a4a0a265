"""Plans of actions as predictions, with what models wrote beside the actions that it was taken for."""

from recipe.planning.predictions import Prediction
from recipe.planning.vidassist.search import PartialPlan
from recipe.text import format_plan


def predicted(example_id: str, plan: PartialPlan) -> Prediction:
    """The planned actions as steps; `text` is the same plan in the words of the proposals, the nearest of each."""
    written = [_words(plan, place) for place in range(len(plan.choices))]
    actions = tuple(choice.option.candidate.action for choice in plan.choices)
    return Prediction(example_id, actions, text=format_plan(written))


def _words(plan: PartialPlan, place: int) -> str:
    candidate = plan.choices[place].option.candidate
    pairs = zip(candidate.proposals, candidate.mapped, strict=True)
    proposal, _ = max(pairs, key=lambda pair: pair[1].similarity)
    return proposal.text
