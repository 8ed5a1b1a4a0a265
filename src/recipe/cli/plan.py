"""`recipe plan`: a goal, and a history in words or as a video, in; the remaining steps out."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from recipe.artifacts import require_writable
from recipe.cli import console
from recipe.cli.flags import with_flags
from recipe.cli.models import beside, model_flags, opened, phi_settings
from recipe.cli.reward_options import Config, Method, open_verifier
from recipe.clock import read_clock
from recipe.config import FrameConfig, ModelConfig, SamplingConfig
from recipe.errors import InputError

if TYPE_CHECKING:
    from recipe.models.protocol import Answer
    from recipe.planning.planner import Planner, Request
    from recipe.planning.predictions import Prediction
    from recipe.planning.rerank import RankedPlans
    from recipe.reward.verifier import Verifier
    from recipe.types import Example, Malformed, Plan


@with_flags(SamplingConfig, "sampling", "How plans are sampled")
@with_flags(FrameConfig, "frames", "Frames of a video", only=("fps", "max_frames", "max_pixels"))
@model_flags
def plan(
    goal: Annotated[str, typer.Option(help="The goal of the plan.")] = "",
    history: Annotated[list[str] | None, typer.Option(help="A step already done; repeat for each.")] = None,
    video: Annotated[Path | None, typer.Option(help="Video that shows what has been done.")] = None,
    until: Annotated[str, typer.Option(help="Moment of the video to plan from: 00:41, 1:02:03 or seconds.")] = "",
    phi: Annotated[
        str | None,
        typer.Option(help="Model that describes the video for a planner that reads text (Socratic)."),
    ] = None,
    phi_endpoint: Annotated[str | None, typer.Option(help="Address of the endpoint that serves --phi.")] = None,
    prompt: Annotated[
        str,
        typer.Option(help="plain, one-example or a file (docs/planning.md). Default: what the model was trained with."),
    ] = "",
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
    output: Annotated[Path | None, typer.Option(help="Predictions file to write.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    *,
    model_settings: ModelConfig,
    frames: FrameConfig,
    sampling: SamplingConfig,
) -> None:
    """Plan the rest of a procedure, or of every example in a file; a single plan is shown as it is written.

    Example: recipe plan --model runs/demo/best-of-n/model --goal "make tea" --history "boil the water" --count 8

    Example: recipe plan --model Qwen/Qwen2.5-VL-3B-Instruct --video clip.mp4 --until 00:41 --goal "make tea"
    """
    if corpus is None and (method or config):
        raise InputError("--verifier and --config go with --corpus; give the corpus folder.")
    describing = phi_settings(model_settings, phi, phi_endpoint)
    from recipe.planning.planner import Planner
    from recipe.prompting import open_prompt

    asked = open_prompt(prompt) if prompt else None
    # Opened once all else has been read.
    open_corpus = None if corpus is None else partial(open_verifier, corpus, config, method)
    if examples is not None:
        if output is None:
            raise InputError("--examples needs --output, the predictions file to write.")
        if goal or history or video or until or phi:
            raise InputError(
                "--examples goes without --goal, --history, --video, --until and --phi; see --videos and --histories."
            )
        chosen, missing = _examples(examples, split, videos, histories, skip_missing)
        require_writable(output)
        verifier = open_corpus() if open_corpus else None
        with opened(beside(model_settings, output), frames) as model:
            unanswered: dict[str, str] = {}
            predictions = _predicted(Planner(model, sampling, asked), chosen, videos, frames, count, unanswered)
        _write(predictions, chosen, missing, unanswered, verifier, output, json)
        return
    if output is not None:
        raise InputError("--output goes with --examples; use --json for a single goal.")
    if videos or histories or skip_missing:
        raise InputError("--videos, --histories and --skip-missing go with --examples; give --video for a single goal.")
    request = _request(goal, tuple(history or ()), video, until, describing, frames)
    verifier = open_corpus() if open_corpus else None
    with opened(model_settings, frames) as model:
        _plan_one(Planner(model, sampling, asked), request, count, verifier, json)


def _request(
    goal: str, history: tuple[str, ...], video: Path | None, until: str, phi: ModelConfig | None, frames: FrameConfig
) -> "Request":
    """The request for a single goal; with `phi`, the video in Phi's words. Raises InputError."""
    from recipe.planning.planner import Request

    request = Request(goal, history)  # before minutes are spent on the video
    if video is None:
        if until or phi:
            raise InputError("--until and --phi go with --video; give the video that shows what has been done.")
        return request
    if history:
        raise InputError("--history and --video exclude each other; give one of them.")
    from recipe.config import PhiConfig
    from recipe.perception.frames import read_frames
    from recipe.perception.phi import Phi

    moment = read_clock(until) if until else None
    if until and moment is None:
        raise InputError(f"--until {until!r} is no time; give seconds, 00:41 or 1:02:03.")
    if phi is not None:  # smaller frames than a planner's, unless the size is given
        frames = PhiConfig().frames.model_copy(update=frames.model_dump(exclude_unset=True))
    progress = console.progress()
    with progress.task("reading the video"):
        clip = read_frames(video, frames, moment)
    if phi is None:
        return Request(goal, video=clip)
    with opened(phi, frames) as model:
        [described] = Phi(model, PhiConfig(frames=frames)).histories([goal], [clip], progress)
    return Request(goal, described)


