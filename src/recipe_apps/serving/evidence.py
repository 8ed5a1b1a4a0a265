"""What a corpus says of a plan, for people: coverage in words, narrations for each step, what changed, and order.

Every figure is the verifier's own: its pool, its alignment, its reward. A step is *supported* where narrations of the
activity gain more by it than narrations of anything else: where what it adds to G_P - G_Q over the plan before it
(`recipe.reward.grounded`) is above `SUPPORT`. With a verifier that has no such parts, the reward rises with it.
docs/serving.md tells how well that separates true steps from steps of other tasks.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recipe.evaluation.matching import FLOOR, Likeness, Scale, calibrate
from recipe.explain.explain import pooled_narration, step_grounds, when
from recipe.explain.records import AlignedNarration, Links
from recipe.reward.coverage import prompt_outcomes
from recipe.reward.scorer import Prompt, PromptGroup, Steps, score_or_raise
from recipe.reward.verifier import Verifier
from recipe.types import Narration, Reward, Segment

SUPPORT = 0.01
"""What a step has to add for it to count as supported."""
COVERED, PARTLY = 0.15, 0.08
"""Coverage from which on a prompt counts as known, and as known in part."""
_SHOWN = 12
"""Narrations shown for a step."""
_CLOSE = 0.2
"""Similarity from which on a narration is said to speak of a step: 0 is what any step reaches with 5% of the corpus, 1
the same text."""
_VOTE = 0.2
"""Similarity that both steps of a pair need in a narration, for it to say in which order they come."""

Row = dict[str, Any]


class Coverage(NamedTuple):
    """How far the corpus knows a task."""

    state: str
    """supported, partly, unknown; none where the verifier does not say."""
    value: float | None
    sentence: str


class Witness:
    """The corpus as a witness of plans: one verifier, and a scale on which steps say the same."""

    def __init__(self, verifier: Verifier, links: Links | None = None) -> None:
        self.verifier = verifier
        self._links = links or Links()
        self._scale: Scale = calibrate(verifier.embed)

    def warm_up(self) -> None:
        """Load the encoder and the corpus's pages, so that the first visitor does not wait for them."""
        group = PromptGroup("make tea", ("boil the water",), [("pour the water", "wait")])
        self.evidence([group])

    def coverage(self, prompts: Sequence[Prompt]) -> list[Coverage]:
        """How far the corpus knows the task of each prompt."""
        outcomes = prompt_outcomes(self.verifier, prompts)
        return [_coverage(one.coverage if isinstance(one, Reward) else None) for one in outcomes]

    def evidence(self, groups: Sequence[PromptGroup]) -> list[list[Row]]:
        """For each group of one plan, what the pool says of each of the plan's steps. Raises as `Verifier.align`."""
        gains, alignments = contrast_gains(self.verifier, groups), self.verifier.align_groups(groups)
        return [
            self._rows(group, [pooled_narration(self.verifier.corpus, one) for one in aligned], own)
            for group, aligned, own in zip(groups, alignments, gains, strict=True)
        ]

    def rewards(self, prompt: Prompt, plans: Sequence[Steps]) -> tuple[list[Reward], list[list[float]]]:
        """The reward of each plan of a prompt, and what each step adds: R(c) - R(c without it). Raises as `score`."""
        goal, history = prompt
        shorter = [plan[:at] + plan[at + 1 :] for plan in plans for at in range(len(plan))]
        scored = self.verifier.score(goal=goal, history=history, continuations=[*plans, *shorter])
        without = iter(scored[len(plans) :])
        totals = scored[: len(plans)]
        return totals, [
            [one.total - next(without).total for _ in plan] for one, plan in zip(totals, plans, strict=True)
        ]

    def same(self, steps: Sequence[str], others: Sequence[str]) -> list[int | None]:
        """For each step, the place of the other step that says the same, if there is one."""
        likeness = self._likeness(steps, others)
        places: list[int | None] = [None] * len(steps)
        for pair in likeness.pairs(steps, others):
            if pair.likeness >= FLOOR:
                places[pair.first] = pair.second
        return places

    def deviation(self, goal: str, before: Steps, plan: Steps, now: Sequence[str]) -> Row:
        """What of a plan is done, skipped and open, given the whole history `now`, which may repeat that `before`.

        A planned step is skipped where a later planned step is done. For each skipped step, `orders` tells how many
        narrations say that it comes before the next step that was done, and how many say the opposite.
        """
        places = self.same(now, (*before, *plan))
        known = len(before)
        by = {place - known: at for at, place in enumerate(places) if place is not None and place >= known}
        for number in sorted(by):  # of steps with one text the first counts as done
            if (first := plan.index(plan[number])) not in by:
                by[first] = by.pop(number)
        last = max(by, default=-1)
        steps = [
            {
                "number": number + 1,
                "text": text,
                "state": "done" if number in by else "skipped" if number < last else "open",
                "by": by.get(number),
            }
            for number, text in enumerate(plan)
        ]
        skipped = [number for number in range(last) if number not in by]
        following = [(plan[number], plan[min(other for other in by if other > number)]) for number in skipped]
        # Of two steps that say the same, no narration tells which comes first.
        pairs = [(first, then) for first, then in following if self.same([first], [then]) == [None]]
        return {
            "steps": steps,
            "unexpected": [at for at, place in enumerate(places) if place is None],
            "rest": [text for number, text in enumerate(plan) if number not in by],
            "orders": [self.order(goal, before, *pair) for pair in pairs],
        }

    def order(self, goal: str, history: Steps, first: str, second: str) -> Row:
        """How many narrations of the pool say `first` before `second`, and how many the opposite, with their words.

        A narration votes by the pair of segments in which both steps are most alike, each with a similarity of 0.2 at
        least. Raises as `Verifier.align`.
        """
        aligned = self.verifier.align(goal=goal, history=history, continuation=(first, second))
        votes: dict[bool, list[Row]] = {True: [], False: []}
        for one in aligned:
            W = one.similarities[len(history) :]
            if (vote := _vote(W)) is None:
                continue
            before, places = vote
            narration = self.verifier.corpus.narration(one.hit.narration)
            grounds = [self._ground_row(narration, narration.segments[k], float(W[i, k])) for i, k in enumerate(places)]
            votes[before].append({"before": grounds[0], "after": grounds[1]})
        return {
            "before": first,
            "after": second,
            "says": len(votes[True]),
            "against": len(votes[False]),
            "narrations": len(aligned),
            "grounds": votes[True][:_SHOWN],
        }

    def _likeness(self, *texts: Sequence[str]) -> Likeness:
        return Likeness(self.verifier.embed, self._scale, [text for part in texts for text in part])

    def _rows(self, group: PromptGroup, narrations: Sequence[AlignedNarration], gains: Sequence[float]) -> list[Row]:
        texts = {aligned.index: aligned.narration for aligned in narrations}
        rows = []
        for at, gain in enumerate(gains):
            grounds = step_grounds(len(group.history) + at, narrations)
            close = [ground for ground in grounds if ground.similarity >= _CLOSE]
            supported = gain > SUPPORT and close
            rows.append(
                {
                    "number": at + 1,
                    "state": "supported" if supported else "unsupported",
                    "matched_in": len(close),
                    "pool": len(narrations),
                    "grounds": [
                        self._ground_row(
                            texts[ground.narration],
                            texts[ground.narration].segments[ground.segment],
                            ground.similarity,
                        )
                        for ground in close[:_SHOWN]
                    ],
                }
            )
        return rows

    def _ground_row(self, narration: Narration, segment: Segment, similarity: float) -> Row:
        return {
            "text": segment.text,
            "video_id": narration.video_id,
            "title": narration.title,
            "when": when(segment),
            "link": self._links.of(narration, segment),
            "similarity": round(similarity, 3),
        }


