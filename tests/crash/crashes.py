"""One harness for all commands that write: kill before each call to the file system, run again, compare the outputs.

    python tests/crash/crashes.py

reads lines of JSON, [case, folder, kills], and runs each case in its folder: an uninterrupted run, then runs that are
killed before as many calls, spread over all of them (0: before every call). Each run is a fork, and SIGKILL ends it in
the audit hook of the call. What a run has imported is then imported here, so that packages are loaded once for all
runs, and inputs are made once for all cases. After each kill the same command must end well and leave byte for byte
what the uninterrupted run left, and no partial output. Answers with a line of JSON: the number of calls, or in words
what went wrong.
"""

import hashlib
import importlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from recipe.cli import app
from recipe.cli.console import run

EVENTS = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "shutil.rmtree")
TIMES = re.compile(rb'"(?:created|seconds|cpu_seconds|wall_s)": *("[^"]*"|[-+.e0-9]+)')
"""What differs between two runs by right."""


class Case(NamedTuple):
    """A command that writes, and the commands that make its inputs."""

    words: str
    before: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    """Files that show how long something took."""
    ends_with: str = ""
    """What stands once the command is done, which then refuses to run again."""
    kills: int = 1
    """Runs that are killed, where not every call is tried."""


WORLD = "world examples --split test_goals --count 12 --output e.jsonl"
SPOKEN = "world narrations --count 40 --output n.jsonl"
CORPUS = "corpus build n.jsonl --output c --encoder hash:64 --shard-size 16"
MORE = "more n.jsonl m.jsonl"
GROWN = "world narrations --count 44 --output g.jsonl"
REMOVE = "corpus remove c world-000001 world-000020 world-000021"
RELEASE = "publish c release"
PLANS = "plans e.jsonl p.jsonl"
JUDGED = "evaluate judge p.jsonl --examples e.jsonl --judge proxy --encoder hash:64 --output j.json"

CASES = {
    "world narrations": Case(SPOKEN),
    "world examples": Case(WORLD),
    "corpus build": Case(CORPUS, (SPOKEN,), kills=8),
    "corpus add": Case("corpus add c m.jsonl", (SPOKEN, CORPUS, MORE)),
    "corpus remove": Case(REMOVE, (SPOKEN, CORPUS)),
    "corpus compact": Case("corpus compact c", (SPOKEN, f"{CORPUS}0", GROWN, "corpus add c g.jsonl")),
    "publish": Case(RELEASE, (SPOKEN, CORPUS), kills=3),
    "corpus pull": Case("corpus pull release pulled", (SPOKEN, CORPUS, RELEASE), ends_with="pulled", kills=3),
    "data prepare": Case("data prepare --procedures t.jsonl --output d.jsonl", ("procedures t.jsonl",)),
    "reward score": Case(
        "reward score --corpus c --input q.jsonl --output s.jsonl", (SPOKEN, CORPUS, "prompts q.jsonl")
    ),
    "reward audit": Case(
        "reward audit --corpus c --procedures t.jsonl --output a",
        (SPOKEN, CORPUS, "procedures t.jsonl"),
        measured=("a/audit.html",),
    ),
    "reward coverage": Case("reward coverage --corpus c --tasks e.jsonl --output v", (SPOKEN, CORPUS, WORLD)),
    "reward explain": Case(
        "reward explain --corpus c --goal tea --history boil --continuation pour --html x.html", (SPOKEN, CORPUS)
    ),
    "evaluate match": Case(
        "evaluate match p.jsonl --examples e.jsonl --encoder hash:64 --output m.json", (WORLD, PLANS)
    ),
    "evaluate validity": Case("evaluate validity p.jsonl --examples e.jsonl --output w.json", (WORLD, PLANS)),
    "evaluate judge": Case(JUDGED, (WORLD, PLANS)),
    "report": Case("report j.json --examples e.jsonl --output r", (WORLD, PLANS, JUDGED)),
}

ELSEWHERE = {
    "tests/experiments/test_schedule.py": ("demo", "run"),
    "the stages of `run`: tests/reproduce/test_run.py": ("reproduce",),
    "numbers of plans are kept one prompt at a time: tests/reward/test_self_trained.py": ("reward self-train",),
    "one video at a time: tests/data/test_reword.py": ("data reword",),
    "one history at a time: tests/cli/test_perceive.py": ("perceive",),
    "tests/models/test_endpoint_killed.py": ("plan",),
    "feedback is appended line by line: tests/serving/test_serving.py": ("serve",),
    "tests/training/test_resume.py": (
        "train config",
        "train base",
        "train sft",
        "train grpo",
        "train best-of-n",
    ),
    "answers are kept one by one: tests/planning/vidassist/test_vpa_command.py": ("vpa plan",),
    "answers are kept one by one: tests/evaluation/test_judge_killed.py": ("evaluate diversity",),
    "one call of a function of recipe.artifacts at the end": (
        "data pseudo",
        "data procedures",
        "world clip",
        "vpa examples",
        "evaluate vpa",
        "evaluate histories",
        "evaluate compare",
        "evaluate agreement",
        "board export",
    ),
    "tests/board/test_board_commands.py, tests/board/test_board_app.py": (
        "board init",
        "board backup",
        "board restore",
    ),
    "leases: tests/board/test_work.py, benchmarks/board_load.py": ("board worker",),
    "one transaction": (
        "board upgrade",
        "board rescore",
        "board track",
        "board account add",
        "board account token",
        "board account revoke",
    ),
}
"""Commands that write and are killed by other tests, or whose files appear all at once: why, and which."""


