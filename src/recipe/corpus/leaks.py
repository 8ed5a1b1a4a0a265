"""Leaks: keeping the videos of a test out of a corpus, and what a corpus holds of them.

A planner that is rewarded by the narration of the very video it is tested on is rewarded for memory. So a narration is
left out by the id of its video, and a caption where it is a near-copy of a text of an excluded video: one video can be
uploaded under two ids. Ids are compared as `recipe.data.video_ids` does it. A video that has an id of its benchmark's
own and no text long enough to be compared cannot be found, and is counted as such.

Near-copies are found by the words that two texts share (`recipe.corpus.near_copies`); none is missed.
"""

import heapq
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from recipe.artifacts import JsonObject, fingerprint
from recipe.corpus import layout
from recipe.corpus.layout import SHARDS
from recipe.corpus.near_copies import NEAR_COPY_PERCENT, WORDS, NearCopies, NearCopy, is_comparable
from recipe.data.video_ids import YOUTUBE, VideoIds, has_own_id
from recipe.errors import InputError, listed
from recipe.progress import SILENT, Progress
from recipe.types import Example, Narration

COPIED_CAPTIONS, COPIED_PERCENT = 3, 25
"""Fewest near-copies, and their share of the captions with words enough, that make a narration an excluded video.

Two uploads of one video are cut into captions at other places, so that far from all of them match.
"""
# Near-copies that a report quotes.
_EXAMPLES = 20
_LOG = logging.getLogger(__name__)


class ExcludedVideo(NamedTuple):
    """A video that a corpus must not hold."""

    source: str
    """The benchmark that its file names, else the name of the file."""
    video_id: str
    """Empty where its file names none."""
    texts: tuple[str, ...]
    """Its steps or captions, in the order of the file."""


def videos_of(examples: Iterable[Example], source: str) -> list[ExcludedVideo]:
    """The videos of examples with all their steps; `source` names the benchmark where the examples do not.

    Examples that name no video count as a video each.
    """
    texts: dict[tuple[str, str, str], dict[str, None]] = {}
    for example in examples:
        key = (example.source or source, example.video_id, "" if example.video_id else example.example_id)
        texts.setdefault(key, {}).update(dict.fromkeys((*example.history, *example.continuation)))
    return [ExcludedVideo(named, video, tuple(steps)) for (named, video, _), steps in texts.items()]


class Overlap(NamedTuple):
    """What a narration shares with excluded videos."""

    by_id: bool
    """Its video is excluded; its captions were not compared."""
    by_text: bool
    """By its captions it is an excluded video under another id, or nothing is left of it."""
    copies: Sequence[NearCopy | None]
    """For each caption the excluded text that it is a near-copy of."""
    excluded_id: str = ""
    """The id of the excluded video that it is; where `by_id` is false, one that occurs inside its own id."""
    copied: int = 0
    """Number of captions that are near-copies."""


class CopiedCaption(NamedTuple):
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


class Checked(NamedTuple):
    """How many excluded videos of a source can be found in a corpus."""

    source: str
    """The benchmark, or the file of the videos."""
    videos: int
    by_id: int
    """Videos whose id a corpus can have: an id of YouTube, one of a list `--ids`, or one of its own kind of ids."""
    by_text: int
    """Videos with a text that has words enough to be compared."""
    unchecked: int
    """Videos that can be found by neither."""

    @property
    def line(self) -> str:
        """What cannot be checked, in words; empty where all can be by id and by text."""
        lacks = {"by id": self.videos - self.by_id, "by text": self.videos - self.by_text}
        counts = "; ".join(f"cannot be checked {way}: {n:,} of {self.videos:,}" for way, n in lacks.items() if n)
        remedy = f"; {self.unchecked:,} by neither: give their ids in corpora with --ids" if self.unchecked else ""
        return f"{self.source}: {counts}{remedy}" if counts else ""


