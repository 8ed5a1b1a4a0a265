"""Agreement of histories from a video (Phi) with the annotated ones.

A step of Phi's is taken for the annotated step that is nearest to it by embedding (`agreement`), whatever example that
belongs to. Then, example by example,

    f1           steps of both as multisets                         1 where the same steps were done as often
    ordered F1   their longest common subsequence                   as f1, in the same order
    order        of pairs of common steps, the share in order  only where two steps or more are common
    steps        Phi's; length_error: Phi's minus the annotated     empty: the share of histories without a step

Nearest steps agree by chance, too, and a goal alone makes some steps likely. So F1 comes with two floors: Phi's
history against the annotated one of another video of the same goal, and against one of another goal.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import combinations

from recipe.data.histories import History, with_histories
from recipe.evaluation.matching import Embed, NearestStep, ordered_f1, step_f1
from recipe.stats import Interval, mean_interval, video_of
from recipe.types import Example

MEASURES = {
    "f1": "step F1",
    "f1_same_goal": "step F1 with another video of the goal (floor)",
    "f1_other_goal": "step F1 with another goal (floor)",
    "ordered_f1": "step F1 in order",
    "order": "pairs of common steps in order",
    "steps": "steps of Phi",
    "annotated_steps": "annotated steps",
    "length_error": "steps of Phi minus annotated",
    "length_apart": "the same, without sign",
    "empty": "histories without a step",
}
"""Measure to what it is called in a table."""


def order_agreement(steps: Sequence[Hashable], done: Sequence[Hashable]) -> float | None:
    """Of the pairs of steps that both hold, the share that `steps` has in the order of `done`; None without a pair.

    The k-th mention of a step is the k-th time that it was done. 2 x share - 1 is Kendall's tau of the common
    steps.

    >>> order_agreement(["a", "b", "c"], ["a", "x", "c", "b"])
    0.6666666666666666
    """
    times = Counter[Hashable]()
    places: dict[tuple[Hashable, int], int] = {}
    for index, step in enumerate(done):
        places[step, times[step]] = index
        times[step] += 1
    times.clear()
    common = []
    for step in steps:
        if (step, times[step]) in places:
            common.append(places[step, times[step]])
        times[step] += 1
    # Concordant pairs over all pairs: (tau + 1) / 2, as no place stands twice.
    pairs = list(combinations(common, 2))
    return sum(first < second for first, second in pairs) / len(pairs) if pairs else None


def compare_histories(
    examples: Sequence[Example], histories: Mapping[str, History], embed: Embed
) -> list[dict[str, float | None]]:
    """The measures of each example, in order; None where an example does not have one.

    Raises InputError where an example has no history, or one that was read up to another time.
    """
    perceived = [example.history for example in with_histories(examples, histories)]
    nearest = NearestStep(embed, [step for example in examples for step in (*example.history, *example.continuation)])
    # All texts in one call of the encoder.
    nearest.learn([step for steps in perceived for step in steps])
    read = [nearest(steps) for steps in perceived]
    done = [nearest(example.history) for example in examples]
    same_goal = partners(
        examples, lambda example, other: example.goal == other.goal and video_of(example) != video_of(other)
    )
    other_goal = partners(examples, lambda example, other: example.goal != other.goal)
    return [
        {
            "f1": step_f1(steps, done[index]),
            "f1_same_goal": None if same is None else step_f1(steps, done[same]),
            "f1_other_goal": None if other is None else step_f1(steps, done[other]),
            "ordered_f1": ordered_f1(steps, done[index]),
            "order": order_agreement(steps, done[index]),
            "steps": float(len(steps)),
            "annotated_steps": float(len(done[index])),
            "length_error": float(len(steps) - len(done[index])),
            "length_apart": float(abs(len(steps) - len(done[index]))),
            "empty": float(not steps),
        }
        for index, (steps, same, other) in enumerate(zip(read, same_goal, other_goal, strict=True))
    ]


def summarise_histories(
    examples: Sequence[Example], measured: Sequence[Mapping[str, float | None]], seed: int = 0
) -> dict[str, Interval]:
    """The mean of each measure over the examples that have it, whole goals drawn; a measure that none has is absent."""
    means = {}
    for name in MEASURES:
        held = [
            (value, example.goal)
            for row, example in zip(measured, examples, strict=True)
            if (value := row[name]) is not None
        ]
        if held:
            values, goals = zip(*held, strict=True)
            means[name] = mean_interval(values, goals, seed)
    return means


def partners(examples: Sequence[Example], fits: Callable[[Example, Example], bool]) -> list[int | None]:
    """For each example the place of the next one that fits, from the end on at the beginning; None without one."""
    count = len(examples)
    partner_of = []
    for index, example in enumerate(examples):
        # The next one and no drawn one, so that the floors are the same in every run.
        others = ((index + step) % count for step in range(1, count))
        partner_of.append(next((other for other in others if fits(example, examples[other])), None))
    return partner_of
