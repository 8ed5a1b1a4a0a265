"""The report: round trips, self-containment, and sections that appear only with their data."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recipe.artifacts import to_json, write_json
from recipe.cli import app
from recipe.errors import ComputeError, InputError
from recipe.evaluation.metrics import regime_colours
from recipe.evaluation.validity.readings import PlanLine
from recipe.report.colours import SPARE
from recipe.rows import from_json
from recipe.stats import Interval
from recipe_studies.experiments import plots
from recipe_studies.experiments.page import render_html, rerender
from recipe_studies.experiments.results import (
    Curve,
    Results,
    ShownPlan,
    ShownPrompt,
    Validated,
    ValidationCurve,
    load_results,
)


def save_results(path: Path, results: Results) -> None:
    write_json(path, to_json(results), sort_keys=False)


@pytest.fixture(scope="module")
def page(fake_results: Results) -> str:
    return render_html(fake_results)


class Elements(HTMLParser):
    """Start tags, ids, and tags left open."""

    VOID = ("meta", "br", "img", "link", "input", "hr")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.VOID:
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [value for name, value in attrs if name in ("href", "src", "xlink:href") and value]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_results_go_to_json_and_back(tmp_path: Path, fake_results: Results, fake_real_results: Results) -> None:
    for number, found in enumerate((fake_results, fake_real_results, Results("empty"))):
        file = tmp_path / f"{number}.json"
        save_results(file, found)
        assert load_results(file) == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"titel": "x"}, r"r\.json\.titel: the field is unknown; recreate"),
        (
            {"prompts": [ShownPrompt("a", "tea", (), (ShownPlan("RL", (PlanLine("x", "odd"),)),))]},  # type: ignore[arg-type]
            r"prompts\[0\]\.plans\[0\]\.lines\[0\]\.status: 'odd' is unknown",
        ),
    ],
)
def test_a_damaged_file_is_located(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_json(to_json(Results("x")) | to_json(change), Results, "r.json")


def test_numbers_that_were_not_computed_cannot_be_shown() -> None:
    with pytest.raises(ComputeError, match="not finite"):
        Interval(float("nan"))
    with pytest.raises(ComputeError, match="2 values for 1 steps"):
        Curve("RL", (1,), {"reward": (0.1, 0.2)})


def test_the_page_needs_nothing_but_itself(page: str) -> None:
    elements = Elements(page)
    assert elements.open == []
    assert all(link.startswith("#") for link in elements.links)
    assert not re.search(r"https?://(?!www\.w3\.org)", page)
    assert "<script" not in page
    assert "@import" not in page
    assert len(elements.ids) == len(set(elements.ids))
    used = {link[1:] for link in elements.links} | set(re.findall(r"url\(#([^)]+)\)", page))
    assert used | {*SECTIONS.values(), "run"} <= set(elements.ids)


def test_texts_are_escaped(page: str) -> None:
    assert "stir &lt;b&gt;the tea&lt;/b&gt; &amp; more" in page
    hostile = Results("<script>x</script>", curves=(Curve("<i>RL</i>", (1, 2), {"reward": (0.1, 0.2)}),))
    shown = render_html(hostile)
    assert "<script>" not in shown
    assert "<i>" not in shown


SECTIONS = {
    "scores": "plans",
    "curves": "training",
    "rerankings": "reranking",
    "lengths": "lengths",
    "prompts": "samples",
    "caveats": "caveats",
}


@pytest.mark.thorough
def test_a_section_without_data_is_left_out(fake_results: Results) -> None:
    for part in ("scores", "prompts"):
        small = replace(fake_results, **{name: () for name in SECTIONS if name != part})
        assert set(Elements(render_html(small)).ids) & set(SECTIONS.values()) == {SECTIONS[part]}


def test_real_data_makes_no_claim_of_validity(fake_real_results: Results) -> None:
    shown = render_html(fake_real_results)
    assert "no exact measure of a plan" in shown
    assert "Exact validity" not in shown


def test_regimes_keep_their_colours() -> None:
    first, second = regime_colours(["base", "RL", "other"]), regime_colours(["rl", "best of 4"])
    assert first["RL"] == second["rl"]
    assert first["other"] == SPARE[0]
    assert len({*first.values(), *second.values()}) == 4


@pytest.mark.thorough
@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_key_figure_is_a_file_of_its_own(suffix: str, tmp_path: Path, fake_results: Results) -> None:
    target = tmp_path / f"figure{suffix}"
    save_results(tmp_path / "report.json", fake_results)
    plots.key_figure(tmp_path, target)
    assert target.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")
    save_results(tmp_path / "report.json", Results("empty"))
    with pytest.raises(InputError, match="no key figure"):
        plots.key_figure(tmp_path, target)


def validated(results: Results, *regimes: str) -> Results:
    points = tuple(Validated(step, step**2, 0.1 * step, 0.5 - 0.1 * step, 4.0) for step in range(3))
    curves = tuple(ValidationCurve(regime, "validity", points, 9, 18) for regime in regimes)
    return replace(results, validations=curves)


@pytest.mark.thorough
def test_a_study_page_says_what_to_do_and_then_shows_what_each_reward_gained(
    tmp_path: Path, fake_results: Results
) -> None:
    found = validated(fake_results, "RL, grounded", "RL, paper")
    page = render_html(found)
    assert page.index('class="found"') < page.index("By drift")
    elements = Elements(page)
    assert len(elements.ids) == len(set(elements.ids))
    means, drift = plots.means_figure(found), plots.drift_figure(found.validations)
    measure, rewards = drift.axes
    assert [list(line.get_xdata()) for line in measure.lines[1::4]] == [[0, 1, 2]] * 2
    assert list(rewards.lines[1].get_ydata()) == [0, 0.5, 1]
    assert len(means.axes) == 2
    save_results(tmp_path / "report.json", found)
    plots.key_figure(tmp_path, tmp_path / "key.svg")
    # The drift of many runs in one picture would say nothing.
    many = render_html(validated(fake_results, *"abcde"))
    assert many.index('class="found"') < many.index("Mean difference to base")
    assert "By drift" not in many


@pytest.mark.thorough
def test_the_command_writes_the_page_again_from_its_file(tmp_path: Path, fake_results: Results, page: str) -> None:
    save_results(tmp_path / "report.json", fake_results)
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
    with pytest.raises(InputError, match="does not exist"):
        rerender(tmp_path / "nowhere")
