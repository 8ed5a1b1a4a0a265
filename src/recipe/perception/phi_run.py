"""Phi over many videos: a job that can be killed at any moment and goes on with what it has.

An answer is kept the moment it comes, under what makes it: model, prompt and goal, the SHA-256 of the video file, the
moment up to which it is shown, frames and sampling. So a video that moved or was renamed is not asked about again, and
one that changed is. Frames are decoded when their turn comes; no more than the clips under way are in memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from recipe.artifacts import JsonObject, fingerprint
from recipe.config import PhiConfig
from recipe.engines.cache import AnswerCache
from recipe.engines.protocol import Answer, Chat
from recipe.errors import InputError, RecipeError
from recipe.perception.frames import probe, read_frames
from recipe.perception.phi import Kind, Prompt
from recipe.progress import SILENT, Advance, Progress

Ask = Callable[[Sequence[Chat]], Sequence[Answer]]
"""One answer to each chat; several threads may call it at once where there is more than one worker."""


class Clip(NamedTuple):
    """What Phi is shown of a video, and the goal."""

    name: str
    path: Path
    goal: str
    until: float | None = None
    """Seconds before which every frame is shown; None for the whole video."""


class Told(NamedTuple):
    """What Phi said of a clip."""

    answer: Answer
    duration: float
    """Seconds of the video; 0 where a moment of it was asked for."""


@dataclass(frozen=True, slots=True)
class Result:
    """Answers by the name of the clip, and why there are none for the others."""

    told: dict[str, Told]
    unreadable: dict[str, str]
    """Clips whose video cannot be read up to where it should be, and why."""
    asked: int
    """Answers that were not known before."""


class PhiRun:
    """Shows clips to a model, each once."""

    def __init__(
        self,
        ask: Ask,
        identity: Mapping[str, object],
        config: PhiConfig,
        kind: Kind,
        cache: Path,
        *,
        together: int = 1,
        workers: int = 1,
        skip_unreadable: bool = False,
    ) -> None:
        """`identity` is all that tells the model from others. `together` clips are asked about in one call, and
        `workers` calls are under way at once."""
        self._ask, self._identity, self._config = ask, dict(identity), config
        self.prompt = Prompt.load(kind, config.goal)
        self._kind, self._cache = kind, AnswerCache(cache)
        self._together, self._workers, self._skip = together, workers, skip_unreadable

    def tell(self, clips: Sequence[Clip], progress: Progress = SILENT) -> Result:
        """What Phi says of each clip.

        Raises InputError for a video that cannot be read, unless those are skipped, and what the engine raises; then
        nothing new is begun, and what was under way is kept.
        """
        asked_for = self._asked_for(clips, progress)
        distinct = {fingerprint(asked): (clip, asked) for clip, asked in zip(clips, asked_for, strict=True)}
        told = {key: known for key, (_, asked) in distinct.items() if (known := self._known(asked)) is not None}
        waiting = [key for key in distinct if key not in told]
        unreadable: dict[str, str] = {}
        with progress.task("asking Phi", total=len(distinct)) as advance:
            advance(len(told))
            groups = [waiting[at : at + self._together] for at in range(0, len(waiting), self._together)]
            for group in self._each([[distinct[key] for key in group] for group in groups], advance):
                told |= group.told
                unreadable |= group.unreadable
        names = [(clip.name, fingerprint(asked)) for clip, asked in zip(clips, asked_for, strict=True)]
        return Result(
            {name: told[key] for name, key in names if key in told},
            {name: unreadable[key] for name, key in names if key in unreadable},
            asked=len(waiting) - len(unreadable),
        )

    def _asked_for(self, clips: Sequence[Clip], progress: Progress) -> list[JsonObject]:
        """All that makes the answer about each clip."""
        paths = {clip.path: "" for clip in clips}
        with progress.task("reading video files", total=len(paths)) as advance:
            for path in paths:
                paths[path] = self._cache.sha256(path)
                advance(1)
        shared = {
            "model": self._identity,
            "prompt": self.prompt.hash,
            "frames": self._config.frames.model_dump(),
            "sampling": self._config.model_dump(include={"temperature", "max_tokens", "seed"}),
        }
        return [
            shared | {"goal": clip.goal if self._config.goal else None, "video": paths[clip.path], "until": clip.until}
            for clip in clips
        ]

    def _known(self, asked: JsonObject) -> Told | None:
        kept = self._cache.get(asked)
        if kept is None:
            return None
        return Told(
            Answer(kept["text"], kept["tokens_in"], kept["tokens_out"], kept["seconds"], True), kept["duration"]
        )

    def _each(self, groups: Sequence[Sequence[tuple[Clip, JsonObject]]], advance: Advance) -> Iterator["_Group"]:
        """The groups as they are done; in this thread where there is one worker, so that Ctrl-C ends it at once."""
        if self._workers == 1:
            for group in groups:
                yield self._group(group, advance)
            return
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="phi")
        futures = [pool.submit(self._group, group, advance) for group in groups]
        try:
            for future in as_completed(futures):
                yield future.result()
        except RecipeError:
            pool.shutdown(cancel_futures=True)
            raise
        except BaseException:  # Ctrl-C: the engine is closed by whoever opened it, which ends what is under way
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        pool.shutdown()

    def _group(self, group: Sequence[tuple[Clip, JsonObject]], advance: Advance) -> "_Group":
        """Show some clips, and keep what is said of them."""
        found = _Group({}, {})
        shown: list[tuple[JsonObject, Chat, float]] = []
        for clip, asked in group:
            try:
                duration = probe(clip.path).duration if self._kind == "trace" else 0.0
                frames = read_frames(clip.path, self._config.frames, clip.until)
            except InputError as error:
                if not self._skip:
                    raise
                found.unreadable[fingerprint(asked)] = str(error)
                advance(1)
            else:
                shown.append((asked, self.prompt.chat(frames, clip.goal), duration))
        if not shown:
            return found
        answers = self._ask([chat for _, chat, _ in shown])
        for (asked, _, duration), answer in zip(shown, answers, strict=True):
            told = answer._replace(cached=False)
            self._cache.put(asked, told._asdict() | {"duration": duration})
            found.told[fingerprint(asked)] = Told(told, duration)
            advance(1)
        return found


class _Group(NamedTuple):
    """What became of clips that were shown together, by fingerprint."""

    told: dict[str, Told]
    unreadable: dict[str, str]
