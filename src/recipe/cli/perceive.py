"""`recipe perceive`: videos in, the steps that Phi sees in them out."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from recipe.cli import console
from recipe.cli import models as endpoints
from recipe.cli.data import Benchmarks, Root, known_benchmarks
from recipe.cli.models import model_identity
from recipe.errors import ComputeError, InputError, listed

if TYPE_CHECKING:
    from recipe.config import PhiConfig
    from recipe.models.wrappers import Prices
    from recipe.perception.phi import Ask, Kind, PhiRun, Result
    from recipe.perception.phi_files import Chosen, Written
    from recipe.types import Procedure

    Write = Callable[[PhiRun, Result, Prices], Written]
    """Writes what was told."""

_FRAMES = "Frames that are shown"


def _frames(help: str, **more: Any) -> Any:
    return typer.Option(help=help, rich_help_panel=_FRAMES, **more)


class Wanted(NamedTuple):
    """What is to be written, for which videos."""

    videos: Path
    output: Path
    cache: Path
    skip_missing: bool
    skip_unreadable: bool


class Model(NamedTuple):
    """Who is asked."""

    name: str
    revision: str | None
    device: str | None
    batch_size: int
    endpoint: endpoints.Asked | None


def perceive(
    videos: Annotated[Path, typer.Option(help="Folder of videos: VIDEO_ID.mp4 or SOURCE/VIDEO_ID.mp4, any format.")],
    model: Annotated[str, typer.Option(help="Vision-language model: folder, hub id, or its name at the endpoint.")],
    examples: Annotated[Path | None, typer.Option(help="Examples: the history of each is told.")] = None,
    output: Annotated[Path | None, typer.Option(help="With --examples: histories file to write.")] = None,
    procedures: Annotated[Path | None, typer.Option(help="Procedures, JSON lines: whole videos are told.")] = None,
    root: Root = None,
    benchmark: Benchmarks = None,
    traces: Annotated[
        Path | None, typer.Option(help="With --procedures or --root: pseudo-traces file to write, as procedures.")
    ] = None,
    split: Annotated[str, typer.Option(help="Only what is in this split.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many, to see what it costs.")] = None,
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Leave out videos that are absent, and list them.")
    ] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out what cannot be read, and list it.")] = False,
    cache: Annotated[Path | None, typer.Option(help="Folder of answers. Default: OUTPUT.cache.")] = None,
    no_goal: Annotated[bool, typer.Option("--no-goal", help="Keep the goal from the model.")] = False,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 0.0,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 512,
    seed: Annotated[int, typer.Option(help="Another seed gives other answers above temperature 0.")] = 0,
    revision: Annotated[str | None, typer.Option(help="Revision of a hub id.")] = None,
    device: Annotated[str | None, typer.Option(help="Where a model on this machine computes, such as cuda:1.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Clips that a model on this machine is shown at once.")] = 1,
    fps: Annotated[float, _frames("Frames of each second.", min=0.01)] = 2.0,
    count: Annotated[int | None, _frames("So many frames, however long the video is.", min=1)] = None,
    max_frames: Annotated[int, _frames("Frames at most.", min=2)] = 128,
    max_pixels: Annotated[int | None, _frames("Larger frames are reduced to this area.", min=1)] = None,
    endpoint: endpoints.Url = None,
    key_variable: endpoints.KeyVariable = None,
    concurrency: endpoints.Concurrency = 8,
    timeout: endpoints.Timeout = 180.0,
    tries: endpoints.Tries = 6,
    send: endpoints.Clips = "images",
    token_limit: endpoints.TokenLimit = "max_tokens",
    no_seed: endpoints.NoSeed = False,
    price_in: endpoints.PriceIn = None,
    price_out: endpoints.PriceOut = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Tell what videos show as steps: the history of each example, or whole videos as weak supervision.

    Example: recipe perceive --examples test.jsonl --videos videos --model Qwen/Qwen2.5-VL-3B-Instruct --output h.jsonl

    Example: recipe perceive --root data --videos videos --endpoint http://localhost:8000/v1 --model m --traces t.jsonl
    """
    from recipe.config import FrameConfig, PhiConfig

    target = _target(examples, output, procedures or root, traces)
    if procedures is not None and (root is not None or benchmark):
        raise InputError("--procedures and --root exclude each other; give one of them.")
    # Left out where it is not given: a model on this machine then keeps its own bounds.
    largest = {} if max_pixels is None else {"max_pixels": max_pixels}
    frames = FrameConfig(fps=fps, count=count, max_frames=max_frames, **largest)
    config = PhiConfig(frames=frames, goal=not no_goal, temperature=temperature, max_tokens=max_tokens, seed=seed)
    asked = None
    if endpoint is not None:
        asked = endpoints.Asked(
            endpoint, key_variable, concurrency, timeout, tries, send, token_limit, no_seed, price_in, price_out
        )
    wanted = Wanted(videos, target, endpoints.cache_folder(cache, target), skip_missing, skip_bad)
    who = Model(model, revision, device, batch_size, asked)
    if examples is not None:
        result = _histories(examples, split, limit, wanted, who, config)
    else:
        result = _traces(procedures, root, known_benchmarks(benchmark or []), split, limit, wanted, who, config)
    if json:
        console.print_json(result)
    else:
        _show(result)


