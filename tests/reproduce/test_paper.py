"""The clauses of the paper: where they are in the code, RL's prompts and the reward's history, RL's length, judges."""

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.reproduce.conftest import benchmarks, planned, write_page
from typer.testing import CliRunner

from recipe.artifacts import write_jsonl
from recipe.cli import app
from recipe.data.examples import read_examples, write_examples
from recipe.data.procedures import write_procedures
from recipe.planning.planner import prediction_of
from recipe.planning.prediction_files import write_predictions
from recipe.progress import SILENT
from recipe.prompting import PLAIN
from recipe.types import Example, Procedure, Step
from recipe_studies.experiments.stages import Training
from recipe_studies.experiments.study import TRAIN
from recipe_studies.reproduce.data import PROMPTS, TOLD, Supervision, perceived_history, supervise, weak_file
from recipe_studies.reproduce.findings import measure_table
from recipe_studies.reproduce.page import ScaleResults, made_table
from recipe_studies.reproduce.study import (
    PHI,
    Endpoints,
    PaperStudy,
    Regime,
    names,
    regime,
    scale,
    sized,
    training_config,
)
from recipe_studies.reproduce.tables import table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "paper.md"
SCALES = ("0.5b", "3b", "7b")
"""Of the paper."""


def example(cut: int, until: float | None = None, video: str = "v") -> Example:
    steps = ("wash", "cut", "boil", "serve")
    name = f"coin/{video}/{cut}"
    return Example(name, "coin", video, "make soup", steps[:cut], steps[cut:], cut, "train", until=until)


def trace(*starts: float | None, video: str = "v") -> Procedure:
    steps = tuple(Step(f"seen {n}", start, None) for n, start in enumerate(starts))
    return Procedure("coin", video, "make soup", steps, split="train")


@pytest.mark.parametrize(
    ("until", "starts", "told"),
    [
        (20.0, (0, 10, 20, 30), 2),  # the step that starts at the cut is not seen
        (25.0, (0, 10, 20, 30), 3),
        (0.0, (0, 10), 0),
        (99.0, (0, 10, 20), 3),  # nothing is left to come: the policy is asked all the same
        (None, (0, 10, 20, 30), 2),  # half of four
        (20.0, (0, None, 20, 30), 2),
        (20.0, (None, None, None, None, None, None), 3),
    ],
)
def test_phi_tells_what_it_saw_before_the_cut(until: float | None, starts: tuple[float | None, ...], told: int) -> None:
    assert perceived_history(example(2, until), trace(*starts)) == tuple(f"seen {n}" for n in range(told))


def test_the_policy_is_asked_with_phis_history_and_rewarded_with_the_clean_one(tmp_path: Path) -> None:
    """Section 3.2: the prompt holds the pseudo-trace up to the cut, h of the reward and c stay annotated."""
    training = [example(cut, 10.0 * cut, video) for video in "vwx" for cut in (1, 3)]
    write_examples(tmp_path / TRAIN, training)
    write_procedures(tmp_path / "traces.jsonl", [trace(0, 10, 20, 30, video=video) for video in "vw"])
    supervise(tmp_path, Supervision(PHI, tmp_path / "traces.jsonl"), SILENT)
    told, weak = (read_examples(tmp_path / file) for file in (TOLD, weak_file(100)))
    assert [one.example_id for one in told] == [one.example_id for one in weak]  # x has no trace
    for one, clean in zip(told, training, strict=False):
        assert replace(one, told_history=None) == clean  # history, continuation and supervision
        assert one.told_history == tuple(f"seen {n}" for n in range(clean.cut))
    asked = PLAIN.training_chat(told[1])[-1]["content"]
    assert "seen 2" in asked
    assert "wash" not in asked


