"""Clips for Phi from examples and procedures, and files from its answers.

Histories: one row an example, the steps done before its cut; an empty history is a row, too, since a planner has to
live with it. Pseudo-traces: one procedure a video with source, id, goal and split of the annotation and Phi's steps in
place of the annotated ones; a video in which Phi sees no step gives none. Next to each is a manifest with model,
prompt, frames, counts, tokens and cost, without a time of day: a job that was killed and resumed writes the same.
"""

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from recipe.artifacts import JsonObject, installed, write_json
from recipe.config.models import PhiConfig
from recipe.data.histories import History, write_histories
from recipe.data.procedures import write_procedures
from recipe.errors import InputError, listed, quoted
from recipe.models.costs import Prices
from recipe.perception.phi import Clip, PhiResult, PhiRun
from recipe.perception.videos import VideoFolder, VideoPaths, name_of
from recipe.types import Example, Procedure

# Packages whose versions the manifest names: frames and answers depend on them.
_PACKAGES = ("recipe-planner", "av", "openai", "torch", "transformers")

Item = TypeVar("Item", Example, Procedure)


class SelectedClips(NamedTuple):
    """Clips to show, in order, and those that cannot be shown."""

    clips: list[Clip]
    missing: tuple[str, ...]
    """Videos that are absent, as source/video_id."""
    without_time: tuple[str, ...] = ()
    """Examples without the time at which their history ends: the whole video would show what is to be planned."""

    @classmethod
    def located(cls, named: Sequence[tuple[Clip, Item]], folder: VideoFolder, skip: bool) -> "SelectedClips":
        """The clips whose video is there; raises as `history_clips`."""
        clips: list[Clip] = []
        missing: dict[str, None] = {}
        for clip, video in named:
            file = folder.find(video.source, video.video_id)
            if file is None:
                missing[name_of(video)] = None
            else:
                clips.append(clip._replace(path=file))
        if not skip or not clips:
            VideoPaths({}, tuple(missing)).require_all(folder)
        if not clips:
            raise InputError.at(
                folder.folder, "there is no video to show", "give examples that say where their history ends"
            )
        return cls(clips, tuple(missing))


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows and cost of a job."""

    rows: int
    empty: tuple[str, ...]
    """Clips in which no step was seen."""
    cut: tuple[str, ...]
    """Clips whose answer ended at the limit of tokens: its last line is left out where it does not end."""
    tokens_in: int | None
    """None, as the other two, where the tokens of an answer were not reported."""
    tokens_out: int | None
    cost: float | None

    @classmethod
    def of(cls, rows: int, empty: Sequence[str], result: PhiResult, prices: Prices) -> "RowCounts":
        """Counts over distinct answers: examples that share one paid for it once."""
        # The same object under several names is one answer.
        answers = {id(description): description.answer for description in result.descriptions.values()}.values()
        cut = tuple(name for name, description in result.descriptions.items() if description.answer.cut)
        if not all(answer.tokens_in or answer.tokens_out for answer in answers):
            return cls(rows, tuple(empty), cut, None, None, None)
        tokens_in = sum(answer.tokens_in for answer in answers)
        tokens_out = sum(answer.tokens_out for answer in answers)
        return cls(rows, tuple(empty), cut, tokens_in, tokens_out, prices.cost(tokens_in, tokens_out))


def history_clips(examples: Sequence[Example], folder: VideoFolder, skip: bool = False) -> SelectedClips:
    """The clip before each example's cut.

    Raises InputError with the number of them and the first names where videos or times are missing, unless those are
    skipped, and where nothing is left.
    """
    without = tuple(example.example_id for example in examples if example.until is None)
    if without and not skip:
        raise InputError(
            f"{len(without):,} of {len(examples):,} examples do not say where their history ends in the video: "
            f"{listed(without)}; prepare them from annotations with times, or leave them out with --skip-missing."
        )
    timed = [example for example in examples if example.until is not None]
    named = [(Clip(example.example_id, Path(), example.goal, example.until), example) for example in timed]
    return SelectedClips.located(named, folder, skip)._replace(without_time=without)


def trace_clips(procedures: Sequence[Procedure], folder: VideoFolder, skip: bool = False) -> SelectedClips:
    """The whole video of each procedure; raises as `history_clips`."""
    return SelectedClips.located(
        [(Clip(name_of(procedure), Path(), procedure.goal), procedure) for procedure in procedures], folder, skip
    )


def write_described_histories(
    path: Path, examples: Iterable[Example], result: PhiResult, model: str, run: PhiRun, prices: Prices
) -> RowCounts:
    """Write the histories of the examples that there is an answer for, in their order."""
    rows = []
    for example in examples:
        if (description := result.descriptions.get(example.example_id)) is not None:
            rows.append(
                History(
                    example.example_id,
                    description.history,
                    example.until,
                    model,
                    run.prompt.hash,
                    description.answer.seconds,
                    description.answer.tokens_in,
                    description.answer.tokens_out,
                )
            )
    write_histories(path, rows)
    return RowCounts.of(len(rows), [row.example_id for row in rows if not row.history], result, prices)


def write_described_traces(path: Path, procedures: Iterable[Procedure], result: PhiResult, prices: Prices) -> RowCounts:
    """Write the procedures that there is an answer with steps for, in their order, with Phi's steps.

    Raises InputError where no answer has a step: a file of no procedure can be used nowhere.
    """
    rows, empty = [], []
    for procedure in procedures:
        if (description := result.descriptions.get(name_of(procedure))) is None:
            continue
        if steps := description.trace:
            rows.append(replace(procedure, steps=steps))
        else:
            empty.append(name_of(procedure))
    if not rows:
        first = next(iter(result.descriptions.values())).answer.text
        problem = f"no step in {len(empty):,} answers; the first: {quoted(first)}"
        raise InputError.at(path, problem, "give a model that takes video, or more frames (phi.frames.max_frames)")
    write_procedures(path, rows)
    return RowCounts.of(len(rows), empty, result, prices)


def write_manifest(
    output: Path,
    kind: str,
    model: JsonObject,
    config: PhiConfig,
    run: PhiRun,
    chosen: SelectedClips,
    result: PhiResult,
    written: RowCounts,
) -> Path:
    """Write `<output>.manifest.json`; returns its path."""
    path = output.with_name(f"{output.name}.manifest.json")
    manifest: JsonObject = {
        "kind": kind,
        "output": output.name,
        "model": model,
        "prompt": {"sha256": run.prompt.hash, "goal": config.goal, "text": run.prompt.text("$goal")},
        "frames": config.frames.model_dump(),
        "sampling": config.model_dump(include={"temperature", "max_tokens", "seed"}),
        "rows": written.rows,
        "empty": list(written.empty),
        "cut": list(written.cut),
        "missing": list(chosen.missing),
        "without_time": list(chosen.without_time),
        "unreadable": result.unreadable,
        "tokens_in": written.tokens_in,
        "tokens_out": written.tokens_out,
        "cost": written.cost,
        "versions": {"python": platform.python_version()} | installed(_PACKAGES),
    }
    write_json(path, manifest)
    return path
