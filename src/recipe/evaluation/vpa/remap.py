"""Plans in free words as plans over the closed set of actions, with how sure each mapping was.

A step that is an action, letter by letter, is that action. Any other is embedded and taken for the nearest one
(`planning.admissible`), of all actions or, in a setting of its own that is easier, of the goal's card.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

from recipe.evaluation.vpa.protocol import END, Sample, Taxonomy
from recipe.planning.admissible import ActionMatch, AdmissibleActions, Embed
from recipe.prompting import visible

LOW_MARGIN = 0.05
"""A margin below which two actions are about as near."""
_LONGEST = 1_000
"""Characters of a step that are read."""


@dataclass(frozen=True, slots=True)
class MappedPlan:
    """A plan's first steps and the actions that they are taken for; all empty where there is no prediction."""

    steps: tuple[str, ...] = ()
    """As they were read: invisible characters blank, long ones cut."""
    actions: tuple[str, ...] = ()
    similarities: tuple[float | None, ...] = ()
    margins: tuple[float | None, ...] = ()
    """None, as the similarities, where a step is an action."""
    missing: bool = False


class RemapResult(NamedTuple):
    """The plans in the order of the samples, and what is to be known of the mapping."""

    plans: list[MappedPlan]
    measures: dict[str, float]


def remap(
    samples: Sequence[Sample],
    plans: Mapping[str, Iterable[str]],
    taxonomy: Taxonomy,
    open_embed: Callable[[], Embed],
    width: int,
    within_goal: bool = False,
    low_margin: float = LOW_MARGIN,
) -> RemapResult:
    """The first `width` steps of each sample's plan as actions; `plans` are steps by sample id.

    A sample without a plan is missing, which the measures count. The encoder is opened only where a step is no action.
    """
    read = {one.sample_id: _first_steps(plans[one.sample_id], width) for one in samples if one.sample_id in plans}
    nearest = _nearest(samples, read, taxonomy, open_embed, within_goal)
    mapped = []
    for one in samples:
        steps = read.get(one.sample_id, ())
        exact = [_exact(step, taxonomy, one.goal, within_goal) for step in steps]
        others = nearest.get(one.goal if within_goal else "", {})
        found = [others[step] if action is None else None for step, action in zip(steps, exact, strict=True)]
        mapped.append(
            MappedPlan(
                steps,
                tuple(
                    taxonomy.action(near.action, one.goal) if near is not None else action or ""
                    for action, near in zip(exact, found, strict=True)
                ),
                tuple(None if near is None else near.similarity for near in found),
                tuple(None if near is None else near.margin for near in found),
                missing=one.sample_id not in read,
            )
        )
    return RemapResult(mapped, _measures(mapped, width, low_margin))


def _first_steps(steps: Iterable[str], width: int) -> tuple[str, ...]:
    """The first steps that hold something to read."""
    texts = (visible(step[:_LONGEST]).strip() for step in steps)
    return tuple(islice((text for text in texts if text), width))


def _exact(step: str, taxonomy: Taxonomy, goal: str, within_goal: bool) -> str | None:
    """The action that a step is as it stands."""
    if step == END:
        return END
    if step in (taxonomy.cards[goal] if within_goal else taxonomy.texts):
        return taxonomy.action(step, goal)
    return step if step in (taxonomy.card(goal) if within_goal else taxonomy.actions) else None


def _nearest(
    samples: Sequence[Sample],
    read: Mapping[str, tuple[str, ...]],
    taxonomy: Taxonomy,
    open_embed: Callable[[], Embed],
    within_goal: bool,
) -> dict[str, dict[str, ActionMatch]]:
    """The nearest action of each step that is none, by goal (empty for all) and text; all are embedded in one call."""
    texts: dict[str, dict[str, None]] = {}
    for one in samples:
        for step in read.get(one.sample_id, ()):
            if _exact(step, taxonomy, one.goal, within_goal) is None:
                texts.setdefault(one.goal if within_goal else "", {})[step] = None
    if not texts:
        return {}
    rows = {text: row for row, text in enumerate(dict.fromkeys(chain(taxonomy.texts, *texts.values())))}
    vectors = open_embed()(list(rows))
    nearest = {}
    for goal, some in texts.items():
        admissible = taxonomy.cards[goal] if within_goal else taxonomy.texts
        actions = AdmissibleActions(lambda wanted: vectors[[rows[text] for text in wanted]], admissible)
        nearest[goal] = dict(zip(some, actions.map(list(some)), strict=True))
    return nearest


def _measures(plans: Sequence[MappedPlan], width: int, low_margin: float) -> dict[str, float]:
    margins = [margin for plan in plans for margin in plan.margins if margin is not None]
    steps = sum(len(plan.steps) for plan in plans)
    measures = {
        "steps": float(steps),
        "steps_that_are_actions": float(steps - len(margins)),
        "missing_predictions": float(sum(plan.missing for plan in plans)),
        "empty_plans": float(sum(not plan.missing and not plan.steps for plan in plans)),
        "shorter_plans": float(sum(0 < len(plan.steps) < width for plan in plans)),
    }
    if margins:
        measures["mean_margin"] = sum(margins) / len(margins)
        measures["share_below_margin"] = sum(margin < low_margin for margin in margins) / len(margins)
        measures["margin_asked_for"] = low_margin
    return measures
