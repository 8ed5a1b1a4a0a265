"""Step-like segments against the key steps that people labelled in the speech of YouCook2's validation videos."""

from pathlib import Path

import pytest

from recipe.artifacts import read_jsonl
from recipe.config import EncoderConfig, MiningConfig
from recipe.corpus.encoders import open_encoder
from recipe.mining.segments import StepLikeness
from recipe.types import Segment

pytestmark = pytest.mark.real_data
VIDEOS = 8


def test_step_like_segments_are_labelled_as_steps_far_more_often_than_others(shared_data: Path) -> None:
    pytest.importorskip("sentence_transformers")
    procedures = read_jsonl(shared_data / "youcook2" / "procedures.jsonl")
    validation = {row["video_id"] for _, row in procedures if row["split"] == "val"}
    rows = [row for _, row in read_jsonl(shared_data / "narrations" / "narrations_timed.jsonl")]
    labelled = [
        row["segments"]
        for row in rows
        if row["video_id"] in validation and any("key_steps" in segment for segment in row["segments"])
    ]
    said = [segment for segments in sorted(labelled, key=len)[10 : 10 + VIDEOS] for segment in segments]
    encode = open_encoder(EncoderConfig(name="minilm")).encode
    segments = [Segment(segment["text"]) for segment in said]
    vectors = encode([segment.text for segment in segments])
    chosen = StepLikeness(encode).select(segments, vectors, MiningConfig().threshold)
    steps = [bool(segment.get("key_steps")) for segment in said]
    right = sum(bool(a and b) for a, b in zip(chosen, steps, strict=True))
    precision, recall, of_all = right / chosen.sum(), right / sum(steps), sum(steps) / len(steps)
    assert precision > 1.4 * of_all
    assert recall > 0.6
