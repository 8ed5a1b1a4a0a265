"""Intervals over seeds and prompts, and what they say of a claim."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import stdtrit
from tests.reproduce.conftest import planned, read_results, write_page
from typer.testing import CliRunner

from recipe.artifacts import read_jsonl, write_jsonl
from recipe.cli import app
from recipe.data.examples import write_examples
from recipe.errors import ComputeError
from recipe.planning.planner import prediction_of
from recipe.planning.prediction_files import read_predictions, write_predictions
from recipe.rows import from_json
from recipe.stats import Interval, seeded_interval
from recipe.types import Example
from recipe.world.examples import TextNoise
from recipe_studies.reproduce.data import PROMPTS, add_perception_noise
from recipe_studies.reproduce.expand import ScaleRuns
from recipe_studies.reproduce.findings import Values, columns_of, measure_table
from recipe_studies.reproduce.measures import CONTROLS
from recipe_studies.reproduce.page import ScaleResults, made_table, render_page, summary
from recipe_studies.reproduce.study import Endpoints, PaperStudy
from recipe_studies.reproduce.tables import Claim, table

GOALS = ("make tea", "bake bread", "fly a kite", "fix a tyre")


GIVEN = {"sentence": "a claim", "source": "somewhere", "first": "rl", "second": "base"}


def claim(direction: str, **more: Any) -> Claim:
    return from_json(GIVEN | {"direction": direction} | more, Claim, "a claim")


def test_one_seed_gives_the_t_interval_over_clusters() -> None:
    values = np.array([[1.0, 2.0, 4.0, 7.0]])
    made = seeded_interval(values, ["d"] * 4, GOALS)
    half = 3.182446305284263 * values.std(ddof=1) / 2  # t with 3 degrees of freedom, n = 4
    assert made.mean == pytest.approx(3.5)
    assert made.low == pytest.approx(3.5 - half)
    assert made.high == pytest.approx(3.5 + half)


def test_seeds_that_differ_widen_the_interval_as_their_own_t_interval() -> None:
    values = np.repeat(np.array([[1.0], [2.0], [6.0]]), 4, axis=1)  # prompts agree, seeds do not
    made = seeded_interval(values, ["d"] * 4, GOALS)
    half = 4.302652729696142 * np.std([1, 2, 6], ddof=1) / np.sqrt(3)  # t with 2 degrees of freedom, n = 3
    assert (made.mean, made.low) == (pytest.approx(3), pytest.approx(3 - half))


def test_datasets_weigh_the_same() -> None:
    made = seeded_interval([[0.0, 0.0, 0.0, 8.0, 8.0]], ["a", "a", "a", "b", "b"], ["1", "2", "3", "4", "5"])
    assert made.mean == 4
    assert seeded_interval([[0.0, 8.0, 8.0]], ["a", "b", "b"], ["1", "2", "3"]).low is None  # one cluster in a


@pytest.mark.thorough
@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_the_interval_covers_the_truth_where_seeds_and_prompts_vary(seed: int) -> None:
    rng = np.random.default_rng(seed)
    covered = 0
    for _ in range(20):
        values = rng.normal(size=(3, 1)) + rng.normal(size=(1, 30)) * 2 + rng.normal(size=(3, 30))
        made = seeded_interval(values, ["d"] * 30, [str(place) for place in range(30)])
        assert made.low is not None
        assert made.high is not None
        covered += made.low <= 0 <= made.high
    assert covered >= 13  # 20 draws at 95%: fewer than 14 once in ten million


def test_pairs_are_by_prompt_and_seed() -> None:
    values = Values(("p", "q"), ("d", "d"), GOALS[:2], {
        "base": np.array([[1.0, 5.0]]), "rl": np.array([[2.0, 6.0], [3.0, 7.0]]), "sft": np.zeros((3, 2)),
    })  # fmt: skip
    assert values.difference("rl", "base").mean == 1.5
    assert values.figure("rl", "all").seeds == (4.0, 5.0)
    with pytest.raises(ComputeError):
        values.difference("rl", "sft")


def test_the_best_of_several_is_bounded_by_all_of_them() -> None:
    """Three regimes, 4 prompts of a goal each, one seed: t with 3 degrees of freedom, at a third of 5%."""
    spread = np.array([-1.5, -0.5, 0.5, 1.5])
    measured = {"first": 1 + spread, "second": 3 + 2 * spread, "third": 2 + spread, "none": 0 * spread}
    values = Values(("p", "q", "r", "s"), ("d",) * 4, GOALS, {name: own[None] for name, own in measured.items()})
    peak = claim("above", first=["first", "second", "third"], second="none", splits=["d"])
    found = values.finding(table("weak"), peak, "d")
    assert found.difference is not None
    error = spread.std(ddof=1) / 2
    wide = float(stdtrit(3, 1 - 0.05 / 6)) * error
    assert found.difference.mean == 3
    assert found.difference.low == pytest.approx(2 - wide)  # that of the second is 3 - 2 wide
    assert found.difference.high == pytest.approx(3 + 2 * wide)
    assert found.verdict == "cannot tell"
    alone = values.finding(table("weak"), claim("above", first=["third"], second="none"), "d")
    assert alone.difference is not None
    assert alone.difference.low == pytest.approx(2 - float(stdtrit(3, 0.975)) * error)  # one of one is not corrected
    apart = replace(values, table={**values.table, "second": np.array([100 + spread])})
    assert apart.finding(table("weak"), peak, "d").verdict == "holds"
    under = replace(values, table={**values.table, "none": np.array([100 + spread / 3])})
    assert under.finding(table("weak"), peak, "d").verdict == "does not hold"
    absent = replace(values, table={"first": values.table["first"], "none": values.table["none"]})
    assert absent.finding(table("weak"), peak, "d").verdict == "not measured"


def test_a_claim_of_two_splits_is_the_difference_of_their_means() -> None:
    """In-domain are two datasets, 10 and 20, zero-shot one of 14.5: half a point apart, however many their prompts."""
    noise = np.array([-0.5, 0.5])
    inside = Values(("a", "b", "c", "d", "e"), ("x", "x", "y", "y", "y"), ("1", "2", "3", "4", "5"),
                    {"rl": np.array([[9.9, 10.1, 19.9, 20.0, 20.1]])})  # fmt: skip
    outside = Values(("f", "g"), ("z", "z"), ("6", "7"), {"rl": np.array([14.5 + noise])})
    same = claim("like", second="rl", splits=["in-domain"], against="zero-shot", margin=0.5)
    found = inside.finding(table("main"), same, "in-domain", outside)
    assert found.difference is not None
    assert found.difference.mean == pytest.approx(0.5)
    # Standard errors of the three means, each weighed as in its own split.
    parts = [0.1 / 2, np.std([-0.1, 0, 0.1], ddof=1) / np.sqrt(3) / 2, 0.5]
    variance = sum(part**2 for part in parts)
    freedom = variance**2 / sum(part**4 / count for part, count in zip(parts, (1, 2, 1), strict=True))
    half = float(stdtrit(freedom, 0.975)) * np.sqrt(variance)
    assert found.difference.low == pytest.approx(0.5 - half, rel=1e-6)
    assert "in-domain" in found.column
    assert "zero-shot" in found.column
    assert inside.finding(table("main"), same, "in-domain", replace(outside, table={})).verdict == "not measured"
    seeds = replace(inside, table={"rl": inside.table["rl"].repeat(2, axis=0)})
    both = seeds.finding(table("main"), same, "in-domain", outside).difference  # a model without seeds beside one with
    assert both is not None
    assert both.mean == pytest.approx(0.5)


def test_claims_are_of_their_scale_and_of_each_frontier_model(tmp_path: Path) -> None:
    """Of the world's tables: that of 7B is not asked at another scale; each model behind an endpoint has its own."""
    server = {"model": "m", "endpoint": "http://127.0.0.1:1/v1"}
    endpoints = Endpoints.model_validate({"frontier": {"alpha": server, "beta": server}})
    made = world_runs(tmp_path, tables=("main", "frontier"), endpoints=endpoints)
    plans = read_predictions(tmp_path / made.runs_of("base")[0].file("plans"))
    for run, level in zip(made.frontier, (5.0, -5.0), strict=True):  # alpha is 5 better zero-shot, beta worse
        rows = [row for _, row in read_jsonl(tmp_path / made.runs_of("base")[0].file("scores"))]
        higher = [{**row, "accuracy": row["accuracy"] + level * ("goals" in row["example_id"])} for row in rows]
        write_jsonl(tmp_path / run.file("scores"), higher)
        write_predictions(tmp_path / run.file("plans"), plans)
    main = measure_table(tmp_path, made, table("main"))
    assert [one.column for one in main.findings] == ["in-domain", "zero-shot"]
    frontier = measure_table(tmp_path, made, table("frontier"))
    means = {one.sentence.partition(" ")[0]: one.difference.mean for one in frontier.findings if one.difference}
    assert means == {
        "alpha": pytest.approx(5),
        "beta": pytest.approx(-5),
        "the": pytest.approx(0),
        "RL,": pytest.approx(0),
    }
    of_7b = replace(made, scale=made.scale.model_copy(update={"title": "Qwen2.5-7B"}))
    columns = [one.column for one in measure_table(tmp_path, of_7b, table("main")).findings]
    assert columns[:2] == ["in-domain", "zero-shot"]
    assert len(columns) == 3


