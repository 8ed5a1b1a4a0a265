"""What versions from 0.3.0 on wrote is read: `formats/VERSION.tar.gz`, made by `packaging/formats.py` of each version.

What versions before 0.3.0 wrote in another form is refused with one sentence.
"""

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

import recipe
from recipe.cli import app
from recipe.cli.console import run
from recipe.corpus.store import Corpus
from recipe.corpus.verify import verify_corpus
from recipe.evaluation.scores import read_scores

ARCHIVES = sorted((Path(__file__).parent / "formats").glob("*.tar.gz"))
MEASURES = (
    ("match", "--encoder", "hash:64"),
    ("validity",),
    ("judge", "--judge", "proxy", "--encoder", "hash:64"),
)


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a version wrote."""
    folder = tmp_path_factory.mktemp("written")
    with tarfile.open(request.param) as archive:
        archive.extractall(folder, filter="data")
    return folder


def command(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["recipe", *words])
    try:
        return run(app)
    except SystemExit as stop:
        return int(stop.code or 0)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def same(found: Any, wanted: Any) -> bool:
    """Whether values are equal, numbers to a millionth, where both have them: a later version may say more."""
    if isinstance(wanted, dict):
        return all(same(found[key], value) for key, value in wanted.items() if key in found)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return found == (pytest.approx(wanted, rel=1e-6, abs=1e-7) if isinstance(wanted, float) else wanted)


def test_a_corpus_opens_is_whole_and_is_searched(written: Path) -> None:
    corpus = Corpus.open(written / "corpus")
    assert len(corpus) == 12
    assert len(corpus.search(["boil the water", "pour the water"], 3)) == 3
    assert verify_corpus(corpus).files == 12


def test_rewards_are_the_same(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("--corpus", "corpus", "--input", "prompts.jsonl", "--output", "again.jsonl")
    assert command(written, monkeypatch, "reward", "score", *given) == 0
    assert same(rows(written / "again.jsonl"), rows(written / "scored.jsonl"))


@pytest.mark.parametrize("kind", MEASURES, ids=lambda kind: kind[0])
def test_scores_are_read_and_are_the_same(
    written: Path, monkeypatch: pytest.MonkeyPatch, kind: tuple[str, ...]
) -> None:
    pytest.importorskip("scipy")
    before = read_scores(written / f"{kind[0]}.json")
    again = ("predictions.jsonl", "--examples", "examples.jsonl", "--output", "again.json")
    assert command(written, monkeypatch, "evaluate", *kind, *again) == 0
    assert type(read_scores(written / "again.json")) is type(before)
    wanted = rows(written / f"{kind[0]}.rows.jsonl")
    controls = {row.get("control") for row in wanted}  # a later version may have more
    assert same([row for row in rows(written / "again.rows.jsonl") if row.get("control") in controls], wanted)
    assert command(written, monkeypatch, "report", f"{kind[0]}.json", "--output", "page") == 0


def test_a_model_plans(written: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    asked = ("--model", "base/model", "--goal", "make tea", "--history", "boil the water", "--json")
    assert command(written, monkeypatch, "plan", *asked) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.thorough
def test_a_run_that_was_cut_off_is_finished(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trl")
    first = (written / "grpo/metrics.jsonl").read_bytes()
    # Its default was another one.
    assert command(written, monkeypatch, "train", "grpo", "grpo.toml", "--set", "temperature=1.0") == 0
    assert (written / "grpo/metrics.jsonl").read_bytes().startswith(first)
    assert [row["step"] for row in rows(written / "grpo/metrics.jsonl")] == [1, 2]
    assert (written / "grpo/model/model.safetensors").is_file()


@pytest.mark.thorough
def test_an_experiment_is_reported(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("jinja2", "matplotlib"):
        pytest.importorskip(package)
    assert command(written, monkeypatch, "report", "runs/demo") == 0
    assert b"<svg" in (written / "runs/demo/report.html").read_bytes()


def test_a_board_opens(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sqlalchemy")
    from recipe_apps.board.store import Board

    assert command(written, monkeypatch, "board", "upgrade", "--database", "board.db") == 0
    board = Board.open(str(written / "board.db"))
    boards = [scorer.id for scorer in board.scorers()]
    board.close()
    assert len(boards) == 2
    for one in boards:
        words = ("board", "export", one, "--database", "board.db", "--output", "rows.json")
        assert command(written, monkeypatch, *words) == 0
        assert len(json.loads((written / "rows.json").read_text(encoding="utf-8"))["rows"]) >= 4


def test_this_version_is_kept() -> None:
    """A release adds what it writes, by `packaging/formats.py`."""
    assert {"0.3.0", recipe.__version__} <= {path.name.removesuffix(".tar.gz") for path in ARCHIVES}


SCORE = ("reward", "score", "--corpus", "corpus", "--input", "prompts.jsonl")
OLD = {
    "corpus": (("corpus", "info", "corpus"), "corpus/manifest.json", {"format": 2}, "format 2"),
    "run": (("train", "grpo", "grpo.toml"), "grpo/run.json", {"version": 2}, "grpo: "),
    "base run": (("train", "base", "base.toml"), "base/run.json", {"version": 2}, "base: "),
    "reward": ((*SCORE, "--config", "reward.toml"), "reward.toml", 'verifier = "grounded-1"', "'verifier'"),
    "gate": ((*SCORE, "--config", "reward.toml"), "reward.toml", "gate = true", "'gate'"),
    "run's reward": (
        ("train", "grpo", "other.toml"),
        "other.toml",
        'model = "base/model"\nexamples = "examples.jsonl"\ncorpus = "corpus"\noutput = "new"\n'
        'reward = { verifier = "grounded-2" }\n',
        "'reward.verifier'",
    ),
    "verifier": ((*SCORE, "--verifier", "grounded-2"), "", None, "--verifier"),
    "classes": (
        ("reward", "audit", "--corpus", "corpus", "--procedures", "p", "--classes", "v1"),
        "",
        None,
        "--classes",
    ),
    "pseudo": (("data", "prepare", "--output", "e", "--pseudo", "t", "--weak", "100"), "", None, "--pseudo"),
}


@pytest.mark.parametrize("kind", OLD)
def test_an_old_form_is_refused_with_one_sentence(
    written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    if kind.endswith("run"):
        pytest.importorskip("trl")
    words, name, old, fact = OLD[kind]
    folder = Path(shutil.copytree(written, tmp_path / "old"))
    if isinstance(old, dict):
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text("utf-8")) | old), "utf-8")
    elif name:
        (folder / name).write_text(old, "utf-8")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert command(folder, monkeypatch, *words) == (1 if name else 2)
    [sentence] = [line for line in capsys.readouterr().err.splitlines() if line.lower().startswith("error: ")]
    assert fact in sentence
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
