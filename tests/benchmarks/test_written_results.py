"""A benchmark's result is what docs/results.py reads, no script writes over another's, and README's are of these."""

import importlib
import json
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from recipe.stats import Interval

ROOT = Path(__file__).parents[2]


@pytest.fixture
def common(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("common")


def written(common: ModuleType, target: Path, **more: object) -> None:
    rows = {"ours": {"ms": 1.25, "found": Interval(0.5, 0.25, 0.75, 9, 9)}, "theirs": {"ms": None, "calls": 12_345}}
    common.write_result(
        target, rows, title="Calls", guide="search.md", body=["Once.", common.table(rows, "system")], **more
    )


def test_a_result_is_a_section_of_a_page(common: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, target = tmp_path / "corpus", tmp_path / "deep" / "result.json"
    monkeypatch.setattr(sys, "argv", ["benchmarks/calls.py", str(folder), "--rounds", "3", "--json", str(target)])
    written(common, target, device="a GPU")
    result = json.loads(target.read_text())
    assert result["values"]["theirs"] == {"ms": None, "calls": 12_345}
    lines = importlib.import_module("results").section(result | {"file": target.name})
    assert "| ours | 1.25 | 0.500 (0.250 to 0.750) | - |" in lines
    assert "| theirs | - | - | 12,345 |" in lines
    assert result["machine"].startswith("a GPU; ")
    assert result["command"].endswith("python benchmarks/calls.py corpus --rounds 3")
    assert str(tmp_path) not in target.read_text()


def test_a_partial_run_leaves_the_results_as_they_are(common: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    target = common.RESULTS / "a-partial-run.json"
    written(common, target, partial=True)
    assert not target.exists()
    assert "a-partial-run.json" in capsys.readouterr().out


def test_each_script_has_a_result_of_its_own() -> None:
    scripts = [path.read_text() for path in (ROOT / "benchmarks").glob("*.py")]
    names = [name for text in scripts for name in re.findall(r'add_json\(parser, "([\w-]+)"\)', text)]
    assert len(names) == len(set(names)) == sum("write_result(" in text for text in scripts) - 1  # common.py


@pytest.fixture
def results(common: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """docs/results.py on copies of README.md and the pages."""
    module = importlib.import_module("results")
    monkeypatch.setattr(module, "README", Path(shutil.copy(module.README, tmp_path)))
    monkeypatch.setattr(module, "TARGET", Path(shutil.copytree(module.TARGET, tmp_path / "results")))
    monkeypatch.setattr(module, "BY_HAND", module.TARGET / "index.md")
    return module


FIGURE = re.compile(r"(?<![\w.])[-+]?\d*\.\d+")


@pytest.mark.parametrize("block", ["crossing", "demo", "results"])
def test_no_figure_of_the_readme_can_be_changed_by_hand(results: ModuleType, block: str) -> None:
    results.main(check=True)
    text = results.README.read_text()
    first, last = text.index(f"<!-- {block} -->"), text.index(f"<!-- /{block} -->")
    figures = [found for found in FIGURE.finditer(text) if first < found.start() < last]
    assert len(figures) > 5
    for found in figures[::7]:
        changed = found[0][:-1] + str((int(found[0][-1]) + 1) % 10)
        results.README.write_text(text[: found.start()] + changed + text[found.end() :])
        with pytest.raises(SystemExit, match=r"README\.md"):
            results.main(check=True)


@pytest.mark.parametrize(
    "line",
    ["It gains .5 points.", "| base | 38 |", "{reward: asr, paper: no such column}", "{reward: no such row: order}"],
)
def test_a_figure_of_a_template_names_its_source(results: ModuleType, line: str, tmp_path: Path) -> None:
    for name, template in results.TEMPLATES.items():
        changed = tmp_path / template.name
        changed.write_text(f"{template.read_text()}\n{line}\n")
        with pytest.raises(ValueError, match=rf"readme-{name}\.md"):
            results.result_lines(changed)


def test_a_picture_of_other_values_is_told(results: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = dict(zip(results.PICTURES, reversed(results.PICTURES.values()), strict=True))
    monkeypatch.setattr(results, "PICTURES", swapped)
    with pytest.raises(ValueError, match=r"\.svg"):
        results.main(check=True)


def test_an_index_written_by_hand_stays_and_other_pages_do_not(results: ModuleType) -> None:
    results.BY_HAND.write_text("# What we know\n")
    results.main(check=True)
    (results.TARGET / "gone.md").write_text("# Results: gone\n")
    with pytest.raises(SystemExit, match=r"gone\.md"):
        results.main(check=True)
    results.main(check=False)
    assert results.BY_HAND.is_file()
    assert not (results.TARGET / "gone.md").exists()
