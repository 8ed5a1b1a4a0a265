"""Plans in free words as plans over the closed set of actions, with how sure each mapping was.

A step that is an action, letter by letter, is that action. Any other is embedded and taken for the nearest one
(`planning.admissible`), of all actions or, in a setting of its own that is easier, of the goal's card.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from recipe.evaluation.vpa.protocol import END, HORIZONS, Sample, Taxonomy
from recipe.planning.admissible import ActionMatch, AdmissibleActions, Embed
from recipe.prompting import visible

LOW_MARGIN = 0.05
"""A margin below which two actions are about as near."""
# Characters of a step that are read.
_MOST_CHARACTERS = 1_000


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


def remap(
    samples: Sequence[Sample],
    plans: Mapping[str, Iterable[str]],
    taxonomy: Taxonomy,
    open_embed: Callable[[], Embed],
    within_goal: bool = False,
    low_margin: float = LOW_MARGIN,
) -> tuple[list[MappedPlan], dict[str, float]]:
    """The first steps of each sample's plan as actions; `plans` are steps by sample id.

    A sample without a plan is missing, which the measures count. The encoder is opened only where a step is no action.
    """
    # Of a plan for T actions the first T count; figures of a smaller T are of prefixes (`protocol`).
    width = max(HORIZONS)
    # Without `within_goal` every goal has the same actions, under an empty name.
    admissible = taxonomy.cards if within_goal else {"": taxonomy.actions}

    # The first steps of each plan that hold something to read, and those of them that are no action.
    read: dict[str, tuple[str, ...]] = {}
    unknown: dict[str, dict[str, None]] = {}
    for sample in samples:
        if sample.sample_id not in plans:
            continue
        visible_steps = (visible(step[:_MOST_CHARACTERS]).strip() for step in plans[sample.sample_id])
        steps = read[sample.sample_id] = tuple(islice((step for step in visible_steps if step), width))
        goal = sample.goal if within_goal else ""
        for step in steps:
            if step != END and step not in admissible[goal]:
                unknown.setdefault(goal, {})[step] = None

    # The nearest action of each step that is none; all texts are embedded in one call.
    nearest: dict[str, dict[str, ActionMatch]] = {}
    if unknown:
        rows = {text: row for row, text in enumerate(dict.fromkeys(chain(taxonomy.actions, *unknown.values())))}
        vectors = open_embed()(list(rows))
        for goal, steps_of_goal in unknown.items():
            actions = AdmissibleActions(lambda wanted: vectors[[rows[text] for text in wanted]], admissible[goal])
            nearest[goal] = dict(zip(steps_of_goal, actions.map(list(steps_of_goal)), strict=True))

    mapped = []
    for sample in samples:
        steps = read.get(sample.sample_id, ())
        others = nearest.get(sample.goal if within_goal else "", {})
        matches = [others.get(step) for step in steps]
        mapped.append(
            MappedPlan(
                steps=steps,
                actions=tuple(
                    step if match is None else match.action for step, match in zip(steps, matches, strict=True)
                ),
                similarities=tuple(None if match is None else match.similarity for match in matches),
                margins=tuple(None if match is None else match.margin for match in matches),
                missing=sample.sample_id not in read,
            )
        )

    known = [margin for plan in mapped for margin in plan.margins if margin is not None]
    count = sum(len(plan.steps) for plan in mapped)
    measures = {
        "steps": float(count),
        "steps_that_are_actions": float(count - len(known)),
        "missing_predictions": float(sum(plan.missing for plan in mapped)),
        "empty_plans": float(sum(not plan.missing and not plan.steps for plan in mapped)),
        "shorter_plans": float(sum(0 < len(plan.steps) < width for plan in mapped)),
    }
    if known:
        measures["mean_margin"] = sum(known) / len(known)
        measures["share_below_margin"] = sum(margin < low_margin for margin in known) / len(known)
        measures["margin_asked_for"] = low_margin
    return mapped, measures
