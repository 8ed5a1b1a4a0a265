"""Commands of `recipe data`: from benchmark folders to examples."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.table import Table

from recipe.cli.console import err, out, print_json, progress

if TYPE_CHECKING:
    from recipe.data.cut_points import CutCount, CutExamples
    from recipe.data.procedures import ProcedureFile
    from recipe.types import Procedure

app = typer.Typer(no_args_is_help=True, help="Turn benchmark folders into training and test examples.")

Root = Annotated[Path | None, typer.Option(help="Folder of benchmark folders, or one benchmark's own folder.")]
Benchmarks = Annotated[
    list[str] | None,
    typer.Option("--benchmark", help="Only this benchmark; repeat for several. Default: all found."),
]
Procedures = Annotated[
    Path | None, typer.Option(help="Procedures of your own, JSON lines; see docs/data.md for the fields.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave out unusable rows of --procedures and list them.")]
Cuts = typer.Option(metavar="N|all", help="Cut points per video of the split train.")
TestCuts = typer.Option(metavar="N|all", help="Cut points per video of the splits val and test.")
Limit = Annotated[
    int | None,
    typer.Option(min=1, help="At most this many videos of each source and split, drawn by the seed."),
]
Seed = Annotated[int, typer.Option(help="Decides which cut points and, with --limit, videos are drawn.")]
Output = Annotated[Path, typer.Option(help="Examples file to write, JSON lines.")]
ProceduresOutput = Annotated[Path, typer.Option("--output", help="Procedures file to write, JSON lines.")]
Split = Annotated[Literal["train", "val", "test"] | None, typer.Option(help="Only this split.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


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
            about = {key: getattr(benchmark, key) for key in ("title", "licence", "home", "download")}
            counts: dict[str, Any] = {}
            if folder:
                counts = summarise(benchmark.read(folder))._asdict()
                counts["not_performed"] = sum(map(len, benchmark.missing(folder).values()))
            rows.append({"name": name, "folder": str(folder) if folder else None} | about | counts)
            advance(1)
    if as_json:
        print_json(rows)
    else:
        _show_benchmarks(rows)


def _show_benchmarks(rows: list[dict[str, Any]]) -> None:
    table = Table("benchmark", "videos", "segments", "tasks", "unique steps", "splits")
    for row in rows:
        if row["folder"]:
            splits = ", ".join(f"{count:,} {split or 'in none'}" for split, count in row["splits"].items())
            counts = [f"{row[key]:,}" for key in ("videos", "segments", "tasks", "unique_steps")]
            table.add_row(row["name"], *counts, splits)
        else:
            table.add_row(row["name"], "absent")
    out.print(table)
    for row in rows:
        source = row["folder"] or f"absent; put into ROOT/{row['name']}/: {row['download']}"
        text = f"{row['title']}: {source}\n  licence: {row['licence']}\n  {row['home']}"
        out.print(text, highlight=False, markup=False, soft_wrap=True)
        if row.get("not_performed"):
            out.print(f"  left out: {row['not_performed']:,} steps that were not performed", highlight=False)


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

    folders = require_benchmarks(root, _known(benchmark or []))
    selected = select_procedures(folders, split, progress())
    if not selected.procedures:
        where = f" in split {split}" if split else ""
        raise InputError(f"{root}: no video of {', '.join(folders)} has steps{where}; choose another split or none.")
    write_procedures(output, selected.procedures)
    groups: dict[tuple[str, str], list[int]] = {}
    for video in selected.procedures:
        groups.setdefault((video.source, video.split), []).append(len(video.steps))
    result = {
        "output": str(output),
        "procedures": len(selected.procedures),
        "groups": [
            {"source": source, "split": name, "videos": len(steps), "steps": sum(steps)}
            for (source, name), steps in groups.items()
        ],
        "no_steps": selected.no_steps,
        "not_performed": selected.not_performed,
    }
    if as_json:
        print_json(result)
    else:
        _show_procedures(result)


def _show_procedures(result: dict[str, Any]) -> None:
    _show_groups(result["groups"], "steps")
    _show_left_out(result, {"no_steps": "videos without steps", "not_performed": "steps that were not performed"})
    _show_written(result, "procedures")


def _show_groups(groups: list[dict[str, Any]], counted: str) -> None:
    table = Table("source", "split", "videos", counted)
    for group in groups:
        table.add_row(escape(group["source"]), group["split"], f"{group['videos']:,}", f"{group[counted]:,}")
    out.print(table)


def _show_left_out(result: dict[str, Any], reasons: dict[str, str]) -> None:
    for key, reason in reasons.items():
        for source, count in result[key].items():
            out.print(f"left out of {source}: {count:,} {reason}", highlight=False, markup=False)


def _show_written(result: dict[str, Any], what: str) -> None:
    text = f"{result[what]:,} {what} written to {result['output']}"
    out.print(text, highlight=False, markup=False, soft_wrap=True)


@app.command()
def prepare(
    output: Output,
    root: Root = None,
    benchmark: Benchmarks = None,
    procedures: Procedures = None,
    cuts_train: Annotated[str, Cuts] = "4",
    cuts_test: Annotated[str, TestCuts] = "1",
    limit: Limit = None,
    seed: Seed = 0,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
) -> None:
    """Cut annotated videos into examples; the same options always give the same bytes.

    Example: recipe data prepare --root data --benchmark coin --benchmark crosstask --output examples.jsonl
    """
    from recipe.data.cut_points import cut_procedures, limit_videos
    from recipe.data.examples import write_examples
    from recipe.errors import InputError

    train, test = _cut_count(cuts_train, "--cuts-train"), _cut_count(cuts_test, "--cuts-test")
    own, videos = _read(root, benchmark or [], procedures, skip_bad)
    chosen = videos if limit is None else limit_videos(videos, limit, seed)
    cut = cut_procedures(chosen, train=train, test=test, seed=seed)
    if not cut.examples:
        raise InputError(
            f"none of {len(chosen)} videos gave an example: {len(cut.no_split)} are in no split and "
            f"{len(cut.too_short)} have fewer than two steps; give videos with a split and two steps or more."
        )
    write_examples(output, cut.examples)
    result = _result(output, chosen, own, cut)
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


def _read(
    root: Path | None, names: list[str], file: Path | None, skip_bad: bool
) -> tuple["ProcedureFile", list["Procedure"]]:
    """The file of the user's own procedures, and all procedures, benchmarks first."""
    from recipe.data.benchmarks import read_benchmarks, require_benchmarks
    from recipe.data.procedures import ProcedureFile, read_procedures

    names = _known(names)
    if root is None and (names or file is None):
        raise typer.BadParameter("give --root, a folder of benchmarks, or --procedures alone.", param_hint="--root")
    benchmarks = read_benchmarks(require_benchmarks(root, names), progress()) if root else []
    own = read_procedures(file, "skip" if skip_bad else "error") if file else ProcedureFile([], [])
    return own, benchmarks + own.procedures


