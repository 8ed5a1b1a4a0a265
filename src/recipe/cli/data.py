"""Commands of `recipe data`: from benchmark folders to examples."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from rich.markup import escape
from rich.table import Table

from recipe.cli.console import err, out, print_json, progress

if TYPE_CHECKING:
    from recipe.data.doctor import Diagnosis, HasVideo, Report
    from recipe.data.procedures import ProcedureFile
    from recipe.data.supervision import CutCount, CutExamples, Mixture
    from recipe.types import Example, Procedure

# What commands of `recipe data` share: options that mean the same everywhere, and how results are shown.


Root = Annotated[Path | None, typer.Option(help="Folder of benchmark folders, or one benchmark's own folder.")]
Benchmarks = Annotated[
    list[str] | None,
    typer.Option("--benchmark", help="Only this benchmark; repeat for several. Default: all found."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def known(names: list[str]) -> list[str]:
    """The names of benchmarks, each of which is one."""
    from recipe.data.benchmarks import BENCHMARKS

    for name in names:
        if name not in BENCHMARKS:
            listed = ", ".join(BENCHMARKS)
            raise typer.BadParameter(f"{name!r} is unknown; known are {listed}.", param_hint="--benchmark")
    return names


def show_groups(groups: list[dict[str, Any]], counted: str) -> None:
    """A table of what was written of each source and split."""
    table = Table("source", "split", "videos", counted)
    for group in groups:
        table.add_row(escape(group["source"]), group["split"], f"{group['videos']:,}", f"{group[counted]:,}")
    out.print(table)


def show_left_out(result: dict[str, Any], reasons: dict[str, str]) -> None:
    """A line for each source of which something was left out, and why."""
    for key, reason in reasons.items():
        for source, count in result[key].items():
            out.print(f"left out of {source}: {count:,} {reason}", highlight=False, markup=False)


def show_written(result: dict[str, Any], what: str) -> None:
    """Where the result is."""
    text = f"{result[what]:,} {what} written to {result['output']}"
    out.print(text, highlight=False, markup=False, soft_wrap=True)


# `recipe data doctor`: what is the matter with a folder of benchmarks.


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


# `recipe data prepare`: from annotated videos to the examples of training and evaluation.


Procedures = Annotated[
    Path | None, typer.Option(help="Procedures of your own, JSON lines; see docs/data.md for the fields.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out unusable rows of --procedures and list them.")]
ZeroShotTraining = Annotated[
    bool,
    typer.Option(
        "--zero-shot-training", help="Also give training and validation examples of benchmarks for zero-shot tests."
    ),
]
Pseudo = Annotated[
    Path | None, typer.Option(help="Pseudo-traces of `recipe perceive`, JSON lines, for weak supervision.")
]
Weak = Annotated[
    float | None,
    typer.Option(min=0, max=100, metavar="PERCENT", help="Share of the training examples to take from --pseudo."),
]
WeakCutsOption = Annotated[
    Literal["annotated", "trace"],
    typer.Option(help="Cut pseudo-traces at the times of the annotated cuts, or at points drawn from their own steps."),
]
Paired = Annotated[
    bool,
    typer.Option("--paired", help="Keep only training examples with a usable pseudo-trace: the same for every --weak."),
]
Histories = Annotated[
    Path | None,
    typer.Option(help="Histories of `recipe perceive`, JSON lines: each training example gets its `told_history`."),
]
Cuts = typer.Option(metavar="N|all", help="Cut points per video of the split train.")
TestCuts = typer.Option(metavar="N|all", help="Cut points per video of the splits val and test.")
Limit = Annotated[
    int | None,
    typer.Option(min=1, help="At most this many videos of each source and split, drawn by the seed."),
]
Seed = Annotated[int, typer.Option(help="Decides which cut points, videos (--limit) and weak examples are drawn.")]
Output = Annotated[Path, typer.Option(help="Examples file to write, JSON lines.")]

_LEFT_OUT = {
    "zero_shot": "videos of the splits train and val: the benchmark is for zero-shot tests (--zero-shot-training)",
    "no_split": "videos, in no split",
    "too_short": "videos, fewer than two steps",
    "no_trace": "training examples whose video has no pseudo-trace of two steps or more",
    "one_sided": "training examples whose pseudo-trace has no step on one side of the cut",
    "no_cut": "training examples whose pseudo-trace has no further cut point",
    "no_history": "training examples without a history in --histories",
}


class _Videos(NamedTuple):
    procedures: list["Procedure"]
    own: "ProcedureFile"
    zero_shot: Counter[str]


def prepare(
    output: Output,
    root: Root = None,
    benchmark: Benchmarks = None,
    procedures: Procedures = None,
    cuts_train: Annotated[str, Cuts] = "4",
    cuts_test: Annotated[str, TestCuts] = "1",
    pseudo: Pseudo = None,
    weak: Weak = None,
    weak_cuts: WeakCutsOption = "annotated",
    paired: Paired = False,
    histories: Histories = None,
    zero_shot_training: ZeroShotTraining = False,
    limit: Limit = None,
    seed: Seed = 0,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
) -> None:
    """Cut annotated videos into examples; the same options always give the same bytes.

    Example: recipe data prepare --root data --benchmark coin --benchmark crosstask --output examples.jsonl
    """
    from recipe.data.examples import write_examples
    from recipe.data.histories import add_told_histories, read_histories
    from recipe.data.procedures import read_procedures
    from recipe.data.supervision import cut_procedures, limit_videos, mix_supervision
    from recipe.errors import InputError

    train, test = _cut_count(cuts_train, "--cuts-train"), _cut_count(cuts_test, "--cuts-test")
    if (pseudo is None) != (weak is None):
        raise typer.BadParameter("give --pseudo and --weak together.", param_hint="--weak")
    if pseudo is None and (paired or weak_cuts != "annotated"):
        raise typer.BadParameter("it has a use with --pseudo only.", param_hint="--paired" if paired else "--weak-cuts")
    videos = _read(root, benchmark or [], procedures, skip_bad, zero_shot_training)
    chosen = videos.procedures if limit is None else limit_videos(videos.procedures, limit, seed)
    cut = cut_procedures(chosen, train=train, test=test, seed=seed)
    if not cut.examples:
        raise InputError(
            f"none of {len(chosen)} videos gave an example: {len(cut.no_split)} are in no split and "
            f"{len(cut.too_short)} have fewer than two steps; give videos with a split and two steps or more."
            + (" Training videos of zero-shot benchmarks need --zero-shot-training." if videos.zero_shot else "")
        )
    traces = read_procedures(pseudo).procedures if pseudo else []
    mixture = mix_supervision(cut.examples, traces, weak or 0.0, seed, cuts=weak_cuts, paired=paired)
    if not mixture.examples:
        raise InputError(
            f"{pseudo}: no example has a pseudo-trace that can be cut; run `recipe perceive` on the videos."
        )
    examples, no_history = mixture.examples, Counter[str]()
    if histories is not None:
        examples, no_history = add_told_histories(examples, read_histories(histories))
        if all(example.told_history is None for example in examples):
            raise InputError(f"{histories}: no training example has its history here; run `recipe perceive` on them.")
    write_examples(output, examples)
    result = _result(output, chosen, videos, cut, mixture, examples, no_history)
    if as_json:
        print_json(result)
    else:
        _show_result(result)


def _cut_count(text: str, option: str) -> "CutCount":
    if text == "all":
        return "all"
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"{text!r} is neither a number of at least 1 nor 'all'.", param_hint=option)
    return int(text)


def _read(root: Path | None, names: list[str], file: Path | None, skip_bad: bool, zero_shot_training: bool) -> _Videos:
    """All procedures, benchmarks first, then the user's own by source and video."""
    from recipe.data.benchmarks import Planned, by_role, read_benchmarks, require_benchmarks
    from recipe.data.procedures import ProcedureFile, read_procedures

    names = known(names)
    if root is None and (names or file is None):
        raise typer.BadParameter("give --root, a folder of benchmarks, or --procedures alone.", param_hint="--root")
    found = read_benchmarks(require_benchmarks(root, names), progress()) if root else []
    planned = Planned(found, Counter()) if zero_shot_training else by_role(found)
    own = read_procedures(file, "skip" if skip_bad else "error") if file else ProcedureFile([], [])
    ordered = sorted(own.procedures, key=lambda video: (video.source, video.video_id))
    return _Videos(planned.procedures + ordered, own, planned.held_back)


