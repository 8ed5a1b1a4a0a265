"""Phi: a frozen vision-language model that describes a video as steps in words (paper, sections 3.1 and 4).

    h_hat = Phi(h_V)     steps done in the frames before the cut: a Socratic planner reads them
    y_hat = Phi(V)       the whole procedure with times where the model gives them: weak supervision

The paper states no prompt; the prompts here are text files of the package, known by their hash. Answers are parsed as
plans are. A step that is repeated directly after itself counts once, because small models stutter; nothing else is
repaired.
"""

import re
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Literal, NamedTuple

from recipe.artifacts import JsonObject, fingerprint
from recipe.clock import read_clock
from recipe.config.models import FrameConfig, PhiConfig, SamplingConfig
from recipe.errors import ComputeError, InputError, RecipeError
from recipe.models.model import Model
from recipe.models.protocol import Answer, Chat, Engine, ModelRequest, Refusal, unanswered
from recipe.models.store import parse_answer
from recipe.perception.frames import probe, read_frames
from recipe.plan_text import written_steps
from recipe.progress import LOADING, SILENT, Advance, Progress
from recipe.prompting import fill, packaged
from recipe.step_lines import NO_STEP, TIMES, leading_time
from recipe.text import final_answer
from recipe.types import Frames, Step

_BEHIND = [re.compile(rf"(?:\b(?:at|from)\s+)?{time}\s*\.?\s*$", re.IGNORECASE) for time in TIMES]
# What may separate a text from the time behind it.
_SEPARATORS = " -–—:,|"
# The unit of a time such as `5s` or `12 seconds`, which `read_clock` does not take.
_UNIT = re.compile(r"\s*[a-z]+$", re.IGNORECASE)


def _step(said: str, duration: float) -> Step:
    line = " ".join(said.split())  # else a long run of blanks would cost the patterns its square
    behind = (match for pattern in _BEHIND if (match := pattern.search(line)))
    match = leading_time(line) or next(behind, None)
    if match is None:
        return Step(line)
    text = (line[: match.start()].rstrip(_SEPARATORS) + line[match.end() :]).strip()
    if not any(char.isalnum() for char in text):
        return Step("")
    start, end = (read_clock(_UNIT.sub("", match[name])) if match[name] else None for name in ("start", "end"))
    if start is None or start >= duration or (match["end"] and (end is None or end < start)):
        return Step(text)
    return Step(text, start, None if end is None else min(end, duration))


Kind = Literal["history", "trace"]
"""What Phi is asked for: the steps up to a moment, or a whole video's with times."""

# The answer that the prompts ask for where no step is seen.
_NOTHING = "none"


@dataclass(frozen=True, slots=True)
class Prompt:
    """The text that Phi reads along with the frames."""

    template: str
    goal: str | None
    """The line that states the goal, None where Phi does not get it."""
    other: str
    """The line in its place."""

    @classmethod
    def load(cls, kind: Kind, goal: bool = True) -> "Prompt":
        """The packaged prompt."""
        texts = {name: packaged("recipe.perception", name) for name in (kind, "goal", "no_goal")}
        return cls(texts[kind], texts["goal"] if goal else None, texts["no_goal"])

    @property
    def hash(self) -> str:
        """SHA-256 of all that the prompt says, whatever the goal."""
        return fingerprint([self.template, self.goal or self.other])

    def text(self, goal: str) -> str:
        """The prompt for a goal."""
        line = self.other if self.goal is None else fill(self.goal, {"name": goal})
        return fill(self.template, {"goal": line.strip()}).strip()

    def chat(self, video: Frames, goal: str) -> Chat:
        """The chat that shows a video and asks."""
        return [
            {"role": "user", "content": [{"type": "video", "video": video}, {"type": "text", "text": self.text(goal)}]}
        ]


class Phi:
    """Phi on any engine, for a few clips in memory; `PhiRun` is for many files, and resumes."""

    def __init__(self, engine: Engine, config: PhiConfig | None = None) -> None:
        self.engine, self._config = engine, config or PhiConfig()
        self._prompt = Prompt.load("history", self._config.goal)

    def request(self, goal: str, video: Frames) -> ModelRequest:
        """What the engine is asked about one clip; `read_history` reads the answer."""
        return ModelRequest(self._prompt.chat(video, goal), _sampling(self._config))

    def histories(
        self, goals: Sequence[str], videos: Sequence[Frames], progress: Progress = SILENT
    ) -> list[tuple[str, ...]]:
        """The steps done in each video; `goals` and `videos` are of one length.

        Raises ComputeError where an answer cannot be read.
        """
        chats = [self._prompt.chat(video, goal) for goal, video in zip(goals, videos, strict=True)]
        answers = [answer for [answer] in self.engine.answers(chats, 1, _sampling(self._config), progress)]
        if reason := next(filter(None, map(undescribed, answers)), ""):
            raise ComputeError(
                f"Phi does not describe a video: {reason}; allow a longer answer, or take another model."
            )
        return [read_history(answer.text, cut=answer.cut) for answer in answers]