def _target(examples: Path | None, output: Path | None, videos: Path | None, traces: Path | None) -> Path:
    """The file to write. Raises InputError for options that do not go together."""
    if (examples is None) == (videos is None):
        raise InputError("give either --examples, whose histories are told, or --procedures or --root.")
    if examples is not None and (output is None or traces is not None):
        raise InputError("--examples goes with --output, the histories file to write, and without --traces.")
    if videos is not None and (traces is None or output is not None):
        raise InputError("--procedures and --root go with --traces, the file to write, and without --output.")
    target = output or traces
    assert target is not None
    return target


def _histories(
    source: Path, split: str, limit: int | None, wanted: Wanted, who: Model, config: "PhiConfig"
) -> dict[str, Any]:
    from recipe.data.examples import read_examples
    from recipe.perception.phi_files import history_clips, write_told_histories
    from recipe.perception.videos import VideoFolder

    examples = read_examples(source, split)[:limit]
    chosen = history_clips(examples, VideoFolder(wanted.videos), wanted.skip_missing)

    def write(run: "PhiRun", result: "Result", prices: "Prices") -> "Written":
        return write_told_histories(wanted.output, examples, result, who.name, run, prices)

    return _tell("history", chosen, write, wanted, who, config)


def _traces(
    file: Path | None,
    root: Path | None,
    names: list[str],
    split: str,
    limit: int | None,
    wanted: Wanted,
    who: Model,
    config: "PhiConfig",
) -> dict[str, Any]:
    from recipe.perception.phi_files import trace_clips, write_told_traces
    from recipe.perception.videos import VideoFolder

    procedures = [one for one in _procedures(file, root, names) if split in ("", one.split)][:limit]
    if not procedures:
        raise InputError(f"no video is in split {split!r}; choose another split or none.")
    chosen = trace_clips(procedures, VideoFolder(wanted.videos), wanted.skip_missing)

    def write(run: "PhiRun", result: "Result", prices: "Prices") -> "Written":
        return write_told_traces(wanted.output, procedures, result, prices)

    return _tell("trace", chosen, write, wanted, who, config)


def _procedures(file: Path | None, root: Path | None, names: list[str]) -> "list[Procedure]":
    from recipe.data.benchmarks import read_benchmarks, require_benchmarks
    from recipe.data.procedures import read_procedures

    if file is not None:
        return read_procedures(file).procedures
    assert root is not None
    return read_benchmarks(require_benchmarks(root, names), console.progress())


