"""Procedures that a corpus holds in narrations with titles, and plans with known faults made of them.

A narration with a goal is a procedure of its own. Where narrations are step lists, all of its segments are steps. In
speech they are 6 to 10 segments that the nearest narrations say too and random ones do not, no two of them alike, in
their order. The goal is the title, or what follows "how to" in the first segments. At most two narrations of a goal are
taken, so that many of them have another true plan for the same goal, and goals differ.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from recipe.audit.perturb import FEWEST_STEPS, MOST_STEPS, AuditPrompt, Embed
from recipe.errors import InputError
from recipe.evaluation.matching import ordered_f1
from recipe.mining.segments import StepLikeness
from recipe.reward.baselines import centred
from recipe.reward.embeddings import NarrationIndex, TextEncoder, Vectors
from recipe.reward.grounded import SimilarityBaseline, calibrated
from recipe.reward.scorer import Steps
from recipe.text import same_goal
from recipe.types import Hit, Narration, Procedure, Step

CorpusKind = Literal["lists", "speech"]
KINDS: tuple[CorpusKind, ...] = get_args(CorpusKind)
SOURCE = "pseudo"

# Narrations of one goal that become pseudo-prompts, at most.
_A_GOAL = 2
# Narrations that are looked at for each pseudo-prompt that is wanted, at most.
_LOOKED_AT = 40
# Narrations that say of which kind a corpus is; the likeness to steps of lists' segments, and their length at most.
_SAMPLED, _LIST_LIKE, _LIST_LENGTH = 200, 0.5, 20
_SPOKEN_STEPS = (6, 10)
# Words of a segment of speech that may be a step.
_SPOKEN_WORDS = (3, 16)
# Narrations near a narration and random ones that its segments are compared with; segments that find the near ones.
_NEAR, _FAR, _QUERIES = 30, 120, 12
# How much random narrations count, and what is left of a segment's support at least where it is a step.
_FAR_WEIGHT, _CONFIRMED = 2.0, 0.01
# Cosine from which on two segments are one step.
_ALIKE = 0.7
# First segments of a narration that may say the goal.
_OPENING = 6
_HOW_TO = re.compile(r"\bhow (?:to|i|we|you) (?:can |would )?(.+)", re.IGNORECASE)
# Cosines of a segment of another narration that says a step in other words.
_OTHER_WORDS = (0.55, 0.97)
_SEARCHED = 12
_MOST_EDITS = 4
Edit = Literal["delete", "swap", "move", "insert", "replace", "repeat", "copy", "history", "reword", "cut"]
EDITS: tuple[Edit, ...] = get_args(Edit)


class PartOfCorpus:
    """A corpus without some of its narrations; what is left is counted from 0."""

    def __init__(self, corpus: NarrationIndex, left_out: Sequence[int]) -> None:
        self._corpus, self.left_out = corpus, sorted(set(left_out))
        self._kept = np.setdiff1d(np.arange(len(corpus)), np.asarray(left_out, np.int64))
        self._place = np.full(len(corpus), -1, np.int64)
        self._place[self._kept] = np.arange(len(self._kept))
        lengths = np.diff(corpus.offsets)[self._kept]
        self.offsets: NDArray[np.int64] = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])

    @property
    def encoder(self) -> TextEncoder:
        return self._corpus.encoder

    def __len__(self) -> int:
        return len(self._kept)

    def narration(self, index: int) -> Narration:
        return self._corpus.narration(int(self._kept[index]))

    def embeddings(self, index: int) -> Vectors:
        return self._corpus.embeddings(int(self._kept[index]))

    def similarities(self, narrations: Sequence[int], steps: Vectors) -> tuple[Vectors, NDArray[np.int64]]:
        """As of the whole corpus, for the narrations that these numbers mean here."""
        return self._corpus.similarities([int(self._kept[number]) for number in narrations], steps)

    def search_batch(self, queries: Sequence[Vectors], k: int) -> list[list[Hit]]:
        """The k best of what is left, from so many more of the whole corpus as were left out."""
        # In the worst case all that were left out rank before the k best.
        ranked = self._corpus.search_batch(queries, k + len(self.left_out))
        return [
            [Hit(int(place), hit.score) for hit in hits if (place := self._place[hit.narration]) >= 0][:k]
            for hits in ranked
        ]


class PseudoProcedures(NamedTuple):
    """Procedures of a corpus, and where they are from."""

    kind: CorpusKind
    procedures: list[Procedure]
    numbers: list[int]
    """Their narrations' places in the corpus."""


