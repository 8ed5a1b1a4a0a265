"""How large the evaluation report is, how long it takes to make, and how long a browser takes to open it.

    python benchmarks/report_page.py [--examples 2000] [--inputs FOLDER]

The inputs are synthetic: examples of the embedded world, three systems that are its references with steps left out,
swapped, repeated or foreign, and a judge that is the exact validity with noise; the figures say nothing of any model.
Opening is timed in headless Chromium: `performance.now()` of the page's own clock, from the start of navigation until
the script has drawn the first view, and until an example is drawn after its address was opened; the median of five.
Opening needs `pip install 'recipe-planner[browser]'` and the system's Chromium.
"""

import argparse
import base64
import hashlib
import random
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import add_json, table, write_result

from recipe.data.benchmarks import BENCHMARKS
from recipe.data.examples import write_examples
from recipe.evaluation.judge.measures import RubricMeasure
from recipe.evaluation.judge.verdicts import CRITERIA, HIGHEST, Judgement, verdict_rows, write_verdicts
from recipe.evaluation.measures import measured_rows, select_plans, summarise
from recipe.evaluation.scoreboard.page import make_report, render_page
from recipe.evaluation.scoreboard.sources import gather
from recipe.evaluation.scores import JudgeIdentity, rows_path, write_rows, write_scores
from recipe.evaluation.validity.scores import ValidityMeasure
from recipe.planning.predictions import Prediction
from recipe.types import Example, Unscored, Verdict
from recipe.world.examples import draw_examples
from recipe.world.graph import World
from recipe.world.load import load_world
from recipe.world.validity import Validity, score_plan

SYSTEMS = {"base": 0.4, "SFT": 0.22, "RL": 0.1}
"""Each system's share of spoilt steps."""
JUDGE = JudgeIdentity("synthetic", "proxy", settings={"noise": "1"})
CONTROLS = ("reference", "history copied")
ROUNDS = 5


def make_examples(world: World, count: int, seed: int = 0) -> list[Example]:
    """Examples of the world under the names of the paper's datasets, so that every table has its full width."""
    drawn = draw_examples(world, "train", count, seed)
    names = list(BENCHMARKS)
    return [replace(example, source=names[n % len(names)]) for n, example in enumerate(drawn)]


def spoilt(example: Example, others: Sequence[str], share: float, rng: random.Random) -> tuple[str, ...]:
    """The reference with that share of steps left out, swapped, repeated or from elsewhere."""
    steps = []
    for step in example.continuation:
        if rng.random() >= share:
            steps.append(step)
            continue
        fault = rng.choice(("drop", "repeat", "foreign", "early"))
        if fault == "repeat":
            steps += [step, rng.choice(example.history)]
        elif fault == "foreign":
            steps += [rng.choice(others)]
        elif fault == "early":
            steps.insert(0, step)
    return tuple(steps)


def verdict(validity: Validity, rng: random.Random) -> Verdict | Unscored:
    """A noisy judge of the validity, which now and then gives no verdict."""
    if rng.random() < 0.01:
        return Unscored("the answer holds no verdict")
    return Verdict(
        **{name: min(HIGHEST, max(0, round(HIGHEST * validity.score + rng.gauss(0, 1)))) for name in CRITERIA}
    )


def write_inputs(folder: Path, count: int) -> tuple[list[Path], Path]:
    """Files of scores with their rows, and the examples."""
    world = load_world()
    examples = make_examples(world, count)
    others = sorted({step for example in examples[:200] for step in example.continuation})
    write_examples(folder / "examples.jsonl", examples)
    files = []
    for system, share in SYSTEMS.items():
        rng = random.Random(system)
        plans = [spoilt(example, others, share, rng) for example in examples]
        files.append(_judge(folder, world, system, (examples, plans), rng))
        files.append(_validity(folder, system, (examples, plans)))
    return files, folder / "examples.jsonl"


Planned = tuple[Sequence[Example], Sequence[tuple[str, ...]]]


