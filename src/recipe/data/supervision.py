"""From procedures to examples: cut points, and weak supervision from Phi's pseudo-traces (paper, section 3.1).

All draws are hashes of the seed and of what is drawn (video id and t, or example id), so that a video keeps its
examples when other videos come or go, when a benchmark is read in another order, and in every Python version.

Steps stay as annotated. A label that repeats in consecutive segments stays twice. A cut between two steps that start
at the same time stays too: the video history then ends before either is shown.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeVar

from recipe.errors import InputError
from recipe.types import Example, Procedure

CutCount = int | Literal["all", "start"]
"""Cut points per video: a number of them, fewer where the video is short, every one there is, or `start`: 0 alone, so
that nothing is done and the whole procedure is to be planned."""

WeakCuts = Literal["annotated", "trace", "timed"]
"""Where pseudo-traces are cut: at the times of the annotated cuts, between their own steps, or there but only before a
step that has a time, so that the video can be shown up to it."""

Item = TypeVar("Item", int, str)
Kind = TypeVar("Kind")


class CutExamples(NamedTuple):
    """Examples in the order of their procedures, then of their cut, and the procedures that gave none."""

    examples: list[Example]
    too_short: list[Procedure]
    """Procedures of fewer than two steps, which have no cut point."""
    no_split: list[Procedure]
    """Procedures that belong to no split, so that neither number of cut points applies."""


def cut_points(video_id: str, steps: int, count: CutCount, seed: int = 0) -> tuple[int, ...]:
    """Cut points 1 <= t < `steps`, ascending: `count` drawn without replacement, or all if there are fewer.

    `start` gives 0. A smaller count gives a subset of a larger one. Raises InputError for a count below 1.

    >>> cut_points("LtRSn-ntcLY", steps=4, count="all")
    (1, 2, 3)
    """
    if count == "start":
        return (0,)
    if count != "all" and count < 1:
        raise InputError(f"{count} cut points per video are too few; give a number of at least 1, or 'all'.")
    candidates = range(1, steps)
    if count == "all" or count >= len(candidates):
        return tuple(candidates)
    return tuple(sorted(_drawn(candidates, key=(seed, video_id))[:count]))


def cut_procedures(
    procedures: Iterable[Procedure], *, train: CutCount = 4, test: CutCount = 1, seed: int = 0
) -> CutExamples:
    """Cut procedures of split train at `train` points each, those of val and test at `test` points.

    An example's id is source/video/cut. Raises InputError for a video that occurs twice in one source.
    """
    cut = CutExamples([], [], [])
    known: set[tuple[str, str]] = set()
    for procedure in procedures:
        key = (procedure.source, procedure.video_id)
        if key in known:
            raise InputError(f"video {key[1]!r} occurs twice in source {key[0]!r}; give each video of a source once.")
        known.add(key)
        count = train if procedure.split == "train" else test
        if not procedure.split:
            cut.no_split.append(procedure)
        elif len(procedure.steps) < (1 if count == "start" else 2):
            cut.too_short.append(procedure)
        else:
            points = cut_points(procedure.video_id, len(procedure.steps), count, seed)
            cut.examples.extend(cut_at(procedure, point) for point in points)
    return cut


def cut_at(procedure: Procedure, cut: int) -> Example:
    """The example whose history is the first `cut` steps, 0 <= cut < number of steps.

    `until` is the start of the first step of the continuation, None where it has no time. Steps stand
    in the order of their starts, so no step to be planned begins before it; one of the history may still go on.
    """
    texts = tuple(step.text for step in procedure.steps)
    return Example(
        example_id=f"{procedure.source}/{procedure.video_id}/{cut}",
        source=procedure.source,
        video_id=procedure.video_id,
        goal=procedure.goal,
        history=texts[:cut],
        continuation=texts[cut:],
        cut=cut,
        split=procedure.split,
        until=procedure.steps[cut].start,
    )


def evenly_spaced(items: Sequence[Kind], count: int) -> list[Kind]:
    """At most `count` items from the whole sequence, because files are often ordered by goal."""
    stride = max(1, len(items) / count)
    return [items[int(index * stride)] for index in range(min(count, len(items)))]


def limit_videos(procedures: Sequence[Procedure], limit: int, seed: int = 0) -> list[Procedure]:
    """At most `limit` procedures of each source and split, drawn by hash, in the order given."""
    groups: dict[tuple[str, str], list[str]] = {}
    for procedure in procedures:
        groups.setdefault((procedure.source, procedure.split), []).append(procedure.video_id)
    kept = {group: set(_drawn(videos, key=(seed,))[:limit]) for group, videos in groups.items()}
    return [p for p in procedures if p.video_id in kept[p.source, p.split]]


class Mixture(NamedTuple):
    """Examples in the order given, some of them weak, and by source the number left out for each reason."""

    examples: list[Example]
    no_trace: Counter[str]
    """The video has no pseudo-trace of two steps or more."""
    one_sided: Counter[str]
    """The pseudo-trace has no step on one side of the annotated cut."""
    no_cut: Counter[str]
    """The pseudo-trace has fewer usable cut points than the video has examples."""


def mix_supervision(
    examples: Iterable[Example],
    traces: Iterable[Procedure],
    percent: float,
    seed: int = 0,
    *,
    cuts: WeakCuts = "annotated",
    paired: bool = False,
) -> Mixture:
    """Examples of which `percent` of 100 of the split train are weak, with the pseudo-traces of their videos.

    A weak example without a usable trace is left out and counted, never annotated instead. With `paired`, every
    training example without one is, so that all percentages keep the same examples. `cuts` says where a trace is cut:
    with "annotated" as `weakened`, with "trace" at cut points drawn from the trace's own steps, with "timed" at those
    of them whose next step starts at a known time after 0. The examples of a video, taken in the order of the draw that
    chose their cuts, then get the trace's cuts in the order of the same draw. Raises InputError for a percentage
    outside 0 to 100.
    """
    if not 0 <= percent <= 100:
        raise InputError(f"{percent:g}% of the examples are to be weak; give a number from 0 to 100.")
    examples = list(examples)
    # One step has no cut point.
    known = {(trace.source, trace.video_id): trace for trace in traces if len(trace.steps) > 1}
    # The cut of its trace for each training example for which the trace has one.
    own_cuts: dict[str, int] = {}
    videos: dict[tuple[str, str], dict[int, str]] = {}
    for example in examples:
        if cuts != "annotated" and example.split == "train":
            videos.setdefault((example.source, example.video_id), {})[example.cut] = example.example_id
    for key, own in videos.items():
        if trace := known.get(key):
            # Nothing is shown before time 0.
            usable = (cut for cut in range(1, len(trace.steps)) if trace.steps[cut].start or cuts != "timed")
            points = (_drawn(candidates, key=(seed, key[1])) for candidates in (own, usable))
            # The shorter draw ends it: a trace with fewer cut points leaves the last examples without one.
            own_cuts |= {own[annotated]: cut for annotated, cut in zip(*points, strict=False)}
    mixture = Mixture([], Counter(), Counter(), Counter())
    for example in examples:
        weak = is_weak(example.example_id, percent, seed)
        if example.split != "train" or not (weak or paired):
            mixture.examples.append(example)
            continue
        trace = known.get((example.source, example.video_id))
        if trace is None:
            mixture.no_trace[example.source] += 1
        elif cuts != "annotated" and example.example_id not in own_cuts:
            mixture.no_cut[example.source] += 1
        elif (counterpart := weakened(example, trace, own_cuts.get(example.example_id))) is None:
            mixture.one_sided[example.source] += 1
        else:
            mixture.examples.append(counterpart if weak else example)
    return mixture


def is_weak(example_id: str, percent: float, seed: int = 0) -> bool:
    """Whether an example is weak in a mixture of `percent` of 100; it then is in every larger percentage."""
    digest = hashlib.sha256(json.dumps([seed, "weak", example_id]).encode()).digest()
    # 64 bits of the hash over 2**64 are uniform in [0, 1), and what is below a share is below every larger one.
    return int.from_bytes(digest[:8]) * 100 < percent * 2**64


def weakened(example: Example, trace: Procedure, cut: int | None = None) -> Example | None:
    """The example with the steps of a pseudo-trace of two steps or more; None where one side of the cut has none.

    With `cut`, a cut point of the trace, nothing of the annotation is used: the history is the trace's first `cut`
    steps and `until` the start of the next one. Without it the trace is cut at the example's time: the history is the
    steps that start before `until`, which stays. Where the example has no time, or a step of the trace no start, the
    trace is cut after the same share of its steps, to the nearest step. Id and goal stay; the example's `cut` becomes
    the length of the history.
    """
    texts = tuple(step.text for step in trace.steps)
    until = example.until
    if cut is not None:
        until = trace.steps[cut].start
    elif until is not None and all(step.start is not None for step in trace.steps):
        cut = sum(step.start < until for step in trace.steps if step.start is not None)
    else:
        annotated = len(example.history) + len(example.continuation)
        # In whole numbers, halves up: round() would take halves to the even one.
        nearest = (2 * len(example.history) * len(texts) + annotated) // (2 * annotated)
        cut = min(max(nearest, 1), len(texts) - 1)
    if not 0 < cut < len(texts):
        return None
    return replace(example, history=texts[:cut], continuation=texts[cut:], cut=cut, until=until, supervision="weak")


def _drawn(items: Iterable[Item], key: tuple[int | str, ...]) -> list[Item]:
    """The items in a random order that depends on nothing but `key` and the items themselves."""
    # The order of two items is decided by their own hashes, whatever else is there.
    return sorted(items, key=lambda item: hashlib.sha256(json.dumps([*key, item]).encode()).digest())