def _tell(
    kind: "Kind", chosen: "Chosen", write: "Write", wanted: Wanted, who: Model, config: "PhiConfig"
) -> dict[str, Any]:
    """Ask about the clips, write what is told and the manifest."""
    from recipe.artifacts import require_writable
    from recipe.models.wrappers import Prices
    from recipe.perception.phi import PhiRun
    from recipe.perception.phi_files import write_manifest

    require_writable(wanted.output)
    prices = Prices() if who.endpoint is None else Prices(who.endpoint.price_in, who.endpoint.price_out)
    with ExitStack() as stack:
        ask, identity, workers = _engine(who, config, wanted.cache, stack)
        run = PhiRun(
            ask,
            identity,
            config,
            kind,
            wanted.cache,
            together=who.batch_size if who.endpoint is None else 1,
            workers=workers,
            skip_unreadable=wanted.skip_unreadable,
        )
        try:
            result = run.tell(chosen.clips, console.progress())
        except ComputeError as error:
            kept = "answers that came are kept, and the same command goes on from there"
            raise ComputeError(f"{str(error).removesuffix('.')}; {kept}.") from error
    if not result.told:
        raise InputError(f"none of {len(chosen.clips)} videos can be read; the first: {_first(result.unreadable)}")
    written = write(run, result, prices)
    manifest = write_manifest(
        wanted.output, kind, {"name": who.name} | identity, config, run, (chosen, result, written)
    )
    return {
        "output": str(wanted.output),
        "manifest": str(manifest),
        "kind": kind,
        "rows": written.rows,
        "empty": list(written.empty),
        "missing": list(chosen.missing),
        "without_time": list(chosen.without_time),
        "unreadable": result.unreadable,
        "asked": result.asked,
        "tokens_in": written.tokens_in,
        "tokens_out": written.tokens_out,
        "cost": written.cost,
    }


def _engine(who: Model, config: "PhiConfig", cache: Path, stack: ExitStack) -> "tuple[Ask, dict[str, Any], int]":
    """What answers chats, all that tells the model from others, and how many calls it takes at once."""
    from recipe.perception.phi import phi_sampling

    sampling = phi_sampling(config, who.batch_size)
    if who.endpoint is not None:
        from recipe.models.endpoint import EndpointEngine

        settings = who.endpoint.config(who.name, config.frames.max_pixels)
        remote = stack.enter_context(EndpointEngine(settings))
        identity = settings.model_dump(include={"model", "clips", "jpeg_quality"})
        return lambda chats: [one for [one] in remote.answers(chats, 1, sampling)], identity, settings.concurrency
    from recipe.models.local import LocalEngine
    from recipe.models.wrappers import AnswerCache

    local = LocalEngine(who.name, who.revision, who.device, config.frames)

    told_by = model_identity(who.name, who.revision, AnswerCache(cache))
    return lambda chats: [one for [one] in local.answers(chats, 1, sampling)], told_by, 1


def _first(reasons: dict[str, str]) -> str:
    return next(iter(reasons.values()), "")


def _show(result: dict[str, Any]) -> None:
    what = "histories" if result["kind"] == "history" else "pseudo-traces"
    lines = [f"{result['rows']:,} {what} in {result['output']}, {result['asked']:,} of them asked for now"]
    tokens = result["tokens_in"], result["tokens_out"]
    if any(tokens):
        cost = "" if result["cost"] is None else f", which cost {result['cost']:.4g}"
        lines.append(f"{tokens[0]:,} tokens read and {tokens[1]:,} written{cost}")
    reasons = {
        "empty": "in which no step was seen" + ("" if result["kind"] == "history" else ", left out"),
        "missing": "left out, because the video is absent",
        "without_time": "left out, because the example does not say where its history ends",
        "unreadable": "left out, because the video cannot be read",
    }
    for key, reason in reasons.items():
        if result[key]:
            lines.append(f"{len(result[key]):,} {reason}: {listed(list(result[key]))}")
    for line in lines:
        console.out.print(line, highlight=False, markup=False, soft_wrap=True)