def _judge(folder: Path, world: World, system: str, planned: Planned, rng: random.Random) -> Path:
    judged = []
    for example, steps in zip(*planned, strict=True):
        validity = score_plan(world, example.goal, example.history, steps)
        outcome, flags = verdict(validity, rng), () if steps else ("empty",)
        if not steps:
            outcome = Verdict(*[0] * len(CRITERIA))
        text = "" if isinstance(outcome, Unscored) else str({name: getattr(outcome, name) for name in CRITERIA})
        judged.append(
            Judgement(example.example_id, outcome, judge=JUDGE.name, how="json", steps=steps, flags=flags, text=text)
        )
    for example in planned[0][:100]:
        for control, steps in zip(CONTROLS, (example.continuation, example.history), strict=True):
            validity = score_plan(world, example.goal, example.history, steps)
            outcome = verdict(validity, random.Random(example.example_id + control))
            judged.append(Judgement(example.example_id, outcome, control=control, judge=JUDGE.name, steps=steps))
    spent = {"answers": float(len(judged)), "cached": 0.0}
    scores = summarise(RubricMeasure(JUDGE), system, verdict_rows(judged), planned[0], ledger=spent)
    path = folder / f"judge-{system}.json"
    write_scores(path, scores)
    write_verdicts(rows_path(path), judged)
    return path


def _validity(folder: Path, system: str, planned: Planned) -> Path:
    predictions = [Prediction(one.example_id, steps) for one, steps in zip(*planned, strict=True)]
    measure = ValidityMeasure()
    rows = measured_rows(measure, select_plans(planned[0], predictions))
    path = folder / f"validity-{system}.json"
    write_scores(path, summarise(measure, system, rows, planned[0]))
    write_rows(rows_path(path), rows)
    return path


def opened(browser: Any, address: str) -> float:
    """Milliseconds until the page has drawn the view at an address, by its own clock."""
    tab = browser.new_page()
    tab.goto(address)
    for _ in range(1200):
        # The title of the document alone: figures have titles, too.
        if re.fullmatch(r"\d+(\.\d+)?", title := tab.title()):
            tab.close()
            return float(title)
        tab.wait_for_timeout(50)
    raise RuntimeError("the page's script did not come to its end")


def timed(page: Path, target: Path) -> None:
    """The same page whose script ends on writing the time into its title; the pin of its script is changed to fit."""
    html = page.read_text(encoding="utf-8")
    start = html.rindex("<script>") + len("<script>")
    script = html[start : html.rindex("</script>")]
    # After two frames what was drawn is on the screen.
    ending = "requestAnimationFrame(() => requestAnimationFrame(() => { document.title = performance.now(); }));"
    longer = f"{script}\n{ending}"
    old, new = (base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in (script, longer))
    target.write_text(html.replace(script, longer).replace(old, new), encoding="utf-8")


def measure(folder: Path, count: int) -> dict[str, float]:
    """Size and times of one page."""
    files, examples = write_inputs(folder, count)
    start = time.perf_counter()
    board = gather(files, [examples])
    report = make_report(board, "A synthetic evaluation")
    page = folder / "report.html"
    page.write_text(render_page(report), encoding="utf-8")
    found = {"examples": count, "systems": len(SYSTEMS), "build_s": round(time.perf_counter() - start, 2)}
    found["megabytes"] = round(page.stat().st_size / 1e6, 2)
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium:
        from playwright.sync_api import sync_playwright  # an extra of its own

        timed(page, folder / "timed.html")
        uri = (folder / "timed.html").resolve().as_uri()
        first = board.examples[next(iter(board.examples))].example_id
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for name, address in (("report", ""), ("list", "#/examples?sort=apart"), ("example", f"#/example/{first}")):
                times = [opened(browser, uri + address) for _ in range(ROUNDS)]
                found[f"{name}_ms"] = round(statistics.median(times))
            browser.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--inputs", type=Path, help="Keep inputs and page in this folder.")
    add_json(parser, "evaluation-report")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.inputs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = measure(folder, asked.examples)
    for name, value in found.items():
        print(f"{name:>12}  {value}")
    write_result(
        asked.json,
        found,
        title="Size and speed of the evaluation report",
        guide="evaluation.md",
        body=[
            f"A page of {asked.examples:,} examples with {len(SYSTEMS)} systems, judged and checked; opened in "
            "headless Chromium, "
            f"medians of {ROUNDS} by the page's own clock.",
            table({name.replace("_", " "): {"": value} for name, value in found.items()}),
        ],
        partial=asked.examples < parser.get_default("examples"),
    )


if __name__ == "__main__":
    main()
