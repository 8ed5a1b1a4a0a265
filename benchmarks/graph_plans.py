"""Plans that are wrong in one known way, steps in other words, and how well a score tells plans apart.

`graph_validity.py` measures with them.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from recipe.audit.wordings import paraphrase
from recipe.errors import ComputeError
from recipe.stats import Interval, bootstrap_interval, resampled_totals
from recipe.world.graph import TaskGraph

Steps = tuple[str, ...]

SPOILT = {
    "swapped": "two steps exchanged, the later of which waits for the other",
    "shuffled": "all steps in random order, which is not valid",
    "dropped": "one required step left out",
    "halved": "only the first half of the steps",
    "repeated": "one step said again later",
    "alien": "one step of another goal put in",
    "replaced": "one step replaced by one of another goal",
    "offgoal": "steps of another goal only",
}
"""Ways to spoil a valid plan, in words."""

REWORDED: dict[str, str] = {
    "lower": "lower case, no punctuation",
    "bare": "and no articles and determiners",
    "no_amounts": "and no numbers, units and brackets",
    "short": "and nothing after the first object: a verb with its object",
    "spoken": "the whole step in a spoken sentence, its verb replaced by a synonym where one is known",
}
"""Ways to say a step in other words, in words."""

_DETERMINERS = re.compile(r"\b(?:a|an|the|some|your|this|that|these|those|it|them|its)\b\s*")
_AMOUNTS = re.compile(
    r"\([^)]*\)|\b\d+(?:[./-]\d+)*\s*-?(?:tbsp|tsp|tablespoons?|teaspoons?|cups?|oz|ounces?|g|grams?|ml|inch(?:es)?|cm"
    r"|seconds?|secs?|minutes?|mins?|pieces?)?\b(?:\s+of\b)?"
)
_REST = re.compile(
    r"\b(?:in|into|on|onto|to|with|from|for|until|till|over|and|or|at|by|so|using|about|of|while|when|before|after)\b.*"
)


def finish(graph: TaskGraph, done: Sequence[str], rng: random.Random) -> Steps:
    """A random valid order of the steps that are left after `done`, which a valid order begins with."""
    order = list(done)
    while ready := graph.ready(set(order), set(graph.after)):
        order.append(rng.choice(ready))
    return tuple(order[len(done) :])


def spoilt(
    graph: TaskGraph, plan: Steps, texts: Mapping[str, str], foreign: Steps, rng: random.Random
) -> dict[str, Steps]:
    """A valid plan of step ids spoilt in each way that it admits, as texts; `foreign` is said of another goal."""
    said = [texts[step] for step in plan]
    present = set(graph.after)
    found: dict[str, Sequence[str]] = {}
    # Steps in the same words are one to a reader: exchanging them spoils nothing.
    pairs = [
        (i, j)
        for j, b in enumerate(plan)
        for i, a in enumerate(plan[:j])
        if a in graph.before(b, present) and said.count(said[i]) == said.count(said[j]) == 1
    ]
    if pairs:
        i, j = rng.choice(pairs)
        found["swapped"] = _exchanged(said, i, j)
        found["shuffled"] = [texts[step] for step in _invalid_order(graph, plan, pairs, rng)]
    at = rng.randrange(len(said))
    stranger = rng.choice(foreign)
    found["dropped"] = said[:at] + said[at + 1 :]
    found["halved"] = said[: len(said) // 2]
    again = rng.randrange(at + 1, len(said) + 1)
    found["repeated"] = [*said[:again], said[at], *said[again:]]
    found["alien"] = [*said[:at], stranger, *said[at:]]
    found["replaced"] = [*said[:at], stranger, *said[at + 1 :]]
    found["offgoal"] = foreign[: len(said)]
    return {name: tuple(found[name]) for name in SPOILT if name in found}


def reworded(text: str, kind: str, rng: random.Random) -> str:
    """A step in other words, by a rule of `REWORDED`; as it was where the rule would leave nothing.

    >>> reworded("Add 1/2 tsp of the salt (fine) to a bowl.", "short", random.Random(0))
    'add salt'
    """
    if kind == "spoken":
        return paraphrase(text, rng)
    said = " ".join(re.sub(r"[.,;:!?]+(?=\s|$)", " ", text.lower()).split())
    kinds = list(_RULES)
    for name in kinds[: kinds.index(kind) + 1] if kind in kinds else ():
        said = _RULES[name](said) or said
    return said


def _without(pattern: re.Pattern[str]) -> Callable[[str], str]:
    return lambda text: " ".join(pattern.sub(" ", text).split())


def _verb_and_object(text: str) -> str:
    verb, _, rest = text.partition(" ")
    return f"{verb} {_REST.sub('', rest)}".strip()


_RULES: dict[str, Callable[[str], str]] = {
    "bare": _without(_DETERMINERS),
    "no_amounts": _without(_AMOUNTS),
    "short": _verb_and_object,
}


def separation(
    valid: Sequence[float], spoiled: Sequence[float], clusters: tuple[Sequence[str], Sequence[str]]
) -> Interval:
    """AUC: the chance that a valid plan scores above a spoilt one, equal scores counted half, drawn by cluster.

    `clusters` name the goals of the valid and of the spoilt plans. Raises ComputeError without plans of both kinds.
    """
    if not valid or not spoiled:
        raise ComputeError("an AUC was asked of no valid or no spoilt plan.")
    names = sorted({*clusters[0], *clusters[1]})
    place = {name: row for row, name in enumerate(names)}
    rows, columns = (np.array([place[name] for name in some]) for some in clusters)
    first, second = np.asarray(valid, dtype=np.float64)[:, None], np.asarray(spoiled, dtype=np.float64)[None]
    wins = (first > second) + 0.5 * (first == second)
    won = np.zeros((len(names), len(names)))
    np.add.at(won, (rows[:, None], columns[None]), wins)
    pairs = np.outer(np.bincount(rows, minlength=len(names)), np.bincount(columns, minlength=len(names)))
    mean = float(won.sum() / pairs.sum())
    drawn = resampled_totals(np.eye(len(names)))
    above, all_pairs = ((drawn @ table * drawn).sum(axis=1) for table in (won, pairs))
    drawn = np.divide(above, all_pairs, out=np.full(len(above), np.nan), where=all_pairs > 0)
    return bootstrap_interval(mean, drawn, len(valid) + len(spoiled), len(names))


def _exchanged(said: Sequence[str], i: int, j: int) -> list[str]:
    found = list(said)
    found[i], found[j] = found[j], found[i]
    return found


def _invalid_order(
    graph: TaskGraph, plan: Steps, pairs: Sequence[tuple[int, int]], rng: random.Random
) -> Iterator[str]:
    """The steps in random order, one of whose dependencies at least is broken."""
    while True:
        order = rng.sample(range(len(plan)), len(plan))
        place = {index: at for at, index in enumerate(order)}
        if any(place[i] > place[j] for i, j in pairs):
            return iter([plan[index] for index in order])
