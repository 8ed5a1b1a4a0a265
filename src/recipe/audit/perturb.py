"""Prompts with their true continuation, its corruptions of every class, and an alternative that is as good.

A prompt is a procedure of M steps cut after t of them, t uniform in 2..M-3; its true continuation c has n = M - t
steps. What is random is drawn from seed, source, video id and the name of the corruption, so that a prompt is the same
whichever others are audited. A corruption that a procedure does not admit is left out, such as the reverse of a
continuation that reads the same backwards.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.audit.classes import CORRUPTIONS
from recipe.audit.wordings import draw_lines, merged, wordings
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
    padding = draw_lines(lines.fillers, PADDING, cut.random("true_plus_filler"))

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
        "filler": draw_lines(lines.fillers, n, cut.random("filler")),
        "true_plus_filler": true + padding[: min(n, MOST_FILLER)],
        "half": true[: n // 2],
        "missing_middle": (*true[: n // 2], *true[n // 2 + 1 :]),
        "doubled": tuple(step for step in true for _ in range(2)),
        "empty": (),
    }

    # As policies were seen to write.
    goal, split = performed.goal, cut.random("split").randrange(n)
    restart = cut.random("restarted").randrange(1, n)
    safe = draw_lines(lines.safe_steps, n, cut.random("safe_steps"))
    made |= {
        "goal": (goal,),
        "goal_reworded": lines.reworded_goal(goal, n, cut.random("goal_reworded")),
        "goal_generic": (goal, *draw_lines(lines.goal_endings, 2, cut.random("goal_generic"))),
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