def _result(
    output: Path,
    chosen: list["Procedure"],
    videos: _Videos,
    cut: "CutExamples",
    mixture: "Mixture",
    examples: list["Example"],
    no_history: Counter[str],
) -> dict[str, Any]:
    from recipe.data.benchmarks import trained_and_tested

    groups = Counter((example.source, example.split) for example in examples)
    weak = Counter((e.source, e.split) for e in examples if e.supervision == "weak")
    seen = {(example.source, example.split, example.video_id) for example in examples}
    counted = Counter((source, split) for source, split, _ in seen)
    return {
        "output": str(output),
        "examples": len(examples),
        "groups": [
            {
                "source": source,
                "split": split,
                "videos": counted[source, split],
                "examples": count,
                "weak": weak[source, split],
            }
            for (source, split), count in groups.items()
        ],
        "told": sum(example.told_history is not None for example in examples),
        "zero_shot": videos.zero_shot,
        "no_split": Counter(procedure.source for procedure in cut.no_split),
        "too_short": Counter(procedure.source for procedure in cut.too_short),
        "no_trace": mixture.no_trace,
        "one_sided": mixture.one_sided,
        "no_cut": mixture.no_cut,
        "no_history": no_history,
        "skipped": [row._asdict() for row in videos.own.skipped],
        "trained_and_tested": sorted(trained_and_tested(chosen)),
    }