def test_columns_of_the_world_are_its_splits() -> None:
    assert [name for name, _ in columns_of(["test_goals", "test_cuts"], per_dataset=True)] == ["in-domain", "zero-shot"]
    found = dict(columns_of(["niv", "crosstask", "coin"], per_dataset=True))
    assert list(found) == ["coin", "crosstask", "niv", "in-domain", "zero-shot"]
    assert found["in-domain"] == ["coin", "crosstask"]


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1), st.text(), st.floats(0, 1))
def test_a_simulated_reading_is_drawn_from_its_key(steps: list[str], key: str, rate: float) -> None:
    noise = TextNoise(rate, rate, rate, rate, rate)
    read = add_perception_noise(steps, ["x", "y"], key, noise)
    assert read == add_perception_noise(steps, ["x", "y"], key, noise)
    assert read
    assert set(read) <= {*steps, "x", "y"}


def world_runs(folder: Path, *, tables: tuple[str, ...] = ("main", "qualitative"), **more: Any) -> ScaleRuns:
    """The files that a finished study leaves: RL is 10 points above the base, and seed 2 above seed 1."""
    study = PaperStudy(tables, ("tiny",), None, seeds=(1, 2), regimes=("base", "rl"), **more)
    made = planned(study)
    examples = [
        Example(f"{split}-{n}", "world", f"v{n}", goal, ("start",), ("go on", "end"), 1, split)
        for split in ("test_cuts", "test_goals") for n, goal in enumerate(GOALS)
    ]  # fmt: skip
    write_examples(folder / PROMPTS, examples)
    for run in made.runs:
        write_predictions(folder / run.file("plans"), [prediction_of(e.example_id, 0, "1. go on") for e in examples])
        level = 40.0 if run.seed is None else 49.0 + (run.seed - 1) * 2
        rows = [
            {"example_id": e.example_id, "sample": 0, "accuracy": level + n % 4, "steps": 1}
            for n, e in enumerate(examples)
        ]
        write_jsonl(folder / run.file("scores"), rows)
    return made