def _known(names: list[str]) -> list[str]:
    """The names of benchmarks, each of which is one."""
    from recipe.data.benchmarks import BENCHMARKS

    for name in names:
        if name not in BENCHMARKS:
            known = ", ".join(BENCHMARKS)
            raise typer.BadParameter(f"{name!r} is unknown; known are {known}.", param_hint="--benchmark")
    return names


def _result(output: Path, chosen: list["Procedure"], own: "ProcedureFile", cut: "CutExamples") -> dict[str, Any]:
    from recipe.data.benchmarks import trained_and_tested

    groups = Counter((example.source, example.split) for example in cut.examples)
    videos = Counter((source, split) for source, split, _ in {(e.source, e.split, e.video_id) for e in cut.examples})
    return {
        "output": str(output),
        "examples": len(cut.examples),
        "groups": [
            {"source": source, "split": split, "videos": videos[source, split], "examples": count}
            for (source, split), count in groups.items()
        ],
        "no_split": Counter(procedure.source for procedure in cut.no_split),
        "too_short": Counter(procedure.source for procedure in cut.too_short),
        "skipped": [row._asdict() for row in own.skipped],
        "trained_and_tested": sorted(trained_and_tested(chosen)),
    }


def _show_result(result: dict[str, Any]) -> None:
    _show_groups(result["groups"], "examples")
    _show_left_out(result, {"no_split": "videos, in no split", "too_short": "videos, fewer than two steps"})
    for row in result["skipped"]:
        err.print(f"skipped: {row['reason']}", highlight=False, markup=False, soft_wrap=True)
    if result["skipped"]:
        out.print(f"left out of the procedures file: {len(result['skipped']):,} unusable rows", highlight=False)
    if shared := result["trained_and_tested"]:
        out.print(f"note: {len(shared):,} videos are trained on in one set and held out in another", highlight=False)
    _show_written(result, "examples")
