"""All of a release but its publication: `make release`, or `python packaging/release.py --rehearse` on the way.

Builds the sdist and the wheel twice from the commit and compares the bytes, looks at what they hold, installs the wheel
in empty environments on every Python at hand, and with the lowest versions that `pyproject.toml` allows, and uses it
there; looks for secrets and for known faults of packages; writes the list of all packages (CycloneDX) and checksums
into `dist/`. Every check runs, and the last lines say which failed; exit code 1 then. What is left to do by hand is
printed. `--rehearse` takes a commit that is no release, and says what would stop it.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
TOOLS = Path(sys.executable).parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
CORE = "cpu,report,client,serve,board,llm"
"""Extras that need no PyTorch, which has no wheels for some Pythons and takes gigabytes for others."""
FULL = "demo"
EXCUSED = {"docs/trainers.md", "src/recipe_apps/web/guard.py", "benchmarks/judge.py"}
"""Files that show how a token or a key is given; none is one."""
IN_WHEEL = ("recipe/py.typed", "recipe/docs/install.md", "recipe_studies/reproduce/configs/scales/3b.toml")
NOT_IN_WHEEL = ("tests/", "benchmarks/", "fuzz/", "packaging/", "recipe/docs/images/")

USE = (
    ("--version",),
    ("docs", "install"),
    ("corpus", "build", "{subtitles}", "--output", "c", "--encoder", "hash:64"),
    ("corpus", "search", "c", "boil the water", "pour the water", "--json"),
    ("reward", "explain", "--corpus", "c", "--goal", "make tea", "--history", "boil the water",
     "--continuation", "pour the water", "--html", "e.html"),
    ("world", "examples", "--split", "test_goals", "--count", "4", "--output", "e.jsonl"),
    ("board", "init", "--demo", "--encoder", "hash:64", "--database", "b.db"),
)  # fmt: skip
"""Commands without a model; each must end with 0."""


class Failed(Exception):
    """A check failed; its message is one sentence."""


def ran(*command: str | Path, cwd: Path = ROOT, **settings: str) -> str:
    """The standard output of a command. Raises Failed with the last lines of the other."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, cwd=cwd, env=os.environ | settings, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        told = "\n".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-8:])
        raise Failed(f"`{' '.join([Path(words[0]).name, *words[1:4]])} ...` ended with {done.returncode}:\n{told}")
    return done.stdout


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder that goes."""
    with tempfile.TemporaryDirectory(prefix="release-") as path:
        yield Path(path)


def version() -> str:
    """What the package calls itself."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/recipe/__init__.py").read_text(encoding="utf-8"), re.M)
    assert found is not None
    return found[1]


def state() -> str:
    """The commit is clean, its version is described and has no tag yet."""
    problems = []
    if ran("git", "status", "--porcelain"):
        problems.append("files are not committed")
    if f"\n## {version()} " not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        problems.append(f"CHANGELOG.md has no section `## {version()} (date)`")
    if re.search(r"\n## Unreleased\n+[^#\s]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")):
        problems.append("CHANGELOG.md still lists changes under Unreleased")
    if f"v{version()}" in ran("git", "tag").split():
        problems.append(f"the tag v{version()} is there already")
    if problems:
        raise Failed("; ".join(problems))
    return f"version {version()}, commit {ran('git', 'rev-parse', '--short', 'HEAD').strip()}"


def build() -> str:
    """Build twice, in two folders, from the files of the commit; keep one in `dist/`."""
    when = ran("git", "log", "-1", "--format=%ct").strip()
    hashes: list[dict[str, str]] = []
    shutil.rmtree(DIST, ignore_errors=True)
    for _ in range(2):
        with folder() as place:
            (place / "deeper").mkdir()
            ran("git", "archive", "--format=tar", "-o", place / "source.tar", "HEAD")
            with tarfile.open(place / "source.tar") as archive:
                archive.extractall(place / "deeper", filter="data")
            ran(TOOLS / "python", "-m", "build", "--outdir", DIST, place / "deeper", SOURCE_DATE_EPOCH=when)
            hashes.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(DIST.iterdir())})
    if hashes[0] != hashes[1]:
        raise Failed(
            f"two builds differ: {', '.join(name for name in hashes[0] if hashes[0][name] != hashes[1][name])}"
        )
    return (
        f"{', '.join(f'{path.name} {path.stat().st_size // 1024} KiB' for path in sorted(DIST.iterdir()))}, twice alike"
    )


