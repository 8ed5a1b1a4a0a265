"""What one job makes a reader open: modules and lines that its entry points import, lazily or not.

    python tests/house/closure.py [SRC]

Red, exit code 1, where a job is above its budget. The number of lines of the whole says little: nobody reads the whole.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

SRC = Path(__file__).parents[2] / "src"


class Job(NamedTuple):
    """What somebody wants to understand: the modules that they begin with, and the lines that they may have to open."""

    roots: tuple[str, ...]
    budget: int


JOBS = {
    "reward": Job(("recipe.reward.verifier", "recipe.corpus.store"), 10_500),
    "train": Job(("recipe.training.grpo", "recipe.training.sft"), 22_000),
    "judge": Job(("recipe.evaluation.judge.llm", "recipe.evaluation.judge.measures"), 18_000),
    "planner": Job(("recipe.planning.planner", "recipe.planning.rerank", "recipe.planning.search"), 5_000),
}


def modules_of(src: Path) -> dict[str, Path]:
    """The file of each module below a folder of sources."""
    names = {}
    for file in src.rglob("*.py"):
        parts = file.relative_to(src).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return names


def imports_of(file: Path, modules: Iterable[str]) -> Iterator[str]:
    """The modules that a file imports at its top, in a function, for type checkers, or by a name in a text."""
    known = {*modules}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in inner]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = re.fullmatch(r"(recipe[\w.]*)(:\w+)?", node.value)
            names = [named[1]] if named else []
        yield from (name for name in names if name in known)


def closure(roots: Iterable[str], imports: Mapping[str, set[str]]) -> set[str]:
    """The roots and all that they import, directly or not; not the root package, which offers every room by name."""
    opened, waiting = set[str](), [*roots]
    while waiting:
        name = waiting.pop()
        if name not in opened and name != "recipe":
            opened.add(name)
            waiting += imports[name]
    return opened


def main() -> int:
    modules = modules_of(Path(sys.argv[1]) if len(sys.argv) > 1 else SRC)
    imports = {name: {*imports_of(file, modules)} for name, file in modules.items()}
    lines = {name: file.read_text(encoding="utf-8").count("\n") for name, file in modules.items()}
    over = 0
    for name, job in JOBS.items():
        opened = closure(job.roots, imports)
        count = sum(lines[module] for module in opened)
        rooms = Counter(module.split(".")[1] for module in opened).most_common(6)
        state = "ok" if count <= job.budget else "ABOVE ITS BUDGET"
        shown = ", ".join(f"{room} {size}" for room, size in rooms)
        sys.stdout.write(f"{name:8} {len(opened):4} modules {count:7,} lines of {job.budget:,}: {state} ({shown})\n")
        over += count > job.budget
    sys.stdout.write(f"src      {len(modules):4} modules {sum(lines.values()):7,} lines\n")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