def pseudo_procedures(
    corpus: NarrationIndex, embed: Embed, count: int, kind: CorpusKind | None = None, seed: int = 0
) -> PseudoProcedures:
    """At most `count` procedures of a corpus, and at most a quarter of its narrations.

    Without a `kind` the corpus is of step lists where most segments are like steps and narrations are short. Raises
    InputError where no narration has a goal or all have one goal; ComputeError for an encoder that finds talk as near
    to steps as steps are.
    """
    order = np.random.default_rng(seed).permutation(len(corpus))
    if kind is None:
        sample = [corpus.embeddings(int(number)) for number in order[:_SAMPLED]]
        short = float(np.median([len(vectors) for vectors in sample])) <= _LIST_LENGTH
        scores = StepLikeness(embed).scores(np.concatenate(sample))
        kind = "lists" if short and float(np.median(scores)) >= _LIST_LIKE else "speech"

    by_goal: dict[str, list[tuple[int, Narration, str]]] = {}
    with_goal = 0
    looked_at = [int(number) for number in order[: max(_LOOKED_AT * count, _SAMPLED)]]
    for number in sorted(looked_at):  # in corpus order, because reading a text decodes its whole shard
        narration = corpus.narration(number)
        goal = _goal_of(narration)
        with_goal += bool(goal)
        if (
            goal
            and len(narration.segments) >= FEWEST_STEPS
            and (kind == "speech" or len(narration.segments) <= MOST_STEPS)
        ):
            by_goal.setdefault(same_goal(goal), []).append((number, narration, goal))
    if not with_goal:
        problem = f"none of the {len(looked_at):,} narrations that were read has a title or says “how to ...”"
        raise InputError(f"A self-trained reward needs goals, and {problem}; build the corpus with titles.")
    if len(by_goal) == 1:
        raise InputError(
            f"A self-trained reward needs narrations of several goals, and all have the goal {next(iter(by_goal))!r}; "
            "add narrations of other goals."
        )
    # Goals in an order of their own; of each the narrations whose ids come first by hash.
    taken = list[tuple[int, Procedure]]()
    # Their narrations leave the corpus while plans are scored: enough must stay to score them by.
    most, baseline = min(count, len(corpus) // 4), SimilarityBaseline.of(corpus)
    for name in sorted(by_goal, key=lambda name: _digest(seed, name)):
        own = list[tuple[int, Procedure]]()
        for number, narration, goal in sorted(by_goal[name], key=lambda entry: _digest(seed, entry[1].video_id)):
            if len(own) == min(_A_GOAL, most - len(taken)):
                break
            chosen = [*range(len(narration.segments))]
            if kind == "speech":
                chosen = _spoken_steps(corpus, baseline, number, narration, seed)
            if len(chosen) >= FEWEST_STEPS:
                steps = tuple(Step(narration.segments[k].text) for k in chosen)
                own.append((number, Procedure(SOURCE, narration.video_id, goal, steps, "train")))
        taken += own
    return PseudoProcedures(kind, [procedure for _, procedure in taken], [number for number, _ in taken])


def _goal_of(narration: Narration) -> str:
    """The goal of a narration: its title, or what it says to show; empty where there is none."""
    if title := " ".join((narration.title or "").split()):
        return title
    said = (_HOW_TO.search(segment.text) for segment in narration.segments[:_OPENING])
    return next((" ".join(match[1].split()).strip(" .!,") for match in said if match), "")


def _spoken_steps(
    corpus: NarrationIndex, baseline: SimilarityBaseline, number: int, narration: Narration, seed: int
) -> list[int]:
    """6 to 10 segments of speech that others confirm, in order; fewer where there are not so many.

    What near narrations say too, and random ones do not, are the steps: talk is said anywhere. None says the goal, and
    no two are alike, because speech repeats itself and a plan must not.
    """
    random = Random(f"{seed}/{narration.video_id}/steps")
    raw = corpus.embeddings(number)
    vectors = centred(raw, baseline.mean)
    query = raw[np.linspace(0, len(raw) - 1, min(len(raw), _QUERIES)).astype(np.intp)]
    count = min(max(len(corpus) // _NEAR, 3), _NEAR)  # few of a small corpus, whose goals have few narrations
    hits = corpus.search_batch([query], count + 1)[0]
    # As the grounded reward contrasts narrations near a prompt with others (`recipe.reward.grounded`).
    near = [hit.narration for hit in hits if hit.narration != number][:count]
    others: Sequence[int] = range(len(corpus))
    if len(corpus) < 4 * _FAR:
        others = sorted({*others}.difference(near, [number]))
    far = [other for other in random.sample(others, min(_FAR, len(others))) if other not in (number, *near)]
    similarities, offsets = baseline.similarities(corpus, [*near, *far], vectors)
    highest = np.maximum.reduceat(calibrated(similarities, baseline.floors(vectors)), offsets[:-1], axis=0)
    support = highest[: len(near)].mean(axis=0) - _FAR_WEIGHT * highest[len(near) :].mean(axis=0)

    fewest, most = _SPOKEN_WORDS
    goal, alike = same_goal(narration.title or ""), vectors @ vectors.T
    wanted, kept = random.randint(*_SPOKEN_STEPS), list[int]()
    for index in map(int, np.argsort(-support, kind="stable")):
        if support[index] <= _CONFIRMED or len(kept) == wanted:
            break
        text = narration.segments[index].text
        says_goal = bool(_HOW_TO.search(text)) or (bool(goal) and goal in same_goal(text))
        if fewest <= len(text.split()) <= most and not says_goal and all(alike[index, k] < _ALIKE for k in kept):
            kept.append(index)
    return sorted(kept)


def other_words(corpus: NarrationIndex, embed: Embed, steps: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """For each step, segments of narrations of the corpus that say it in other words, the nearest first; some none."""
    distinct = list(dict.fromkeys(steps))
    vectors = embed(distinct)
    low, high = _OTHER_WORDS
    rewordings: dict[str, tuple[str, ...]] = {}
    hits = corpus.search_batch([vector[None] for vector in vectors], _SEARCHED)
    for step, vector, near in zip(distinct, vectors, hits, strict=True):
        said: dict[str, float] = {}
        for hit in near:
            cosines = corpus.embeddings(hit.narration) @ vector
            best = int(cosines.argmax())
            if low <= cosines[best] <= high:
                text = corpus.narration(hit.narration).segments[best].text
                if same_goal(text) != same_goal(step):
                    said[text] = float(cosines[best])
        rewordings[step] = tuple(sorted(said, key=lambda text: -said[text]))[:4]
    return rewordings


class RankedPlan(NamedTuple):
    """A plan and how good it is."""

    steps: Steps
    quality: float
    """F1 in order with the true continuation."""


def edited_plans(
    prompt: AuditPrompt, foreign: Sequence[str], reworded: Mapping[str, Sequence[str]], count: int, seed: int = 0
) -> list[RankedPlan]:
    """The true continuation with 1 to 4 random edits, `count` times; those that equal the true one are left out.

    `foreign` are steps of near goals, `reworded` other words for steps.
    """
    plans: dict[Steps, None] = {}
    for number in range(count):
        # Each plan has draws of its own, so that a larger count adds to the plans of a smaller one.
        random = Random("/".join((str(seed), prompt.source, prompt.video_id, "edits", str(number))))
        plan = list(prompt.true)
        for _ in range(random.randint(1, _MOST_EDITS)):
            _edit(plan, random.choice(EDITS), prompt.history, foreign, reworded, random)
        plans[tuple(plan)] = None
    return [RankedPlan(plan, ordered_f1(plan, prompt.true)) for plan in plans if plan != prompt.true]


def _edit(
    plan: list[str],
    edit: Edit,
    history: Steps,
    foreign: Sequence[str],
    reworded: Mapping[str, Sequence[str]],
    random: Random,
) -> None:
    """Change a plan in one place; an edit that has no place leaves it as it is."""
    n = len(plan)
    at, place = random.randrange(n), random.randrange(n + 1)
    if edit == "delete" and n > 1:
        del plan[at]
    elif edit == "swap" and n > 1:
        at = random.randrange(n - 1)
        plan[at], plan[at + 1] = plan[at + 1], plan[at]
    elif edit == "move" and n > 1:
        step = plan.pop(at)
        plan.insert(random.randrange(n), step)
    elif edit == "insert" and foreign:
        plan.insert(place, random.choice(foreign))
    elif edit == "replace" and foreign:
        plan[at] = random.choice(foreign)
    elif edit == "repeat":
        plan.insert(place, plan[at])
    elif edit == "copy":
        plan.insert(at, plan[at])
    elif edit == "history" and history:
        plan.insert(place, random.choice(history))
    elif edit == "reword":
        if said := reworded.get(random.choice((*plan, *history)), ()):
            plan.insert(place, random.choice(said))
    elif edit == "cut" and n > 2:
        del plan[random.randint(1, n - 1) :]


def repeats_in_other_words(
    prompt: AuditPrompt, reworded: Mapping[str, Sequence[str]], count: int, seed: int = 0
) -> list[Steps]:
    """The true continuation in which one to three of its steps come again later in other words, `count` times."""
    plans: dict[Steps, None] = {}
    for number in range(count):
        random = Random("/".join((str(seed), prompt.source, prompt.video_id, "again", str(number))))
        known = [step for step in prompt.true if reworded.get(step)]
        plan = list(prompt.true)
        for step in random.sample(known, min(len(known), random.randint(1, 3))):
            plan.insert(random.randint(plan.index(step) + 1, len(plan)), random.choice(reworded[step]))
        plans[tuple(plan)] = None
    return [plan for plan in plans if plan != prompt.true]


def foreign_steps(prompts: Sequence[AuditPrompt], embed: Embed, seed: int = 0) -> list[tuple[str, ...]]:
    """For each prompt, steps of prompts of its three nearest goals and of two others."""
    goals = list(dict.fromkeys(same_goal(prompt.goal) for prompt in prompts))
    vectors = embed(goals)
    nearest = np.argsort(-(vectors @ vectors.T), axis=1, kind="stable")
    steps: dict[str, list[str]] = {}
    for prompt in prompts:
        steps.setdefault(same_goal(prompt.goal), []).extend((*prompt.history, *prompt.true))
    foreign = []
    for prompt in prompts:
        own = goals.index(same_goal(prompt.goal))
        others = [goals[int(index)] for index in nearest[own] if int(index) != own]
        random = Random("/".join((str(seed), prompt.source, prompt.video_id, "foreign")))
        chosen = others[:3] + random.sample(others[3:], min(2, len(others[3:])))
        foreign.append(tuple(dict.fromkeys(step for goal in chosen for step in steps[goal])))
    return foreign


def _digest(seed: int, text: str) -> bytes:
    return hashlib.sha256(f"{seed}/{text}".encode()).digest()
