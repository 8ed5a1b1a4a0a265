"""Keeping the videos of a test out of the corpus that checks plans, and telling whether one holds them.

A planner that is rewarded by the narration of the very video that it is tested on is rewarded for memory. So a
narration is left out by the id of its video, and a caption where it is a near-copy (see `leaks_text`) of a text that
belongs to an excluded video: the same video can be uploaded twice, under two ids.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from recipe.artifacts import JsonObject, fingerprint
from recipe.corpus.layout import SHARDS, damaged, read_narrations
from recipe.corpus.leaks.inputs import read_excluded
from recipe.corpus.leaks.report import CopiedVideo, ExclusionReport, Judgement, LeakReport
from recipe.corpus.leaks.text import NEAR, WORDS, NearCopies, is_comparable
from recipe.progress import SILENT, Progress
from recipe.types import Narration

if TYPE_CHECKING:
    from recipe.corpus.store import Corpus

COPIED_CAPTIONS, COPIED_PERCENT = 3, 25
"""Fewest near-copies, and their share of the captions with words enough, that make a narration an excluded video.

Two uploads of one video are cut into captions at other places, so that far from all of them match.
"""


class Exclusions:
    """Videos and texts that a corpus must not hold; safe to share between threads.

    Read them from files with `Exclusions.read`.
    """

    def __init__(self, video_ids: Iterable[str], texts: Iterable[str]) -> None:
        self.video_ids = frozenset(video_ids)
        self.texts = tuple(dict.fromkeys(texts))
        self._copies = NearCopies(self.texts)

    @classmethod
    def read(cls, paths: Sequence[Path], split: str = "") -> "Exclusions":
        """What files of examples, procedures or narrations hold, and `.txt` lists of video ids, one a line.

        `split` keeps the examples and procedures of one split, the empty string all. Raises InputError.
        """
        found = [read_excluded(path, split) for path in paths]
        ids = (video_id for one in found for video_id in one.video_ids)
        return cls(ids, (text for one in found for text in one.texts))

    @property
    def identity(self) -> JsonObject:
        """What a corpus records: the rule, and a hash over the ids and texts that it was applied to."""
        return {
            "sha256": fingerprint([sorted(self.video_ids), sorted(self.texts)]),
            "video_ids": len(self.video_ids),
            "texts": len(self.texts),
            "compared_texts": len(self._copies),
            "similarity_percent": NEAR,
            "fewest_words": WORDS,
            "copied_captions": COPIED_CAPTIONS,
            "copied_percent": COPIED_PERCENT,
        }

    def judge(self, narration: Narration) -> Judgement:
        """What of a narration belongs to excluded videos."""
        if narration.video_id in self.video_ids:
            return Judgement(by_id=True, by_text=False, copies=())
        copies = self._copies.find([segment.text for segment in narration.segments])
        return Judgement(by_id=False, by_text=_is_copied(narration, copies), copies=copies)

    def filter(self, narrations: Iterable[Narration], report: ExclusionReport) -> Iterator[Narration]:
        """The narrations without excluded videos and without near-copies, in order; counts go to `report`.

        A narration goes by its id, or where at least 3 captions, and 25 % of those with words enough, are
        near-copies: then it is an excluded video under another id. Otherwise only these captions go.
        """
        for narration in narrations:
            judgement = self.judge(narration)
            report.count(narration, judgement)
            if judgement.by_id or judgement.by_text:
                continue
            if judgement.copied:
                compared = zip(narration.segments, judgement.copies, strict=True)
                narration = replace(narration, segments=tuple(segment for segment, copy in compared if copy is None))
            yield narration


def leakage(corpus: "Corpus", paths: Sequence[Path], progress: Progress = SILENT, *, split: str = "") -> LeakReport:
    """How much of the videos in `paths`, read as by `Exclusions.read`, a corpus holds; reads its texts shard by shard.

    Raises InputError for the files, and CorpusError for a damaged shard.
    """
    exclusions = Exclusions.read(paths, split)
    counted = ExclusionReport()
    videos: list[str] = []
    copied: list[CopiedVideo] = []
    with progress.task("comparing captions", corpus.manifest["segments"]) as advance:
        for narration in _narrations(corpus):
            judgement = exclusions.judge(narration)
            counted.count(narration, judgement)
            if judgement.by_id:
                videos.append(narration.video_id)
            if judgement.by_text:
                copied.append(CopiedVideo(narration.video_id, judgement.copied, len(narration.segments)))
            advance(len(narration.segments))
    return LeakReport(
        narrations=counted.narrations,
        captions=corpus.manifest["segments"],
        excluded_videos=len(exclusions.video_ids),
        videos=tuple(videos),
        copied_videos=tuple(sorted(copied, key=lambda video: -video.copied)),
        copied_captions=counted.captions_by_text,
        examples=counted.examples,
    )


def _narrations(corpus: "Corpus") -> Iterator[Narration]:
    for shard in corpus.manifest["shards"]:
        folder = corpus.folder / SHARDS / shard["name"]
        try:
            yield from read_narrations(folder)
        except (OSError, ValueError) as error:
            raise damaged(folder, error) from None


def _is_copied(narration: Narration, copies: Sequence[object]) -> bool:
    """Whether a narration's near-copies make it an excluded video, or leave nothing of it."""
    copied = sum(copy is not None for copy in copies)
    if copied == len(copies):
        return True
    if copied < COPIED_CAPTIONS:
        return False
    return 100 * copied >= COPIED_PERCENT * sum(is_comparable(segment.text) for segment in narration.segments)
