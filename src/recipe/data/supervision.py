"""Cut points of procedures, and weak supervision: examples made from Phi's traces."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, TypeVar

from recipe.errors import InputError
from recipe.types import Example, Procedure

# Where a procedure is cut into history and continuation (paper, section 3.1).
#
# Training takes several cut points per video, testing one. They are decided by hashing (seed, video id, t), so
# that a video keeps its own when other videos come or go, when the benchmark is read in another order, and from
# one Python version to the next.
#
# Steps are taken as annotated: where a label repeats in consecutive segments, both stay. Where two steps start at the
# same time, a cut between them stays, too: the video history then ends before either is seen.


CutCount = int | Literal["all"]
"""Cut points per video: a number of them, fewer where the video is short, or every one there is."""

Item = TypeVar("Item", int, str)


class CutExamples(NamedTuple):
    """Examples in the order of their procedures, then of their cut, and the procedures that gave none."""

    examples: list[Example]
    too_short: list[Procedure]
    """Procedures of fewer than two steps, which have no cut point."""
    no_split: list[Procedure]
    """Procedures that belong to no split, so that neither number of cut points applies."""


def cut_points(video_id: str, steps: int, count: CutCount, seed: int = 0) -> tuple[int, ...]:
    """Cut points 1 <= t < `steps`, ascending: `count` drawn without replacement, or all if there are fewer.

    A smaller count gives a subset of a larger one. Raises InputError for a count below 1.

    >>> cut_points("LtRSn-ntcLY", steps=4, count="all")
    (1, 2, 3)
    """
    if count != "all" and count < 1:
        raise InputError(f"{count} cut points per video are asked for; give a number of at least 1, or 'all'.")
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
    seen: set[tuple[str, str]] = set()
    for procedure in procedures:
        _require_new(procedure, seen)
        if not procedure.split:
            cut.no_split.append(procedure)
        elif len(procedure.steps) < 2:
            cut.too_short.append(procedure)
        else:
            count = train if procedure.split == "train" else test
            points = cut_points(procedure.video_id, len(procedure.steps), count, seed)
            cut.examples.extend(cut_at(procedure, point) for point in points)
    return cut


def cut_at(procedure: Procedure, cut: int) -> Example:
    """The example whose history is the first `cut` steps, 0 <= cut < number of steps.

    `until` is the start of the first step of the continuation, None where the procedure does not tell it. Steps stand
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


def limit_videos(procedures: Sequence[Procedure], limit: int, seed: int = 0) -> list[Procedure]:
    """At most `limit` procedures of each source and split, drawn by hash, in the order given."""
    groups: dict[tuple[str, str], list[str]] = {}
    for procedure in procedures:
        groups.setdefault((procedure.source, procedure.split), []).append(procedure.video_id)
    kept = {group: set(_drawn(videos, key=(seed,))[:limit]) for group, videos in groups.items()}
    return [p for p in procedures if p.video_id in kept[p.source, p.split]]


def _drawn(items: Iterable[Item], key: tuple[int | str, ...]) -> list[Item]:
    """The items in a random order that depends on nothing but `key` and the items themselves."""
    return sorted(items, key=lambda item: hashlib.sha256(json.dumps([*key, item]).encode()).digest())


def _require_new(procedure: Procedure, seen: set[tuple[str, str]]) -> None:
    key = (procedure.source, procedure.video_id)
    if key in seen:
        raise InputError(f"video {key[1]!r} occurs twice in source {key[0]!r}; give each video of a source once.")
    seen.add(key)


# Weak supervision: training examples whose history and continuation come from Phi instead of from an annotation.
#
# A pseudo-trace y_hat = Phi(V) takes the place of the annotated steps of a video and is cut where its example is cut
# (paper, section 3.1). Which examples are weak is decided one by one, once, by a hash of (seed, example id): those that
# are weak at 25% are weak at 50%, and a set never changes when other videos come or go. Only the split train is mixed.


class Mixture(NamedTuple):
    """Examples in the order given, some of them weak, and by source the weak ones that had to be left out."""

    examples: list[Example]
    no_trace: Counter[str]
    """Examples whose video has no pseudo-trace of two steps or more."""
    one_sided: Counter[str]
    """Examples whose pseudo-trace has no step on one side of the cut."""


def mix_supervision(examples: Iterable[Example], traces: Iterable[Procedure], percent: float, seed: int = 0) -> Mixture:
    """Examples of which `percent` of 100 of the split train are weak, with the pseudo-traces of their videos.

    An example that is to be weak and has no usable trace is left out and counted, never annotated instead. Raises
    InputError for a percentage outside 0 to 100.
    """
    if not 0 <= percent <= 100:
        raise InputError(f"{percent:g}% of the examples are to be weak; give a number from 0 to 100.")
    found = {(trace.source, trace.video_id): trace for trace in traces}
    mixture = Mixture([], Counter(), Counter())
    for example in examples:
        if example.split != "train" or not is_weak(example.example_id, percent, seed):
            mixture.examples.append(example)
            continue
        trace = found.get((example.source, example.video_id))
        if trace is None or len(trace.steps) < 2:
            mixture.no_trace[example.source] += 1
        elif (weak := weakened(example, trace)) is None:
            mixture.one_sided[example.source] += 1
        else:
            mixture.examples.append(weak)
    return mixture


def is_weak(example_id: str, percent: float, seed: int = 0) -> bool:
    """Whether an example is weak in a mixture of `percent` of 100."""
    digest = hashlib.sha256(json.dumps([seed, "weak", example_id]).encode()).digest()
    return int.from_bytes(digest[:8]) * 100 < percent * 2**64


def weakened(example: Example, trace: Procedure) -> Example | None:
    """The example with the steps of a pseudo-trace of two steps or more; None where one side of the cut has none.

    The trace is cut at the example's time: its history are the steps that start before `until`. Where the example has
    none, or a step of the trace has no start, it is cut after the same share of its steps, to the nearest step. `cut`
    becomes the length of the history; id, goal and `until` stay.
    """
    texts = tuple(step.text for step in trace.steps)
    starts = [step.start for step in trace.steps if step.start is not None]
    if example.until is not None and len(starts) == len(texts):
        cut = sum(start < example.until for start in starts)
    else:
        annotated = len(example.history) + len(example.continuation)
        nearest = (2 * len(example.history) * len(texts) + annotated) // (2 * annotated)
        cut = min(max(nearest, 1), len(texts) - 1)
    if not 0 < cut < len(texts):
        return None
    return replace(example, history=texts[:cut], continuation=texts[cut:], cut=cut, supervision="weak")
