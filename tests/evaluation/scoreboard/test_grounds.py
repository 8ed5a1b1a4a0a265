"""What grounds plans: which examples are explained, and that the page shows each explanation with its plan."""

from dataclasses import replace
from pathlib import Path

import pytest

from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.evaluation.judge.verdicts import read_verdicts, write_verdicts
from recipe.evaluation.scores import rows_path
from recipe.types import Narration, Segment

from .conftest import EXAMPLES, Report, write_judged

SAID = ("now boil the water", "warm the pot", "pour the water in", "</template><script>x</script> wait", "pour the tea")
LONGEST, MOST = 400, 60
"""Characters of a step and steps of a plan that the page shows."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    narrations = [
        Narration(video, tuple(Segment(text, 10.0 * n, 10.0 * n + 5) for n, text in enumerate(SAID)), "tea")
        for video in ("dQw4w9WgXcQ", "aaaaaaaaaaa")
    ]
    folder = tmp_path_factory.mktemp("grounds") / "corpus"
    return build_corpus(narrations, folder, CorpusConfig(encoder=EncoderConfig(name="hash:64")))


@pytest.mark.thorough
def test_examples_where_systems_differ_most_are_explained_beside_their_plans(
    corpus: Path, tmp_path: Path, examples_file: Path
) -> None:
    files = [
        write_judged(tmp_path, "base", [1, 2, 1, 2, 0, None, 1, 1, 2, 1, 2, 1]),
        write_judged(tmp_path, "RL", [4, 4, 3, 4, 5, 4, 3, None, 4, 4, 3, 4]),
    ]
    asked = ("--corpus", corpus, "--explain", 2, "--link", "youtube")
    report = Report(files, [examples_file], *asked)
    explained = [one["id"] for one in report.data["examples"] if any("x" in plan for plan in one["p"])]
    assert report.printed["explained"] == 2
    assert explained == ["crosstask-0", "crosstask-4"]  # 1 and 4, the first of five; 0 and 5
    page = report.page
    assert page.count('<template id="ground-') == 4
    assert '"x":"ground-3"' in page
    assert "&lt;/template&gt;&lt;script&gt;" in page
    assert "</template><script>x" not in page
    assert 'href="https://www.youtube.com/watch?v=' in page
    assert 'class="links"' in page


@pytest.mark.parametrize("steps", [(), ("boil", " "), ("x" * (LONGEST + 1),), ("boil",) * (MOST + 1), None])
def test_plans_that_cannot_be_aligned_or_shown_are_left_out(
    corpus: Path, tmp_path: Path, examples_file: Path, steps: tuple[str, ...] | None
) -> None:
    """None: a plan like any other, for examples whose goals are not known."""
    plan = ("boil",) if steps is None else steps
    files = [write_judged(tmp_path, name, [value] * 12, plan=plan) for name, value in (("a", 1), ("b", 2))]
    report = Report(files, [] if steps is None else [examples_file], "--corpus", corpus)
    assert report.printed["explained"] == 0
    assert '<template id="ground-' not in report.page


def test_a_rating_without_the_plan_is_of_the_plan_that_is_known(judged_files: list[Path], examples_file: Path) -> None:
    rows = read_verdicts(rows_path(judged_files[0]))
    for order in (rows, rows[::-1]):
        bare = [replace(row, steps=(), repeat=1) for row in order if not row.control]
        write_verdicts(rows_path(judged_files[0]), [*bare, *rows])
        first = Report(judged_files, [examples_file]).data["examples"][0]
        assert [plan["t"] for plan in first["p"]] == [["pour the water", "pour the tea"]] * 2
        assert len(first["p"][0]["v"]) == 2
    assert first["id"] == EXAMPLES[0].example_id