@dataclass(slots=True)
class ExclusionReport:
    """Narrations and captions left out of a corpus, counted while narrations stream through `Exclusions.filter`."""

    narrations: int = 0
    """Narrations that were compared."""
    narrations_by_id: int = 0
    """Left out, because their video is excluded."""
    narrations_by_text: int = 0
    """Left out, because by their captions they are excluded videos under another id."""
    captions_by_text: int = 0
    """Near-copies of excluded texts, all left out; those of the narrations above are among them."""
    excluded_ids: set[str] = field(default_factory=set)
    """The excluded ids that narrations were left out by."""
    youtube_ids: int = 0
    """Narrations whose id has the form of a YouTube id; the others have ids of another kind."""
    _closest: list[tuple[tuple[float, int, int], CopiedCaption]] = field(default_factory=list, repr=False)
    """A heap of the closest near-copies, the longest of equals first."""
    _counted: int = field(default=0, repr=False)

    def count(self, narration: Narration, overlap: Overlap) -> None:
        """Add one narration."""
        self.count_id(narration.video_id, overlap.excluded_id if overlap.by_id else None)
        self.narrations_by_id += overlap.by_id
        self.narrations_by_text += overlap.by_text
        self.captions_by_text += overlap.copied
        for segment, copy in zip(narration.segments, overlap.copies, strict=False):
            if copy is not None:
                self._counted += 1
                copied = CopiedCaption(narration.video_id, segment.text, *copy)
                heapq.heappush(self._closest, ((copy.similarity, len(segment.text), -self._counted), copied))
                if len(self._closest) > _EXAMPLES:
                    heapq.heappop(self._closest)

    def count_id(self, video_id: str, excluded: str | None) -> None:
        """Add the id of a narration, and that of the excluded video that it is."""
        self.narrations += 1
        self.youtube_ids += YOUTUBE.fullmatch(video_id) is not None
        if excluded is not None:
            self.excluded_ids.add(excluded)

    @property
    def examples(self) -> tuple[CopiedCaption, ...]:
        """The closest near-copies, the longest of equals first; at most twenty."""
        return tuple(copied for _, copied in sorted(self._closest, reverse=True))

    def as_dict(self) -> JsonObject:
        """The counts and examples as JSON values."""
        counts = ("narrations", "narrations_by_id", "narrations_by_text", "captions_by_text")
        values: JsonObject = {name: getattr(self, name) for name in counts}
        return values | {"examples": [copied._asdict() for copied in self.examples]}

    def lines(self) -> list[str]:
        """What was left out, a line each; empty where nothing was."""
        counts = {
            "narrations of excluded videos": self.narrations_by_id,
            "narrations that are excluded videos under another id": self.narrations_by_text,
            "captions that are near-copies of excluded texts, in these and other narrations": self.captions_by_text,
        }
        return [f"{name}: {count:,}" for name, count in counts.items() if count]


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
    """Narrations of them that the corpus holds, by their ids there, in corpus order."""
    unclear: tuple[tuple[str, str], ...]
    """Narrations with an id that an excluded id occurs in, and that id."""
    checked: tuple[Checked, ...]
    """How many of the excluded videos can be found at all, by source."""
    copied_videos: tuple[CopiedVideo, ...]
    """Narrations that are excluded videos under another id, the most copied first."""
    copied_captions: int
    """Near-copies of excluded texts in narrations of other ids."""
    examples: tuple[CopiedCaption, ...]
    """The closest near-copies, the longest of equals first; at most twenty."""

    @property
    def clean(self) -> bool | None:
        """False where something of an excluded video was found, None where nothing was but not all could be checked."""
        if self.videos or self.unclear or self.copied_captions:
            return False
        return None if any(source.unchecked for source in self.checked) else True

    def as_dict(self) -> JsonObject:
        """The report as JSON values."""
        return {
            "clean": self.clean,
            "narrations": self.narrations,
            "captions": self.captions,
            "excluded_videos": self.excluded_videos,
            "videos": list(self.videos),
            "unclear": [{"video_id": video_id, "excluded": excluded} for video_id, excluded in self.unclear],
            "checked": [source._asdict() for source in self.checked],
            "copied_videos": [video._asdict() for video in self.copied_videos],
            "copied_captions": self.copied_captions,
            "examples": [example._asdict() for example in self.examples],
        }

    def rows(self) -> list[tuple[str, str]]:
        """The report as a table of two columns, for people."""
        unchecked = sum(source.unchecked for source in self.checked)
        unknown = f"; {unchecked:,} cannot be checked" if unchecked else ""
        held = listed([f"{video_id} holds {excluded}" for video_id, excluded in self.unclear])
        unclear = ("unclear", f"{len(self.unclear):,} narrations with an excluded id inside their own: {held}")
        return [
            ("excluded videos", f"{len(self.videos):,} of {self.excluded_videos:,} are in the corpus{unknown}"),
            *([unclear] if self.unclear else ()),
            ("under another id", f"{len(self.copied_videos):,} of {self.narrations:,} narrations, by their captions"),
            ("near-copies", f"{self.copied_captions:,} of {self.captions:,} captions, in narrations of other ids"),
            *(("limits", source.line) for source in self.checked if source.line),
        ]


