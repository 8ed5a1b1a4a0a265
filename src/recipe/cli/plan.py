"""`recipe plan`: a goal, and a history in words or as a video, in; the remaining steps out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.markup import escape

from recipe.cli import console
from recipe.cli import models as endpoints
from recipe.cli.reward_options import Config, Method, open_verifier
from recipe.clock import read_clock
from recipe.errors import InputError
from recipe.progress import Progress

if TYPE_CHECKING:
    from recipe.config import FrameConfig, SamplingConfig
    from recipe.models.protocol import Engine
    from recipe.planning.planner import Planner, Request
    from recipe.planning.predictions import Prediction
    from recipe.planning.rerank import Ranked
    from recipe.reward.verifier import Verifier
    from recipe.types import Example, Frames

    Opened = Callable[[], Verifier]
    "Opens the corpus that verifies, once all else has been read."

# Who plans, and who tells the planner a video in words: a model on this machine or one at an endpoint.


class Who(NamedTuple):
    """A model, and the endpoint that serves it, if one does."""

    model: str
    endpoint: str | None = None
    key_variable: str | None = None
    frames: "FrameConfig | None" = None
    """How large the frames may be that it is shown."""

    @contextmanager
    def engine(self) -> "Iterator[Engine]":
        """The engine that asks the model."""
        if self.endpoint is None:
            from recipe.models.local import LocalEngine

            yield LocalEngine(self.model, frames=self.frames)
            return
        from recipe.config import EndpointConfig
        from recipe.models.endpoint import EndpointEngine

        largest = None if self.frames is None else self.frames.max_pixels
        config = EndpointConfig(url=self.endpoint, model=self.model, key_variable=self.key_variable, max_pixels=largest)
        with EndpointEngine(config) as engine:
            yield engine

    @contextmanager
    def planner(self, sampling: "SamplingConfig") -> "Iterator[Planner]":
        """The planner that asks the model."""
        from recipe.planning.planner import Planner

        with self.engine() as engine:
            yield Planner(engine, sampling)


# What `recipe plan` is shown: words or a video, of one goal or of every example in a file.


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
        from recipe.perception.frames import VideoClips
        from recipe.planning.planner import Request

        clips = VideoClips(self.videos, self.frames, keep=1)
        predictions: list[Prediction] = []
        with progress.task("planning from videos", total=len(shown.planned)) as advance:
            for example in shown.planned:
                predictions += planner.predict([example], count, see=lambda one: Request(one.goal, video=clips(one)))
                advance(1)
        return predictions


# `recipe plan`: a goal, and a history in words or as a video, in; the remaining steps out.


def plan(
    model: Annotated[str, typer.Option(help="Model folder, such as a run's model/, hub id, or name at the endpoint.")],
    goal: Annotated[str, typer.Option(help="What is to be done.")] = "",
    history: Annotated[list[str] | None, typer.Option(help="A step already done; repeat for each.")] = None,
    video: Annotated[Path | None, typer.Option(help="Video that shows what has been done.")] = None,
    until: Annotated[str, typer.Option(help="Moment of the video to plan from: 00:41, 1:02:03 or seconds.")] = "",
    phi: Annotated[
        str | None,
        typer.Option(help="Model that tells the video in words for a planner that reads text (Socratic)."),
    ] = None,
    phi_endpoint: Annotated[str | None, typer.Option(help="Address of the endpoint that serves --phi.")] = None,
    endpoint: endpoints.Url = None,
    key_variable: endpoints.KeyVariable = None,
    count: Annotated[int, typer.Option(min=1, help="Plans to sample for each prompt.")] = 1,
    corpus: Annotated[Path | None, typer.Option(help="Corpus folder: plans are rewarded and ranked.")] = None,
    method: Method = None,
    config: Config = None,
    examples: Annotated[Path | None, typer.Option(help="Examples file to plan for.")] = None,
    split: Annotated[str, typer.Option(help="Only examples of this split.")] = "",
    videos: Annotated[Path | None, typer.Option(help="With --examples: folder of their videos to plan from.")] = None,
    histories: Annotated[
        Path | None, typer.Option(help="With --examples: histories that `recipe perceive` wrote.")
    ] = None,
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Leave out examples without a video or a history of Phi.")
    ] = False,
    fps: Annotated[float, typer.Option(min=0.01, help="Frames of a video to look at, each second.")] = 2.0,
    max_frames: Annotated[int, typer.Option(min=2, help="Frames of a video to look at, at most.")] = 128,
    max_pixels: Annotated[int | None, typer.Option(min=1, help="Larger frames are reduced to this area.")] = None,
    output: Annotated[Path | None, typer.Option(help="Predictions file to write.")] = None,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.7,
    seed: Annotated[int, typer.Option(help="Another seed gives other plans.")] = 0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest completion.")] = 256,
    batch_size: Annotated[int, typer.Option(min=1, help="Completions sampled at once.")] = 64,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan the rest of a procedure, or of every example in a file; a single plan is shown as it is written.

    Example: recipe plan --model runs/demo/grpo/model --goal "make tea" --history "boil the water" --count 8

    Example: recipe plan --model Qwen/Qwen2.5-VL-3B-Instruct --video clip.mp4 --until 00:41 --goal "make tea"
    """
    from recipe.config import FrameConfig, SamplingConfig

    if corpus is None and (method or config):
        raise InputError("--verifier and --config go with --corpus; give the folder that verifies.")
    opened = None if corpus is None else partial(open_verifier, corpus, config, method)
    sampling = SamplingConfig(temperature=temperature, max_tokens=max_tokens, batch_size=batch_size, seed=seed)
    # Left out where it is not given: the model then keeps its own bounds.
    largest = {} if max_pixels is None else {"max_pixels": max_pixels}
    frames = FrameConfig(fps=fps, max_frames=max_frames, **largest)
    who = Who(model, endpoint, key_variable, frames)
    told_by = None if phi is None else Who(phi, phi_endpoint, key_variable, frames)
    if phi_endpoint and phi is None:
        raise InputError("--phi-endpoint goes with --phi; give the model's name there.")
    what = What(goal, tuple(history or ()), video, until, told_by)
    if examples is not None:
        if output is None:
            raise InputError("--examples needs --output, the predictions file to write.")
        if what != What():
            raise InputError(
                "--examples goes without --goal, --history, --video, --until and --phi; see --videos and --histories."
            )
        seen = Seen(examples, split, videos, histories, skip_missing, frames)
        _plan_examples(who, seen, output, count, sampling, opened, json)
        return
    if output is not None:
        raise InputError("--output goes with --examples; use --json for a single goal.")
    if videos or histories or skip_missing:
        raise InputError("--videos, --histories and --skip-missing go with --examples; give --video for a single goal.")
    _plan_one(who, sampling, what.request(frames, console.progress()), count, opened, json)