def _show_result(result: dict[str, Any]) -> None:
    show_groups(result["groups"], "examples")
    if weak := sum(group["weak"] for group in result["groups"]):
        out.print(f"weakly supervised: {weak:,} examples", highlight=False)
    if result["told"]:
        out.print(f"with Phi's history: {result['told']:,} examples", highlight=False)
    show_left_out(result, _LEFT_OUT)
    for row in result["skipped"]:
        err.print(f"skipped: {row['reason']}", highlight=False, markup=False, soft_wrap=True)
    if result["skipped"]:
        out.print(f"left out of the procedures file: {len(result['skipped']):,} unusable rows", highlight=False)
    if shared := result["trained_and_tested"]:
        out.print(f"note: {len(shared):,} videos are trained on in one set and held out in another", highlight=False)
    show_written(result, "examples")


# Commands of `recipe data`: from benchmark folders to examples.


app = typer.Typer(no_args_is_help=True, help="Turn benchmark folders into training and test examples.")

ProceduresOutput = Annotated[Path, typer.Option("--output", help="Procedures file to write, JSON lines.")]
Split = Annotated[Literal["train", "val", "test"] | None, typer.Option(help="Only this split.")]

_ABOUT = ("title", "role", "split", "licence", "home", "download")


@app.command("list")
def list_benchmarks(root: Root = None, as_json: AsJson = False) -> None:
    """Show which benchmarks can be read and, with --root, what is there.

    Example: recipe data list --root data
    """
    from recipe.data.benchmarks import BENCHMARKS, find_benchmark, summarise
    from recipe.errors import InputError

    if root is not None and not root.is_dir():
        raise InputError(f"{root}: the folder does not exist; give the folder that holds the benchmarks.")
    rows: list[dict[str, Any]] = []
    with progress().task("reading benchmarks", total=len(BENCHMARKS)) as advance:
        for name, benchmark in BENCHMARKS.items():
            folder = find_benchmark(root, name) if root else None
            about = {key: getattr(benchmark, key) for key in _ABOUT}
            counts: dict[str, Any] = {}
            if folder:
                counts = summarise(benchmark.read(folder))._asdict()
                counts["set_aside"] = sum(map(len, benchmark.set_aside(folder).values()))
                counts["set_aside_as"] = benchmark.set_aside_as
                counts["task_graphs"] = benchmark.graphs(folder) if benchmark.graphs else None
            rows.append({"name": name, "folder": str(folder) if folder else None} | about | counts)
            advance(1)
    if as_json:
        print_json(rows)
    else:
        _show_benchmarks(rows)


