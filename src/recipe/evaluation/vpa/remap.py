"""Plans in free words as plans over the closed set of actions, with how sure each mapping was.

A step that is an action, letter by letter, is that action. Any other is embedded and taken for the nearest one
(`planning.admissible`), of all actions or, in a setting of its own that is easier, of the goal's card.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from recipe.evaluation.vpa.protocol import END, Sample, Taxonomy
from recipe.planning.admissible import AdmissibleActions, Embed, Mapped
from recipe.prompting import visible

LOW_MARGIN = 0.05
"""A margin below which two actions were about as near."""
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


class _Asked(NamedTuple):
    """The texts to be mapped of one goal, or of all where every action is admissible."""

    actions: tuple[str, ...]
    texts: dict[str, None]


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
    read = {one.sample_id: _read(plans[one.sample_id], width) for one in samples if one.sample_id in plans}
    known = _map_all(samples, read, taxonomy, open_embed, within_goal)
    mapped = [
        MappedPlan(missing=True)
        if one.sample_id not in read
        else _plan(read[one.sample_id], known.get(_group(one, within_goal), {}), taxonomy, one.goal, within_goal)
        for one in samples
    ]
    return RemapResult(mapped, _measures(mapped, width, low_margin))


def _read(steps: Iterable[str], width: int) -> tuple[str, ...]:
    """The first steps that hold something to read."""
    texts = (visible(step[:_LONGEST]).strip() for step in steps)
    return tuple(islice((text for text in texts if text), width))


def _group(sample: Sample, within_goal: bool) -> str:
    return sample.goal if within_goal else ""


def _exact(step: str, taxonomy: Taxonomy, goal: str, within_goal: bool) -> str | None:
    """The action that a step is as it stands."""
    if step == END:
        return END
    if step in (taxonomy.cards[goal] if within_goal else taxonomy.texts):
        return taxonomy.action(step, goal)
    return step if step in (taxonomy.card(goal) if within_goal else taxonomy.actions) else None


def _map_all(
    samples: Sequence[Sample],
    read: Mapping[str, tuple[str, ...]],
    taxonomy: Taxonomy,
    open_embed: Callable[[], Embed],
    within_goal: bool,
) -> dict[str, dict[str, Mapped]]:
    """Every step that is no action, by group and text, each text embedded once and all in one call."""
    asked: dict[str, _Asked] = {}
    for one in samples:
        actions = taxonomy.cards[one.goal] if within_goal else taxonomy.texts
        for step in read.get(one.sample_id, ()):
            if _exact(step, taxonomy, one.goal, within_goal) is None:
                asked.setdefault(_group(one, within_goal), _Asked(actions, {})).texts[step] = None
    if not asked:
        return {}
    embed = _once(open_embed(), [*taxonomy.texts, *(text for one in asked.values() for text in one.texts)])
    return {
        group: dict(zip(texts, AdmissibleActions(embed, actions).map(list(texts)), strict=True))
        for group, (actions, texts) in asked.items()
    }


def _once(embed: Embed, texts: Iterable[str]) -> Embed:
    """Looks up the vectors of `texts`, which are embedded now."""
    rows = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    vectors = embed(list(rows))
    return lambda asked: vectors[[rows[text] for text in asked]]


def _plan(
    steps: tuple[str, ...], known: Mapping[str, Mapped], taxonomy: Taxonomy, goal: str, within_goal: bool
) -> MappedPlan:
    actions: list[str] = []
    nearest: list[Mapped | None] = []
    for step in steps:
        exact = _exact(step, taxonomy, goal, within_goal)
        nearest.append(None if exact is not None else known[step])
        actions.append(exact if exact is not None else taxonomy.action(known[step].action, goal))
    return MappedPlan(
        steps,
        tuple(actions),
        tuple(None if one is None else one.similarity for one in nearest),
        tuple(None if one is None else one.margin for one in nearest),
    )


def _measures(plans: Sequence[MappedPlan], width: int, low_margin: float) -> dict[str, float]:
    margins = [margin for plan in plans for margin in plan.margins if margin is not None]
    steps = sum(len(plan.steps) for plan in plans)
    found = {
        "steps": float(steps),
        "steps_that_are_actions": float(steps - len(margins)),
        "missing_predictions": float(sum(plan.missing for plan in plans)),
        "empty_plans": float(sum(not plan.missing and not plan.steps for plan in plans)),
        "shorter_plans": float(sum(0 < len(plan.steps) < width for plan in plans)),
    }
    if margins:
        found["mean_margin"] = sum(margins) / len(margins)
        found["share_below_margin"] = sum(margin < low_margin for margin in margins) / len(margins)
        found["margin_asked_for"] = low_margin
    return found
