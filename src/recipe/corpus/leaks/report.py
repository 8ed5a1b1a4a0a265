"""What was kept out of a corpus, and what a corpus holds of excluded videos."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from recipe.artifacts import JsonObject
from recipe.corpus.leaks.text import NearCopy
from recipe.types import Narration

_QUOTED = 20


class Judgement(NamedTuple):
    """What of a narration belongs to excluded videos."""

    by_id: bool
    """Its video is excluded; its captions were not compared."""
    by_text: bool
    """By its captions it is an excluded video under another id, or nothing is left of it."""
    copies: Sequence[NearCopy | None]
    """For each caption the excluded text that it is a near-copy of."""

    @property
    def copied(self) -> int:
        """Number of captions that are near-copies."""
        return sum(copy is not None for copy in self.copies)


class Copied(NamedTuple):
    """A caption of a narration, and the excluded text that it is a near-copy of."""

    video_id: str
    caption: str
    excluded: str
    similarity: float


class CopiedVideo(NamedTuple):
    """A narration that by its captions is an excluded video under another id: near-copies, and captions in all."""

    video_id: str
    copied: int
    captions: int


class _Closest:
    """The closest near-copies of those given, the longest of equals first, in bounded memory."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[float, int, int], Copied]] = []
        self._given = 0

    def add(self, copied: Copied) -> None:
        self._given += 1
        heapq.heappush(self._heap, ((copied.similarity, len(copied.caption), -self._given), copied))
        if len(self._heap) > _QUOTED:
            heapq.heappop(self._heap)

    def listed(self) -> tuple[Copied, ...]:
        return tuple(copied for _, copied in sorted(self._heap, reverse=True))


@dataclass(slots=True)
class ExclusionReport:
    """What was left out of a corpus, counted while narrations stream through `Exclusions.filter`."""

    narrations: int = 0
    """Narrations that were looked at."""
    narrations_by_id: int = 0
    """Left out, because their video is excluded."""
    narrations_by_text: int = 0
    """Left out, because by their captions they are excluded videos under another id."""
    captions_by_text: int = 0
    """Near-copies of excluded texts, all left out; those of the narrations above are among them."""
    _closest: _Closest = field(default_factory=_Closest, repr=False, compare=False)

    def count(self, narration: Narration, judgement: Judgement) -> None:
        """Add one narration."""
        self.narrations += 1
        self.narrations_by_id += judgement.by_id
        self.narrations_by_text += judgement.by_text
        self.captions_by_text += judgement.copied
        for segment, copy in zip(narration.segments, judgement.copies, strict=False):
            if copy is not None:
                self._closest.add(Copied(narration.video_id, segment.text, *copy))

    @property
    def examples(self) -> tuple[Copied, ...]:
        """The closest near-copies, the longest of equals first; at most twenty."""
        return self._closest.listed()

    def as_dict(self) -> JsonObject:
        """The counts and examples as JSON values."""
        counts = {one.name: getattr(self, one.name) for one in fields(self) if one.compare}
        return counts | {"examples": [example._asdict() for example in self.examples]}


@dataclass(frozen=True, slots=True)
class LeakReport:
    """What a corpus holds of excluded videos."""

    narrations: int
    """Narrations of the corpus."""
    captions: int
    """Captions of the corpus."""
    excluded_videos: int
    """Ids that were looked for."""
    videos: tuple[str, ...]
    """Those that the corpus holds, in corpus order."""
    copied_videos: tuple[CopiedVideo, ...]
    """Narrations that are excluded videos under another id, the most copied first."""
    copied_captions: int
    """Near-copies of excluded texts in narrations of other ids."""
    examples: tuple[Copied, ...]
    """The closest near-copies, the longest of equals first; at most twenty."""

    @property
    def clean(self) -> bool:
        """True where nothing of an excluded video was found."""
        return not self.videos and not self.copied_captions

    def as_dict(self) -> JsonObject:
        """The report as JSON values."""
        return {
            "clean": self.clean,
            "narrations": self.narrations,
            "captions": self.captions,
            "excluded_videos": self.excluded_videos,
            "videos": list(self.videos),
            "copied_videos": [video._asdict() for video in self.copied_videos],
            "copied_captions": self.copied_captions,
            "examples": [example._asdict() for example in self.examples],
        }

    def rows(self) -> list[tuple[str, str]]:
        """The report as a table of two columns, for people."""
        return [
            ("excluded videos", f"{len(self.videos):,} of {self.excluded_videos:,} are in the corpus"),
            ("under another id", f"{len(self.copied_videos):,} of {self.narrations:,} narrations, by their captions"),
            ("near-copies", f"{self.copied_captions:,} of {self.captions:,} captions, in narrations of other ids"),
        ]