def _plan_one(
    who: Who, sampling: "SamplingConfig", request: "Request", count: int, opened: "Opened | None", json: bool
) -> None:
    from recipe.planning.rerank import rerank

    verifier = None if opened is None else opened()
    with who.planner(sampling) as planner:
        if verifier is None and count == 1 and not json:
            _show_as_written(planner, request)
            return
        plans = planner.plan([request], count, console.progress())
    if verifier is None:
        rows = [{"sample": sample, "steps": _steps(one)} for sample, one in enumerate(plans[0])]
    else:
        [ranked] = rerank(verifier, [request], plans, console.progress())
        rows = [_rewarded(verifier, request, ranked, sample) for sample in ranked.order]
    if json:
        console.print_json({"goal": request.goal, "history": list(request.history), "plans": rows})
        return
    for row in rows:
        _show(row, len(rows) > 1)


def _show_as_written(planner: "Planner", request: "Request") -> None:
    number = 0
    for number, step in enumerate(planner.stream(request), start=1):
        console.out.print(f"{number}. {escape(step)}", highlight=False, soft_wrap=True)
    if not number:
        console.out.print("[dim]no steps[/]")


def _plan_examples(
    who: Who,
    seen: Seen,
    output: Path,
    count: int,
    sampling: "SamplingConfig",
    opened: "Opened | None",
    json: bool,
) -> None:
    from recipe.artifacts import require_writable
    from recipe.planning.predictions import write_predictions
    from recipe.planning.rerank import reward_predictions

    examples = seen.read()
    require_writable(output)
    verifier = None if opened is None else opened()
    with who.planner(sampling) as planner:
        predictions = seen.predict(planner, examples, count, console.progress())
    if verifier is not None:
        predictions = reward_predictions(verifier, examples.planned, predictions, console.progress())
    written = write_predictions(output, predictions)
    empty = sum(not prediction.steps for prediction in predictions)
    if json:
        result = {"output": str(output), "predictions": written, "without_steps": empty}
        console.print_json(result | {"missing": list(examples.missing)})
        return
    for name in examples.missing:
        console.err.print(f"left out, absent: {name}", highlight=False, markup=False, soft_wrap=True)
    console.out.print(f"{written} plans for {len(examples.planned)} examples in {output}; {empty} without steps.")


def _steps(plan: Any) -> list[str]:
    return list(getattr(plan, "steps", ()))


def _rewarded(verifier: "Verifier", request: "Request", ranked: "Ranked", sample: int) -> dict[str, Any]:
    """A plan with its reward and the narrated segment that each of its steps is aligned with."""
    reward, steps = ranked.rewards[sample], _steps(ranked.plans[sample])
    found = verifier.explain(request.history, steps, request.goal)
    grounds = [ground for ground in found.steps if not ground.in_history]
    return {
        "sample": sample,
        "steps": steps,
        "reward": reward.total,
        "aligned_history": reward.aligned_history,
        "aligned_full": reward.aligned_full,
        "rho": reward.rho,
        "gated": reward.gated,
        "narration": found.narration.video_id if found.narration else None,
        "evidence": [ground.segment.text if ground.segment else None for ground in grounds],
    }


def _show(row: dict[str, Any], numbered: bool) -> None:
    title = f"[bold]plan {row['sample'] + 1}[/]" if numbered else ""
    if "reward" in row:
        gate = ", below the gate" if row["gated"] else ""
        title += (
            f"  reward {row['reward']:.3f} (rho {row['rho']:.2f}{gate}), best narration {escape(str(row['narration']))}"
        )
    if title:
        console.out.print(title.strip(), highlight=False)
    grounds = row.get("evidence") or [None] * len(row["steps"])
    for number, (step, ground) in enumerate(zip(row["steps"], grounds, strict=True), start=1):
        said = f"  [dim]← {escape(ground)}[/]" if ground else ""
        console.out.print(f"{number}. {escape(step)}{said}", highlight=False, soft_wrap=True)
    if not row["steps"]:
        console.out.print("[dim]no steps[/]")
