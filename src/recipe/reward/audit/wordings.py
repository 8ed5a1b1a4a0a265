"""Generic steps and spoken paraphrases, from the tables of `wordings.toml`."""

import tomllib
from functools import cache
from importlib.resources import files
from random import Random
from typing import NamedTuple

from recipe.reward.prompts import Steps


class Wordings(NamedTuple):
    """What the audit says in place of a procedure's own words."""

    fillers: Steps
    """Steps that fit any procedure and advance none."""
    templates: Steps
    """Spoken sentences with a place `{}` for a step."""
    verbs: dict[str, Steps]
    """Other words for the verb that a step begins with."""


@cache
def wordings() -> Wordings:
    """The tables of the package."""
    tables = tomllib.loads(files(__package__).joinpath("wordings.toml").read_text(encoding="utf-8"))
    verbs = {verb: tuple(others) for verb, others in tables["verbs"].items()}
    return Wordings(tuple(tables["fillers"]), tuple(tables["templates"]), verbs)


def fillers(count: int, random: Random) -> Steps:
    """`count` generic steps in random order; one comes again only after all others have come."""
    known = wordings().fillers
    rounds = -(-count // len(known))
    return tuple(step for _ in range(rounds) for step in random.sample(known, len(known)))[:count]


def paraphrase(step: str, random: Random) -> str:
    """The step in other words: its verb replaced where the table knows it, within a spoken sentence."""
    verb, *rest = step.rstrip(" .").split() or [step]
    verb = verb.lower()
    said = random.choice(wordings().verbs.get(verb, (verb,)))
    return random.choice(wordings().templates).format(" ".join([said, *rest]))