def test_a_table_from_its_files(tmp_path: Path) -> None:
    made = world_runs(tmp_path)
    main = measure_table(tmp_path, made, table("main"))
    found = {(one.regime, one.column): one for one in main.figures}
    assert found["rl", "in-domain"].value.mean == pytest.approx(51.5)
    assert found["rl", "in-domain"].seeds == (50.5, 52.5)
    assert found["rl", "in-domain"].published == 39.2
    assert [(one.column, one.verdict) for one in main.findings] == [
        ("in-domain", "cannot tell"),
        ("zero-shot", "cannot tell"),
    ]
    assert main.findings[0].difference is not None
    assert main.findings[0].difference.mean == pytest.approx(10)  # two seeds 2 apart: t(1) is 12.7
    shown = measure_table(tmp_path, made, table("qualitative")).prompts
    assert [plan.regime for plan in shown[0].plans] == ["reference", "base", "rl"]
    scale = ScaleResults("tiny", "2M", "Qwen2.5-3B", (1, 2), "a judge", (main,))
    assert len(summary(read_results(write_page(tmp_path, scale).parent))) == 1


def test_what_a_judge_did_not_score_is_read_three_ways(tmp_path: Path) -> None:
    made = world_runs(tmp_path)
    assert all(one.readings == {} for one in measure_table(tmp_path, made, table("main")).figures)
    [run] = made.runs_of("base")
    rows = [row for _, row in read_jsonl(tmp_path / run.file("scores"))]
    write_jsonl(tmp_path / run.file("scores"), [{**rows[0], "accuracy": None}, *rows[1:]])
    main = measure_table(tmp_path, made, table("main"))
    count = len(GOALS)
    for one in main.figures:
        means = {name: value.mean for name, value in one.readings.items()}
        assert list(means) == ["missing_as_0", "missing_left_out", "missing_as_best"]
        assert means["missing_left_out"] == one.value.mean
        apart = 100 / count if (one.regime, one.column) == ("base", "in-domain") else 0
        assert means["missing_as_best"] - means["missing_as_0"] == pytest.approx(apart)
    scale = ScaleResults("tiny", "2M", "Qwen2.5-3B", (1, 2), "a judge", (main,))
    assert "missing as best" in write_page(tmp_path, scale).read_text()


