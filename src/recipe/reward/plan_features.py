"""49 features of a plan that hold no word of it: what a self-trained reward reads (docs/reward.md).

They are the parts of the grounded reward, what the narrations near the prompt say of each step, when and how often they
say it, in which order, and how like the steps are to the goal, to what is done and to each other. Neither a vector nor
a word is among them, so that what is learned from plans on some goals holds for plans on others.
"""

from collections.abc import Sequence
from itertools import combinations, pairwise
from math import log, tanh
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from recipe.alignment.reference import Float32
from recipe.reward.grounded import PromptAlignment
from recipe.types import Reward

Float64 = NDArray[np.float64]

FEATURES = {
    "length": "the number of steps",
    "length_left": "the number of steps against what seems left to do",
    "length_done": "the number of steps against those that are done",
    "gain": "what the plan adds to the pool's narrations",
    "gain_a_step": "what each step adds to the pool's narrations",
    "background": "what the plan adds to random narrations",
    "background_a_step": "what each step adds to random narrations",
    "relevance": "likeness to goal and history",
    "relevance_a_step": "likeness of each step to goal and history",
    "goal_relevance": "the part of likeness that is due to the goal",
    "goal_relevance_a_step": "the same for each step",
    "support": "how often the pool says the steps",
    "support_least": "how often the pool says the step that it says least",
    "support_first": "how often the pool says the first step",
    "support_last": "how often the pool says the last step",
    "support_sum": "how often the pool says all steps together",
    "common": "how common the steps are in the whole corpus",
    "common_most": "how common the most common step is in the whole corpus",
    "common_least": "how common the least common step is in the whole corpus",
    "goal": "likeness of the steps to the goal, against that of what is done",
    "goal_most": "likeness of the nearest step to the goal",
    "done": "likeness of the steps to those that are done",
    "done_most": "likeness of each step to the nearest one that is done",
    "repeats": "likeness of each step to an earlier one",
    "repeats_most": "likeness of the most repeated step to an earlier one",
    "repeats_share": "the share of steps that repeat an earlier one",
    "order": "the pool's vote on the order of all pairs of steps",
    "order_next": "the pool's vote on the order of neighbouring steps",
    "order_worst": "the pool's vote on the worst pair of neighbouring steps",
    "order_done": "the pool's vote that the steps come after what is done",
    "order_done_worst": "the same for the step that comes least after what is done",
    "place": "the order of all pairs of steps by their usual place in narrations",
    "place_next": "the order of neighbouring steps by their usual place",
    "place_first": "how much later than what is done the first step usually is",
    "place_last": "how much later than what is done the last step usually is",
    "time_last": "how late the pool says the last step",
    "time_most": "how late the pool says the latest step",
    "time_gap": "the largest jump forward in the pool's narrations",
    "time_back": "the largest jump back in the pool's narrations",
    "time_first": "how far after what is done the pool says the first step",
    "time_jumps": "how far neighbouring steps are apart in the pool's narrations",
    "next": "likeness of neighbouring steps",
    "next_most": "likeness of the two most alike neighbouring steps",
    "next_least": "likeness of the two least alike neighbouring steps",
    "next_done": "likeness of the first step to the last one that is done",
    "grounded": "the grounded reward",
    "done_support": "how often the pool says what is done",
    "done_time": "how late the pool says what is done",
    "done_length": "the number of steps that are done",
}
"""Name of each feature, in order, and what it is in plain words."""

# Cosine to an earlier step from which on a step counts as its repeat.
_REPEATED = 0.75
# Added to the support of the history, by which that of steps is divided.
_EVEN = 0.05
# The likeness of neighbouring steps where a plan has one step.
_NO_NEXT = 0.3
# Added to a plan's length where a sum over steps is divided by it.
_LENGTHENED = 8.0


