"""Narrations compared with those of a corpus: which are new, which are changed, and which are the same."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from recipe.corpus.store import Corpus
from recipe.errors import CorpusError
from recipe.types import Narration

# Narrations compared together: each shard that holds some of them is read once.
_BATCH = 1024


class HeldNarration(NamedTuple):
    """A narration, and the one of the same video that a corpus holds."""

    given: Narration
    number: int | None
    """Its index in the corpus; None where the corpus has no narration of this video."""
    held: Narration | None

    @property
    def is_equal(self) -> bool:
        """Whether both say the same at the same times, under one title; their `source` does not count."""
        return self.held is not None and replace(self.given, source=self.held.source) == self.held


class CorpusDifference(NamedTuple):
    """How narrations differ from those of a corpus, by their video ids."""

    added: list[str]
    """Not in the corpus."""
    changed: list[str]
    """In the corpus with other texts, times, titles or addresses."""
    equal: int
    """In the corpus as they are."""
    removed: list[str]
    """In the corpus, and not among the narrations."""

    def require_none(self, folder: Path) -> None:
        """Raises CorpusError where a finished corpus, in `folder`, is of other narrations than those given."""
        if self.added or self.changed or self.removed:
            raise CorpusError(
                f"{folder}: the folder holds a finished corpus of other narrations: of those given it lacks "
                f"{len(self.added):,}, and has {len(self.changed):,} in other words; {len(self.removed):,} of its own "
                f"are not given. Change it with `recipe corpus add {folder} FILES` and `recipe corpus remove`, or "
                "choose another folder."
            )


def compared(corpus: Corpus, narrations: Iterable[Narration]) -> Iterator[HeldNarration]:
    """Each narration with the one of the same video that the corpus holds, in order. Raises CorpusError."""
    known, stream = corpus.video_ids, iter(narrations)
    while batch := list(islice(stream, _BATCH)):
        ids = [narration.video_id for narration in batch]
        own = [corpus.find(video_id) if video_id in known else None for video_id in ids]
        held = iter(corpus.narrations([number for number in own if number is not None]))
        for narration, number in zip(batch, own, strict=True):
            yield HeldNarration(narration, number, None if number is None else next(held))


def difference(corpus: Corpus, narrations: Iterable[Narration]) -> CorpusDifference:
    """What the narrations would add to the corpus, change in it and leave out of it. Raises CorpusError."""
    changes = CorpusDifference([], [], 0, [])
    left, equal = dict.fromkeys(corpus.video_ids), 0
    for pair in compared(corpus, narrations):
        left.pop(pair.given.video_id, None)
        if pair.held is None:
            changes.added.append(pair.given.video_id)
        elif pair.is_equal:
            equal += 1
        else:
            changes.changed.append(pair.given.video_id)
    return changes._replace(equal=equal, removed=list(left))
