"""A benchmark's result is what docs/results.py reads, no script writes over another's, and README's are of these."""

import importlib
import importlib.util
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.artifacts import to_json
from recipe.stats import Interval

ROOT = Path(__file__).parents[2]


@pytest.fixture
def common() -> ModuleType:
    return importlib.import_module("common")


def written(common: ModuleType, target: Path, **more: object) -> None:
    rows = {"ours": {"ms": 1.25, "found": Interval(0.5, 0.25, 0.75, 9, 9)}, "theirs": {"ms": None, "calls": 12_345}}
    common.write_result(
        target, rows, title="Calls", guide="search.md", body=["Once.", common.table(rows, "system")], **more
    )


def test_a_result_is_a_section_of_a_page(
    common: ModuleType, results: ModuleType, tmp_path: Path, called_with: Callable[..., None]
) -> None:
    folder, target = tmp_path / "corpus", tmp_path / "deep" / "result.json"
    called_with("benchmarks/calls.py", folder, "--rounds", 3, "--json", target)
    written(common, target, device="a GPU")
    result = json.loads(target.read_text())
    assert result["values"]["theirs"] == {"ms": None, "calls": 12_345}
    lines = results.section(result | {"file": target.name})
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
def results(tmp_path: Path) -> ModuleType:
    """docs/results.py in a copy of what it reads and writes."""
    copy = tmp_path / "copy"
    for folder in ("benchmarks/results", "docs/results", "docs/images"):
        shutil.copytree(ROOT / folder, copy / folder)
    for file in ("README.md", "docs/results.py"):
        shutil.copy(ROOT / file, copy / file)
    spec = importlib.util.spec_from_file_location("copied_results", copy / "docs" / "results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
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


def test_a_picture_of_other_values_is_told(results: ModuleType) -> None:
    first, second = (results.ROOT / picture for picture in results.PICTURES.values())
    first.write_bytes(second.read_bytes())
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


def test_a_page_begins_with_its_verdict_and_leaves_out_what_is_kept_for_the_record(results: ModuleType) -> None:
    assert {results.TARGET / f"{name}.md" for name in results.verdicts()} <= results.pages().keys()
    for file in results.SOURCE.glob("*.json"):
        file.unlink()
    (results.SOURCE / "verdicts.toml").write_text('calls = "Ours is fast."\n')
    for name, machine, body in (("a", "two cores", ["Once."]), ("b", "two cores", ["Twice."]), ("c", "a GPU", [])):
        found = {"title": name, "command": "", "commit": "abc", "machine": machine, "guide": "g.md", "body": body}
        (results.SOURCE / f"calls-{name}.json").write_text(json.dumps(found))
    [text] = results.pages().values()
    assert [line for line in text.splitlines() if line][1] == "Ours is fast."
    assert [line for line in text.splitlines() if line.startswith("## ")] == ["## a", "## b"]
    assert text.count("two cores") == 1


def test_a_comparisons_page_shows_samples_and_greedy_plans_in_a_row(common: ModuleType) -> None:
    comparison = importlib.import_module("comparison")
    seeds, mean = ("seed 0", "seed 1", "seed 2"), comparison.MEAN

    def row(*values: float) -> dict[str, object]:
        return {mean: comparison.over_bases(values)} | dict(zip(seeds, map(Interval, values), strict=False))

    tables = {
        "cuts": {name: row(0.5, 0.5, 0.5) for name in ("base", "base, greedy", "trained", "trained, greedy", "other")},
        "cuts, differences": {
            "trained − base": row(0.1, 0.2, 0.3),
            "trained, greedy − base, greedy": row(-0.25, -0.25, -0.25),
            "other − base": row(0.125),
            "trained − other": row(1.5, 1.5, 1.5),
            "other − trained": row(1.5, 1.5),
            "trained − retrieve and copy": row(0.7),
        },
        "goals": {"base": row(0.5, 0.5, 0.5)},
        "goals, differences": {"trained − base": row(0.4)},
    }
    plans, rivals, _note = comparison.page_body(tables)
    cells = {line[0]: dict(zip(plans["columns"][1:], line[1:], strict=True)) for line in plans["rows"]}
    assert set(cells) == {"base", "trained", "other"}
    assert cells["trained"]["over the base"] == "+.200 [−.048, .448]"  # 4.3027 * .1 / sqrt(3) to either side
    assert cells["trained"]["over the base's"] == "−.250 [−.250, −.250]*"
    assert cells["trained"]["over the base, goals"] == "+.400"
    assert cells["other"]["over the base"] == "+.125"
    assert [line[:2] for line in rivals["rows"]] == [["trained − other", "+1.500 [1.500, 1.500]*"]]
    variants = {name: {line: {"a": own["seed 0"]} for line, own in rows.items()} for name, rows in tables.items()}
    shown = {line[0]: line[1] for line in comparison.page_body(variants)[0]["rows"]}
    assert shown["trained"] == "+.100; greedy −.250"
    assert shown["other"] == "+.125"


def test_a_star_survives_the_correction_for_many_differences(common: ModuleType) -> None:
    comparison = importlib.import_module("comparison")
    values = {"a": (0.30, 0.31, 0.32), "b": (0.3, 0.4, 0.6), "c": (-0.1, 0.1, 0.05), "d": (0.1, -0.3, 0.2)}

    def row(own: tuple[float, ...]) -> dict[object, object]:
        return {comparison.MEAN: comparison.over_bases(own)} | dict(enumerate(own))

    tables = {
        "cuts": {name: row(own) for name, own in values.items()},
        "cuts, differences": {f"{name} − base": row(own) for name, own in values.items()},
    }
    plans, note = comparison.page_body(tables)
    # By hand: p of a is .0003, of b .040; b's is 2nd of 4, so .080 after the correction.
    assert [line[0] for line in plans["rows"] if line[2].endswith("*")] == ["a"]
    assert re.findall(r"\b\d+\b(?!%)", note)[:2] == ["4", "2"]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8")) <= 8_000


def test_seeds_of_an_earlier_result_are_joined_once(common: ModuleType) -> None:
    comparison = importlib.import_module("comparison")
    shown = {"score": {"base": {comparison.MEAN: 9.0, "seed 0": "0.500, 3.7 steps", "seed 1": "0.300, 4.0 steps"}}}
    new = {"score": {"base": {"seed 2": "0.100, 2.0 steps"}, "new arm": {"seed 2": Interval(0.25, 0.2, 0.3)}}}
    rows = comparison.joined(shown, new)["score"]
    assert [*rows["base"]] == [comparison.MEAN, "seed 0", "seed 1", "seed 2"]
    assert rows["base"][comparison.MEAN] == comparison.over_bases([0.5, 0.3, 0.1])
    assert rows["new arm"][comparison.MEAN].mean == 0.25
    with pytest.raises(ValueError, match="both results hold one seed"):
        comparison.joined(shown, {"score": {"base": {"seed 1": "0.200, 3.0 steps"}}})
    with pytest.raises(ValueError, match="the earlier result holds"):
        comparison.joined(shown, {"f1": {}})


def test_an_interval_over_bases_grows_without_the_values_of_earlier_ones(common: ModuleType) -> None:
    crossing, comparison = (importlib.import_module(name) for name in ("crossing", "comparison"))

    @given(*(st.lists(st.floats(0, 1), min_size=least, max_size=6) for least in (3, 1)))
    def check(earlier: list[float], new: list[float]) -> None:
        grown = crossing.with_earlier(to_json(comparison.over_bases(earlier)), len(earlier), new)
        expected = comparison.over_bases([*earlier, *new])
        assert [grown.mean, grown.low, grown.high] == pytest.approx([expected.mean, expected.low, expected.high])

    check()
