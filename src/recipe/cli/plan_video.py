"""What `recipe plan` is shown: words or a video, of one goal or of every example in a file."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from recipe.cli.plan_with import Who
from recipe.clock import read_clock
from recipe.errors import InputError
from recipe.progress import Progress

if TYPE_CHECKING:
    from recipe.config import FrameConfig
    from recipe.planning.planner import Planner, Request
    from recipe.planning.predictions import Prediction
    from recipe.types import Example, Frames


class What(NamedTuple):
    """One goal and how its history is given, as the options say."""

    goal: str = ""
    history: tuple[str, ...] = ()
    video: Path | None = None
    until: str = ""
    phi: Who | None = None

    def request(self, frames: "FrameConfig", progress: Progress) -> "Request":
        """What the planner is asked; with `phi`, the video in Phi's words. Raises InputError."""
        from recipe.planning.planner import Request

        request = Request(self.goal, self.history)  # before minutes are spent on the video
        if self.video is None:
            if self.until or self.phi:
                raise InputError("--until and --phi go with --video; give the video that shows what has been done.")
            return request
        if self.history:
            raise InputError("--history and --video exclude each other; give one of them.")
        from recipe.perception.frames import read_frames

        until = self._until()
        with progress.task("reading the video"):
            shown = read_frames(self.video, frames, until)
        if self.phi is None:
            return Request(self.goal, video=shown)
        return Request(self.goal, self._told(self.phi, shown, frames, progress))

    def _until(self) -> float | None:
        if not self.until:
            return None
        if (seconds := read_clock(self.until)) is None:
            raise InputError(f"--until {self.until!r} is no time; give seconds, 00:41 or 1:02:03.")
        return seconds

    def _told(self, phi: Who, shown: "Frames", frames: "FrameConfig", progress: Progress) -> tuple[str, ...]:
        from recipe.config import PhiConfig
        from recipe.perception.phi import Phi

        with phi.engine() as engine:
            [history] = Phi(engine, PhiConfig(frames=frames)).histories([self.goal], [shown], progress)
        return history


class Shown(NamedTuple):
    """Examples to plan for, and what was left out: videos that are not there, or examples without a history."""

    planned: list["Example"]
    missing: tuple[str, ...]


class Seen(NamedTuple):
    """Examples of a file, and what a planner sees of each: the annotated history unless the options say otherwise."""

    examples: Path
    split: str
    videos: Path | None
    histories: Path | None
    skip_missing: bool
    frames: "FrameConfig"

    def read(self) -> Shown:
        """The examples, with Phi's histories in place of the annotated ones where given. Raises InputError."""
        from recipe.data.examples import read_examples

        examples = read_examples(self.examples, self.split)
        if self.videos is not None and self.histories is not None:
            raise InputError("--videos and --histories exclude each other; a planner sees frames or reads words.")
        if self.skip_missing and self.videos is None and self.histories is None:
            raise InputError("--skip-missing goes with --videos or --histories; give what some examples lack.")
        if self.histories is not None:
            return self._told(self.histories, examples)
        if self.videos is None:
            return Shown(examples, ())
        return self._located(self.videos, examples)

    def _told(self, file: Path, examples: list["Example"]) -> Shown:
        from recipe.data.histories import read_histories, with_histories

        histories = read_histories(file)
        told = [one for one in examples if one.example_id in histories]
        if not self.skip_missing or not told:
            return Shown(with_histories(examples, histories), ())
        missing = tuple(one.example_id for one in examples if one.example_id not in histories)
        return Shown(with_histories(told, histories), missing)

    def _located(self, folder: Path, examples: list["Example"]) -> Shown:
        from recipe.perception.videos import VideoFolder, locate

        videos = VideoFolder(folder)
        located = locate(videos, examples)
        if not self.skip_missing or not located.paths:
            located.require_all(videos)
        return Shown([one for one in examples if one.example_id in located.paths], located.missing)

    def predict(self, planner: "Planner", shown: Shown, count: int, progress: Progress) -> list["Prediction"]:
        """`count` predictions of each example; of videos, one at a time is held in memory."""
        if self.videos is None:
            return planner.predict(shown.planned, count, progress)
        from recipe.perception.clips import VideoClips
        from recipe.planning.planner import Request

        clips = VideoClips(self.videos, self.frames, keep=1)
        predictions: list[Prediction] = []
        with progress.task("planning from videos", total=len(shown.planned)) as advance:
            for example in shown.planned:
                predictions += planner.predict([example], count, see=lambda one: Request(one.goal, video=clips(one)))
                advance(1)
        return predictions
