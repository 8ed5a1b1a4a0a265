"""Plans measured: by judges, people, task graphs, references and their diversity; here are the measures by name."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from recipe.errors import InputError

if TYPE_CHECKING:
    from recipe.evaluation.measures import Measure

MEASURES = {
    "judge": "recipe.evaluation.judge.measures:RubricMeasure",
    "proxy": "recipe.evaluation.judge.proxy:ProxyMeasure",
    "diversity": "recipe.evaluation.diversity.scores:DiversityMeasure",
    "validity": "recipe.evaluation.validity.scores:ValidityMeasure",
    "match": "recipe.evaluation.match:MatchMeasure",
    "vpa": "recipe.evaluation.vpa.run:VpaMeasure",
}
"""The class of each measure of this program. A text, because a list of commands needs the names, and no NumPy."""
GROUP = "recipe.measures"
"""The group of entry points that name measures."""


@cache
def known_measures() -> dict[str, EntryPoint]:
    """Every measure by name: those of this program, then those that installed packages add."""
    own = [EntryPoint(name, value, GROUP) for name, value in MEASURES.items()]
    # A package can add a measure, and not take the place of one of these.
    return {
        entry.name: entry for entry in (*own, *entry_points(group=GROUP)) if entry.name not in MEASURES or entry in own
    }


def board_measures() -> list[str]:
    """The measures that a board's settings can open: not the one that needs several plans."""
    return [name for name in known_measures() if name != "diversity"]


def measure_named(name: str) -> "type[Measure]":
    """The class of a measure. Raises InputError for an unknown one, and one whose package cannot be imported."""
    if name not in known_measures():
        raise InputError(f"measure {name!r} is unknown; known are {', '.join(known_measures())}.")
    try:
        loaded: type[Measure] = known_measures()[name].load()
    except (ImportError, AttributeError) as error:
        if name in MEASURES:
            raise
        raise InputError(f"measure {name!r} cannot be opened ({error}); repair or remove its package.") from None
    return loaded
