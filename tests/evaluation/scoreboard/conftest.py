"""Files of scores with their rows, small and made by hand, `recipe report` on them, and a page in a browser."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
pytest.importorskip("scipy")
from tests.evaluation.scored import judge_scores
from typer.testing import CliRunner

from recipe.artifacts import to_json
from recipe.cli import app
from recipe.data.examples import write_examples
from recipe.evaluation.judge.verdicts import CRITERIA, Judgement, write_verdicts
from recipe.evaluation.scores import Counts, Group, JudgeIdentity, Row, Scores, rows_path, write_rows, write_scores
from recipe.stats import Interval
from recipe.types import Example, Unscored, Verdict

PROXY = JudgeIdentity("proxy (hash)", "proxy", prompt="f" * 64)
LLAMA = JudgeIdentity("Llama-3.3-70B-Instruct", "llm", "meta-llama/Llama-3.3-70B-Instruct", "a" * 64)


def example(number: int, source: str = "crosstask", goal: str = "brew tea") -> Example:
    steps = ("boil the water", "warm the pot", "pour the water", "wait", "pour the tea")
    return Example(f"{source}-{number}", source, f"video{number % 3}", goal, steps[:2], steps[2:], 2, "test")


EXAMPLES = [example(n, source) for source in ("crosstask", "niv") for n in range(6)]


def flat(value: int) -> Verdict:
    return Verdict(*[value] * len(CRITERIA))


def write_judged(
    folder: Path,
    system: str,
    values: Sequence[int | None],
    judge: JudgeIdentity = PROXY,
    examples: Sequence[Example] = EXAMPLES,
    plan: Sequence[str] = ("pour the water", "pour the tea"),
) -> Path:
    """Scores and rows of one system: a flat verdict for each example, None for none."""
    rows = [
        Judgement(
            one.example_id,
            Unscored("no JSON") if value is None else flat(value),
            judge=judge.name,
            how="json",
            steps=tuple(plan),
            text="" if value is None else f'{{"clarity": {value}}}',
        )
        for one, value in zip(examples, values, strict=True)
    ]
    rows += [Judgement(one.example_id, flat(5), control="reference", judge=judge.name) for one in examples[:4]]
    path = folder / f"judge-{system}-{judge.kind}.json"
    write_scores(path, judge_scores(system, judge, examples, rows, ledger={"answers": float(len(rows)), "cost": None}))
    write_verdicts(rows_path(path), rows)
    return path


@pytest.fixture
def examples_file(tmp_path: Path) -> Path:
    write_examples(tmp_path / "examples.jsonl", EXAMPLES)
    return tmp_path / "examples.jsonl"


@pytest.fixture
def judged_files(tmp_path: Path) -> list[Path]:
    return write_both(tmp_path)


@pytest.fixture
def other_files(tmp_path: Path) -> list[Path]:
    return write_others(tmp_path)


Table = dict[str, dict[str, str]]
"""Rows by their first cell, each the text by its heading."""


class Report:
    """What `recipe report` made of files of scores: its page, its tables, and what it printed."""

    def __init__(self, files: Sequence[Path], examples: Sequence[Path], *words: object) -> None:
        page = files[0].parent / "page.html"
        asked = [*files, *(word for path in examples for word in ("--examples", path)), "--output", page, *words]
        asked += ["--markdown", page.with_suffix(".md"), "--json"]
        result = CliRunner().invoke(app, ["report", *map(str, asked)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        self.printed = json.loads(result.stdout)
        self.page, markdown = page.read_text("utf-8"), page.with_suffix(".md").read_text("utf-8")
        self.sections = {
            part.partition("\n")[0]: part.partition("\n")[2] for part in re.split(r"(?m)^## ", markdown)[1:]
        }
        """Text by heading."""

    @property
    def data(self) -> dict[str, Any]:
        """What the page holds of the examples."""
        found = re.search(r'<script type="application/json" id="data">(.*?)</script>', self.page, re.DOTALL)
        assert found
        return dict(json.loads(found.group(1)))

    def tables(self, section: str) -> dict[str, Table]:
        """The tables of a section by their captions."""
        found: dict[str, Table] = {}
        for caption, body in re.findall(r"(?m)^\*\*(.+?)\*\*.*\n\n((?:\|.*\n)+)", self.sections[section]):
            lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in body.splitlines()]
            (_, *headings), _, *rows = lines
            found[caption] = {row[0]: dict(zip(headings, row[1:], strict=True)) for row in rows}
        return found


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report on all these files; nothing may change it."""
    folder = tmp_path_factory.mktemp("scores")
    write_examples(folder / "examples.jsonl", EXAMPLES)
    files = [*write_both(folder), *write_others(folder)]
    return Report(files, [folder / "examples.jsonl"], "--title", "Two systems")


