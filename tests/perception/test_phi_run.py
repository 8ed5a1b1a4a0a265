"""Phi over many clips: each is asked about once, whatever ends the job, and one that changed is asked about again."""

import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("av")
pytest.importorskip("openai")
from recipe.config import FrameConfig, PhiConfig
from recipe.errors import ComputeError, InputError
from recipe.models.model import Model
from recipe.models.protocol import Answer, Engine, ModelRequest, OnAnswer, Refusal, videos
from recipe.perception.phi import Clip, PhiRun, most_tokens

FRAMES = FrameConfig(count=2)


class Teller(Engine):
    """Says how many frames it was shown of how long a clip, and counts what it is asked."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.asked: list[int] = []
        self.under_way = self.most = 0
        self._fails_after, self._lock = fails_after, threading.Lock()

    def answer(
        self, requests: Sequence[ModelRequest], *_: Any, on_answer: OnAnswer | None = None, **__: Any
    ) -> list[Answer | Refusal]:
        with self._lock:
            if self._fails_after is not None and sum(self.asked) >= self._fails_after:
                raise ComputeError("the endpoint is down; start it.")
            self.asked.append(len(requests))
            self.under_way += len(requests)
            self.most = max(self.most, self.under_way)
        time.sleep(0.02)
        with self._lock:
            self.under_way -= len(requests)
        found: list[Answer | Refusal] = []
        for place, request in enumerate(requests):
            answer = Answer(f"1. Step at {videos(request.chat)[0].times[-1]:.2f}", 10, 1, 0.5)
            found.append(answer)
            assert on_answer
            on_answer(place, answer)
        return found


def run(ask: Any, cache: Path, kind: Any = "history", model: str = "m", **changes: Any) -> PhiRun:
    options = {key: changes.pop(key) for key in ("together", "workers", "skip_unreadable") if key in changes}
    config = PhiConfig.model_validate({"frames": FRAMES, **changes})
    return PhiRun(Model(ask, cache=cache, identity={"model": model}), config, kind, **options)


@pytest.fixture
def clips(film: Any) -> list[Clip]:
    path = film(range(0, 24 * 75, 75))  # three seconds, eight frames in each
    return [Clip(f"clip {n}", path, "make tea", until=0.5 * n) for n in range(1, 6)]


@pytest.mark.parametrize(("together", "workers"), [(1, 1), (2, 1), (1, 3), (2, 2)])
def test_every_clip_is_told_once(tmp_path: Path, clips: list[Clip], together: int, workers: int) -> None:
    ask = Teller()
    first = run(ask, tmp_path / "c", together=together, workers=workers).describe(clips)
    # The second of two frames is the one shown at three quarters of the clip; eight appear in a second.
    lasts = [int(0.75 * clip.until * 8) / 8 for clip in clips]
    assert [first.descriptions[clip.name].answer.text for clip in clips] == [f"1. Step at {last:.2f}" for last in lasts]
    assert (first.asked, first.unreadable, sum(ask.asked)) == (5, {}, 5)
    assert ask.most <= together * workers
    again = run(ask, tmp_path / "c", workers=workers).describe(clips)
    assert sum(ask.asked) == 5
    assert again.asked == 0
    assert {name: told.answer._replace(cached=False) for name, told in again.descriptions.items()} == {
        name: told.answer for name, told in first.descriptions.items()
    }


@pytest.mark.parametrize(("tokens", "shown"), [(100, [5]), (10_000, [3, 2]), (20_000, [1] * 5), (99_999, [1] * 5)])
def test_a_call_has_as_many_clips_as_its_tokens_allow(
    tmp_path: Path, clips: list[Clip], tokens: int, shown: list[int]
) -> None:
    ask, frames = Teller(), FrameConfig(count=2, max_pixels=tokens * 28 * 28)
    assert most_tokens(frames) == most_tokens(frames.model_copy(update={"count": 1})) == tokens
    run(ask, tmp_path / "c", together=16, frames=frames).describe(clips)
    assert ask.asked == shown


CHANGES: dict[str, dict[str, Any]] = {
    "prompt": {"goal": False},
    "frames": {"frames": FrameConfig(count=1)},
    "length": {"max_tokens": 7},
    "temperature": {"temperature": 0.5},
    "seed": {"seed": 1},
    "model": {"model": "n"},
    "kind": {"kind": "trace"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_makes_an_answer_makes_another(tmp_path: Path, clips: list[Clip], change: str) -> None:
    ask = Teller()
    run(ask, tmp_path / "c").describe(clips[:1])
    run(ask, tmp_path / "c", **CHANGES[change]).describe(clips[:1])
    assert ask.asked == [1, 1]


def test_the_content_of_a_video_counts_and_not_its_name(tmp_path: Path, clips: list[Clip], film: Any) -> None:
    ask, clip = Teller(), clips[0]
    run(ask, tmp_path / "c").describe([clip])
    moved = clip._replace(path=Path(shutil.copy(clip.path, tmp_path / "moved.mp4")))
    run(ask, tmp_path / "c").describe([moved])
    assert ask.asked == [1]
    run(ask, tmp_path / "c").describe([clip._replace(goal="make coffee")])
    run(ask, tmp_path / "c").describe([clip._replace(until=0.75)])
    assert ask.asked == [1, 1, 1]
    film(range(0, 24 * 75, 75), name=moved.path.name, keyframes=3)
    run(ask, tmp_path / "c").describe([moved])
    assert ask.asked == [1, 1, 1, 1]
    run(ask, tmp_path / "c", goal=False).describe([clip, clip._replace(name="other goal", goal="make coffee")])
    assert ask.asked == [1, 1, 1, 1, 1]  # Phi does not see the goal, so that it is one question


def test_traces_know_how_long_the_video_is(tmp_path: Path, clips: list[Clip]) -> None:
    found = run(Teller(), tmp_path / "c", "trace").describe([clips[0]._replace(until=None)])
    assert found.descriptions["clip 1"].duration == pytest.approx(3.0, abs=0.13)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_failure_keeps_the_answers(tmp_path: Path, clips: list[Clip], workers: int) -> None:
    with pytest.raises(ComputeError, match="down"):
        run(Teller(fails_after=2), tmp_path / "c", workers=workers).describe(clips)
    rest = Teller()
    found = run(rest, tmp_path / "c", workers=workers).describe(clips)
    assert 1 <= sum(rest.asked) <= 3
    assert len(found.descriptions) == 5


@pytest.mark.parametrize("workers", [1, 2])
def test_videos_that_cannot_be_read(tmp_path: Path, clips: list[Clip], workers: int) -> None:
    (tmp_path / "empty.mp4").write_bytes(b"")
    (tmp_path / "page.mp4").write_text("<html>sign in</html>")
    whole = clips[0].path.read_bytes()
    (tmp_path / "half.mp4").write_bytes(whole[: len(whole) // 2])
    bad = [Clip(name, tmp_path / f"{name}.mp4", "g", 1.0) for name in ("empty", "page", "half")]
    late = Clip("late", clips[0].path, "g", 99.0)
    for clip in (*bad, late):
        with pytest.raises(InputError, match=clip.path.name):
            run(Teller(), tmp_path / "c", workers=workers).describe([clip])
    ask = Teller()
    job = run(ask, tmp_path / "c", workers=workers, together=2, skip_unreadable=True)
    found = job.describe([bad[0], clips[0], *bad[1:], clips[1], late])
    assert set(found.descriptions) == {"clip 1", "clip 2"}
    assert list(found.unreadable) == ["empty", "page", "half", "late"]
    assert "lies beyond the end" in found.unreadable["late"]
    assert found.asked == 2
