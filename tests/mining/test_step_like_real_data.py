"""Step-like segments against the key steps that people labelled in the speech of YouCook2's validation videos."""

from pathlib import Path

import pytest
from tests.conftest import built_corpus

from recipe.artifacts import read_jsonl
from recipe.config import MiningConfig
from recipe.mining.mine import mine
from recipe.mining.quality import measure_quality
from recipe.types import Narration, Procedure, Segment, Step

pytestmark = pytest.mark.real_data
VIDEOS = 8


def test_step_like_segments_are_labelled_as_steps_far_more_often_than_others(shared_data: Path, tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    procedures = read_jsonl(shared_data / "youcook2" / "procedures.jsonl")
    validation = {row["video_id"] for _, row in procedures if row["split"] == "val"}
    rows = [row for _, row in read_jsonl(shared_data / "narrations" / "narrations_timed.jsonl")]
    labelled = [
        row["segments"]
        for row in rows
        if row["video_id"] in validation and any("key_steps" in segment for segment in row["segments"])
    ]
    spoken, procedures = list[Narration](), list[Procedure]()
    for number, segments in enumerate(sorted(labelled, key=len)[10 : 10 + VIDEOS]):
        # One second a segment, so that each counts the same.
        times = [(float(place), place + 1.0) for place in range(len(segments))]
        texts = [segment["text"] for segment in segments]
        said = tuple(Segment(text, *span) for text, span in zip(texts, times, strict=True))
        spoken.append(Narration(str(number), said, "title"))
        steps = [span for segment, span in zip(segments, times, strict=True) if segment.get("key_steps")]
        procedures.append(Procedure("youcook2", str(number), "goal", tuple(Step("step", *span) for span in steps)))
    corpus, config = built_corpus(tmp_path / "c", spoken, "minilm"), MiningConfig()
    share = measure_quality(mine(corpus, config), corpus, config, procedures=procedures).step_like_segments
    assert share is not None
    assert share.precision > 1.4 * share.precision_of_all
    assert share.recall > 0.6
