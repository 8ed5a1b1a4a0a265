"""What one job makes a reader open, which files import each other, and the figures of the house with their goals.

    python tests/house/closure.py [SRC]

Red, exit code 1, where a job is above its budget, files import each other in a circle, or a figure is past its limit.
The number of lines of the whole says little: nobody reads the whole. A limit stands just past what a figure is, so that
it only gets better: set it anew when it has.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"


class Job(NamedTuple):
    """What somebody wants to understand: the modules that they begin with, and the lines that they may have to open."""

    roots: tuple[str, ...]
    budget: int


JOBS = {
    "reward": Job(("recipe.reward.verifier", "recipe.corpus.store"), 10_000),
    "train": Job(("recipe.training.grpo", "recipe.training.sft"), 18_000),
    "judge": Job(("recipe.evaluation.judge.llm", "recipe.evaluation.judge.measures"), 12_000),
    "planner": Job(("recipe.planning.planner", "recipe.planning.rerank", "recipe.planning.search"), 5_000),
}


class Bound(NamedTuple):
    """Where a figure shall come to, and where it must not go."""

    limit: float
    goal: float
    rises: bool = False
    """Whether more is better."""


BOUNDS = {
    "lines of src": Bound(71_720, 58_000),
    "files of src": Bound(360, 330),
    "public names": Bound(1_700, 1_700),
    "imports a file": Bound(13.1, 9),
    "classes without a method": Bound(253, 250),
    "settings": Bound(311, 280),
    "comments per 100 lines": Bound(3.05, 3, rises=True),
    "modules that tests import": Bound(191, 120),
    "test files that touch privates": Bound(20, 40),
    "monkeypatch.setattr": Bound(75, 100),
    "lines of tests": Bound(55_960, 44_000),
    "words of guides": Bound(39_450, 40_000),
}


def modules_of(src: Path) -> dict[str, Path]:
    """The file of each module below a folder of sources."""
    names = {}
    for file in src.rglob("*.py"):
        parts = file.relative_to(src).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return names


def imports_of(file: Path, modules: Iterable[str], texts: bool = True) -> Iterator[str]:
    """The modules that a file imports at its top, in a function, for type checkers, or, with `texts`, by name."""
    known = {*modules}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in inner]
        elif texts and isinstance(node, ast.Constant) and isinstance(node.value, str):
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


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of files each of which imports all others of its group, directly or not.

    Imports in functions, for type checkers and by a name in a text count. A package's `__init__` is a file as any
    other, but for the root package: it is the door that offers every room by name.
    """
    reached = {name: closure(imports[name], imports) for name in imports if name != "recipe"}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in reached}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def settings_in(trees: Iterable[ast.Module]) -> int:
    """Fields of `recipe.config.Settings` and of what inherits from it: what a TOML file may hold."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    names, before = {"Settings"}, 0
    while len(names) > before:
        before = len(names)
        names |= {cls.name for cls in classes if any(isinstance(b, ast.Name) and b.id in names for b in cls.bases)}
    fields = [node for cls in classes if cls.name in names for node in cls.body if isinstance(node, ast.AnnAssign)]
    return sum(not ast.unparse(field.annotation).startswith("ClassVar") for field in fields)


def methodless(tree: ast.Module) -> int:
    """Classes without a function of their own."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return sum(
        not any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in cls.body) for cls in classes
    )


def comments_in(text: str) -> int:
    """Comments that a person reads: not those that linters and type checkers do."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found = [token.string for token in tokens if token.type == tokenize.COMMENT]
    # A reason may follow the code of a linter's rule.
    return sum(not re.fullmatch(r"# (noqa|type:|fmt:|pragma)[^-]*", comment) for comment in found)


def touches_privates(tree: ast.Module) -> bool:
    """Whether a test reads, imports or replaces a name with a leading underscore, which is no part of a room's door."""
    offered = {"_replace", "_asdict", "_fields", "_make"}  # of named tuples

    def private(name: str) -> bool:
        return name.startswith("_") and not name.startswith("__") and name not in offered

    def names(node: ast.AST) -> list[str]:
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                return []
            return [node.attr]
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("recipe"):
            return [alias.name for alias in node.names]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            texts = [value.value for value in node.args[:2] if isinstance(value, ast.Constant)]
            return [str(text).rpartition(".")[2] for text in texts]
        return []

    return any(private(name) for node in ast.walk(tree) for name in names(node))


def figures(src: Path, modules: Mapping[str, Path]) -> dict[str, float]:
    """The figures of BOUNDS, of the files below `src` and the tests and guides near it."""
    texts = [file.read_text(encoding="utf-8") for file in modules.values()]
    trees = [ast.parse(text) for text in texts]
    lines = sum(text.count("\n") for text in texts)
    imports = sum(isinstance(node, ast.Import | ast.ImportFrom) for tree in trees for node in ast.walk(tree))
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tests = {file: ast.parse(file.read_text(encoding="utf-8")) for file in (src.parent / "tests").rglob("*.py")}
    tested = {name for file in tests for name in imports_of(file, modules, texts=False)}
    guides = [file for file in (src.parent / "docs").glob("*.md") if file.name != "reference.md"]
    return {
        "lines of src": lines,
        "files of src": len(texts),
        "public names": sum(
            isinstance(node, definitions) and not node.name.startswith("_") for tree in trees for node in tree.body
        ),
        "imports a file": round(imports / len(texts), 1),
        "classes without a method": sum(map(methodless, trees)),
        "settings": settings_in(trees),
        "comments per 100 lines": round(100 * sum(map(comments_in, texts)) / lines, 2),
        "modules that tests import": len(tested),
        "test files that touch privates": sum(map(touches_privates, tests.values())),
        "monkeypatch.setattr": sum(
            isinstance(node, ast.Attribute) and ast.unparse(node) == "monkeypatch.setattr"
            for tree in tests.values()
            for node in ast.walk(tree)
        ),
        "lines of tests": sum(file.read_text(encoding="utf-8").count("\n") for file in tests),
        "words of guides": sum(len(file.read_text(encoding="utf-8").split()) for file in guides),
    }


def past(value: float, bound: Bound) -> bool:
    """Whether a figure is worse than its limit."""
    return value < bound.limit if bound.rises else value > bound.limit


def main() -> int:
    src = Path(sys.argv[1]) if len(sys.argv) > 1 else SRC
    modules = modules_of(src)
    imports = {name: {*imports_of(file, modules)} for name, file in modules.items()}
    lines = {name: file.read_text(encoding="utf-8").count("\n") for name, file in modules.items()}
    faults = 0
    for name, job in JOBS.items():
        opened = closure(job.roots, imports)
        count = sum(lines[module] for module in opened)
        rooms = Counter(module.split(".")[1] for module in opened).most_common(6)
        state = "ok" if count <= job.budget else "ABOVE ITS BUDGET"
        shown = ", ".join(f"{room} {size}" for room, size in rooms)
        sys.stdout.write(f"{name:8} {len(opened):4} modules {count:7,} lines of {job.budget:,}: {state} ({shown})\n")
        faults += count > job.budget
    for group in circles(imports):
        sys.stdout.write(f"A CIRCLE of {len(group)} files: {', '.join(group)}\n")
        faults += 1
    for name, value in figures(src, modules).items():
        bound = BOUNDS[name]
        reached = value >= bound.goal if bound.rises else value <= bound.goal
        state = "PAST ITS LIMIT" if past(value, bound) else "reached" if reached else ""
        sys.stdout.write(f"{name:30} {value:8,g}   goal {bound.goal:6,g}   limit {bound.limit:8,g} {state}\n")
        faults += past(value, bound)
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
