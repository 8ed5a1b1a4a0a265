"""Commands of `recipe data`: from benchmark folders to examples."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from recipe.cli.console import out, print_json, progress
from recipe.cli.data_doctor import doctor
from recipe.cli.data_options import AsJson, Benchmarks, Root, known, show_groups, show_left_out, show_written
from recipe.cli.data_prepare import prepare

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