class Exclusions:
    """Videos and texts that a corpus must not hold; safe to share between threads.

    `recipe.corpus.excluded.read_exclusions` reads them from files.
    """

    def __init__(
        self,
        video_ids: Iterable[str],
        texts: Iterable[str],
        videos: Sequence[ExcludedVideo] = (),
        id_map: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """`videos` are what the ids and texts are of, and `id_map` names further ids of some of them."""
        ids = frozenset(video_ids)
        self.video_ids = ids.union(*(id_map[video_id] for video_id in ids & id_map.keys()))
        self.texts = tuple(dict.fromkeys(texts))
        self._ids = VideoIds(self.video_ids)
        self._copies = NearCopies(self.texts)
        self._videos, self._id_map = videos, id_map

    @classmethod
    def of(
        cls, videos: Sequence[ExcludedVideo], id_map: Mapping[str, Sequence[str]] = MappingProxyType({})
    ) -> "Exclusions":
        """The ids and texts of videos."""
        ids = (video.video_id for video in videos if video.video_id)
        return cls(ids, (text for video in videos for text in video.texts), videos, id_map)

    def checked(self, report: ExclusionReport) -> tuple[Checked, ...]:
        """How many excluded videos can be found in a corpus, by source; after its narrations were counted.

        An id of a benchmark's own counts where it is mapped to one of a corpus, or another of its source was found.
        """
        same_kind = {True: report.youtube_ids > 0, False: report.narrations > report.youtube_ids}
        known = {video.source for video in self._videos if video.video_id in report.excluded_ids}
        by_text: dict[tuple[str, str | int], bool] = {}
        # A video of a source counts once, with the texts of all its rows; one without an id stands for itself.
        for number, video in enumerate(self._videos):
            key = (video.source, video.video_id or number)
            by_text[key] = by_text.get(key, False) or any(map(is_comparable, video.texts))
        counts: dict[str, Counter[str]] = {}
        for (source, video_id), comparable in by_text.items():
            ids = [] if isinstance(video_id, int) else [*self._id_map.get(video_id, ())]
            if isinstance(video_id, str) and not has_own_id(source, video_id):
                ids.append(video_id)
            by_id = source in known or any(same_kind[YOUTUBE.fullmatch(known_id) is not None] for known_id in ids)
            more = {"by_id": by_id, "by_text": comparable, "unchecked": not (by_id or comparable)}
            counts.setdefault(source, Counter()).update(videos=1, **more)
        names = ("videos", "by_id", "by_text", "unchecked")
        return tuple(Checked(source, *(count[name] for name in names)) for source, count in counts.items())

    def checked_among(self, video_ids: Iterable[str]) -> tuple[Checked, ...]:
        """The same for a corpus of narrations with these ids."""
        report = ExclusionReport()
        for video_id in video_ids:
            report.count_id(video_id, self._ids.find(video_id))
        return self.checked(report)

    @property
    def identity(self) -> JsonObject:
        """What a corpus records: the rule, and a hash over the ids and texts that it was applied to."""
        return {
            "sha256": fingerprint([sorted(self.video_ids), sorted(self.texts)]),
            "video_ids": len(self.video_ids),
            "texts": len(self.texts),
            "compared_texts": len(self._copies),
            "similarity_percent": NEAR_COPY_PERCENT,
            "fewest_words": WORDS,
            "copied_captions": COPIED_CAPTIONS,
            "copied_percent": COPIED_PERCENT,
        }

    def compare(self, narration: Narration) -> Overlap:
        """Overlap of a narration with excluded videos."""
        if excluded := self._ids.find(narration.video_id) or (narration.url and self._ids.find(narration.url)):
            return Overlap(by_id=True, by_text=False, copies=(), excluded_id=excluded)
        copies = self._copies.find([segment.text for segment in narration.segments])
        copied = sum(copy is not None for copy in copies)
        by_text = 0 < copied == len(copies)
        if not by_text and copied >= COPIED_CAPTIONS:
            comparable = sum(is_comparable(segment.text) for segment in narration.segments)
            by_text = 100 * copied >= COPIED_PERCENT * comparable
        return Overlap(False, by_text, copies, self._ids.inside(narration.video_id) or "", copied)

    def require_clear(self, video_id: str, file: str = "") -> None:
        """Raises InputError where a narration of no excluded video has such an id in its id or its file's path."""
        if self._ids.find(video_id) is None:
            excluded = self._ids.inside(video_id) or self._ids.inside(file, path=True)
            if excluded is not None:
                problem = f"the excluded video id {excluded!r} occurs in the name of narration {video_id!r}"
                remedy = f"exclude {video_id!r}, too, if it is that video, and rename it if it is not"
                raise InputError.at(file or f"narration {video_id!r}", problem, remedy)

    def filter(self, narrations: Iterable[Narration], report: ExclusionReport) -> Iterator[Narration]:
        """The narrations without excluded videos and without near-copies, in order; counts go to `report`.

        A narration goes by its id, or where at least 3 captions, and 25 % of those with words enough, are
        near-copies: then it is an excluded video under another id. Otherwise only these captions go. Raises InputError
        for a narration with an excluded id inside its own.
        """
        for narration in narrations:
            self.require_clear(narration.video_id)
            overlap = self.compare(narration)
            report.count(narration, overlap)
            if overlap.by_id or overlap.by_text:
                continue
            if overlap.copied:
                compared = zip(narration.segments, overlap.copies, strict=True)
                narration = replace(narration, segments=tuple(segment for segment, copy in compared if copy is None))
            yield narration


def warn_unchecked(checked: Iterable[Checked], videos: str) -> None:
    """Log of which excluded videos it is not known whether a corpus holds them; `videos` says where they are from."""
    for source in checked:
        if source.unchecked:
            _LOG.warning("whether the corpus holds videos of %s is not known: %s", videos, source.line)


def leakage(corpus: Path, exclusions: Exclusions, progress: Progress = SILENT) -> LeakReport:
    """How much of excluded videos the corpus in a folder holds; reads its texts shard by shard.

    Raises CorpusError for a folder that holds no corpus, and for a damaged shard.
    """
    held, counted = layout.HeldManifest(corpus), ExclusionReport()  # a change meanwhile takes no file away
    manifest = held.manifest
    videos: list[str] = []
    unclear: list[tuple[str, str]] = []
    copied: list[CopiedVideo] = []
    with progress.task("comparing captions", manifest["segments"]) as advance:
        narrations = (layout.read_narrations(corpus / SHARDS / shard["name"], shard) for shard in manifest["shards"])
        for narration in chain.from_iterable(narrations):
            overlap = exclusions.compare(narration)
            counted.count(narration, overlap)
            if overlap.by_id:
                videos.append(narration.video_id)
            elif overlap.excluded_id:
                unclear.append((narration.video_id, overlap.excluded_id))
            if overlap.by_text:
                copied.append(CopiedVideo(narration.video_id, overlap.copied, len(narration.segments)))
            advance(len(narration.segments))
    return LeakReport(
        narrations=counted.narrations,
        captions=manifest["segments"],
        excluded_videos=len(exclusions.video_ids),
        videos=tuple(videos),
        unclear=tuple(unclear),
        checked=exclusions.checked(counted),
        copied_videos=tuple(sorted(copied, key=lambda video: -video.copied)),
        copied_captions=counted.captions_by_text,
        examples=counted.examples,
    )
