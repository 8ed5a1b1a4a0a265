"""`recipe data doctor`: what is the matter with a folder of benchmarks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from recipe.cli.console import out, print_json, progress
from recipe.cli.data_options import AsJson

if TYPE_CHECKING:
    from recipe.data.doctor import Diagnosis, HasVideo, Report

Folder = Annotated[Path, typer.Argument(help="Folder of benchmark folders, or one benchmark's own folder.")]
Videos = Annotated[
    Path | None, typer.Option(help="Folder of video files: count how many annotated videos have theirs.")
]

_COLOURS = {"complete": "green", "partial": "yellow", "broken": "red", "absent": "dim"}


def doctor(folder: Folder, videos: Videos = None, as_json: AsJson = False) -> None:
    """Say of each benchmark what is there, what is missing and what still works; exit code 1 where one is broken.

    Example: recipe data doctor data --videos videos
    """
    from recipe.data.doctor import examine

    report = examine(folder, _looked_up(videos) if videos else None, progress())
    if as_json:
        print_json(_as_json(folder, report))
    else:
        _show(report)
    if not report.healthy:
        raise typer.Exit(1)


def _looked_up(folder: Path) -> "HasVideo":
    from recipe.perception.videos import VideoFolder

    files = VideoFolder(folder)
    return lambda video: files.find(video.source, video.video_id) is not None


def _as_json(folder: Path, report: "Report") -> dict[str, Any]:
    return {
        "folder": str(folder),
        "healthy": report.healthy,
        "benchmarks": [_row(diagnosis) for diagnosis in report.diagnoses],
        "misplaced": [{"path": str(path), "belongs_to": other} for path, other in report.misplaced],
    }


def _row(diagnosis: "Diagnosis") -> dict[str, Any]:
    from recipe.data.benchmarks import BENCHMARKS

    return {
        "name": diagnosis.name,
        "role": BENCHMARKS[diagnosis.name].role,
        "state": diagnosis.state,
        "folder": str(diagnosis.folder) if diagnosis.folder else None,
        "missing": [part._asdict() for part in diagnosis.missing],
        "problem": diagnosis.problem or None,
        "counts": diagnosis.summary._asdict() if diagnosis.summary else None,
        "published_videos": BENCHMARKS[diagnosis.name].published,
        "set_aside": diagnosis.set_aside,
        "task_graphs": diagnosis.graphs,
        "graph_problem": diagnosis.graph_problem or None,
        "with_video": diagnosis.with_video,
        "video_problem": diagnosis.video_problem or None,
        "works": works(diagnosis),
    }


def works(diagnosis: "Diagnosis") -> list[str]:
    """What can be done with what is there, each with its number of videos."""
    from recipe.data.benchmarks import BENCHMARKS

    if diagnosis.summary is None:
        return []
    counts, found = diagnosis.summary.splits, []
    uses = {"train": "training", "val": "validation", "test": "testing"}
    if BENCHMARKS[diagnosis.name].role == "zero-shot":
        uses = {"test": "zero-shot testing", "train": "training on request", "val": "validation on request"}
    found += [f"{use} on {counts[split]:,} videos" for split, use in uses.items() if counts.get(split)]
    if diagnosis.graphs:
        found.append(f"{diagnosis.graphs:,} task graphs")
    if diagnosis.with_video is not None:
        found.append(f"the Video configuration on {diagnosis.with_video:,} videos")
    return found


def _show(report: "Report") -> None:
    for diagnosis in report.diagnoses:
        colour = _COLOURS[diagnosis.state]
        place = f"  {escape(str(diagnosis.folder))}" if diagnosis.folder else ""
        out.print(f"{diagnosis.name}: [{colour}]{diagnosis.state}[/{colour}]{place}", highlight=False, soft_wrap=True)
        for line in _lines(diagnosis):
            out.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    for path, other in report.misplaced:
        text = f"in the wrong place: {path} is of {other}; put it where `recipe data list` says"
        out.print(text, highlight=False, markup=False, soft_wrap=True)


def _lines(diagnosis: "Diagnosis") -> list[str]:
    from recipe.data.benchmarks import BENCHMARKS

    benchmark = BENCHMARKS[diagnosis.name]
    if diagnosis.state == "absent":
        return [f"to be put into {diagnosis.name}/: {benchmark.download}"]
    lines = []
    if summary := diagnosis.summary:
        splits = ", ".join(f"{count:,} {split or 'in none'}" for split, count in summary.splits.items())
        of = f" of {benchmark.published:,}" if summary.videos < (benchmark.published or 0) else ""
        lines.append(f"there: {summary.videos:,}{of} videos ({splits}), {summary.segments:,} segments")
    if diagnosis.set_aside:
        lines.append(f"left out: {diagnosis.set_aside:,} {benchmark.set_aside_as}")
    if diagnosis.with_video is not None and diagnosis.summary:
        lines.append(f"video files: {diagnosis.with_video:,} of {diagnosis.summary.videos:,}")
    lines += [f"missing: {part.path} ({part.holds})" for part in diagnosis.missing]
    problems = (diagnosis.problem, diagnosis.graph_problem, diagnosis.video_problem)
    lines += [f"broken: {problem}" for problem in problems if problem]
    lines.append(f"works: {', '.join(works(diagnosis)) or 'nothing'}")
    return lines