def contrast_gains(verifier: Verifier, groups: Sequence[PromptGroup]) -> list[list[float]]:
    """For each group of one plan, what each of its steps adds to G_P - G_Q over the plan before it.

    With a verifier without these parts it is what the step adds to the reward. Raises as `Verifier.score`.
    """
    beginnings = [
        PromptGroup(group.goal, group.history, [plan[:end] for end in range(len(plan) + 1)])
        for group in groups
        for plan in group.plans
    ]
    gains = []
    for rewards in score_or_raise(verifier, beginnings):
        values = [
            one.parts["gain"] - one.parts["background"] if {"gain", "background"} <= one.parts.keys() else one.total
            for one in rewards
        ]
        gains.append([after - before for before, after in pairwise(values)])
    return gains


def _coverage(value: float | None) -> Coverage:
    if value is None:
        return Coverage("none", None, "The verifier does not tell how far this corpus knows the task.")
    if value >= COVERED:
        return Coverage("supported", value, "This corpus knows this task.")
    if value >= PARTLY:
        return Coverage("partly", value, "This corpus knows this task in part: read the evidence of each step.")
    said = "This corpus does not know this task: the plan below is a guess of the model, and nothing supports it."
    return Coverage("unknown", value, said)


def _vote(W: NDArray[np.float32]) -> tuple[bool, tuple[int, int]] | None:
    """Whether a narration says the first of two steps before the second, and where; None where it does not say.

    `W` are the similarities [2, L] of both steps with its segments.

    >>> _vote(np.array([[0.9, 0.0, 0.1], [0.0, 0.2, 0.8]], np.float32))
    (True, (0, 2))
    >>> _vote(np.array([[0.0, 0.9], [0.1, 0.0]], np.float32)) is None
    True
    """
    first, second = (np.where(row >= _VOTE, row, 0.0) for row in W)
    products = np.outer(first, second)
    np.fill_diagonal(products, 0.0)
    if not products.size or not products.max():
        return None
    at, then = (int(place) for place in np.unravel_index(products.argmax(), products.shape))
    return at < then, (at, then)