def test_controls_stand_beside_the_regimes_that_they_are_compared_with(tmp_path: Path) -> None:
    """The first control is the base itself; the second has one prompt of a split only, and is far below."""
    made = world_runs(tmp_path)
    base = read_jsonl(tmp_path / made.runs_of("base")[0].file("scores"))
    rows = [{**row, "control": "like the base"} for _, row in base]
    rows += [{**rows[0], "control": "poor", "accuracy": 1.0}, {**rows[1], "control": "poor", "accuracy": None}]
    write_jsonl(tmp_path / CONTROLS, rows)
    main = measure_table(tmp_path, made, table("main"))
    found = {(one.regime, one.column): one for one in main.controls}
    assert found["control: like the base", "in-domain"].value.mean == pytest.approx(41.5)
    assert found["control: poor", "in-domain"].value == Interval(1.0, observations=1, clusters=1, reason="one cluster")
    assert ("control: poor", "zero-shot") not in found
    assert any(one.startswith("in-domain: Base") and "like the base: 0.0" in one for one in main.not_beaten)
    above = "like the base: +10.0 ["  # two seeds: t(1) is 12.7
    assert any("RECIPE-RL" in one and above in one for one in main.not_beaten)
    scale = ScaleResults("tiny", "2M", "Qwen2.5-3B", (1, 2), "a judge", (main,))
    shown = made_table(scale, main)
    assert [row.name for row in shown.rows][-2:] == ["control: like the base", "control: poor"]


def test_trained_controls_are_compared_with_the_regimes_of_rl_alone(tmp_path: Path) -> None:
    """RL is like the controls on R0 and on a wrong corpus, and 12 points above that on length in each seed."""
    made = world_runs(tmp_path, controls=True)
    for run in made.runs_of("control-length"):
        rows = [{**row, "accuracy": row["accuracy"] - 12} for _, row in read_jsonl(tmp_path / run.file("scores"))]
        write_jsonl(tmp_path / run.file("scores"), rows)
    main = measure_table(tmp_path, made, table("main"))
    assert {one.regime for one in main.figures} == {"base", "rl"}
    found = {(one.regime, one.column): one.value.mean for one in main.controls}
    assert found["control: RL, R0", "in-domain"] == pytest.approx(51.5)
    assert found["control: RL, number of steps", "zero-shot"] == pytest.approx(39.5)
    missed = [one for one in main.not_beaten if one.startswith("in-domain")]
    assert len(missed) == 2  # of the number of steps, three equal goals say nothing
    assert "RECIPE-RL does not beat" in missed[0]
    assert "RL, R0: 0.0" in missed[0]
    assert "RL, wrong corpus: 0.0" in missed[0]
    assert "number of steps" not in missed[0]


@pytest.mark.thorough
def test_the_page_comes_back_from_its_results(tmp_path: Path) -> None:
    made = world_runs(tmp_path)
    tables = tuple(measure_table(tmp_path, made, one) for one in made.tables)
    scale = ScaleResults("tiny", "2M", "Qwen2.5-3B", (1, 2), "exact validity", tables, made.missing, ("a note",))
    page = write_page(tmp_path, scale)
    html = page.read_text()
    assert html == render_page(read_results(tmp_path))
    markdown = (tmp_path / "report.md").read_bytes()
    for name in ("report.html", "report.md"):
        (tmp_path / name).unlink()
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code == 0
    assert (tmp_path / "report.md").read_bytes() == markdown
    assert page.read_text() == html
    assert CliRunner().invoke(app, ["report", str(tmp_path), "--figure", "x.png"]).exit_code == 2
    assert html.count("<table") == 3  # claims and figures of main, figures of qualitative
    assert "51.5" in html
    assert "39.2" in html
    assert "<script" not in html
    shown = made_table(scale, tables[0])
    assert [one.text for one in shown.headings] == ["here", "paper", "here", "paper"]
    assert "| RECIPE-RL |" in (tmp_path / "report.md").read_text()
