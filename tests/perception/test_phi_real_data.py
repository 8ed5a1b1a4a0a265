"""Three real clips through decoding and Phi, with a Qwen2.5-VL of random weights on this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")
from recipe.artifacts import write_jsonl
from recipe.data.examples import read_examples
from recipe.data.histories import read_histories, with_histories
from recipe.data.procedures import read_procedures

CLIPS = ("cooking", "making_cake", "wood_board")


@pytest.mark.real_data
def test_real_clips_are_told(
    perceive: Callable[..., dict[str, Any]], seeing: Path, shared_data: Path, tmp_path: Path
) -> None:
    rows = [
        {"example_id": f"{name}-{cut}", "video_id": name, "goal": name, "history": ["a"], "continuation": ["b"]}
        | {"until": float(cut)}
        for name in CLIPS
        for cut in (2, 5)
    ]
    write_jsonl(tmp_path / "e", rows)
    steps = [{"source": "own", "video_id": name, "goal": name, "steps": [{"text": "a"}]} for name in CLIPS]
    write_jsonl(tmp_path / "p", steps)

    shown = (shared_data / "videos", "--set", "phi.frames.fps=1", "--max-tokens", 400)
    asked = (*shown, "--examples", tmp_path / "e", "--output", tmp_path / "h", "--batch-size", 2)
    # What an untrained model writes may be in no form that is read: such an answer is counted, and no history.
    first = perceive(*asked)
    assert first["rows"] + len(first["unreadable"]) == 6
    assert perceive(*asked) == first | {"asked": 0}
    told = read_histories(tmp_path / "h")
    assert len(told) == first["rows"]
    read = [example for example in read_examples(tmp_path / "e") if example.example_id in told]
    assert len(with_histories(read, told)) == first["rows"] > 1
    assert len({one.history for one in told.values()}) > 1  # the pixels are read

    found = perceive(*shown, "--procedures", tmp_path / "p", "--traces", tmp_path / "t")
    told_of = [f"own/{one.video_id}" for one in read_procedures(tmp_path / "t").procedures]
    assert sorted([*told_of, *found["empty"]]) == sorted(f"own/{name}" for name in CLIPS)

    # Weights that took the place of others are another model.
    weights = seeing / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\0")
    assert perceive(*asked)["asked"] == 6