def _plan_one(
    planner: "Planner",
    request: "Request",
    count: int,
    verifier: "Verifier | None",
    json: bool,
) -> None:
    """Plan for one request, and show the plans: one as it is written, several with their rewards."""
    from recipe.models.protocol import Answer, Refusal, all_answered, read_plan
    from recipe.planning.planner import Draft
    from recipe.planning.rerank import rerank

    if verifier is None and count == 1 and not json:
        shown, outcomes = 0, list[Answer | Refusal]()
        for _, steps, outcome, before in planner.write([Draft(request)]):
            outcomes += [] if outcome is None else [outcome]
            if before < shown:
                console.out.print("[dim]The steps above are the model's thought. Its plan:[/]")
            for number, step in enumerate(steps, start=before + 1):
                console.out.print(f"{number}. {escape(step)}", highlight=False, soft_wrap=True)
            shown = before + len(steps)
        [answer] = all_answered(outcomes)
        _show_end(_ended(answer, read_plan(answer)))
        return
    answers = all_answered(planner.complete([request], count, console.progress())[0])
    plans = list(map(read_plan, answers))
    rows: list[dict[str, Any]]
    if verifier is None:
        rows = [{"sample": sample, "steps": _steps(one)} for sample, one in enumerate(plans)]
    else:
        [ranked] = rerank(verifier, [request], [plans], console.progress())
        rows = [_rewarded(verifier, request, ranked, sample) for sample in ranked.order]
    rows = [row | _ended(answers[row["sample"]], plans[row["sample"]]) for row in rows]
    if json:
        console.print_json({"goal": request.goal, "history": list(request.history), "plans": rows})
        return
    if verifier is not None:
        console.print_lines(f"reward by {verifier.config.verifier}: {verifier.config.scale}")
    for row in rows:
        _show(row, len(rows) > 1)


def _examples(
    file: Path, split: str, videos: Path | None, histories: Path | None, skip_missing: bool
) -> "tuple[list[Example], tuple[str, ...]]":
    """Examples to plan for, with Phi's histories in place of the annotated ones where given, and what was left out.

    Left out are videos that are absent, or ids of examples without a history. Raises InputError.
    """
    from recipe.data.examples import read_examples
    from recipe.data.histories import read_histories, with_histories
    from recipe.perception.videos import VideoFolder, locate

    examples = read_examples(file, split, questions=True)
    if videos is not None and histories is not None:
        raise InputError("--videos and --histories exclude each other; a planner sees frames or reads words.")
    if skip_missing and videos is None and histories is None:
        raise InputError("--skip-missing goes with --videos or --histories; give what some examples lack.")
    if histories is not None:
        known = read_histories(histories)
        described = [example for example in examples if example.example_id in known]
        if not skip_missing or not described:
            return with_histories(examples, known), ()
        missing = tuple(example.example_id for example in examples if example.example_id not in known)
        return with_histories(described, known), missing
    if videos is None:
        return examples, ()
    folder = VideoFolder(videos)
    located = locate(folder, examples)
    if not skip_missing or not located.paths:
        located.require_all(folder)
    return [example for example in examples if example.example_id in located.paths], located.missing


