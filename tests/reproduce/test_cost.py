"""What a dry run counts is what is asked; a budget holds for all stages; a file of models and its faults."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.models.endpoint_server import Reply, completion, serving
from tests.reproduce import conftest
from tests.reproduce.conftest import CRITERIA, benchmarks
from typer.testing import CliRunner

from recipe.cli import app
from recipe.config import CorpusConfig, EncoderConfig
from recipe.corpus.build import build_corpus
from recipe.data.examples import write_examples
from recipe.errors import BudgetSpent, ConfigError, CorpusError, InputError
from recipe.planning.planner import prediction_of
from recipe.planning.prediction_files import write_predictions
from recipe.progress import SILENT
from recipe.types import Narration, Segment
from recipe.world.examples import draw_examples
from recipe.world.load import load_world
from recipe_studies.experiments.models import SharedBudget
from recipe_studies.experiments.schedule import Stage
from recipe_studies.experiments.study import TRAIN
from recipe_studies.reproduce.cost import JUDGED, VIDEO_PROMPTS, estimate
from recipe_studies.reproduce.data import PROMPTS
from recipe_studies.reproduce.expand import ScaleRuns
from recipe_studies.reproduce.study import PaperStudy, load_endpoints, scale


def answer(body: dict[str, Any], count: int) -> Reply:
    asked = json.dumps(body["messages"])
    if "plan_1" in asked:
        return completion('{"score": 0.5}')
    return completion(json.dumps(dict.fromkeys(CRITERIA, 3)) if "prediction" in asked else "1. a step of its own")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two small benchmarks, with narrations that count by their size alone."""
    root = tmp_path / "data"
    benchmarks(root)
    shutil.rmtree(root / "niv")
    for file in (root / "narrations").iterdir():
        file.unlink()
    (root / "narrations" / "n.jsonl").write_text("x" * 1_000_000)
    return root


