"""Which procedures are audited, and how many are left out for what reason."""

import hashlib
import json
from collections.abc import Collection, Iterable
from typing import NamedTuple

from recipe.reward.prompts import Steps
from recipe.types import Procedure

FEWEST, MOST = 5, 20
"""Steps of an audited procedure, consecutive duplicates collapsed."""


class Performed(NamedTuple):
    """A procedure as the audit reads it: consecutive duplicate steps collapsed."""

    source: str
    video_id: str
    goal: str
    steps: Steps


class Selection(NamedTuple):
    """The procedures that are audited, those that corruptions may draw on, and what was left out."""

    audited: list[Performed]
    """At most `limit` of each source."""
    usable: list[Performed]
    """All that could be audited."""
    left_out: dict[str, int]
    """Reason in words -> number of procedures; reasons that did not occur have 0."""


REPEATED = "given twice"
IN_CORPUS = "narrated in the corpus"
TOO_SHORT = f"of fewer than {FEWEST} steps"
TOO_LONG = f"of more than {MOST} steps"


def select(
    procedures: Iterable[Procedure],
    seed: int = 0,
    limit: int | None = None,
    corpus_videos: Collection[str] = frozenset(),
) -> Selection:
    """The procedures of 5 to 20 steps whose videos are not narrated in the corpus, in an order of their own.

    The order, and so the `limit` of each source, follows from a hash of seed, source and video id: neither the
    order of the files nor other procedures change it.
    """
    left_out = dict.fromkeys((REPEATED, IN_CORPUS, TOO_SHORT, TOO_LONG), 0)
    usable: dict[tuple[str, str], Performed] = {}
    for procedure in procedures:
        performed = collapsed(procedure)
        if reason := _reason(performed, usable, corpus_videos):
            left_out[reason] += 1
        else:
            usable[performed.source, performed.video_id] = performed
    sources: dict[str, list[Performed]] = {}
    for one in sorted(usable.values(), key=lambda one: (one.source, _hash(seed, one))):
        sources.setdefault(one.source, []).append(one)
    audited = [one for ordered in sources.values() for one in ordered[:limit]]
    return Selection(audited, [one for ordered in sources.values() for one in ordered], left_out)


def collapsed(procedure: Procedure) -> Performed:
    """The procedure without steps that repeat the one before, up to case and space."""
    texts = [" ".join(step.text.split()) for step in procedure.steps]
    kept = [text for i, text in enumerate(texts) if i == 0 or text.casefold() != texts[i - 1].casefold()]
    return Performed(procedure.source, procedure.video_id, procedure.goal, tuple(kept))


def same_goal(goal: str) -> str:
    """A goal as it is compared: case and space do not tell goals apart."""
    return " ".join(goal.casefold().split())


def _reason(performed: Performed, known: Collection[tuple[str, str]], corpus_videos: Collection[str]) -> str | None:
    """Why a procedure is left out; None for one that is usable."""
    if (performed.source, performed.video_id) in known:
        return REPEATED
    if performed.video_id in corpus_videos:
        return IN_CORPUS
    if len(performed.steps) < FEWEST:
        return TOO_SHORT
    return TOO_LONG if len(performed.steps) > MOST else None


def _hash(seed: int, one: Performed) -> bytes:
    return hashlib.sha256(json.dumps([seed, one.source, one.video_id]).encode()).digest()
