"""The leak guard on real videos: overlaps of published sets, and uploads of one video under two ids."""

from functools import cache
from pathlib import Path

import pytest

from recipe.corpus.excluded import read_exclusions
from recipe.corpus.leaks import ExclusionReport, Exclusions
from recipe.corpus.near_copies import is_comparable
from recipe.data.benchmarks import BENCHMARKS
from recipe.data.narrations import read_narrations
from recipe.types import Narration, Procedure, Segment

pytestmark = pytest.mark.real_data
REUPLOADS = {"QTSklobANsU", "GridojtCXDE", "ukfCQQpZ0k4", "0JPDr8uT8xU", "GJzuTXdVQcE", "uXbkxyyOEr4"}
"""Training videos of YouCook2 that are uploads of a validation video: 5 to 41 of their captions are near-copies."""


@cache
def procedures(data: Path, name: str) -> list[Procedure]:
    return BENCHMARKS[name].read(data / name)


@cache
def excluding(data: Path, name: str) -> Exclusions:
    if name == "youcook2":
        return read_exclusions([data / "youcook2" / "procedures.jsonl"])
    return Exclusions((procedure.video_id for procedure in procedures(data, name)), ())


@pytest.mark.parametrize(
    ("corpus", "tested", "shared"), [("coin", "crosstask", 29), ("coin", "youcook2", 22), ("crosstask", "youcook2", 15)]
)
def test_videos_that_two_sets_share_are_found(shared_data: Path, corpus: str, tested: str, shared: int) -> None:
    spoken = [
        Narration(procedure.video_id, tuple(Segment(step.text) for step in procedure.steps))
        for procedure in procedures(shared_data, corpus)
    ]
    report = ExclusionReport()
    kept = list(excluding(shared_data, tested).filter(spoken, report))
    assert len({narration.video_id for narration in spoken}) - len({one.video_id for one in kept}) == shared


@pytest.mark.parametrize(
    ("file", "shared", "others"), [("narrations_timed.jsonl", 319, 324), ("youcook2_asr_untimed.jsonl", 1736, 0)]
)
def test_narrations_of_annotated_videos_are_left_out(shared_data: Path, file: str, shared: int, others: int) -> None:
    report = ExclusionReport()
    narrations = read_narrations(shared_data / "narrations" / file)
    assert len(list(excluding(shared_data, "youcook2").filter(narrations, report))) == others
    assert report.narrations_by_id == shared


def test_a_video_that_was_uploaded_twice_is_found_by_its_captions(shared_data: Path) -> None:
    """What is held out are the captions of the validation videos; what is filtered are all other videos."""
    held_out = read_exclusions([shared_data / "youcook2" / "procedures.jsonl"], "val").video_ids
    spoken = list(read_narrations(shared_data / "narrations" / "youcook2_asr_untimed.jsonl"))
    tested = [narration for narration in spoken if narration.video_id in held_out]
    others = [narration for narration in spoken if narration.video_id not in held_out]
    report = ExclusionReport()
    exclusions = Exclusions((), (segment.text for narration in tested for segment in narration.segments))
    kept = list(exclusions.filter(others, report))
    assert {one.video_id for one in others} - {one.video_id for one in kept} == REUPLOADS
    captions = sum(len(narration.segments) for narration in others)
    unrelated = report.captions_by_text - sum(
        exclusions.compare(one).copied for one in others if one.video_id in REUPLOADS
    )
    assert 0 < unrelated / captions < 0.002  # phrases of speech, such as the sign-off of a channel


def test_the_same_speech_cut_by_another_hand_is_found(shared_data: Path) -> None:
    """318 videos have timed and untimed captions: under another id all are recognised that say enough to compare."""
    folder = shared_data / "narrations"
    untimed = {one.video_id: one for one in read_narrations(folder / "youcook2_asr_untimed.jsonl")}
    timed = [one for one in read_narrations(folder / "narrations_timed.jsonl") if one.video_id in untimed]
    texts = (segment.text for one in timed for segment in untimed[one.video_id].segments)
    renamed = [Narration(f"again-{one.video_id}", one.segments) for one in timed]
    report = ExclusionReport()
    missed = list(Exclusions((), texts).filter(renamed, report))
    assert (report.narrations, report.narrations_by_text) == (318, 317)
    assert not any(is_comparable(segment.text) for one in missed for segment in one.segments)