def models(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "models.toml"
    file.write_text(text)
    return file


def planned(data: Path, *tables: str, file: Path | None = None, **more: Any) -> ScaleRuns:
    more = {"scales": ("3b",), "seeds": (0,)} | more
    if file is not None:
        more["endpoints"] = load_endpoints(file, file.parent / "run")
    return conftest.planned(PaperStudy(tables=tables, data=data, **more))


def stage_of(made: ScaleRuns, name: str) -> Stage:
    return next(stage for stage in made.stages if stage.name == name)


def roles(url: str, more: str = "") -> str:
    return f"""
        judge = {{ model = "j", endpoint = "{url}", price_in = 2.0, concurrency = 4{more} }}
        diversity_judge = {{ model = "d", endpoint = "{url}", settings = {{ max_tokens = 4096 }} }}
        frontier."F-1.5" = {{ model = "f", endpoint = "{url}", sampling = {{ max_tokens = 8 }} }}
    """


@pytest.mark.thorough
def test_the_calls_of_an_estimate_are_those_that_are_made(tmp_path: Path, data: Path) -> None:
    """Before the data are there they are bounds of what the scale says; with prompts and plans they are exact."""
    drawn = [replace(one, source="coin") for one in draw_examples(load_world(), "test_cuts", 6)]
    changes = ("test=3", "samples=2")  # of each of two benchmarks
    with serving(answer) as server:
        file = models(tmp_path, roles(server.url))
        made = planned(data, "main", "diversity", "frontier", file=file, regimes=("base", "rl"), changes=changes)
        bounds = {one.role: one for one in estimate(made, []).roles}
        assert bounds["diversity_judge"].calls == round(2 * 6 * 45 * 1.1)
        assert bounds["judge"].calls == (2 * 2 + 1 + 3) * 6  # two runs of two plans, a frontier plan, three controls
        folder = tmp_path / "run" / "3b"
        write_examples(folder / PROMPTS, drawn)
        write_examples(folder / TRAIN, draw_examples(load_world(), "train", 6))
        for name, texts in (("base", ("1. a", "2. b")), ("rl-0", ("1. c", ""))):
            plans = [
                prediction_of(one.example_id, sample, texts[sample % 2] * (1 + sample // 2) + "\n3. d" * (sample > 3))
                for one in drawn
                for sample in range(10)
            ]
            write_predictions(folder / "plans" / f"{name}.jsonl", plans)
        done = ["data", "supervision", "prompts", "plans-base", "plans-rl-0"]
        counted = estimate(made, done, folder)
        assert counted.counted
        assert counted.prompts == 6
        assert not server.requests
        names = ["controls", *(f"{kind}-{run}" for kind in ("scores", "diversity") for run in ("base", "rl-0"))]
        for name in (*names, "plans-F-1.5", "scores-F-1.5"):
            stage = stage_of(made, name)
            stage.work(folder, stage.settings, SILENT)
        asked = Counter(body["model"] for body in server.requests)
        exact = {one.role: one for one in counted.roles}
        assert asked == {
            "j": exact["judge"].calls,
            "d": exact["diversity_judge"].calls,
            "f": exact["frontier F-1.5"].calls,
        }
        assert all(exact[role].calls <= bounds[role].calls for role in ("judge", "diversity_judge"))
        assert exact["judge"].tokens_in == exact["judge"].calls * JUDGED[0]
        assert exact["judge"].cost == pytest.approx(2e-6 * exact["judge"].tokens_in)
        assert exact["diversity_judge"].cost is None
        assert {body["max_tokens"] for body in server.requests} == {512, 4096, 8}
        after = estimate(made, [*done, *names, "plans-F-1.5", "scores-F-1.5"], folder)
        assert after.roles == ()
        again = estimate(made, done, folder)
        assert {one.role: one.kept for one in again.roles} == {one.role: one.calls for one in counted.roles}


def test_a_budget_holds_for_all_stages_and_a_larger_one_goes_on(tmp_path: Path, data: Path) -> None:
    drawn = draw_examples(load_world(), "test_cuts", 4)
    folder = tmp_path / "run" / "3b"
    write_examples(folder / PROMPTS, drawn)
    for name in ("base", "rl-0"):
        texts = (prediction_of(one.example_id, 0, f"1. {name}") for one in drawn)
        write_predictions(folder / "plans" / f"{name}.jsonl", list(texts))
    with serving(answer) as server:

        def stages(calls: int) -> list[Stage]:
            file = models(tmp_path, roles(server.url, f", max_calls = {calls}"))
            made = planned(data, "main", file=file)
            return [stage_of(made, name) for name in ("scores-base", "scores-rl-0")]

        first, second = stages(6)
        first.work(folder, first.settings, SILENT)
        with pytest.raises(BudgetSpent, match="6 of 6"):
            second.work(folder, second.settings, SILENT)
        assert len(server.requests) == 6
        first, second = stages(8)
        for stage in (first, second):
            stage.work(folder, stage.settings, SILENT)
        assert len(server.requests) == 8
        # What changes no answer changes no fingerprint, so that finished stages stay finished.
        assert second.identity == stages(6)[1].identity
        file = models(tmp_path, roles("http://elsewhere/v1", ", tries = 2").replace("price_in = 2.0", "timeout = 9"))
        moved = stage_of(planned(data, "main", file=file), "scores-rl-0")
        assert moved.identity == second.identity
        file.write_text(file.read_text().replace('model = "j"', 'model = "k"'))
        assert stage_of(planned(data, "main", file=file), "scores-rl-0").identity != second.identity


def test_processes_share_a_budget_and_the_killed_keep_nothing(tmp_path: Path) -> None:
    one, other = (SharedBudget(10, tmp_path / "answers") for _ in range(2))
    assert (one.reserve(6), other.reserve(6)) == (6, 4)
    with pytest.raises(BudgetSpent):
        other.reserve(1)
    one.settle(6, [])
    assert other.reserve(9) == 6
    other.settle(6, [])
    other.settle(4, [])
    (tmp_path / "answers" / "ab").mkdir()
    (tmp_path / "answers" / "ab" / "abc.json").write_text("{}")  # one answer is paid for
    code = (
        "import os, sys, pathlib; from recipe_studies.experiments.models import SharedBudget;"
        "print(SharedBudget(10, pathlib.Path(sys.argv[1])).reserve(20), flush=True); os._exit(9)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "answers"], env=environment, stdout=subprocess.PIPE, check=False
    )
    assert (int(killed.stdout), killed.returncode) == (9, 9)
    assert one.reserve(20) == 9


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ('[judge]\nmodel = "m"', ("judge.endpoint", "missing")),
        ('[judge]\nmodel = "m"\nendpoint = "http://h"\nconcurency = 3', ("judge.concurency", "'concurrency'")),
        ('[jugde]\nmodel = "m"\nendpoint = "http://h"', ("jugde", "'judge'")),
        ('[judge]\nmodel = "m"\nendpoint = "http://h"\nmax_tokens_total = 3', ("judge.max_tokens_total", "max_calls")),
        ('[judge]\nmodel = "m"\nendpoint = "http://h"\nsettings = { repeats = 0 }', ("judge.settings.repeats",)),
        ('[frontier."a.b"]\nmodel = "m"\nendpoint = "http://h"\nprice = 3', ("frontier.a.b.price", "'price_in'")),
        ('[frontier.rl-0]\nmodel = "m"\nendpoint = "http://h"', ("frontier", "'rl-0'")),
    ],
)
def test_a_fault_in_the_file_of_models_names_file_and_key(tmp_path: Path, text: str, facts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as error:
        load_endpoints(models(tmp_path, text), tmp_path)
    assert all(fact in str(error.value) for fact in ("models.toml", *facts))


def test_kinds_tables_and_workers_add_up(tmp_path: Path, data: Path) -> None:
    file = models(tmp_path, roles("http://h/v1"))
    made = planned(data, "all", file=file, seeds=(0, 1, 2))
    alone, four = estimate(made, [], workers=1), estimate(made, [], workers=4)
    assert sum(kind.stages for kind in four.kinds) == four.stages
    assert sum(kind.hours for kind in four.kinds) == pytest.approx(four.hours)
    assert sum(kind.endpoint_hours for kind in four.kinds) == pytest.approx(four.endpoint_hours)
    assert four.endpoint_hours == pytest.approx(sum(one.hours for one in four.roles), rel=0.2)  # and starting
    assert max(four.longest_hours, four.hours / 4) <= four.wall_hours < alone.wall_hours
    assert alone.hours <= alone.wall_hours <= alone.hours + alone.endpoint_hours
    assert set(four.tables) == {one.name for one in made.tables}
    assert max(four.tables.values()) < four.hours < sum(four.tables.values())
    # Weak mixtures of RL and SFT take most: the corpus of 10,000 segments takes seconds, and is on the disk.
    assert max(four.tables, key=lambda name: four.tables[name]) == "weak"
    cut = planned(data, "all", file=file, seeds=(0,))
    assert estimate(cut, []).hours < four.hours / 2
    video = [one for one in made.stages if one.name.startswith("video-scores")]
    calls = {one.role: one.calls for one in estimate(made, [one.name for one in made.stages if one not in video]).roles}
    assert calls == {"judge": len(video) * VIDEO_PROMPTS}


def test_the_page_shows_what_a_dry_run_of_the_paper_prints(data: Path) -> None:
    """And RL is the costliest stage, as the paper says of its own."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "results" / "training.md").read_text()
    endpoints = load_endpoints(root / "configs/models.toml", data)
    many, one = (
        estimate(planned(data, "all", seeds=seeds, endpoints=endpoints), [], workers=4) for seeds in ((0, 1, 2), (0,))
    )
    hours = {kind.kind: kind.hours for kind in many.kinds}
    sft, grpo = hours["training, SFT"], hours["training, GRPO"]
    assert grpo == max(hours.values())
    numbers = (
        f"{one.hours:.0f} hours of one H200 with one seed, {many.hours:.0f} with three",
        f"(SFT {sft:.0f}, GRPO {grpo:.0f}, plans {hours['plans']:.0f}), {many.wall_hours:.0f} with four workers",
        f"{many.disk_gb:.0f} GB on disk, {many.memory_gb:.0f} GB of a GPU",
    )
    assert [number for number in numbers if number not in page] == []


@pytest.mark.thorough
def test_a_dry_run_prints_the_same_for_a_program(tmp_path: Path, data: Path) -> None:
    file = models(tmp_path, roles("http://h/v1"))
    options = ["all", "--scale", "3b", "--data", str(data), "--models", str(file), "--output", str(tmp_path / "run")]
    result = CliRunner().invoke(app, ["reproduce", *options, "--workers", "4", "--dry-run", "--json"])
    assert result.exit_code == 0, result.output
    [cost] = json.loads(result.stdout)
    assert cost["workers"] == 4
    assert {one["kind"] for one in cost["kinds"]} >= {"data", "corpus", "training, GRPO", "plans", "diversity", "VPA"}
    assert {one["role"] for one in cost["roles"]} == {"judge", "diversity_judge", "frontier F-1.5"}
    shown = CliRunner().invoke(app, ["reproduce", *options, "--dry-run"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert f"{cost['roles'][0]['calls']:,}" in shown.stdout
    assert not (tmp_path / "run").exists()


def test_an_unset_key_ends_the_call_before_the_first_stage(tmp_path: Path, data: Path) -> None:
    file = models(tmp_path, roles("http://h/v1", ', key_variable = "NO_SUCH_KEY"'))
    options = ["main", "--scale", "3b", "--data", str(data), "--models", str(file), "--output", str(tmp_path / "run")]
    result = CliRunner().invoke(app, ["reproduce", *options])
    assert isinstance(result.exception, InputError)
    assert "NO_SUCH_KEY" in str(result.exception)
    assert not (tmp_path / "run" / "3b").exists()


def test_inputs_are_checked_before_the_start(tmp_path: Path, data: Path) -> None:
    with pytest.raises(CorpusError, match="nothing"):
        planned(data, "main", corpus=tmp_path / "nothing")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(CorpusError, match="nothing"):
        planned(data, "main", corpus=tmp_path / "nothing")
    corpus = tmp_path / "corpus"
    narrations = [Narration("v", (Segment("boil the water"),))]
    build_corpus(iter(narrations), corpus, CorpusConfig(encoder=EncoderConfig(name="hash:16")), SILENT)
    told = planned(data, "main", corpus=corpus).missing
    assert any("hash:16" in sentence and scale("3b").corpus.encoder.name in sentence for sentence in told)
    same = planned(data, "main", corpus=corpus, changes=("corpus.encoder.name=hash:16",)).missing
    assert not any("hash:16" in sentence for sentence in same)
    next(corpus.rglob("codes.npy")).unlink()
    with pytest.raises(CorpusError):
        planned(data, "main", corpus=corpus)
    with pytest.raises(InputError, match="none/model"):
        planned(data, "main", changes=("model=./none/model",))
    (data / "narrations" / "more.jsonl").touch()
    with pytest.raises(InputError, match=r"more\.jsonl"):
        planned(data, "main")