def test_the_regime_trains_on_them_and_differs_from_rl_in_nothing_else() -> None:
    made = planned(PaperStudy(("main", "weak"), ("tiny",), None, seeds=(0,)))
    own = {stage.name: stage for stage in made.stages if isinstance(stage.settings, Training)}
    told, plain = (own[f"grpo-{name}-0"].settings.config for name in ("rl-phi", "rl"))
    assert str(told.examples) == TOLD
    assert told.model_copy(update={"examples": plain.examples, "output": plain.output}) == plain
    assert "supervision" in own["grpo-rl-phi-0"].needs
    for wrong in ({"weak": 0.5}, {"input": "video"}):
        with pytest.raises(ValueError, match="perceived"):
            Regime.model_validate({"title": "x", "prompts": "perceived", "grpo": {}, **wrong})


def test_every_place_of_a_clause_is_in_the_code(paper_page: ModuleType) -> None:
    page = paper_page
    text = PAGE.read_text(encoding="utf-8")
    assert len(page.PLACE.findall(text)) > 40
    assert page.missing_places(text) == []
    broken = "`recipe/reward/paper.py:no_reward`, `recipe/none.py:paper_reward`, `recipe/reward/paper.py:paper_reward`"
    assert page.missing_places(broken) == ["recipe/reward/paper.py:no_reward", "recipe/none.py:paper_reward"]
    assert page.render() in text
    for name in (*names("regimes"), *names("scales")):
        assert f"| `{name}` |" in text


def test_steps_follow_from_two_days_on_two_gpus(paper_page: ModuleType) -> None:
    """3 runs of RL at 0.5B and 7B, 12 at 3B with the two of the Video configuration: 97.5 s for a step of all."""
    page = paper_page
    assert [page.runs_of_rl(name) for name in SCALES] == [3, 12, 3]
    whole, half = page.step_bounds()
    assert (whole, half) == (int(96 * 3600 / 97.5), int(96 * 3600 / 97.5 / 2))
    for name in SCALES:
        made = training_config(scale(name), regime("rl"), "grpo", {"model": "m", "examples": "e", "output": "o",
                                                                   "corpus": "c"}, 0)  # fmt: skip
        assert half < made.steps < whole


def test_the_table_of_steps_is_of_shares_of_them(tmp_path: Path) -> None:
    """`--steps` is the whole; each row says how many, and they are drawn over them."""
    study = PaperStudy(("steps",), ("tiny",), None, seeds=(0,), changes=("grpo.steps=80",))
    made = planned(study)
    own = {stage.name: stage.settings.config for stage in made.stages if isinstance(stage.settings, Training)}
    wanted = {"rl-eighth": 10, "rl-quarter": 20, "rl-half": 40, "rl": 80}
    assert {name: own[f"grpo-{name}-0"].steps for name in wanted} == wanted
    assert sized("tiny", quick=True).grpo["steps"] == 3
    assert training_config(sized("tiny", quick=True), regime("rl-eighth"), "grpo", {"model": "m", "examples": "e",
                           "output": "o", "corpus": "c"}, 0).steps == 1  # fmt: skip
    measured(tmp_path, made)
    steps = measure_table(tmp_path, made, table("steps"))
    assert steps.labels["steps of GRPO"] == {name: str(count) for name, count in wanted.items()}
    page = write_page(tmp_path, ScaleResults("tiny", "2M", "Qwen2.5-3B", (0,), "validity", (steps,))).read_text()
    assert "steps of GRPO" in page


def test_steps_of_the_command_are_those_of_every_scale(tmp_path: Path) -> None:
    """By their hours: ten times the steps are ten times the hours of GRPO, but for starting."""
    hours = []
    for steps in (1_000, 10_000):
        options = f"main --scale tiny --scale 0.5b --steps {steps} --seeds 1 --dry-run --json".split()
        result = CliRunner().invoke(app, ["reproduce", *options, "--output", str(tmp_path / "run")])
        assert result.exit_code == 0, result.output
        kinds = [kind for cost in json.loads(result.stdout) for kind in cost["kinds"]]
        hours.append([kind["hours"] for kind in kinds if kind["kind"] == "training, GRPO"])
    assert [more / fewer for fewer, more in zip(*hours, strict=True)] == pytest.approx([10, 10], rel=0.05)