def plan_features(alignment: PromptAlignment, rewards: Sequence[Reward], positions: Float64) -> Float32:
    """The features [G, 49] of the plans of one prompt; zeros without steps.

    `rewards` are their grounded rewards, `positions` [C] where in narrations of the corpus each text usually stands.
    A plan's features do not depend on the other plans.
    """
    texts = alignment.texts
    h, goal = texts.rows[0], bool(texts.first)
    features = np.zeros((len(rewards), len(FEATURES)), np.float32)
    if not h:
        return features
    first = 1 if goal and len(h) > 1 else 0  # the first step that is done; without a history the goal is it
    done = h[first:]
    # A plan has a few steps: numbers of Python are several times as fast there as arrays.
    support, time = (column.tolist() for column in alignment.support_and_time())
    floors, places = texts.floors.tolist(), positions.tolist()
    N = alignment.precedence
    # O of the grounded reward, pair by pair.
    votes = ((N - N.T) / (N + N.T + 1.0)).tolist()
    within = texts.vectors[h] @ texts.vectors[h].T
    goal_done = fmean(within[0, first:].tolist())
    level = fmean(support[step] for step in done) + _EVEN
    reached = max(time[step] for step in done)
    # At the pace so far: the steps done, by what is left of a narration's time over what has passed of it.
    left = len(done) * (1.0 - min(max(reached, 0.05), 0.95)) / min(max(reached, 0.15), 0.95)
    floor, place = (fmean(values[step] for step in done) for values in (floors, places))

    for index, (plan, cosines) in enumerate(zip(texts.rows[1:], texts.cosines, strict=True)):
        n, part = len(plan), rewards[index].parts
        if not n:
            continue
        values = {
            "length": log(n),
            "length_left": log(n / max(left, 0.5)),
            "length_done": log(n / len(done)),
            "grounded": 10.0 * rewards[index].total,
            "done_support": level,
            "done_time": reached,
            "done_length": log(len(done)),
        }
        for name in ("gain", "background", "relevance", "goal_relevance"):
            values |= {name: part[name] / (n + _LENGTHENED), f"{name}_a_step": part[name] / n}

        s = [support[step] / level for step in plan]
        values |= {"support": fmean(s), "support_least": min(s), "support_first": s[0], "support_last": s[-1]}
        values["support_sum"] = sum(s) / (n + _LENGTHENED)
        b = [floors[step] - floor for step in plan]
        values |= {"common": fmean(b), "common_most": max(b), "common_least": min(b)}

        # Likeness: to the goal, to what is done, to what comes earlier, to the next step.
        likeness = cosines.tolist()
        to_goal, to_done, to_plan = likeness[0], likeness[first : len(h)], likeness[len(h) :]
        nearest_done = [max(column) for column in zip(*to_done, strict=True)]
        earlier = [max((nearest_done[k], *(to_plan[j][k] for j in range(k)))) for k in range(n)]
        following = [to_plan[k][k + 1] for k in range(n - 1)] or [_NO_NEXT]
        values |= {
            "goal": fmean(to_goal) - goal_done if goal else 0.0,
            "goal_most": max(to_goal) if goal else 0.0,
            "done": fmean(value for row in to_done for value in row),
            "done_most": fmean(nearest_done),
            "repeats": fmean(earlier),
            "repeats_most": max(earlier),
            "repeats_share": sum(value > _REPEATED for value in earlier) / n,
            "next": fmean(following),
            "next_most": max(following),
            "next_least": min(following),
            "next_done": likeness[len(h) - 1][0],
        }

        # Order: by the pool's votes, by the usual place in narrations, by the time in those of the pool.
        pairs = list(combinations(plan, 2)) or [(plan[0], plan[0])]  # a step with itself: no order
        neighbours = list(pairwise(plan)) or pairs
        late = [[votes[before][step] for before in done] for step in plan]
        next_votes = [votes[before][step] for before, step in neighbours]
        values |= {
            "order": fmean(votes[before][step] for before, step in pairs),
            "order_next": fmean(next_votes),
            "order_worst": min(next_votes),
            "order_done": fmean(value for column in late for value in column),
            "order_done_worst": min(map(fmean, late)),
            "place": fmean(tanh(places[step] - places[before]) for before, step in pairs),
            "place_next": fmean(tanh(places[step] - places[before]) for before, step in neighbours),
            "place_first": places[plan[0]] - place,
            "place_last": places[plan[-1]] - place,
        }
        u = [time[step] for step in plan]
        jumps = [later - sooner for sooner, later in pairwise((reached, *u))]
        values |= {"time_last": u[-1], "time_most": max(u), "time_gap": max(jumps), "time_back": -min(jumps)}
        values |= {"time_first": jumps[0], "time_jumps": fmean(map(abs, jumps))}
        features[index] = [values[name] for name in FEATURES]
    return features
