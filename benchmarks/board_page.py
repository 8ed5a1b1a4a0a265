"""The board's pages in a real Chromium, and how fast a large board opens.

    recipe board serve &
    python benchmarks/board_page.py --url http://127.0.0.1:8002 --token-file token --output pictures [--axe axe.min.js]
    python benchmarks/board_page.py --many 10000 --systems 500

With `--url` every page is opened on a desktop, in dark and on a phone, with the owner's token where one is needed, and
a picture of it written. Exits with 1 where the console shows an error, the security policy is violated, a page is wider
than a phone, or axe-core finds a serious fault. Needs `pip install 'recipe-planner[browser]'` and a Chromium.

With `--many` a board of so many scored submissions is made in a temporary SQLite file, and its pages are opened over
HTTP: how long the standings take, the first page after a start, and pages after that.
"""

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
import zlib
from pathlib import Path
from statistics import quantiles
from typing import Any
from unittest.mock import patch

import numpy as np
from common import add_json, table, write_result
from planner_page import VIEWS, axe_faults

from recipe.artifacts import to_json
from recipe.evaluation.scores import Row
from recipe_apps.board.app import create_app
from recipe_apps.board.models import Account, Job, Score, Submission
from recipe_apps.board.scoring import open_scorer
from recipe_apps.board.setup import demo_board
from recipe_apps.board.standings import refresh
from recipe_apps.board.store import Board, touch

SHELLS = ("submit", "mine", "owner")


def pictures(url: str, token: str, output: Path, axe: Path | None) -> list[str]:
    """Open every page in every kind of window; returns the faults."""
    from playwright.sync_api import sync_playwright  # an extra of its own

    index = json.load(urllib.request.urlopen(f"{url}/api/boards"))
    board = index["tracks"][0]["boards"][0]["id"]
    rows = json.load(urllib.request.urlopen(f"{url}/api/boards/{board}"))["rows"]
    system = next(row["submission"] for row in rows if not row["control"])
    paths = {"index": "/", "board": f"/boards/{board}", "system": f"/systems/{system}", "missing": "/boards/none"}
    paths |= {name: f"/{name}" for name in SHELLS}
    faults, said = [], list[str]()
    output.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for view in ("desktop", "dark", "phone"):
            context = browser.new_context(**VIEWS[view], bypass_csp=axe is not None)
            for name, path in paths.items():
                page = context.new_page()
                said.clear()
                page.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
                page.on("pageerror", lambda error: said.append(str(error)))
                page.goto(url + path)
                if name in SHELLS:
                    page.evaluate("token => sessionStorage.setItem('token', token)", token)
                    page.reload()
                    page.wait_for_function("document.querySelector('#who').textContent.startsWith('You are')")
                    page.wait_for_timeout(800)
                width = page.evaluate("document.documentElement.scrollWidth")
                if width > VIEWS[view]["viewport"]["width"]:
                    said.append(f"the page is {width} pixels wide")
                if axe is not None:
                    said.extend(axe_faults(page, axe))
                page.screenshot(path=output / f"{view}-{name}.png", full_page=True)
                # A page that is not there is an error of the console, too.
                faults += [f"{view} {name}: {one}" for one in said if not (name == "missing" and "404" in one)]
                page.close()
            context.close()
        browser.close()
    return faults


def many(count: int, systems: int) -> dict[str, Any]:
    """Times of a board with so many rows, in seconds."""
    import uvicorn

    with tempfile.TemporaryDirectory(prefix="board-page-") as folder:
        board, _ = demo_board(f"{folder}/board.db", None)
        board_id = fill(board, count, systems)
        began = time.perf_counter()
        refresh(board, board_id)
        standings = time.perf_counter() - began
        config = uvicorn.Config(create_app(board), port=8412, log_level="warning")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        url = f"http://127.0.0.1:8412/boards/{board_id}"

        def opened(query: str = "") -> float:
            began = time.perf_counter()
            urllib.request.urlopen(url + query).read()
            return time.perf_counter() - began

        first = opened()
        later = [opened(f"?page={page}") for page in range(1, 5)] + [opened(f"?all=1&page={page}") for page in (1, 50)]
        later += [opened("?q=system+7"), opened("?all=1&sort=date"), opened("?sort=system")]
        server.should_exit = True
        thread.join()
        board.close()
    return {
        "rows": count,
        "systems": systems,
        "standings_seconds": round(standings, 2),
        "first_page_seconds": round(first, 3),
        "later_pages_seconds": {"median": round(quantiles(later, n=2)[0], 3), "longest": round(max(later), 3)},
    }


def fill(board: Board, count: int, systems: int) -> str:
    """Write scored submissions into a board's tables; returns the id of its validity board."""
    references = board.references(board.track("world").reference_set)
    rng = np.random.default_rng(0)
    scorer = next(row for row in board.scorers() if row.measure == "validity")
    from recipe_apps.board.settings import ScorerSettings

    base, content = rng.random(len(references.examples)), zlib.compress(b"{}\n")
    opened = open_scorer(ScorerSettings.stored(scorer.settings), references)

    def write(session: Any) -> None:
        now = board.database.now(session)
        session.add_all(
            Account(name=f"p{n}", display=f"Person {n}", role="submitter", created=now) for n in range(systems)
        )
        session.flush()
        of_system = []
        for own in range(systems):
            values = np.clip(base + rng.normal(0, 0.2, len(base)) - own / systems / 2, 0, 1).tolist()
            rows = [Row(one.example_id, {"score": v}) for one, v in zip(references.examples, values, strict=True)]
            with patch.object(opened.measure, "rows", return_value=rows):
                of_system.append(opened.score([]))
        for number in range(count):
            own = number % systems
            figures, values = of_system[own]
            name = f"s{number}"
            session.add(Submission(
                id=name, track="world", account=f"p{own}", system=f"system {own}", sha=name, content=content,
                plans=200, link="", note="", control="", private=False, created=now + number,
            ))  # fmt: skip
            session.flush()
            session.add(Job(
                submission=name, scorer=scorer.id, state="scored", attempts=1, not_before=now, worker="w",
                queued=now, started=now, ended=now,
            ))  # fmt: skip
            blob = zlib.compress(np.asarray(values, dtype="<f8").tobytes())
            session.add(Score(
                submission=name, scorer=scorer.id, figures=to_json(figures), per_example=blob, created=now
            ))  # fmt: skip
        touch(session, [scorer.id])

    board.database.write(write)
    return str(scorer.id)


def main() -> None:
    """Open the pages of a board that runs, or measure a large one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="")
    parser.add_argument("--token-file", type=Path, help="a file with the owner's token")
    parser.add_argument("--output", type=Path, default=Path("pictures"))
    parser.add_argument("--axe", type=Path, help="axe.min.js of axe-core")
    parser.add_argument("--many", type=int, default=0, help="rows of a large board that is made and measured")
    parser.add_argument("--systems", type=int, default=500)
    add_json(parser, "board-page")
    given = parser.parse_args()
    if given.many:
        times = many(given.many, given.systems)
        print(json.dumps(times, indent=2))
        write_result(
            given.json,
            times,
            title="Pages of a large board",
            guide="board.md",
            body=[table({name.replace("_", " "): {"": value} for name, value in times.items()})],
            partial=given.many < 10_000,
        )
    if given.url:
        token = given.token_file.read_text().strip() if given.token_file else ""
        faults = pictures(given.url.rstrip("/"), token, given.output, given.axe)
        print("\n".join(faults) or f"no faults; pictures are in {given.output}")
        sys.exit(bool(faults))


if __name__ == "__main__":
    main()
