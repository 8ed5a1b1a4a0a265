"""Prompts with their true continuation, its corruptions of every class, and an alternative that is as good.

A prompt is a procedure of M steps cut after t of them, t uniform in 2..M-3; its true continuation c has n = M - t
steps. What is random is drawn from seed, source, video id and the name of the corruption, so that a prompt is the same
whichever others are audited. A corruption that a procedure does not admit is left out, such as the reverse of a
continuation that reads the same backwards.

What a continuation says in other words, such as generic steps and paraphrases, comes from the tables of
`wordings.toml`.
"""

import hashlib
import json
import tomllib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.audit.classes import CORRUPTIONS
from recipe.reward.scorer import Steps
from recipe.text import same_goal
from recipe.types import Procedure

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts to unit-norm float32 [n, d]."""
TRUE, ALTERNATIVE = "true", "alternative"

MOST_FILLER = 8
"""Generic steps that `true_plus_filler` appends at most."""
PADDING = 16
"""Generic steps that a prompt holds to be appended to its true continuation."""
NEAREST = 3
"""Goals that `related` takes its steps from."""
FEWEST_STEPS, MOST_STEPS = 5, 20
"""Steps of an audited procedure, consecutive duplicates collapsed."""
REPEATED = "given twice"
IN_CORPUS = "narrated in the corpus"
TOO_SHORT = f"of fewer than {FEWEST_STEPS} steps"
TOO_LONG = f"of more than {MOST_STEPS} steps"


class AuditProcedure(NamedTuple):
    """A procedure as the audit reads it: consecutive duplicate steps collapsed."""

    source: str
    video_id: str
    goal: str
    steps: Steps

    @classmethod
    def of(cls, procedure: Procedure) -> "AuditProcedure":
        """The procedure without steps that repeat the one before, up to case and space."""
        texts = [" ".join(step.text.split()) for step in procedure.steps]
        # A repeated step would make `repeat_next` true in part, and `swap_adjacent` no change.
        kept = [text for i, text in enumerate(texts) if i == 0 or text.casefold() != texts[i - 1].casefold()]
        return cls(procedure.source, procedure.video_id, procedure.goal, tuple(kept))

    def random(self, seed: int, purpose: str) -> Random:
        """The random numbers for one purpose, which neither another purpose nor another procedure changes."""
        return Random("/".join((str(seed), self.source, self.video_id, purpose)))


class Selection(NamedTuple):
    """The procedures that are audited, those that corruptions may draw on, and what was left out."""

    audited: list[AuditProcedure]
    """At most `limit` of each source."""
    usable: list[AuditProcedure]
    """All that could be audited."""
    left_out: dict[str, int]
    """Reason in words -> number of procedures; reasons that did not occur have 0."""
    unclear: int = 0
    """Audited procedures whose id occurs inside the id of a narration of the corpus."""

    def counts(self) -> str:
        """What was left out, in words; empty where nothing was."""
        return ", ".join(f"{count} {reason}" for reason, count in self.left_out.items() if count)


def select(
    procedures: Iterable[Procedure],
    seed: int = 0,
    limit: int | None = None,
    corpus_videos: Collection[str] = frozenset(),
) -> Selection:
    """The procedures of 5 to 20 steps whose videos are none of `corpus_videos`, in an order of their own.

    The order, and so the `limit` of each source, follows from a hash of seed, source and video id: neither the
    order of the files nor other procedures change it.
    """
    left_out = dict.fromkeys((REPEATED, IN_CORPUS, TOO_SHORT, TOO_LONG), 0)
    usable: dict[tuple[str, str], AuditProcedure] = {}
    for procedure in map(AuditProcedure.of, procedures):
        if (procedure.source, procedure.video_id) in usable:
            left_out[REPEATED] += 1
        elif procedure.video_id in corpus_videos:
            left_out[IN_CORPUS] += 1
        elif not FEWEST_STEPS <= len(procedure.steps) <= MOST_STEPS:
            left_out[TOO_SHORT if len(procedure.steps) < FEWEST_STEPS else TOO_LONG] += 1
        else:
            usable[procedure.source, procedure.video_id] = procedure
    drawn = {key: hashlib.sha256(json.dumps([seed, *key]).encode()).digest() for key in usable}
    sources: dict[str, list[AuditProcedure]] = {}
    for key in sorted(usable, key=lambda key: (key[0], drawn[key])):
        sources.setdefault(key[0], []).append(usable[key])
    audited = [procedure for ordered in sources.values() for procedure in ordered[:limit]]
    return Selection(audited, [procedure for ordered in sources.values() for procedure in ordered], left_out)


@dataclass(frozen=True, slots=True)
class AuditPrompt:
    """A goal, what is done, and continuations by name: `true`, the corruptions, `alternative` where there is one."""

    goal: str
    source: str
    video_id: str
    history: Steps
    variants: dict[str, Steps]
    padding: Steps = ()
    """Generic steps to append, for the reward as a function of their number."""
    samples: dict[str, tuple[Steps, ...]] = field(default_factory=dict)
    """System -> what it wrote for this prompt; an empty plan where a completion holds no step."""

    @property
    def true(self) -> Steps:
        return self.variants[TRUE]


class Cut(NamedTuple):
    """A procedure, where it is cut, and what its randomness is drawn from."""

    performed: AuditProcedure
    at: int
    seed: int
    history: Steps
    true: Steps

    def random(self, purpose: str) -> Random:
        """The random numbers for one purpose, which no other corruption changes."""
        return self.performed.random(self.seed, purpose)

    def place_in(self, other: AuditProcedure) -> int:
        """The cut point of another procedure at the same relative position, rounded."""
        # The same relative position: steps from another stage of a task would be told by their stage.
        return round(self.at / len(self.performed.steps) * len(other.steps))


def build_prompts(selection: Selection, embed: Embed, seed: int = 0) -> list[AuditPrompt]:
    """A prompt for each audited procedure; other goals are drawn from all usable ones of the same source."""
    others = _Others(selection.usable, embed)
    return [_prompt(cut_at(performed, seed), others) for performed in selection.audited]


def cut_at(performed: AuditProcedure, seed: int) -> Cut:
    """The procedure cut after t steps, t uniform in 2..M-3."""
    # Of two steps to come, `half` and `missing_middle` would be one plan.
    t = performed.random(seed, "cut").randint(2, len(performed.steps) - 3)
    return Cut(performed, t, seed, performed.steps[:t], performed.steps[t:])


def _prompt(cut: Cut, others: "_Others") -> AuditPrompt:
    """The prompt with each continuation that its procedure admits."""
    performed, history, true = cut.performed, cut.history, cut.true
    n, lines = len(true), wordings()
    padding = _draw_lines(lines.fillers, PADDING, cut.random("true_plus_filler"))

    # Made of its own steps.
    swapped = cut.random("swap_adjacent").randrange(n - 1)
    again = tuple(history[i % len(history)] for i in range(n))
    paraphrasing = cut.random("paraphrased_history")
    shuffled, shuffling = list(true), cut.random("shuffled")
    while tuple(shuffled) == true:  # ends, because neighbouring steps differ
        shuffling.shuffle(shuffled)
    made: dict[str, Steps] = {
        "shuffled": tuple(shuffled),
        "reversed": true[::-1],
        "swap_adjacent": (*true[:swapped], true[swapped + 1], true[swapped], *true[swapped + 2 :]),
        "repeat_history": again,
        "paraphrased_history": tuple(lines.paraphrase(step, paraphrasing) for step in again),
        "repeat_last": (history[-1],) * n,
        "repeat_next": (true[0],) * n,
        "filler": _draw_lines(lines.fillers, n, cut.random("filler")),
        "true_plus_filler": true + padding[: min(n, MOST_FILLER)],
        "half": true[: n // 2],
        "missing_middle": (*true[: n // 2], *true[n // 2 + 1 :]),
        "doubled": tuple(step for step in true for _ in range(2)),
        "empty": (),
    }

    # As policies were seen to write.
    goal, split = performed.goal, cut.random("split").randrange(n)
    restart = cut.random("restarted").randrange(1, n)
    safe = _draw_lines(lines.safe_steps, n, cut.random("safe_steps"))
    made |= {
        "goal": (goal,),
        "goal_reworded": lines.reworded_goal(goal, n, cut.random("goal_reworded")),
        "goal_generic": (goal, *_draw_lines(lines.goal_endings, 2, cut.random("goal_generic"))),
        "goal_half": (goal, *true[: n // 2]),
        "copied_history": history,
        # In the order in which a plan would have them.
        "safe_steps": tuple(sorted(safe, key=lines.safe_steps.index)),
        "vague": tuple(lines.vague(step, index) for index, step in enumerate(true)),
        "split": (*true[:split], *lines.in_phases(true[split]), *true[split + 1 :]),
        "merged": merged(true, cut.random("merged").choice((3, n))),
        "restarted": true[:restart] + true,
    }

    # Made of other procedures; what finds none is left out.
    if foreign := others.stretch(cut, cut.random("offgoal")):
        made |= {"offgoal": foreign, "too_long": true + foreign}
    if foreign := others.stretch(cut, cut.random("related"), NEAREST):
        made["related"] = foreign
    if near := others.stretch(cut, cut.random("near_ordered"), NEAREST, from_start=True):
        made["near_ordered"] = near
    corrupted = {name: made[name] for name in CORRUPTIONS if made.get(name, true) != true}
    variants = {TRUE: true} | corrupted
    if alternative := others.alternative(cut, cut.random(ALTERNATIVE)):
        variants[ALTERNATIVE] = alternative
    return AuditPrompt(goal, performed.source, performed.video_id, history, variants, padding)


class _Wordings(NamedTuple):
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
    """Vague words, each for any object."""
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
        templates = _draw_lines(self.goal_templates + self.templates, count, random)
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
def wordings() -> _Wordings:
    """The tables of the package."""
    tables = tomllib.loads(files(__package__).joinpath("wordings.toml").read_text(encoding="utf-8"))
    verbs = {verb: tuple(others) for verb, others in tables.pop("verbs").items()}
    particles = frozenset(tables.pop("particles"))
    return _Wordings(**{name: tuple(lines) for name, lines in tables.items()}, particles=particles, verbs=verbs)


def _draw_lines(lines: Steps, count: int, random: Random) -> Steps:
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


class _Others:
    """All usable procedures by source and goal, and how near the goals are."""

    def __init__(self, usable: Sequence[AuditProcedure], embed: Embed) -> None:
        self._by_goal: dict[str, dict[str, list[AuditProcedure]]] = {}
        for procedure in usable:
            self._by_goal.setdefault(procedure.source, {}).setdefault(same_goal(procedure.goal), []).append(procedure)
        # For each goal of a source all others, the nearest first by cosine.
        self._nearest: dict[str, dict[str, list[str]]] = {}
        for source, by_goal in self._by_goal.items():
            goals = list(by_goal)
            vectors = embed(goals)
            # Of unit vectors the products are cosines; stable, so that goals that are equally near keep their order.
            order = np.argsort(-(vectors @ vectors.T), axis=1, kind="stable")
            self._nearest[source] = {
                goal: [goals[j] for j in row if j != i] for i, (goal, row) in enumerate(zip(goals, order, strict=True))
            }

    def stretch(self, cut: Cut, random: Random, nearest: int | None = None, from_start: bool = False) -> Steps | None:
        """As many consecutive steps as `cut` continues with, from one of the `nearest` other goals of the source, at
        the same relative position or from the first; None where no procedure of such a goal is long enough."""
        goals = self._nearest[cut.performed.source][same_goal(cut.performed.goal)][:nearest]
        n = len(cut.true)
        for goal in random.sample(goals, len(goals)):
            long_enough = [
                procedure for procedure in self._by_goal[cut.performed.source][goal] if len(procedure.steps) >= n
            ]
            if long_enough:
                donor = random.choice(long_enough)
                start = 0 if from_start else min(cut.place_in(donor), len(donor.steps) - n)
                return donor.steps[start : start + n]
        return None

    def alternative(self, cut: Cut, random: Random) -> Steps | None:
        """How another video of the same goal goes on from the same relative position."""
        own = cut.performed
        videos = [
            procedure
            for procedure in self._by_goal[own.source][same_goal(own.goal)]
            if procedure.video_id != own.video_id
        ]
        if not videos:
            return None
        chosen = random.choice(videos)
        return chosen.steps[cut.place_in(chosen) :]
