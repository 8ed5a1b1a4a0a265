"""Weak supervision: training examples whose history and continuation come from Phi instead of from an annotation.

A pseudo-trace y_hat = Phi(V) takes the place of the annotated steps of a video and is cut where its example is cut
(paper, section 3.1). Which examples are weak is decided one by one, once, by a hash of (seed, example id): those that
are weak at 25% are weak at 50%, and a set never changes when other videos come or go. Only the split train is mixed.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from recipe.errors import InputError
from recipe.types import Example, Procedure


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
