"""Plans in other words: generic steps, paraphrases, the goal over again, vague, split and merged steps.

The words are the tables of `wordings.toml`.
"""

import tomllib
from functools import cache
from importlib.resources import files
from random import Random
from typing import NamedTuple

from recipe.reward.scorer import Steps


class Wordings(NamedTuple):
    """What the audit says in place of a procedure's own words."""

    fillers: Steps
    """Steps that fit any procedure and advance none."""
    templates: Steps
    """Spoken sentences with a place `{}` for a step."""
    goal_templates: Steps
    """Lines with a place `{}` for a goal, as policies restate it."""
    goal_endings: Steps
    """Last steps that fit any goal."""
    safe_steps: Steps
    """Steps that are right for any task, in the order in which a plan would have them; no filler is among them."""
    phases: Steps
    """Lines that tell one step in turn, each with a place `{}` for it."""
    vague_objects: Steps
    """What stands for any object."""
    particles: frozenset[str]
    """Words that belong to the verb before them."""
    verbs: dict[str, Steps]
    """Other words for the verb that a step begins with."""

    def paraphrase(self, step: str, random: Random) -> str:
        """The step in other words: its verb replaced where the table knows it, within a spoken sentence."""
        verb, *rest = step.rstrip(" .").split() or [step]
        verb = verb.lower()
        said = random.choice(self.verbs.get(verb, (verb,)))
        return random.choice(self.templates).format(" ".join([said, *rest]))

    def reworded_goal(self, goal: str, count: int, random: Random) -> Steps:
        """The goal in `count` lines: its verb kept or replaced, in sentences that differ as long as there are any."""
        verb, *rest = goal.rstrip(" .").split() or [goal]
        verbs = (verb.lower(), *self.verbs.get(verb.lower(), ()))
        templates = draw_lines(self.goal_templates + self.templates, count, random)
        return tuple(template.format(" ".join([random.choice(verbs), *rest])) for template in templates)

    def vague(self, step: str, index: int) -> str:
        """The step with its verb kept and a vague word, which goes by `index`, for all that follows it.

        The verb is the first of the first three words that the table knows, else the first word. A step that is a verb
        alone stays as it is.

        >>> own = wordings()
        >>> own.vague("Pour the water into the cup", 0), own.vague("gently take off the lid", 1), own.vague("wait", 2)
        ('Pour it', 'gently take off the ingredients', 'wait')
        """
        words = step.rstrip(" .").split()
        # An adverb or two may come before the verb: "gently whisk".
        end = 1 + next((i for i, word in enumerate(words[:3]) if word.lower() in self.verbs), 0)
        if end < len(words) - 1 and words[end].lower() in self.particles:
            end += 1
        if end >= len(words):
            return step
        return " ".join([*words[:end], self.vague_objects[index % len(self.vague_objects)]])

    def in_phases(self, step: str) -> Steps:
        """One step in three lines.

        >>> wordings().in_phases("Pour the water.")
        ('start to pour the water', 'keep going and pour the water', 'finish: pour the water')
        """
        return tuple(phase.format(_inner(step)) for phase in self.phases)


@cache
def wordings() -> Wordings:
    """The tables of the package."""
    tables = tomllib.loads(files(__package__).joinpath("wordings.toml").read_text(encoding="utf-8"))
    verbs = {verb: tuple(others) for verb, others in tables.pop("verbs").items()}
    particles = frozenset(tables.pop("particles"))
    return Wordings(**{name: tuple(lines) for name, lines in tables.items()}, particles=particles, verbs=verbs)


def draw_lines(lines: Steps, count: int, random: Random) -> Steps:
    """`count` lines in random order; one comes again only after all others have come."""
    rounds = -(-count // len(lines))
    return tuple(line for _ in range(rounds) for line in random.sample(lines, len(lines)))[:count]


def merged(steps: Steps, width: int) -> Steps:
    """Every `width` steps as one line, joined by "and".

    >>> merged(("Boil the water.", "Warm the pot", "Wait"), 2)
    ('Boil the water and warm the pot', 'Wait')
    """
    groups = [steps[i : i + width] for i in range(0, len(steps), width)]
    return tuple(" and ".join([own[0].rstrip(" ."), *map(_inner, own[1:])]) if own[1:] else own[0] for own in groups)


def _inner(step: str) -> str:
    """A step as it stands within a sentence: no full stop, a small first letter unless the first word is an acronym."""
    text = step.rstrip(" .")
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
