"""The paper's corpus in its published layout: a build that is killed with SIGKILL and resumed is the unbroken one."""

import json
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("numba")

from recipe.artifacts import read_json
from recipe.corpus.store import Corpus


@pytest.mark.thorough
def test_a_killed_build_of_300_videos_is_resumed_to_the_same_corpus(tmp_path: Path, generator: ModuleType) -> None:
    made = generator.write_inputs(tmp_path, 300)
    source, videos = tmp_path / "howtocaption", dict(generator.videos(300))
    assert any(spans["start"] != sorted(spans["start"]) for spans in videos.values())

    def build(name: str, *more: object) -> list[object]:
        options = ("--encoder", "hash:256", "--shard-size", 10)
        return ["corpus", "build", source, "--output", tmp_path / name, *options, *more]

    # The moment is a state of the folder and not a time, so that a busy machine changes nothing.
    killed = generator.run(build("killed"), (tmp_path / "killed" / "shards" / "00004").is_dir)
    assert killed["killed"]
    assert not (tmp_path / "killed" / "manifest.json").exists()
    generator.run(build("killed"))
    generator.run(build("whole"))
    whole, resumed = (read_json(tmp_path / name / "manifest.json") for name in ("whole", "killed"))
    assert resumed["id"] == whole["id"]
    assert (whole["narrations"], whole["segments"]) == (300, made["captions"])
    examples = tmp_path / "examples.jsonl"
    generator.run(build("clean", "--exclude", examples, "--exclude-split", "test"))
    held = [json.loads(line) for line in examples.read_text().splitlines()]
    out = {row["video_id"] for row in held if row["split"] == "test"}
    corpora = {name: Corpus.open(tmp_path / name) for name in ("whole", "clean")}
    ids = {name: {c.narration(n).video_id for n in range(len(c))} for name, c in corpora.items()}
    assert len(out) == made["test videos"]
    assert ids["clean"] <= ids["whole"] - out
    for place in (0, 150, 299):
        narration = corpora["whole"].narration(place)
        spans = videos[narration.video_id]
        starts = [segment.start for segment in narration.segments]
        assert starts == sorted(starts)
        texts = zip(spans["start"], spans["text"], strict=True)
        told = sorted((start, caption) for start, captions in texts for caption in captions)
        assert told == sorted((segment.start, segment.text) for segment in narration.segments)