def measured(folder: Path, made: Any) -> None:
    """Prompts, plans and scores of every run of a study, and the diversity of those that are compared."""
    examples = [
        Example(f"{split}-{n}", "coin" if split == "coin" else "world", f"v{n}", f"g{n % 4}", ("a",), ("b",), 1, split)
        for split in (("test_cuts", "test_goals") if made.on_world else ("coin",)) for n in range(6)
    ]  # fmt: skip
    write_examples(folder / PROMPTS, examples)
    for run in (*made.runs, *made.frontier):
        write_predictions(folder / run.file("plans"), [prediction_of(e.example_id, 0, "1. b") for e in examples])
        rows: list[dict[str, Any]] = [
            {"example_id": e.example_id, "sample": 0, "accuracy": 50.0 + n % 5, "steps": 1}
            for n, e in enumerate(examples)
        ]
        write_jsonl(folder / run.file("scores"), rows)
        diverse = [{"example_id": e.example_id, "diversity": (n % 5) / 4} for n, e in enumerate(examples)]
        write_jsonl(folder / run.file("diversity"), diverse)


@pytest.mark.parametrize("name", ["main", "regimes", "diversity", "frontier", "qualitative"])
def test_a_table_by_a_judge_says_which_history_it_reads(name: str, tmp_path: Path) -> None:
    benchmarks(tmp_path / "data")
    server = {"model": "m", "endpoint": "http://127.0.0.1:1/v1"}
    seen = {**server, "settings": {"history": "perceived"}}
    asked = PaperStudy((name,), ("tiny",), tmp_path / "data", seeds=(0,))

    def shown(judge: Any = None, diversity: Any = None) -> dict[str, set[str]]:
        roles = {"judge": judge, "diversity_judge": diversity, "frontier": {"other": server}}
        made = planned(replace(asked, endpoints=Endpoints.model_validate(roles)))
        measured(tmp_path, made)
        found = measure_table(tmp_path, made, table(name))
        drawn = made_table(ScaleResults("tiny", "2M", "Qwen2.5-3B", (0,), "a judge", (found,)), found)
        assert [one.text for one in drawn.headings][: len(found.labels)] == [*found.labels]
        for own in found.labels.values():
            assert set(own) == {one.regime for one in found.figures}
        return {heading: set(own.values()) for heading, own in found.labels.items()}

    heading, both = "judge's history", name == "diversity"
    assert shown()[heading] == shown(server)[heading] == {"annotated"}
    assert shown(seen)[heading] == {"Phi's, simulated"}
    (tmp_path / "data" / "histories.jsonl").write_text("")
    assert shown(seen)[heading] == {"Phi's"}
    assert shown(server, seen).get("diversity judge's history") == ({"Phi's"} if both else None)


def test_exact_validity_reads_no_history(tmp_path: Path) -> None:
    made = planned(PaperStudy(("main",), ("tiny",), None, seeds=(0,)))
    measured(tmp_path, made)
    assert measure_table(tmp_path, made, table("main")).labels == {}


def test_the_judge_of_a_video_row_reads_the_annotated_history(tmp_path: Path) -> None:
    """Phi read nothing for a planner that sees the frames."""
    benchmarks(tmp_path)
    judge = {"model": "m", "endpoint": "http://127.0.0.1:1/v1", "settings": {"history": "perceived"}}
    endpoints = Endpoints.model_validate({"judge": judge})
    made = planned(PaperStudy(("video",), ("3b",), tmp_path, seeds=(0,), endpoints=endpoints))
    told = {stage.settings.judge.settings.history for stage in made.stages if "scores" in stage.name}
    assert told == {"annotated"}
