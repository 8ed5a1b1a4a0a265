"""Commands of `recipe data`: from benchmark folders to examples."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from recipe.cli.console import CommandGroup, CommandOutput, err, progress, shows
from recipe.cli.inputs import Benchmarks, Root, known_benchmarks
from recipe.data.roles import TITLES, role_of
from recipe.errors import InputError
from recipe.types import Example, Procedure

if TYPE_CHECKING:
    from recipe.data.doctor import Diagnosis
    from recipe.data.supervision import CutCount
    from recipe.report.elements import Table

app = CommandGroup(
    {"pseudo": "recipe.cli.pseudo:pseudo", "reword": "recipe.cli.reword:reword"},
    help="Turn benchmark folders into training and test examples.",
)

Split = Annotated[Literal["train", "val", "test"] | None, typer.Option(help="Only this split.")]

_ABOUT = ("split", "licence", "home", "download")
_COLOURS = {"complete": "green", "partial": "yellow", "broken": "red", "absent": "dim"}
_LEFT_OUT = {
    "zero_shot": "videos of the splits train and val: the benchmark is for zero-shot tests (--zero-shot-training)",
    "no_split": "videos, in no split",
    "too_short": "videos, fewer than two steps",
    "no_trace": "training examples whose video has no pseudo-trace of two steps or more",
    "one_sided": "training examples whose pseudo-trace has no step on one side of the cut",
    "no_cut": "training examples whose pseudo-trace has no further cut point",
    "no_history": "training examples without a history in --histories",
}


@app.command("list")
@shows
def list_benchmarks(root: Root = None) -> CommandOutput:
    """Show which benchmarks can be read and, with --root, what is there.

    Example: recipe data list --root data
    """
    from recipe.data.benchmarks import BENCHMARKS, Summary, find_benchmark
    from recipe.report.elements import Table, headings, row

    if root is not None and not root.is_dir():
        raise InputError(f"{root}: the folder does not exist; give the folder that holds the benchmarks.")
    result, rows, lines = list[dict[str, Any]](), [], []
    with progress().task("reading benchmarks", total=len(BENCHMARKS)) as advance:
        for name, benchmark in BENCHMARKS.items():
            folder = find_benchmark(root, name) if root else None
            title, role = TITLES[name], role_of(name)
            about = {"title": title, "role": role} | {key: getattr(benchmark, key) for key in _ABOUT}
            source = str(folder) if folder else f"absent; put into ROOT/{name}/: {benchmark.download}"
            lines += [f"{title}: {source}", f"  split: {benchmark.split}"]
            lines += [f"  licence: {benchmark.licence}", f"  {benchmark.home}"]
            counts: dict[str, Any] = {}
            if folder:
                counts = Summary.of(benchmark.read(folder))._asdict()
                counts["set_aside"] = sum(map(len, benchmark.set_aside(folder).values())) if benchmark.set_aside else 0
                counts["set_aside_as"] = benchmark.set_aside_as
                counts["task_graphs"] = benchmark.graphs(folder) if benchmark.graphs else None
                splits = ", ".join(f"{count:,} {split or 'in none'}" for split, count in counts["splits"].items())
                figures = (counts[key] for key in ("videos", "segments", "tasks", "unique_steps"))
                rows.append(row(name, role, *figures, splits))
                if counts["set_aside"]:
                    lines.append(f"  left out: {counts['set_aside']:,} {benchmark.set_aside_as}")
                if counts["task_graphs"] is not None:
                    lines.append(f"  task graphs: {counts['task_graphs']:,}")
            else:
                rows.append(row(name, role, "absent", "", "", "", ""))
            result.append({"name": name, "folder": str(folder) if folder else None} | about | counts)
            advance(1)
    columns = headings("role", "videos", "segments", "tasks", "unique steps", "splits")
    return CommandOutput(result, [Table("", "benchmark", columns, tuple(rows)), *lines])


@app.command("procedures")
@shows
def export_procedures(
    root: Annotated[Path, typer.Option(help="Folder of benchmark folders, or one benchmark's own folder.")],
    output: Annotated[Path, typer.Option(help="Procedures file to write, JSON lines.")],
    benchmark: Benchmarks = None,
    split: Split = None,
) -> CommandOutput:
    """Write annotated videos as they were performed, one a line; the same options always give the same bytes.

    Example: recipe data procedures --root data --benchmark captaincook4d --split test --output procedures.jsonl
    """
    from recipe.data.benchmarks import BENCHMARKS, require_benchmarks, select_procedures
    from recipe.data.procedures import write_procedures

    folders = require_benchmarks(root, known_benchmarks(benchmark))
    procedures, no_steps, set_aside = select_procedures(folders, split, progress())
    if not procedures:
        where = f" in split {split}" if split else ""
        raise InputError(f"{root}: no video of {', '.join(folders)} has steps{where}; choose another split or none.")
    write_procedures(output, procedures)
    groups: dict[tuple[str, str], list[int]] = {}
    for video in procedures:
        groups.setdefault((video.source, video.split), []).append(len(video.steps))
    result: dict[str, Any] = {
        "output": str(output),
        "procedures": len(procedures),
        "groups": [
            {"source": source, "split": name, "videos": len(steps), "steps": sum(steps)}
            for (source, name), steps in groups.items()
        ],
        "no_steps": no_steps,
        "set_aside": set_aside,
    }
    lines: list[Any] = [
        _groups_table(result["groups"], "steps"),
        *(f"left out of {source}: {count:,} videos without steps" for source, count in no_steps.items()),
        *(f"left out of {source}: {count:,} {BENCHMARKS[source].set_aside_as}" for source, count in set_aside.items()),
        f"{result['procedures']:,} procedures written to {output}",
    ]
    return CommandOutput(result, lines)


@app.command()
@shows
def prepare(
    output: Annotated[Path, typer.Option(help="Examples file to write, JSON lines.")],
    root: Root = None,
    benchmark: Benchmarks = None,
    procedures: Annotated[
        Path | None, typer.Option(help="Procedures of your own; see docs/data.md for the fields.")
    ] = None,
    cuts_train: Annotated[str, typer.Option(metavar="N|all", help="Cut points per video of the split train.")] = "4",
    cuts_test: Annotated[
        str,
        typer.Option(
            metavar="N|all|start",
            help="Cut points per video of the splits val and test; start: nothing is done, plan the whole procedure.",
        ),
    ] = "1",
    traces: Annotated[
        Path | None, typer.Option(help="Pseudo-traces of `recipe perceive`, JSON lines, for weak supervision.")
    ] = None,
    weak: Annotated[
        float | None,
        typer.Option(min=0, max=100, metavar="PERCENT", help="Share of the training examples to take from --traces."),
    ] = None,
    weak_cuts: Annotated[
        Literal["annotated", "trace", "timed"],
        typer.Option(
            help="Cut pseudo-traces at the times of the annotated cuts, at points drawn from their steps, or at those "
            "of them that have a time."
        ),
    ] = "annotated",
    paired: Annotated[
        bool,
        typer.Option("--paired", help="Keep only training examples with a usable trace: the same for every --weak."),
    ] = False,
    histories: Annotated[
        Path | None,
        typer.Option(
            help="Histories of `recipe perceive`, JSON lines: training examples get theirs as `told_history`."
        ),
    ] = None,
    worded: Annotated[
        Path | None,
        typer.Option(help="Rewordings of `recipe data reword`, JSON lines: goals and steps are in their words."),
    ] = None,
    zero_shot_training: Annotated[
        bool,
        typer.Option(
            "--zero-shot-training", help="Also give training and validation examples of benchmarks for zero-shot tests."
        ),
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most this many videos of each source and split, drawn by the seed.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Decides which cut points, videos (--limit) and weak examples are drawn.")
    ] = 0,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out unusable rows of --procedures and list them.")
    ] = False,
) -> CommandOutput:
    """Cut annotated videos into examples; the same options always give the same bytes.

    Example: recipe data prepare --root data --benchmark coin --benchmark crosstask --output examples.jsonl
    """
    from recipe.data.benchmarks import by_role, read_benchmarks, require_benchmarks, trained_and_tested
    from recipe.data.examples import write_examples
    from recipe.data.histories import add_told_histories, read_histories
    from recipe.data.procedures import ProcedureFile, read_procedures
    from recipe.data.reword import with_wording
    from recipe.data.supervision import cut_procedures, limit_videos, mix_supervision

    train, test = _cut_count(cuts_train, "--cuts-train"), _cut_count(cuts_test, "--cuts-test")
    if (traces is None) != (weak is None):
        raise typer.BadParameter("give --traces and --weak together.", param_hint="--weak")
    if traces is None and (paired or weak_cuts != "annotated"):
        raise typer.BadParameter("it has a use with --traces only.", param_hint="--paired" if paired else "--weak-cuts")
    names = known_benchmarks(benchmark)
    if root is None and (names or procedures is None):
        raise typer.BadParameter("give --root, a folder of benchmarks, or --procedures alone.", param_hint="--root")

    videos, zero_shot = read_benchmarks(require_benchmarks(root, names), progress()) if root else [], Counter[str]()
    annotated = videos
    if not zero_shot_training:
        videos, zero_shot = by_role(videos)
    own = read_procedures(procedures, "skip" if skip_bad else "error") if procedures else ProcedureFile([], [])
    # By id, as benchmarks are read: the same rows in another order give the same file.
    videos += sorted(own.procedures, key=lambda video: (video.source, video.video_id))
    if limit is not None:
        videos = limit_videos(videos, limit, seed)
    cut = cut_procedures(videos, train=train, test=test, seed=seed)
    if not cut.examples:
        raise InputError(
            f"none of {len(videos)} videos gave an example: {len(cut.no_split)} are in no split and "
            f"{len(cut.too_short)} have fewer than two steps; give videos with a split and two steps or more."
            + (" Training videos of zero-shot benchmarks need --zero-shot-training." if zero_shot else "")
        )
    examples = cut.examples
    if worded is not None:
        examples = with_wording(examples, [*annotated, *own.procedures], worded)
    readings = read_procedures(traces).procedures if traces else []
    mixture = mix_supervision(examples, readings, weak or 0.0, seed, cuts=weak_cuts, paired=paired)
    if not mixture.examples:
        raise InputError(
            f"{traces}: no example has a pseudo-trace that can be cut; run `recipe perceive` on the videos."
        )
    examples, no_history = mixture.examples, Counter[str]()
    if histories is not None:
        examples, no_history = add_told_histories(examples, read_histories(histories))
        if all(example.told_history is None for example in examples):
            raise InputError(f"{histories}: no training example has its history here; run `recipe perceive` on them.")
    write_examples(output, examples)
    together: dict[tuple[str, str], list[Example]] = {}
    for example in examples:
        together.setdefault((example.source, example.split), []).append(example)
    groups = [
        {
            "source": source,
            "split": split,
            "videos": len({example.video_id for example in group}),
            "examples": len(group),
            "weak": sum(example.supervision == "weak" for example in group),
        }
        for (source, split), group in together.items()
    ]
    result: dict[str, Any] = {
        "output": str(output),
        "examples": len(examples),
        "groups": groups,
        "worded": sum(example.worded for example in examples),
        "told": sum(example.told_history is not None for example in examples),
        "zero_shot": zero_shot,
        "no_split": Counter(procedure.source for procedure in cut.no_split),
        "too_short": Counter(procedure.source for procedure in cut.too_short),
        "no_trace": mixture.no_trace,
        "one_sided": mixture.one_sided,
        "no_cut": mixture.no_cut,
        "no_history": no_history,
        "skipped": [{"line": line, "reason": reason} for line, reason in own.skipped],
        "trained_and_tested": sorted(trained_and_tested(videos)),
    }
    for _, reason in own.skipped:
        err.print(f"skipped: {reason}", highlight=False, soft_wrap=True)
    counted = {
        "weakly supervised": sum(example.supervision == "weak" for example in examples),
        "in a model's words": result["worded"],
        "with Phi's history": result["told"],
    }
    lines: list[Any] = [
        _groups_table(groups, "examples"),
        *(f"{words}: {count:,} examples" for words, count in counted.items() if count),
        *(
            f"left out of {source}: {count:,} {reason}"
            for key, reason in _LEFT_OUT.items()
            for source, count in result[key].items()
        ),
    ]
    if own.skipped:
        lines.append(f"left out of the procedures file: {len(own.skipped):,} unusable rows")
    if both := result["trained_and_tested"]:
        lines.append(f"note: {len(both):,} videos are trained on in one set and held out in another")
    return CommandOutput(result, [*lines, f"{len(examples):,} examples written to {output}"])


def _cut_count(text: str, option: str) -> "CutCount":
    if text == "all" or (text == "start" and option == "--cuts-test"):
        return "all" if text == "all" else "start"
    if not text.isdecimal() or int(text) < 1:
        words = " 'start'," if option == "--cuts-test" else ""
        raise typer.BadParameter(f"{text!r} is neither a number of at least 1{words} nor 'all'.", param_hint=option)
    return int(text)


@app.command()
@shows
def doctor(
    folder: Annotated[Path, typer.Argument(help="Folder of benchmark folders, or one benchmark's own folder.")],
    videos: Annotated[
        Path | None, typer.Option(help="Folder of video files: count the annotated videos that have a file.")
    ] = None,
) -> CommandOutput:
    """Show for each benchmark which parts are there or missing, and which still work; exit code 1 where one is broken.

    Example: recipe data doctor data --videos videos
    """
    from recipe.data.doctor import examine
    from recipe.perception.videos import VideoFolder

    files = VideoFolder(videos) if videos else None

    def has_video(video: "Procedure") -> bool:
        return files is not None and files.find(video.source, video.video_id) is not None

    report = examine(folder, has_video if files else None, progress())
    result, lines = list[dict[str, Any]](), list[str | Text]()
    for diagnosis in report.diagnoses:
        diagnosed, own = _diagnosed(diagnosis)
        result.append(diagnosed)
        lines += own
    for path, other in report.misplaced:
        lines.append(f"in the wrong place: {path} is of {other}; put it where `recipe data list` says")
    misplaced = [{"path": str(path), "belongs_to": other} for path, other in report.misplaced]
    value = {"folder": str(folder), "healthy": report.healthy, "benchmarks": result, "misplaced": misplaced}
    return CommandOutput(value, lines, 0 if report.healthy else 1)


def _diagnosed(diagnosis: "Diagnosis") -> tuple[dict[str, Any], list[str | Text]]:
    """What `doctor` says of a benchmark, as JSON and as lines."""
    from recipe.data.benchmarks import BENCHMARKS

    benchmark, summary = BENCHMARKS[diagnosis.name], diagnosis.summary
    works = []
    if summary is not None:
        uses = {"train": "training", "val": "validation", "test": "testing"}
        if role_of(diagnosis.name) == "zero-shot":
            uses = {"test": "zero-shot testing", "train": "training on request", "val": "validation on request"}
        counts = summary.splits
        works += [f"{use} on {counts[split]:,} videos" for split, use in uses.items() if counts.get(split)]
        if diagnosis.graphs:
            works.append(f"{diagnosis.graphs:,} task graphs")
        if diagnosis.with_video is not None:
            works.append(f"the Video configuration on {diagnosis.with_video:,} videos")
    folder = f"  {diagnosis.folder}" if diagnosis.folder else ""
    heading = Text.assemble(f"{diagnosis.name}: ", (diagnosis.state, _COLOURS[diagnosis.state]), folder)
    lines = []
    if diagnosis.state == "absent":
        lines.append(f"to be put into {diagnosis.name}/: {benchmark.download}")
    else:
        if summary is not None:
            splits = ", ".join(f"{count:,} {split or 'in none'}" for split, count in summary.splits.items())
            of = f" of {benchmark.published:,}" if summary.videos < (benchmark.published or 0) else ""
            lines.append(f"there: {summary.videos:,}{of} videos ({splits}), {summary.segments:,} segments")
        if diagnosis.set_aside:
            lines.append(f"left out: {diagnosis.set_aside:,} {benchmark.set_aside_as}")
        if diagnosis.with_video is not None and summary is not None:
            lines.append(f"video files: {diagnosis.with_video:,} of {summary.videos:,}")
        lines += [f"missing: {part.path} ({part.holds})" for part in diagnosis.missing]
        problems = (diagnosis.problem, diagnosis.graph_problem, diagnosis.video_problem)
        lines += [f"broken: {problem}" for problem in problems if problem]
        lines.append(f"works: {', '.join(works) or 'nothing'}")
    value = {
        "name": diagnosis.name,
        "role": role_of(diagnosis.name),
        "state": diagnosis.state,
        "folder": str(diagnosis.folder) if diagnosis.folder else None,
        "missing": [part._asdict() for part in diagnosis.missing],
        "problem": diagnosis.problem or None,
        "counts": summary._asdict() if summary else None,
        "published_videos": benchmark.published,
        "set_aside": diagnosis.set_aside,
        "task_graphs": diagnosis.graphs,
        "graph_problem": diagnosis.graph_problem or None,
        "with_video": diagnosis.with_video,
        "video_problem": diagnosis.video_problem or None,
        "works": works,
    }
    return value, [heading, *(f"  {line}" for line in lines)]


def _groups_table(groups: list[dict[str, Any]], counted: str) -> "Table":
    """What was written of each source and split."""
    from recipe.report.elements import Table, headings, row

    rows = tuple(row(group["source"], group["split"], group["videos"], group[counted]) for group in groups)
    return Table("", "source", headings("split", "videos", counted), rows)