def _predicted(
    planner: "Planner",
    examples: "list[Example]",
    videos: Path | None,
    frames: FrameConfig,
    count: int,
    unanswered: dict[str, str],
) -> "list[Prediction]":
    """As `Planner.predict`, from words or from videos."""
    from recipe.planning.planner import Request

    progress = console.progress()
    if videos is None:
        return planner.predict(examples, count, progress, unanswered=unanswered)
    from recipe.perception.frames import VideoClips

    clips = VideoClips(videos, frames, keep=1)
    return planner.predict(
        examples, count, progress, lambda one: Request(one.goal, video=clips(one)), unanswered=unanswered
    )


def _write(
    predictions: "list[Prediction]",
    examples: "list[Example]",
    missing: tuple[str, ...],
    unanswered: dict[str, str],
    verifier: "Verifier | None",
    output: Path,
    json: bool,
) -> None:
    from recipe.planning.predictions import write_predictions
    from recipe.planning.rerank import reward_predictions

    if verifier is not None:
        predictions = reward_predictions(verifier, examples, predictions, console.progress())
    written = write_predictions(output, predictions)
    empty, cut = sum(not one.steps for one in predictions), sum(bool(one.cut) for one in predictions)
    malformed = dict(Counter(one.malformed for one in predictions if one.malformed).most_common())
    if json:
        result = {"output": str(output), "predictions": written, "without_steps": empty, "cut": cut}
        console.print_json(result | {"malformed": malformed, "missing": list(missing), "unanswered": unanswered})
        return
    for name in missing:
        console.err.print(f"left out, absent: {name}", highlight=False, markup=False, soft_wrap=True)
    for name, reason in unanswered.items():
        console.err.print(f"left out, no answer: {name}: {reason}", highlight=False, markup=False, soft_wrap=True)
    planned = len(examples) - len(unanswered)
    console.out.print(f"{written} plans for {planned} examples in {output}; {empty} without steps.")
    lines = [f"{count} of {written}: {reason}" for reason, count in malformed.items()]
    lines += [f"{cut} of {written} ended at the limit of tokens; allow more with --max-tokens"] if cut else []
    for line in lines:
        console.out.print(line, highlight=False, markup=False, soft_wrap=True)


def _ended(answer: "Answer", plan: "Plan | Malformed") -> dict[str, Any]:
    """The text of an answer, how it ended (why its plan is none, whether it was cut), and how it was sampled."""
    why = {} if hasattr(plan, "steps") else {"malformed": plan.reason}
    sampled = {} if answer.decoding is None else {"decoding": answer.decoding.settings()}
    return {"text": answer.text or answer.refusal} | why | ({"cut": True} if answer.cut else {}) | sampled


def _show_end(row: dict[str, Any]) -> None:
    if reason := row.get("malformed"):
        console.out.print(f"[dim]no steps: {escape(reason)}[/]", highlight=False, soft_wrap=True)
    if row.get("cut"):
        console.out.print("[dim]The answer ended at the limit of tokens; allow more with --max-tokens.[/]")


def _steps(plan: Any) -> list[str]:
    return list(getattr(plan, "steps", ()))


def _rewarded(verifier: "Verifier", request: "Request", ranked: "RankedPlans", sample: int) -> dict[str, Any]:
    """A plan with its reward and the narrated segment that each of its steps is aligned with."""
    reward, steps = ranked.rewards[sample], _steps(ranked.plans[sample])
    found = verifier.explain(history=request.history, continuation=steps, goal=request.goal)
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
    _show_end(row)
