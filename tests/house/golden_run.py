"""What a refactoring must not change, in one folder: `golden_run.py record FOLDER`, then `golden_run.py compare A B`.

    python tests/house/golden_run.py record before          # at the commit before
    python tests/house/golden_run.py record after           # at the commit after
    python tests/house/golden_run.py compare before after

Recorded are the ids of three corpora and, in hex, the rewards of 200 prompts of each by both verifiers; the help of all
commands; and with `--runs` every row that `recipe demo --quick` and `recipe reproduce main regimes --quick` write. Both
sides must be recorded on one machine: another processor rounds otherwise.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # sums in another order round otherwise

import typer.main

import recipe
from recipe.cli import app
from recipe.data.examples import read_examples

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
PROMPTS = 200


def record(folder: Path, runs: bool) -> None:
    """Write a file for each part into `folder`; the corpora and runs themselves go below `folder/work`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "help.json", dict(help_texts(typer.main.get_command(app), "recipe")))
    for name, corpus, prompts in corpora(folder / "work"):
        write_json(folder / f"rewards-{name}.json", {"corpus": corpus.manifest["id"]} | rewards(corpus, prompts))
    if runs:
        work = folder / "work"
        call("demo", "--quick", "--output", str(work / "demo"))
        call("reproduce", "main", "regimes", "--quick", "--seeds", "1", "--output", str(work / "reproduce"))
        for name in ("demo", "reproduce"):
            files = sorted((work / name).rglob("*.jsonl"))
            digests = {str(file.relative_to(work / name)): sha256(file) for file in files}
            write_json(folder / f"files-{name}.json", digests)
        results = json.loads((work / "reproduce" / "results.json").read_text())
        write_json(folder / "cells-reproduce.json", dict(cells(results["scales"], "")))
        report = json.loads((work / "demo" / "report.json").read_text())
        write_json(folder / "cells-demo.json", dict(cells({key: report[key] for key in ("scores", "differences")}, "")))


def help_texts(command: Any, name: str, parent: typer.Context | None = None) -> Iterator[tuple[str, str]]:
    """The path of each command of a group and its help."""
    context = typer.Context(command, parent=parent, info_name=name, max_content_width=100, terminal_width=100)
    yield context.command_path, command.get_help(context)
    for below in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from help_texts(command.get_command(context, below), below, context)


def cells(value: object, path: str) -> Iterator[tuple[str, object]]:
    """Every number and text below a value of JSON, by its path."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if below is None:
        yield path, value
    for key, inner in below or ():
        if key not in ("seconds", "costs", "provenance"):  # of the machine
            yield from cells(inner, f"{path}/{key}")


Prompt = tuple[str, tuple[str, ...], tuple[tuple[str, ...], ...]]
"""Goal, history and plans."""


def corpora(work: Path) -> Iterator[tuple[str, recipe.Corpus, list[Prompt]]]:
    """Narrations of the embedded world, step lists of the world, and recognised speech where the data are there."""
    work.mkdir(parents=True, exist_ok=True)
    narrations, examples = work / "narrations.jsonl", work / "examples.jsonl"
    call("world", "narrations", "--count", "400", "--output", str(narrations))
    call("world", "examples", "--split", "train", "--count", str(PROMPTS), "--output", str(examples))
    read = read_examples(examples)
    prompts = list(cut((example.goal, example.history, example.continuation) for example in read))
    yield "world", recipe.build_corpus(narrations, work / "world"), prompts
    lists = work / "lists.jsonl"
    rows = [
        {"video_id": f"list{i}", "segments": [{"text": step} for step in (*example.history, *example.continuation)]}
        for i, example in enumerate(read)
    ]
    lists.write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield "lists", recipe.build_corpus(lists, work / "lists"), prompts
    speech, procedures = DATA / "narrations" / "youcook2_asr_untimed.jsonl", DATA / "youcook2" / "procedures.jsonl"
    if speech.exists() and procedures.exists():
        rows = [row for row in map(json.loads, procedures.read_text().splitlines()) if row["goal"]]
        halves = [(row["goal"], [step["text"] for step in row["steps"]]) for row in rows[:PROMPTS]]
        few = work / "speech.jsonl"
        few.write_text("".join(speech.read_text().splitlines(keepends=True)[:500]))
        yield (
            "speech",
            recipe.build_corpus(few, work / "speech"),
            list(cut((goal, steps[: len(steps) // 2], steps[len(steps) // 2 :]) for goal, steps in halves)),
        )


def cut(prompts: Iterator[tuple[str, Sequence[str], Sequence[str]]]) -> Iterator[Prompt]:
    """Each prompt with five plans: the true one, half of it, it backwards, shuffled with the history, and none."""
    draw = random.Random(0)
    for goal, history, plan in prompts:
        steps, mixed = tuple(plan), [*history, *plan]
        draw.shuffle(mixed)
        yield goal, tuple(history), (steps, steps[: len(steps) // 2], steps[::-1], tuple(mixed), ())


def rewards(corpus: recipe.Corpus, prompts: Sequence[Prompt]) -> dict[str, list[list[str]]]:
    """The rewards of every plan of every prompt in hex, by verifier."""
    scored = {}
    for name in ("paper", "grounded"):
        verifier = recipe.Verifier(corpus, recipe.RewardConfig(verifier=name))
        outcomes = (verifier.score(goal=goal, history=history, continuations=plans) for goal, history, plans in prompts)
        scored[name] = [[reward.total.hex() for reward in plans] for plans in outcomes]
    return scored


def call(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "recipe", *words], check=True)


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True))


def compare(before: Path, after: Path) -> list[str]:
    """A line for each part, and for each value of a part that differs."""
    lines = []
    for name in sorted({file.name for folder in (before, after) for file in folder.glob("*.json")}):
        if not (before / name).exists() or not (after / name).exists():
            lines.append(f"{name}: recorded on one side only")
            continue
        old, new = (json.loads((folder / name).read_text()) for folder in (before, after))
        differing = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
        lines.append(f"{name}: {len({*old, *new}) - len(differing)} equal, {len(differing)} differ")
        lines += [f"  {key}: {state(key, old, new)}" for key in differing]
    return lines


def state(key: str, old: dict[str, object], new: dict[str, object]) -> str:
    return "removed" if key not in new else "new" if key not in old else "changed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    recording = modes.add_parser("record")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--runs", action="store_true", help="Also demo --quick and reproduce --quick; minutes.")
    comparing = modes.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.mode == "record":
        record(given.folder, given.runs)
    else:
        sys.stdout.write("\n".join([*compare(given.before, given.after), ""]))


if __name__ == "__main__":
    main()
