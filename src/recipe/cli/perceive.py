"""`recipe perceive`: videos in, the steps that Phi sees in them out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recipe.cli import console
from recipe.cli.data import Benchmarks, Root, known_benchmarks
from recipe.cli.flags import with_flags
from recipe.cli.models import beside, model_flags, opened
from recipe.config import FrameConfig, ModelConfig, PhiConfig
from recipe.errors import InputError, listed

if TYPE_CHECKING:
    from recipe.perception.phi import Kind
    from recipe.types import Procedure


@with_flags(PhiConfig, "config", "How Phi is asked", only=("goal", "temperature", "max_tokens", "seed"))
@with_flags(
    FrameConfig,
    "frames",
    "Frames that are shown",
    only=("fps", "count", "max_frames", "max_pixels"),
    defaults=PhiConfig().frames.model_dump(exclude_unset=True),
)
@model_flags
def perceive(
    videos: Annotated[Path, typer.Option(help="Folder of videos: VIDEO_ID.mp4 or SOURCE/VIDEO_ID.mp4, any format.")],
    examples: Annotated[Path | None, typer.Option(help="Examples: the history of each is described.")] = None,
    output: Annotated[Path | None, typer.Option(help="With --examples: histories file to write.")] = None,
    procedures: Annotated[Path | None, typer.Option(help="Procedures, JSON lines: whole videos are described.")] = None,
    root: Root = None,
    benchmark: Benchmarks = None,
    traces: Annotated[
        Path | None, typer.Option(help="With --procedures or --root: pseudo-traces file to write, as procedures.")
    ] = None,
    split: Annotated[str, typer.Option(help="Only this split.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N, to estimate the cost.")] = None,
    skip_missing: Annotated[
        bool, typer.Option("--skip-missing", help="Leave out videos that are absent, and list them.")
    ] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out unreadable input, and list it.")] = False,
    batch_size: Annotated[
        int,
        typer.Option(min=1, help="Clips that a model on this machine is shown at once, at most."),
    ] = 16,
    devices: Annotated[
        str, typer.Option(help="Devices of this machine that share the work, a process each: cuda:0,cuda:1, or 2.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    *,
    model_settings: ModelConfig,
    frames: FrameConfig,
    config: PhiConfig,
) -> None:
    """Describe videos as steps: the history of each example, or whole videos as weak supervision.

    Example: recipe perceive --examples test.jsonl --videos videos --model Qwen/Qwen2.5-VL-3B-Instruct --output h.jsonl

    Example: recipe perceive --root data --videos videos --endpoint http://localhost:8000/v1 --model m --traces t.jsonl
    """
    from recipe.artifacts import require_writable
    from recipe.data.examples import read_examples
    from recipe.perception.devices import PhiOnDevices
    from recipe.perception.phi import PhiRun
    from recipe.perception.phi_files import (
        history_clips,
        trace_clips,
        write_described_histories,
        write_described_traces,
        write_manifest,
    )
    from recipe.perception.videos import VideoFolder

    target = _target(examples, output, procedures or root, traces)
    if procedures is not None and (root is not None or benchmark):
        raise InputError("--procedures and --root exclude each other; give one of them.")
    shared = _devices(devices, model_settings)
    config = config.model_copy(update={"frames": frames})
    kind: Kind
    if examples is not None:
        kind = "history"
        rows = read_examples(examples, split)[:limit]
        chosen = history_clips(rows, VideoFolder(videos), skip_missing)
    else:
        kind = "trace"
        wanted = [
            one for one in _procedures(procedures, root, known_benchmarks(benchmark or [])) if split in ("", one.split)
        ]
        if not wanted:
            raise InputError(f"no video is in split {split!r}; choose another split or none.")
        chosen = trace_clips(wanted[:limit], VideoFolder(videos), skip_missing)
    require_writable(target)
    local, settings = model_settings.endpoint is None, beside(model_settings, target)
    # With devices their processes load the weights, and this one reads the answers that are kept.
    with opened(settings.model_copy(update={"replay": settings.replay or bool(shared)}), frames) as model:
        run = (
            PhiOnDevices(model, settings, shared, config, kind, together=batch_size, skip_unreadable=skip_bad)
            if shared
            else PhiRun(
                model,
                config,
                kind,
                together=batch_size if local else 1,
                workers=1 if local else settings.concurrency,
                skip_unreadable=skip_bad,
                bounded=settings.engine == "transformers",  # vLLM has bounds of its own
            )
        )
        result = run.describe(chosen.clips, console.progress())
    if not result.descriptions:
        first = next(iter(result.unreadable.values()), "")
        raise InputError(f"none of {len(chosen.clips)} videos can be read or described; the first: {first}")
    if examples is not None:
        written = write_described_histories(target, rows, result, model_settings.model, run, model.ledger.prices)
    else:
        written = write_described_traces(target, wanted[:limit], result, model.ledger.prices)
    named = {"name": model_settings.model} | model.identity
    manifest = write_manifest(target, kind, named, config, run, chosen, result, written)
    counts = {
        "output": str(target),
        "manifest": str(manifest),
        "kind": kind,
        "rows": written.rows,
        "empty": list(written.empty),
        "cut": list(written.cut),
        "missing": list(chosen.missing),
        "without_time": list(chosen.without_time),
        "unreadable": result.unreadable,
        "asked": result.asked,
        "tokens_in": written.tokens_in,
        "tokens_out": written.tokens_out,
        "cost": written.cost,
    }
    if json:
        console.print_json(counts)
    else:
        _show(counts)


def _target(examples: Path | None, output: Path | None, videos: Path | None, traces: Path | None) -> Path:
    """The file to write. Raises InputError for options that do not go together."""
    if (examples is None) == (videos is None):
        raise InputError("give either --examples, whose histories are described, or --procedures or --root.")
    if examples is not None and (output is None or traces is not None):
        raise InputError("--examples goes with --output, the histories file to write, and without --traces.")
    if videos is not None and (traces is None or output is not None):
        raise InputError("--procedures and --root go with --traces, the file to write, and without --output.")
    target = output or traces
    assert target is not None
    return target


def _devices(devices: str, settings: ModelConfig) -> list[str]:
    """The devices that share the work, if any. Raises InputError for options that do not go together."""
    from recipe.perception.devices import devices_named

    if not devices:
        if settings.device and not settings.endpoint and settings.engine == "transformers" and not settings.replay:
            devices_named(settings.device, "--device")
        return []
    for flag, value in (
        ("--endpoint", settings.endpoint),
        ("--device", settings.device),
        ("--engine vllm", settings.engine == "vllm"),
        ("--replay", settings.replay),
        ("--max-calls", settings.max_calls is not None),
        ("--max-tokens-total", settings.max_tokens_total is not None),
    ):
        if value:
            raise InputError(f"--devices and {flag} exclude each other; leave one of them out.")
    return devices_named(devices)


def _procedures(file: Path | None, root: Path | None, names: list[str]) -> "list[Procedure]":
    from recipe.data.benchmarks import read_benchmarks, require_benchmarks
    from recipe.data.procedures import read_procedures

    if file is not None:
        return read_procedures(file).procedures
    assert root is not None
    return read_benchmarks(require_benchmarks(root, names), console.progress())


def _show(result: dict[str, Any]) -> None:
    what = "histories" if result["kind"] == "history" else "pseudo-traces"
    lines = [f"{result['rows']:,} {what} in {result['output']}, {result['asked']:,} of them asked for now"]
    tokens = result["tokens_in"], result["tokens_out"]
    if any(tokens):
        cost = "" if result["cost"] is None else f", which cost {result['cost']:.4g}"
        lines.append(f"{tokens[0]:,} tokens read and {tokens[1]:,} written{cost}")
    reasons = {
        "empty": "in which no step was seen" + ("" if result["kind"] == "history" else ", left out"),
        "cut": "cut at the limit of tokens (--max-tokens), so that their last steps are missing",
        "missing": "left out, because the video is absent",
        "without_time": "left out, because the example does not say where its history ends",
        "unreadable": "left out, because the video or the answer cannot be read",
    }
    for key, reason in reasons.items():
        if result[key]:
            lines.append(f"{len(result[key]):,} {reason}: {listed(list(result[key]))}")
    for line in lines:
        console.out.print(line, highlight=False, markup=False, soft_wrap=True)
