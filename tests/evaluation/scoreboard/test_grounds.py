"""What grounds plans: which examples are explained, and that the page shows each explanation with its plan."""

from dataclasses import replace
from pathlib import Path

import pytest

from recipe.config import CorpusConfig, EncoderConfig, RewardConfig
from recipe.corpus.build import build_corpus
from recipe.corpus.store import Corpus
from recipe.evaluation.judge.verdicts import read_verdicts, write_verdicts
from recipe.evaluation.scoreboard.page import make_report, render_page
from recipe.evaluation.scoreboard.sources import gather
from recipe.evaluation.scoreboard.views import (
    STEP,
    STEPS,
    ExampleView,
    ExampleViews,
    PlanView,
    explain_plans,
    widest_differences,
)
from recipe.evaluation.scores import rows_path
from recipe.explain.records import Links
from recipe.reward.verifier import Verifier
from recipe.types import Narration, Segment

from .conftest import EXAMPLES

SAID = ("now boil the water", "warm the pot", "pour the water in", "</template><script>x</script> wait", "pour the tea")


def case(name: str, *scores: float | None, steps: tuple[str, ...] = ("boil",), goal: str = "tea") -> ExampleView:
    found = ExampleView(name, goal=goal, history=("begin",))
    for system, value in enumerate(scores):
        plan = PlanView(system, 0, steps, scores={} if value is None else {0: [value]})
        found.plans[system, 0, ""] = plan
    return found


@pytest.fixture
def verifier(tmp_path: Path) -> Verifier:
    narrations = [
        Narration(video, tuple(Segment(text, 10.0 * n, 10.0 * n + 5) for n, text in enumerate(SAID)), "tea")
        for video in ("dQw4w9WgXcQ", "aaaaaaaaaaa")
    ]
    folder = build_corpus(narrations, tmp_path / "corpus", CorpusConfig(encoder=EncoderConfig(name="hash:64")))
    return Verifier(Corpus.open(folder), RewardConfig())


def test_examples_where_systems_differ_most_come_first() -> None:
    cases = (case("near", 50, 55), case("far", 0, 90), case("one", 10), case("none", None, None), case("mid", 30, 60))
    assert [one.example_id for one in widest_differences(ExampleViews(("judge",), cases, {}), 3)] == [
        "far",
        "mid",
        "near",
    ]
    assert len(widest_differences(ExampleViews(("judge",), cases, {}), 99)) == 5


@pytest.mark.parametrize("steps", [(), ("boil", " "), ("x" * (STEP + 1),), ("boil",) * (STEPS + 1)])
def test_plans_that_cannot_be_aligned_or_shown_are_left_out(steps: tuple[str, ...]) -> None:
    assert widest_differences(ExampleViews(("judge",), (case("odd", 1, 2, steps=steps),), {}), 5) == []
    assert widest_differences(ExampleViews(("judge",), (case("no goal", 1, 2, goal=""),), {}), 5) == []


@pytest.mark.thorough
def test_explanations_are_on_the_page_beside_their_plans(
    verifier: Verifier, judged_files: list[Path], examples_file: Path
) -> None:
    report = make_report(gather(judged_files, [examples_file]), "t")
    found = explain_plans(verifier, report.views, 2, Links("youtube"))
    assert (found.examples, len(found.elements)) == (2, 4)
    page = render_page(report, found)
    assert page.count('<template id="ground-') == 4
    assert '"x":"ground-3"' in page
    assert "&lt;/template&gt;&lt;script&gt;" in page
    assert "</template><script>x" not in page
    assert 'href="https://www.youtube.com/watch?v=' in page
    assert 'class="links"' in page


def test_a_rating_without_the_plan_is_of_the_plan_that_is_known(judged_files: list[Path], examples_file: Path) -> None:
    rows = read_verdicts(rows_path(judged_files[0]))
    for order in (rows, rows[::-1]):
        bare = [replace(row, steps=(), repeat=1) for row in order if not row.control]
        write_verdicts(rows_path(judged_files[0]), [*bare, *rows])
        first = make_report(gather(judged_files, [examples_file]), "t").views.examples[0]
        assert [plan.steps for plan in first.plans.values()] == [("pour the water", "pour the tea")] * 2
        assert len(next(iter(first.plans.values())).verdicts) == 2
    assert first.example_id == EXAMPLES[0].example_id