@pytest.fixture(scope="session")
def page(whole: Report) -> str:
    """The page of all these files."""
    return whole.page


def write_both(folder: Path) -> list[Path]:
    """Two systems by a proxy; the second better everywhere, each with one plan unscored."""
    return [
        write_judged(folder, "base", [1, 2, 1, 2, 1, None, 1, 1, 2, 1, 2, 1]),
        write_judged(folder, "RL", [4, 4, 3, 4, 5, 4, 3, None, 4, 4, 3, 4]),
    ]


def write_others(folder: Path) -> list[Path]:
    """Diversity, VPA and validity of one system."""
    interval = Interval(50.0, 40.0, 60.0, 12, 3)
    actions = {f"{T}.{name}": interval for T in (1, 3, 4) for name in ("success_rate", "accuracy", "iou")}
    vpa_row = Row(
        "v:2",
        {"3.accuracy": 50.0},
        details={
            "goal": "Make Jello Shots",
            "history": ["a"],
            "gold": ["stir mixture", "pour water"],
            "predicted": ["stir mixture", "add sugar"],
            "steps": ["stir it", "sweeten it"],
            "margins": [0.25, 0.01],
        },
    )
    lines = ["pour the water", "dig a hole"]
    valid_row = Row(
        EXAMPLES[0].example_id,
        {"score": 0.5, "order": 1.0, "coverage": 0.5, "clean": 0.5},
        details={"steps": lines, "statuses": ["valid", "alien"], "missing_steps": ["wait"]},
    )
    agreement = {"judge": to_json(PROXY), "plans": 12, "spearman": to_json(Interval(0.7, 0.4, 0.9)), "kendall": 0.6}
    share = Interval(0.5, 0.4, 0.6, 12, 3)
    match_row = Row(EXAMPLES[0].example_id, {"matched_ordered_f1": 0.25}, details={"steps": lines})
    matched = {"matched_f1": share, "matched_ordered_f1": share}

    def group(values: dict[str, Interval], control: str = "", difference: Interval | None = None) -> Group:
        return Group(control, "control" if control else "all", values, Counts(12), difference=difference)

    levels = {"0": 100, "0.25": 0, "0.5": 200, "1": 147}
    pairs = {"pairs": 450, "unscored_pairs": 3, "order_pairs": 0, "order_disagreements": 0}
    controls = (
        group(matched, "the goal alone", Interval(0.4, 0.3, 0.5, 12, 3)),
        group(matched, "history copied", Interval(0.01, -0.02, 0.04, 12, 3)),
    )
    told = [
        Scores("diversity", "RL", {"judge": to_json(PROXY), "samples": 10}, (group({"diversity": share}),),
               extras={"samples": 10, "levels": levels} | pairs),
        Scores("vpa", "RL", {"protocol": "shared", "taxonomy": "105"}, (group(actions),), {"history": "oracle"},
               extras={"remap": {"mean_margin": 0.2}, "supervised": False}),
        Scores("validity", "RL", {"graphs": "world"}, (group({"score": share, "order": share, "alien": share}),),
               extras={"by_goal": {"brew tea": 0.5}, "agreement": [agreement]}),
        Scores("match", "RL", {"encoder": "minilm"}, (group(matched), *controls), {"floor": "0.667"},
               findings=("RL does not beat this control.",)),
    ]  # fmt: skip
    files = []
    for scores, row in zip(told, (None, vpa_row, valid_row, match_row), strict=True):
        files.append(folder / f"{scores.measure}.json")
        write_scores(files[-1], scores)
        if row:
            write_rows(rows_path(files[-1]), [row])
    return files


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium is installed")
    return found


@pytest.fixture
def played(chromium: str, tmp_path: Path) -> Callable[..., object]:
    """Opens a page at an address, goes on with a script of the test's, and returns what it resolves to."""

    def play(page: str, address: str, script: str) -> object:
        start = page.rindex("<script>") + len("<script>")
        own = page[start : page.rindex("</script>")]
        ending = (
            "const tell = (told) => { document.title = JSON.stringify(told); };"
            f"(async () => {{ {script} }})().then(tell, (error) => tell(String(error)));"
        )
        longer = f"{own}\n{ending}"
        pins = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in (own, longer)]
        file = tmp_path / "played.html"
        file.write_text(page.replace(own, longer).replace(*pins), encoding="utf-8")
        found = subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=6000", "--dump-dom",
             "--window-size=400,800", f"{file.as_uri()}{address}"],
            capture_output=True, timeout=600, check=True,
        )  # fmt: skip
        told = re.search(r"<title>(.*?)</title>", found.stdout.decode("utf-8"), re.DOTALL)
        assert told
        return json.loads(told.group(1).replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))

    return play