def command(words: str) -> int:
    """A command of `recipe`, or of those that make inputs here, in this process."""
    made = {"plans": _plans, "more": _more, "procedures": _procedures, "prompts": _prompts}
    name, *rest = words.split()
    if name in made:
        made[name](*map(Path, rest))
        return 0
    sys.argv = ["recipe", *words.split()]
    try:
        return run(app)
    except SystemExit as stop:
        return int(stop.code or 0)


def _plans(examples: Path, target: Path) -> None:
    from recipe.data.examples import read_examples
    from recipe.planning.prediction_files import write_predictions
    from recipe.planning.predictions import Prediction

    write_predictions(
        target, [Prediction(one.example_id, (*one.continuation[::-1], "wait")) for one in read_examples(examples)]
    )


def _more(narrations: Path, target: Path) -> None:
    """Narrations of the file as they are, some of them in other words, and some of other videos."""
    lines = narrations.read_text().splitlines()
    others = [line.replace('"text": "', '"text": "now ') for line in lines[2:5]]
    new = [line.replace("world-", "other-") for line in lines[:4]]
    target.write_text("\n".join([*lines[8:12], *others, *new]) + "\n")


def _procedures(target: Path) -> None:
    from recipe.data.procedures import write_procedures
    from recipe.types import Procedure, Step

    texts = ("boil the water", "warm the pot", "put tea leaves in the pot", "pour the water", "wait a while", "serve")
    write_procedures(
        target,
        [
            Procedure("own", f"v{n}", f"goal {n % 4}", tuple(Step(f"{text} {n % 5}") for text in texts), "train")
            for n in range(12)
        ],
    )


def _prompts(target: Path) -> None:
    from recipe.artifacts import write_jsonl

    rows = [{"goal": "tea", "history": ["boil"], "continuations": [["pour"], ["wait", "serve"]]} for _ in range(5)]
    write_jsonl(target, rows)


def digest(folder: Path, measured: tuple[str, ...]) -> dict[str, str]:
    """Every file with a hash of its content, without times."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        content = b"" if name in measured else TIMES.sub(b"", path.read_bytes())
        found[name] = hashlib.sha256(content).hexdigest()
    return found


def forked(words: str, folder: Path, moment: int) -> tuple[int, int]:
    """Run in a fork that is killed before its call number `moment` (0: never); status and number of calls."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        calls = 0

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal calls
            if event not in EVENTS:
                return
            path = str(arguments[0])
            inside = path.startswith(str(folder)) or not path.startswith(("/", "<"))
            reads = event == "open" and str(arguments[1] or "r").startswith("r") and "+" not in str(arguments[1])
            if inside and not reads:
                calls += 1
                if calls == moment:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        code = command(words)
        loaded = [module for module in sys.modules if module.startswith("recipe")]
        os.write(writer, json.dumps([calls, loaded]).encode())
        os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as stream:
        told = stream.read()
    _, status = os.waitpid(child, 0)
    calls, loaded = json.loads(told) if told else (0, [])
    for module in loaded:
        importlib.import_module(module)
    return status, calls


def made(before: tuple[str, ...], shelf: Path) -> Path:
    """The folder of what these commands make, each run once; later ones begin with what the earlier ones made."""
    folder = shelf / hashlib.sha256("\n".join(before).encode()).hexdigest()
    if not before:
        folder.mkdir(exist_ok=True)
    elif not folder.exists():
        shutil.copytree(made(before[:-1], shelf), folder)
        status, _ = forked(before[-1], folder, 0)
        assert status == 0, before[-1]
    return folder


def try_case(name: str, folder: Path, kills: int, shelf: Path) -> int:
    """Run a case, whose inputs lie on the shelf; the number of calls. Raises AssertionError."""
    case = CASES[name]
    inputs = made(case.before, shelf)
    work = folder / "work"  # one place for all runs, since some files name their inputs
    shutil.copytree(inputs, work)
    status, calls = forked(case.words, work, 0)
    assert status == 0, case.words
    wanted = digest(work, case.measured)
    assert wanted != digest(inputs, case.measured), "the command writes nothing"
    shutil.copytree(work, folder / "whole")
    moments = range(1, calls + 1) if not kills else [max(1, n * calls // (kills + 1)) for n in range(1, kills + 1)]
    for moment in moments:
        shutil.rmtree(work)
        shutil.copytree(inputs, work)
        status, _ = forked(case.words, work, moment)
        assert os.WIFSIGNALED(status), (moment, status)
        # Killed again while it goes on, and finished; one that had done all before it was killed has nothing to do.
        for again in (1 + moment // 2, 0):
            done = bool(case.ends_with) and (work / case.ends_with).exists()
            status, _ = (0, 0) if done else forked(case.words, work, again)
        assert status == 0, moment
        found = digest(work, case.measured)
        assert found == wanted, (moment, {path for path in found | wanted if found.get(path) != wanted.get(path)})
    return calls


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what commands print is no answer
    with tempfile.TemporaryDirectory() as kept:
        for line in sys.stdin:
            case, where, killed = json.loads(line)
            try:
                answer: int | str = try_case(case, Path(where).resolve(), killed, Path(kept).resolve())
            except AssertionError as error:
                answer = f"{error}"
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