def _show_benchmarks(rows: list[dict[str, Any]]) -> None:
    table = Table("benchmark", "role", "videos", "segments", "tasks", "unique steps", "splits")
    for row in rows:
        if row["folder"]:
            splits = ", ".join(f"{count:,} {split or 'in none'}" for split, count in row["splits"].items())
            counts = [f"{row[key]:,}" for key in ("videos", "segments", "tasks", "unique_steps")]
            table.add_row(row["name"], row["role"], *counts, splits)
        else:
            table.add_row(row["name"], row["role"], "absent")
    out.print(table)
    for row in rows:
        source = row["folder"] or f"absent; put into ROOT/{row['name']}/: {row['download']}"
        text = f"{row['title']}: {source}\n  split: {row['split']}\n  licence: {row['licence']}\n  {row['home']}"
        out.print(text, highlight=False, markup=False, soft_wrap=True)
        if row.get("set_aside"):
            out.print(f"  left out: {row['set_aside']:,} {row['set_aside_as']}", highlight=False)
        if row.get("task_graphs") is not None:
            out.print(f"  task graphs: {row['task_graphs']:,}", highlight=False)


@app.command("procedures")
def export_procedures(
    root: Annotated[Path, typer.Option(help="Folder of benchmark folders, or one benchmark's own folder.")],
    output: ProceduresOutput,
    benchmark: Benchmarks = None,
    split: Split = None,
    as_json: AsJson = False,
) -> None:
    """Write annotated videos as they were performed, one a line; the same options always give the same bytes.

    Example: recipe data procedures --root data --benchmark captaincook4d --split test --output procedures.jsonl
    """
    from recipe.data.benchmarks import require_benchmarks, select_procedures
    from recipe.data.procedures import write_procedures
    from recipe.errors import InputError

    folders = require_benchmarks(root, known(benchmark or []))
    selected = select_procedures(folders, split, progress())
    if not selected.procedures:
        where = f" in split {split}" if split else ""
        raise InputError(f"{root}: no video of {', '.join(folders)} has steps{where}; choose another split or none.")
    write_procedures(output, selected.procedures)
    groups: dict[tuple[str, str], list[int]] = {}
    for video in selected.procedures:
        groups.setdefault((video.source, video.split), []).append(len(video.steps))
    result: dict[str, Any] = {
        "output": str(output),
        "procedures": len(selected.procedures),
        "groups": [
            {"source": source, "split": name, "videos": len(steps), "steps": sum(steps)}
            for (source, name), steps in groups.items()
        ],
        "no_steps": selected.no_steps,
        "set_aside": selected.set_aside,
    }
    if as_json:
        print_json(result)
    else:
        show_groups(result["groups"], "steps")
        show_left_out(result, {"no_steps": "videos without steps"})
        _show_set_aside(selected.set_aside)
        show_written(result, "procedures")


def _show_set_aside(set_aside: dict[str, int]) -> None:
    from recipe.data.benchmarks import BENCHMARKS

    for source, count in set_aside.items():
        out.print(f"left out of {source}: {count:,} {BENCHMARKS[source].set_aside_as}", highlight=False, markup=False)


app.command()(prepare)
app.command()(doctor)