def _sampling(config: PhiConfig, batch_size: int = 1) -> SamplingConfig:
    """How Phi's answers are sampled."""
    return SamplingConfig(
        temperature=config.temperature, max_tokens=config.max_tokens, seed=config.seed, batch_size=batch_size
    )


def most_tokens(frames: FrameConfig) -> int:
    """Tokens of a clip at most, as a Qwen2.5-VL on this machine counts them: one for 28 x 28 pixels of two frames.

    >>> most_tokens(PhiConfig().frames), most_tokens(FrameConfig(count=128))
    (2048, 49152)
    """
    # Its patches are of 14 x 14 pixels and two frames, and four of them are merged into a token: 784 = (2 * 14)^2.
    return -(-(frames.count or frames.max_frames) // 2) * (frames.max_pixels // 784)


def read_history(text: str, *, cut: bool = False) -> tuple[str, ...]:
    """The steps in an answer (`final_answer`); none where it says that there is none.

    >>> read_history("1. Boil water\\n2. boil water.\\n3. Pour it"), read_history("None.")
    (('Boil water', 'Pour it'), ())
    """
    steps = _written(text, cut=cut, times=False)
    return () if isinstance(steps, str) else tuple(next(group) for _, group in groupby(steps, _letters))


def read_trace(text: str, duration: float, *, cut: bool = False) -> tuple[Step, ...]:
    """The steps in an answer (`final_answer`) about a video of `duration` seconds, with the times that hold.

    A step may carry a start, or a start and an end, before its text or behind it, bare or in brackets: `00:05 - 00:12
    Pour`, `[0:05] Pour`, `Pour (5s to 12s)`. A number alone is no time, and `Stir for 30 seconds` is a duration. The
    step stays without times where one is malformed (`00:75`), an end lies before its start, or a start lies at or after
    the end of the video; an end after the end of the video is the end of the video. Where starts go back, the longest
    sequence of steps whose starts do not keeps its times, the last where several are as long, so that one wrong time
    costs one step its times. Repetitions that follow each other are one step.

    >>> read_trace("Here you are:\\n00:05 - 00:12 Pour\\n[00:03] Stir\\n00:20 Serve (2 cups)", 15)
    (Step(text='Pour', start=None, end=None), Step(text='Stir', start=3.0, end=None), \
Step(text='Serve (2 cups)', start=None, end=None))
    >>> read_trace("1. 00:02 - 00:05 Boil water\\n2. 00:05 - 00:06 Boil water\\n3. Pour it", 60)
    (Step(text='Boil water', start=2.0, end=6.0), Step(text='Pour it', start=None, end=None))
    """
    written = _written(text, cut=cut, times=True)
    lines = () if isinstance(written, str) else written
    said = [step for line in lines if (step := _step(line, duration)).text]

    # The longest sequence of steps whose starts do not go back.
    timed = [(place, step.start) for place, step in enumerate(said) if step.start is not None]
    # By patience sorting (Schensted 1961), in O(n log n).
    lasts: list[float] = []  # the smallest start that a sequence of each length can end with
    lengths = []
    for _, start in timed:
        length = bisect_right(lasts, start)
        lasts[length : length + 1] = [start]
        lengths.append(length)
    # From the end, the last start of each length: of one length they fall, so that none is later than the one behind.
    kept, wanted = set[int](), len(lasts) - 1
    for (place, _), length in zip(reversed(timed), reversed(lengths), strict=True):
        if length == wanted:
            kept.add(place)
            wanted -= 1
    said = [step if place in kept or step.start is None else Step(step.text) for place, step in enumerate(said)]

    steps = []
    for _, group in groupby(said, lambda step: _letters(step.text)):
        # One step for several of the same text, from the first start that is known to the latest end.
        repeats = list(group)
        begins = [step.start for step in repeats if step.start is not None]
        ends = [step.end for step in repeats if step.end is not None]
        steps.append(Step(repeats[0].text, next(iter(begins), None), max(ends, default=None)))
    return tuple(steps)


def undescribed(answer: Answer | Refusal) -> str:
    """Why an answer describes no video; empty where it does, or says that there is no step."""
    reason = unanswered(answer, whole=False)
    written = "" if reason or isinstance(answer, Refusal) else _written(answer.text, cut=answer.cut, times=False)
    return reason or (written if isinstance(written, str) and written != NO_STEP else "")


def _written(text: str, *, cut: bool, times: bool) -> tuple[str, ...] | str:
    """The steps of all lists in an answer, none where it says so, or why they cannot be read."""
    steps = written_steps(final_answer(text, cut=cut) or "", every=True, times=times)
    return () if [*map(_letters, steps)] == [_NOTHING] else steps


def _letters(step: str) -> str:
    return "".join(char for char in step.casefold() if char.isalnum())


class Clip(NamedTuple):
    """A video file, or its beginning, and the goal of its example."""

    name: str
    path: Path
    goal: str
    until: float | None = None
    """Seconds before which every frame is shown; None for the whole video."""


class Description(NamedTuple):
    """Phi's answer about a clip."""

    answer: Answer
    duration: float
    """Seconds of the video; 0 where a moment of it was asked for."""

    @property
    def history(self) -> tuple[str, ...]:
        """The steps that were seen, as of `read_history`."""
        return read_history(self.answer.text, cut=self.answer.cut)

    @property
    def trace(self) -> tuple[Step, ...]:
        """The steps of the whole video with their times, as of `read_trace`."""
        return read_trace(self.answer.text, self.duration, cut=self.answer.cut)


Group = Sequence[tuple[Clip, JsonObject]]
"""Clips that are asked about in one call, each with all that makes the answer about it."""
Outcomes = dict[str, Description | str]
"""By the fingerprint of what makes it, the answer about a clip, or why its video cannot be read."""
# Maximum tokens of a call, answers included: with a 3B model, 1.2 GB of keys and values and as much for the rest.
_TOKENS = 1 << 15


@dataclass(frozen=True, slots=True)
class PhiResult:
    """Answers by the name of the clip, and why there are none for the others."""

    descriptions: dict[str, Description]
    unreadable: dict[str, str]
    """Clips whose video cannot be read up to where it should be, or about which no answer can be read, and why."""
    asked: int
    """Answers that were not in the cache."""


class PhiRun:
    """Shows clips to a model, each once: a job that can be killed at any moment and goes on with what it has.

    An answer is kept the moment it comes, under what makes it: model, prompt and goal, the SHA-256 of the video file,
    the moment up to which it is shown, frames and sampling. So a video that moved or was renamed is not asked about
    again, and one that changed is. Frames are decoded when their turn comes: in memory are the clips of the calls under
    way, and of one worker those of the next call, which are decoded while the model computes.
    """

    def __init__(
        self,
        model: Model,
        config: PhiConfig,
        kind: Kind,
        *,
        together: int = 1,
        workers: int = 1,
        skip_unreadable: bool = False,
        bounded: bool = True,
    ) -> None:
        """`together` clips at most are asked about in one call, and `workers` calls are under way at once.

        A `bounded` call has as many clips as stay below 32,768 tokens with their answers, or one. Raises InputError for
        a model without a cache, which the job needs to go on after a kill.
        """
        if model.store is None:
            raise InputError("Phi's answers need a folder to be kept in; give one with --cache.")
        self.model, self._store, self._config = model, model.store, config
        self.prompt = Prompt.load(kind, config.goal)
        self._clip_tokens = most_tokens(config.frames)
        fitting = max(1, _TOKENS // (self._clip_tokens + config.max_tokens))
        self._together = min(together, fitting) if bounded else together
        self._sampling = _sampling(config, self._together)
        self._kind, self._workers, self._skip = kind, workers, skip_unreadable
        self._ended = False

    def describe(self, clips: Sequence[Clip], progress: Progress = SILENT) -> PhiResult:
        """Phi's answer about each clip.

        Raises InputError for a video that cannot be read, unless those are skipped, and what the engine raises; then
        nothing new is begun, and what was under way is kept.
        """
        # By the content of a file: one that was moved is not asked about again, and one that changed is.
        hashes = {clip.path: "" for clip in clips}
        with progress.task("reading video files", total=len(hashes)) as advance:
            for path in hashes:
                hashes[path] = self._store.sha256(path)
                advance(1)
        shared = {
            "model": self.model.identity,
            "prompt": self.prompt.hash,
            "frames": self._config.frames.model_dump(),
            "seed": self._config.seed,
            "decoding": self.model.decoding(self._sampling).settings(),
        }
        contents: list[JsonObject] = [
            shared | {"goal": clip.goal if self._config.goal else None, "video": hashes[clip.path], "until": clip.until}
            for clip in clips
        ]
        keys = [fingerprint(content) for content in contents]
        distinct = dict(zip(keys, zip(clips, contents, strict=True), strict=True))
        by_key: Outcomes = {}
        for key in distinct:
            if (entry := self._store.find(key)) is not None:
                by_key[key] = Description(parse_answer(entry), entry["duration"])
        waiting = [key for key in distinct if key not in by_key]
        if waiting:
            LOADING.info(
                "describing %d clips, %d were described before; %d tokens of frames at most a clip, %d in all ...",
                len(waiting), len(by_key), self._clip_tokens, self._clip_tokens * len(waiting),
            )  # fmt: skip
        with progress.task("asking Phi", total=len(distinct)) as advance:
            advance(len(by_key))
            # Where little is left, every worker has some of it.
            size = max(1, min(self._together, -(-len(waiting) // self._workers)))
            groups = [waiting[at : at + size] for at in range(0, len(waiting), size)]
            began, known = time.monotonic(), len(by_key)
            each = self.each([[distinct[key] for key in group] for group in groups], advance)
            for done, described in enumerate(each, start=1):
                by_key |= described
                left, new = len(distinct) - len(by_key), len(by_key) - known
                if left and done == 2 * self._workers:  # each worker is past its start
                    seconds = (time.monotonic() - began) / new * left
                    time_left = f"{seconds:.0f} s" if seconds < 600 else f"{seconds / 3600:.2g} hours"
                    LOADING.info("judged by the first %d clips, the other %d take about %s ...", new, left, time_left)
        new_answers = sum(isinstance(by_key[key], Description) for key in waiting)
        for key, description in by_key.items():
            if isinstance(description, Description) and (reason := undescribed(description.answer)):
                by_key[key] = reason
        outcomes = [(clip.name, by_key[key]) for clip, key in zip(clips, keys, strict=True)]
        return PhiResult(
            {name: outcome for name, outcome in outcomes if isinstance(outcome, Description)},
            {name: outcome for name, outcome in outcomes if isinstance(outcome, str)},
            new_answers,
        )

    def each(self, groups: Iterable[Group], advance: Advance) -> Iterator[Outcomes]:
        """What is found about each group, as it is done; raises as `describe`.

        Where there is one worker, the model computes in this thread, so that Ctrl-C ends it at once.
        """
        if self._workers == 1:
            # The frames of the next group are decoded while the model computes.
            decoder = ThreadPoolExecutor(1, thread_name_prefix="frames")
            coming: Future[tuple[list[ModelRequest], Outcomes]] | None = None
            try:
                for next_group in chain(groups, [None]):
                    read, coming = coming, None if next_group is None else decoder.submit(self._read, next_group)
                    if read is not None:
                        yield self._answered(*read.result(), advance)
            finally:
                # Ends the decoding of the group under way, which the shutdown waits for.
                self._ended = True
                decoder.shutdown(cancel_futures=True)
                self._ended = False
            return
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="phi")
        futures = [pool.submit(lambda group: self._answered(*self._read(group), advance), group) for group in groups]
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

    def _read(self, group: Group) -> tuple[list[ModelRequest], Outcomes]:
        """What is asked about the clips whose video can be read, and why the others cannot."""
        by_key: Outcomes = {}
        requests: list[ModelRequest] = []
        for clip, content in group:
            if self._ended:
                break
            try:
                duration = probe(clip.path).duration if self._kind == "trace" else 0.0
                frames = read_frames(clip.path, self._config.frames, clip.until)
            except InputError as error:
                if not self._skip:
                    raise
                by_key[fingerprint(content)] = str(error)
            else:
                chat, note = self.prompt.chat(frames, clip.goal), {"duration": duration}
                requests.append(ModelRequest(chat, self._sampling, content=content, note=note))
        return requests, by_key

    def _answered(self, requests: Sequence[ModelRequest], by_key: Outcomes, advance: Advance) -> Outcomes:
        """What is found about the clips of a group, of which some could not be read."""
        advance(len(by_key))
        if not requests:
            return by_key
        outcomes = self.model.answer(requests, refusals="raise if all")
        for request, outcome in zip(requests, outcomes, strict=True):
            assert request.note is not None
            key = fingerprint(request.content)
            duration = request.note["duration"]
            by_key[key] = outcome.reason if isinstance(outcome, Refusal) else Description(outcome, duration)
            advance(1)
        return by_key
