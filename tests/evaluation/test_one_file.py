"""A measure is one file: the number of steps of a plan, in a package of its own, in every command, page and board."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("scipy")
from tests.conftest import Recipe
from tests.evaluation.conftest import overall

from recipe.artifacts import read_json, read_jsonl, write_jsonl
from recipe.data.examples import write_examples
from recipe.errors import InputError
from recipe.evaluation import known_measures, measure_named
from recipe.planning.predictions import Prediction
from recipe.types import Example

MEASURE = '''
"""The number of steps of a plan."""

from recipe.evaluation.measures import Measure
from recipe.evaluation.scores import Row


class LengthMeasure(Measure):
    """Count the steps of plans.

    Example: recipe evaluate length plans.jsonl --examples test.jsonl
    """

    name = "length"
    title = "steps of a plan"
    about = "How many steps a plan has."
    main = "lines"
    digits = 1

    def rows(self, examples, predictions, progress=None):
        return [Row(one.example_id, {"lines": len(one.steps), "words": 1.5}, one.sample) for one in predictions]
'''
EXAMPLES = [
    Example(f"e{n}", ("coin", "niv")[n % 2], f"v{n}", "make tea", ("boil",), ("pour", f"drink {n}"), 1, "test")
    for n in range(40)
]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with one file and one entry point, as pip leaves it."""
    site = tmp_path / "site"
    (site / "length_measure-1.0.dist-info").mkdir(parents=True)
    (site / "length_measure.py").write_text(MEASURE)
    (site / "length_measure-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: length-measure\nVersion: 1.0\n"
    )
    (site / "length_measure-1.0.dist-info" / "entry_points.txt").write_text(
        "[recipe.measures]\nlength = length_measure:LengthMeasure\nbroken = nowhere:Nothing\njudge = nowhere:Nothing\n"
    )
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()
    known_measures.cache_clear()
    yield
    known_measures.cache_clear()
    sys.modules.pop("length_measure", None)


@pytest.fixture
def folder(installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with examples and the plans of two systems."""
    write_examples(tmp_path / "examples.jsonl", EXAMPLES)
    for system, extra in (("long", 2), ("short", 0)):
        plans = [
            {"example_id": f"e{n}", "steps": ["pour"] * (1 + n % 3 + extra), "sample": k}
            for n in range(40)
            for k in range(2)
        ]
        write_jsonl(tmp_path / f"{system}.jsonl", plans[2:])  # the first example has no plan
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_pages_and_comparisons_know_it(folder: Path, recipe: Recipe) -> None:
    assert "Count the steps of plans" in recipe("evaluate", "--help").out
    for system in ("long", "short"):
        given = (f"{system}.jsonl", "--examples", "examples.jsonl", "--output", f"{system}.json")
        shown = recipe("evaluate", "length", *given)
    assert "steps of a plan" in shown.out
    scores = read_json(folder / "long.json")
    whole = overall(scores)
    # Of 39 examples with 3, 4 or 5 steps and one without a plan: 13 of 4 and 5 each, 13 of 3.
    assert whole["values"]["lines"]["mean"] == pytest.approx(13 * (3 + 4 + 5) / 40)
    assert (whole["counts"]["plans"], whole["counts"]["missing"]) == (79, 1)
    assert [one["name"] for one in scores["groups"] if one["kind"] == "dataset"] == ["coin", "niv"]
    rows = [row for _, row in read_jsonl(folder / "long.rows.jsonl")]
    assert (rows[0]["details"]["flags"], rows[1]["details"]["steps"]) == (["missing"], ["pour"] * 4)
    compared = recipe.json("evaluate", "compare", "long.json", "short.json")
    [row] = compared["rows"]
    assert (compared["measure"], compared["clusters"], row["metric"]) == ("length", "video", "lines")
    assert row["result"]["difference"]["mean"] == pytest.approx(2 * 39 / 40)
    pytest.importorskip("jinja2")
    files = ("long.json", "short.json", "--examples", "examples.jsonl")
    assert recipe("report", *files, "--output", "page.html", "--markdown", "page.md").code == 0
    text = (folder / "page.md").read_text()
    assert "## Steps of a plan" in text
    assert "short − long" in text
    assert "<svg" in (folder / "page.html").read_text()


@pytest.mark.thorough
def test_a_board_ranks_by_it(installed: None) -> None:
    pytest.importorskip("sqlalchemy")
    from recipe_apps.board.scoring import open_scorer
    from recipe_apps.board.settings import ScorerSettings
    from recipe_apps.board.store import References

    settings = ScorerSettings(measure="length")
    scorer = open_scorer(settings, References.of(EXAMPLES))
    figures, _ = scorer.score([Prediction(one.example_id, ("pour", "drink")) for one in EXAMPLES])
    assert figures.value is not None
    assert (settings.shown, figures.value.mean, figures.metrics["words"].mean) == ("steps of a plan", 2.0, 1.5)


def test_a_package_that_cannot_be_imported_is_named_and_none_replaces_our_own(installed: None) -> None:
    with pytest.raises(InputError, match="'broken' cannot be opened"):
        measure_named("broken")
    with pytest.raises(InputError, match=r"'beauty' is unknown; known are judge, .*length"):
        measure_named("beauty")
    assert measure_named("judge").name == "judge"
