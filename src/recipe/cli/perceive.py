"""`recipe perceive`: videos in, the steps that Phi sees in them out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recipe.cli import console
from recipe.cli.console import CommandOutput, shows
from recipe.cli.flags import SettingsTable, with_settings
from recipe.cli.inputs import Benchmarks, Root, known_benchmarks
from recipe.cli.models import MODEL, open_for_command, with_cache
from recipe.config import ModelConfig, PhiConfig
from recipe.errors import InputError, listed

if TYPE_CHECKING:
    from recipe.perception.phi import Kind


@with_settings(
    model=MODEL,
    phi=SettingsTable(
        PhiConfig,
        ("temperature", "max_tokens", "seed"),
        "How Phi is asked",
        defaults={"frames": PhiConfig().frames.model_dump(exclude_unset=True)},
    ),
)
@shows
def perceive(
    videos: Annotated[Path, typer.Option(help="Folder of videos: VIDEO_ID.mp4 or SOURCE/VIDEO_ID.mp4, any format.")],
    examples: Annotated[Path | None, typer.Option(help="Examples: the history of each is described.")] = None,
    output: Annotated[Path | None, typer.Option(help="With --examples: histories file to write.")] = None,
    procedures: Annotated[Path | None, typer.Option(help="Procedures: whole videos are described.")] = None,
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
        int, typer.Option(min=1, help="Clips that a model on this machine is shown at once, at most.")
    ] = 16,
    devices: Annotated[
        str,
        typer.Option(help="Devices of this machine that share the work, a process each: cuda:0,cuda:1, or how many."),
    ] = "",
    *,
    model: ModelConfig,
    phi: PhiConfig,
) -> CommandOutput:
    """Describe videos as steps: the history of each example, or whole videos as weak supervision.

    Example: recipe perceive --examples test.jsonl --videos videos --model Qwen/Qwen2.5-VL-3B-Instruct --output h.jsonl

    Example: recipe perceive --root data --videos videos --endpoint http://localhost:8000/v1 --model m --traces t.jsonl
    """
    from recipe.artifacts import require_writable
    from recipe.data.benchmarks import read_benchmarks, require_benchmarks
    from recipe.data.examples import read_examples
    from recipe.data.procedures import read_procedures
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

    if (examples is None) == (procedures is None and root is None):
        raise InputError("give either --examples, whose histories are described, or --procedures or --root.")
    if examples is not None and (output is None or traces is not None):
        raise InputError("--examples goes with --output, the histories file to write, and without --traces.")
    if examples is None and (traces is None or output is not None):
        raise InputError("--procedures and --root go with --traces, the file to write, and without --output.")
    target = output or traces
    assert target is not None
    if procedures is not None and (root is not None or benchmark):
        raise InputError("--procedures and --root exclude each other; give one of them.")
    shared = _devices(devices, model)
    kind: Kind
    if examples is not None:
        kind = "history"
        rows = read_examples(examples, split)[:limit]
        chosen = history_clips(rows, VideoFolder(videos), skip_missing)
    else:
        kind = "trace"
        names = known_benchmarks(benchmark or [])
        if procedures is not None:
            chosen_procedures = read_procedures(procedures).procedures
        else:
            assert root is not None
            chosen_procedures = read_benchmarks(require_benchmarks(root, names), console.progress())
        chosen_procedures = [video for video in chosen_procedures if split in ("", video.split)]
        if not chosen_procedures:
            raise InputError(f"no video is in split {split!r}; choose another split or none.")
        chosen = trace_clips(chosen_procedures[:limit], VideoFolder(videos), skip_missing)
    require_writable(target)
    local, settings = model.endpoint is None, with_cache(model, target)
    # With devices their processes load the weights, and this one reads the answers that are kept.
    with open_for_command(
        settings.model_copy(update={"replay": settings.replay or bool(shared)}), phi.frames
    ) as engine:
        run = (
            PhiOnDevices(engine, settings, shared, phi, kind, together=batch_size, skip_unreadable=skip_bad)
            if shared
            else PhiRun(
                engine,
                phi,
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
        written = write_described_histories(target, rows, result, model.model, run, engine.ledger.prices)
    else:
        written = write_described_traces(target, chosen_procedures[:limit], result, engine.ledger.prices)
    named = {"name": model.model} | engine.identity
    manifest = write_manifest(target, kind, named, phi, run, chosen, result, written)
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
    history = kind == "history"
    lines = [
        f"{written.rows:,} {'histories' if history else 'pseudo-traces'} in {target}, "
        f"{result.asked:,} of them asked for now"
    ]
    if written.tokens_in is not None and written.tokens_out is not None:
        cost = "" if written.cost is None else f", which cost {written.cost:.4g}"
        lines.append(f"{written.tokens_in:,} tokens read and {written.tokens_out:,} written{cost}")
    reasons = {
        "in which no step was seen" + ("" if history else ", left out"): written.empty,
        "cut at the limit of tokens (--max-tokens), so that their last steps are missing": written.cut,
        "left out, because the video is absent": chosen.missing,
        "left out, because the example does not say where its history ends": chosen.without_time,
        "left out, because the video or the answer cannot be read": result.unreadable,
    }
    lines += [f"{len(ids):,} {reason}: {listed(list(ids))}" for reason, ids in reasons.items() if ids]
    return CommandOutput(counts, lines)


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
        ("model.max_tokens_total", settings.max_tokens_total is not None),
    ):
        if value:
            raise InputError(f"--devices and {flag} exclude each other; leave one of them out.")
    return devices_named(devices)