def wheel() -> Path:
    """The wheel that was built."""
    found = sorted(DIST.glob("*.whl"))
    if len(found) != 1:
        raise Failed("there is no wheel in dist/")
    return found[0]


def contents() -> str:
    """What the wheel holds, and that its description can be shown."""
    names = zipfile.ZipFile(wheel()).namelist()
    missing = [name for name in IN_WHEEL if name not in names]
    stray = [name for name in names if name.startswith(NOT_IN_WHEEL)]
    if missing or stray:
        raise Failed(f"the wheel lacks {missing} and holds {stray[:3]}")
    ran(TOOLS / "twine", "check", "--strict", *sorted(DIST.glob("recipe_planner*")))
    return f"{len(names)} files"


def used(python: str, extras: str, *pip: str | Path, more: Callable[[Path, Path], None] | None = None) -> str:
    """Install the wheel with `extras` in an empty environment of a Python, and use it from an empty home."""
    with folder() as place:
        ran(python, "-m", "venv", place / "e")
        begun = place / "e/bin/python"
        ran(begun, "-m", "pip", "install", "--quiet", *pip, f"{wheel()}[{extras}]")
        home = place / "home"
        home.mkdir()
        shutil.copytree(ROOT / "examples/subtitles", home / "subtitles")
        settings = {"HOME": str(home), "PYTHONPATH": "", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        for words in USE:
            told = ran(
                place / "e/bin/recipe", *(w.format(subtitles=home / "subtitles") for w in words), cwd=home, **settings
            )
            if words == ("--version",) and version() not in told:
                raise Failed(f"`recipe --version` says {told.strip()!r}")
        if more is not None:
            more(place / "e/bin", home)
        count = len(json.loads(ran(begun, "-m", "pip", "list", "--format", "json")))
        return f"{ran(begun, '-V').strip()}, {count} packages, {len(USE)} commands"


def demo(binaries: Path, home: Path) -> None:
    """The whole method once, and the list of packages."""
    ran(binaries / "recipe", "demo", "--quick", cwd=home, HOME=str(home), HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
    target = DIST / f"recipe_planner-{version()}.cdx.json"
    ran(
        TOOLS / "cyclonedx-py", "environment", "--pyproject", ROOT / "pyproject.toml", "--output-reproducible",
        "--mc-type", "library", "-o", target, binaries / "python",
        SOURCE_DATE_EPOCH=ran("git", "log", "-1", "--format=%ct").strip(),
    )  # fmt: skip


def lowest(python: str) -> str:
    """The lowest versions that are allowed, found by uv, in an environment of the lowest Python."""
    with folder() as place:
        extras = [word for extra in CORE.split(",") for word in ("--extra", extra)]
        ran(
            TOOLS / "uv", "pip", "compile", "--quiet", "--resolution", "lowest-direct", "--python", python, *extras,
            ROOT / "pyproject.toml", "-o", place / "lowest.txt",
        )  # fmt: skip
        told = used(python, CORE, "-c", place / "lowest.txt")
        pinned = (place / "lowest.txt").read_text(encoding="utf-8")
        numpy = re.search(r"^numpy==(\S+)", pinned, re.M)
        return f"{told}; numpy {numpy[1] if numpy else '?'}"


def values() -> str:
    """All values of the measurements whose files hold a part of them, out of the commits that measured them."""
    count = 0
    with tarfile.open(DIST / "results.tar.gz", "w:gz") as archive, folder() as place:
        for file in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
            for source in json.loads(file.read_text(encoding="utf-8")).get("raw", ()):
                whole = place / Path(source).name
                whole.write_text(ran("git", "show", source), encoding="utf-8")
                archive.add(whole, whole.name)
                count += 1
    return f"{count} files in results.tar.gz"


def secrets() -> str:
    """No token or key is in a file of the repository."""
    # hashes of packages, files and answers are all over: what only looks random is no sign of a secret here
    skipped = ("--disable-plugin", "HexHighEntropyString", "--disable-plugin", "Base64HighEntropyString")
    told = ran(TOOLS / "detect-secrets", "scan", *skipped, "--exclude-files", r"^(tests|fuzz/failures)/")
    found = json.loads(told)["results"]
    unknown = [f"{file}:{row['line_number']} ({row['type']})" for file, rows in found.items() for row in rows]
    unknown = [place for place in unknown if place.partition(":")[0] not in EXCUSED]
    if unknown:
        raise Failed(f"this looks like secrets: {', '.join(unknown)}")
    return f"none but in examples of {len(EXCUSED)} files"


def faults() -> str:
    """Known faults of the packages in constraints.txt; where no database can be reached, that is said."""
    try:
        quiet = ("--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json")
        told = ran(TOOLS / "pip-audit", "-r", ROOT / "constraints.txt", *quiet)
    except Failed as failed:
        if re.search(r"ConnectionError|ConnectTimeout|MaxRetryError|Connection reset|ProxyError|offline", str(failed)):
            return "NOT LOOKED: no database of faults can be reached from here; run it where one can"
        raise
    packages = json.loads(told)["dependencies"]
    skipped = sum("skip_reason" in package for package in packages)
    if skipped > len(packages) / 10:
        return f"NOT LOOKED: the database that was reached does not know {skipped} of {len(packages)} packages"
    return f"none known in {len(packages) - skipped} packages; {skipped} are not in the database"


def image() -> str:
    """The container image, where Docker runs."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "info"], capture_output=True, check=False).returncode
    ):
        return "NOT BUILT: Docker does not run here"
    ran("docker", "build", "-t", f"recipe:{version()}", ".")
    return f"recipe:{version()}"


def pythons(given: list[str]) -> list[str]:
    """The Pythons to try: those given, or those on the path, this one among them."""
    if given:
        return given
    found = [path for name in PYTHONS if (path := shutil.which(f"python{name}"))]
    return found or [sys.executable]


def main() -> int:
    """Run all checks; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rehearse", action="store_true", help="a commit that is no release")
    parser.add_argument("--python", action="append", default=[], help="a Python to try; repeat, the lowest first")
    given = parser.parse_args()
    tried = pythons(given.python)
    checks: list[tuple[str, Callable[[], str]]] = [
        ("state", state),
        ("build", build),
        ("contents", contents),
        ("values", values),
        *((f"python {number}", lambda python=path: used(python, CORE, "-c", ROOT / "constraints.txt"))
          for number, path in enumerate(tried, 1)),
        ("demo", lambda: used(tried[0], FULL, "-c", ROOT / "constraints.txt", more=demo)),
        ("lowest", lambda: lowest(tried[0])),
        ("secrets", secrets),
        ("faults", faults),
        ("image", image),
    ]  # fmt: skip
    failed = []
    for name, check in checks:
        began = time.monotonic()
        try:
            told = check()
        except Failed as error:
            failed += [] if name == "state" and given.rehearse else [name]
            told = f"{'WOULD FAIL' if name == 'state' and given.rehearse else 'FAILED'}: {error}"
        print(f"{name:<10} {time.monotonic() - began:5.0f} s  {told}", flush=True)
    if failed:
        print(f"\nNot ready: {', '.join(failed)}.")
        return 1
    sums = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}" for p in sorted(DIST.iterdir())]
    (DIST / "SHA256SUMS").write_text("\n".join(sums) + "\n", encoding="utf-8")
    print(f"\ndist/ holds what is published. By hand:\n  git tag -s v{version()} && git push origin v{version()}")
    print(f"  {TOOLS / 'twine'} upload dist/recipe_planner-{version()}*.whl dist/recipe_planner-{version()}.tar.gz")
    return 0


if __name__ == "__main__":
    sys.exit(main())
