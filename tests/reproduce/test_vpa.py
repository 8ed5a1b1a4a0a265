"""The table of VPA: direct plans and VidAssist's on the same samples, resumed, and where an assessor gives no score."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reproduce.conftest import STEPS, benchmarks, planned, rows, write_page

from recipe.artifacts import read_json, write_json, write_jsonl
from recipe.config import ModelConfig, SamplingConfig, VidAssistConfig
from recipe.data.examples import read_examples, write_examples
from recipe.data.histories import History, write_histories
from recipe.evaluation.published import published
from recipe.evaluation.vpa.run import BASELINES
from recipe.models.model import Model
from recipe.models.protocol import Answer, Engine, ModelRequest, OnAnswer, Refusal
from recipe.planning.vidassist.trace import manifest_of, read_trace, trace_of
from recipe.progress import SILENT
from recipe.types import Example
from recipe.world.examples import TextNoise, draw_examples
from recipe.world.load import load_world
from recipe_studies.experiments.models import EndpointModel
from recipe_studies.experiments.study import TRAIN
from recipe_studies.reproduce.data import LEFT_OUT, PROMPTS, SAMPLES, SampleSource, write_samples
from recipe_studies.reproduce.expand import ScaleRuns
from recipe_studies.reproduce.findings import measure_table
from recipe_studies.reproduce.measures import FLOOR_ROWS, VIDASSIST_CACHE, NextActions, measure_floors, next_actions
from recipe_studies.reproduce.page import ScaleResults, made_table
from recipe_studies.reproduce.study import Endpoints, PaperStudy
from recipe_studies.reproduce.tables import table


class Written(Engine):
    """Proposes steps that follow from the question alone, gives one score to all, and stops after `most` answers."""

    def __init__(self, most: int = 10**9) -> None:
        self.most = most
        self.asked: list[str] = []

    def answer(
        self, requests: Sequence[ModelRequest], *_: Any, on_answer: OnAnswer | None = None, **__: Any
    ) -> list[Answer | Refusal]:
        answers: list[Answer | Refusal] = []
        for place, request in enumerate(requests):
            if len(self.asked) == self.most:
                raise KeyboardInterrupt
            text = request.chat[-1]["content"]
            self.asked.append(text)
            words = sorted(set("".join(filter(str.isalpha, text)).lower()))
            step = "".join(words[request.sample :: 3]) or "wait"
            assessed = "Proposed as the next action" in text
            answer = Answer('{"score": 6}' if assessed else f"1. {step}\n2. wait", logprob=-0.5)
            if on_answer is not None:
                on_answer(place, answer)
            answers.append(answer)
        return answers


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch, lettered: None) -> Callable[[Engine], None]:
    """Puts an engine in place of every model, with the answers kept where the settings say."""

    def install(engine: Engine) -> None:
        @contextmanager
        def opened(config: ModelConfig, **_: Any) -> Iterator[Model]:
            yield Model(engine, cache=config.cache, identity={"model": config.model})

        monkeypatch.setattr("recipe.models.model.open_model", opened)
        monkeypatch.setattr("recipe.planning.vidassist.methods.open_model", opened)

    return install


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    write_examples(tmp_path / PROMPTS, draw_examples(load_world(), "test_cuts", 12))
    write_samples(tmp_path, SampleSource(TextNoise(), limit=3), SILENT)
    return tmp_path


def settings(made: ScaleRuns, name: str) -> Any:
    [own] = [stage.settings for stage in made.stages if stage.name == name]
    return own


def world_study(**changed: Any) -> ScaleRuns:
    return planned(PaperStudy(("vpa",), ("tiny",), None, seeds=(0, 1), **changed))


def test_a_stage_for_each_run_and_row() -> None:
    made = world_study()
    stages = {stage.name: stage for stage in made.stages if stage.work is next_actions}
    runs = {"base": ["base"], "rl": ["rl-0", "rl-1"]}
    assert stages.keys() == {f"{row.kind}-{run}" for row in table("vpa").rows for run in runs[row.regime]}
    assert {*stages, "vpa-floors"} <= made.table_stages(table("vpa"))
    assert not stages.keys() & made.table_stages(table("main"))
    assert len({stage.outputs[0] for stage in stages.values()}) == len(stages)
    assert {(one.settings.limit, one.settings.data) for one in stages.values()} == {(100, None)}  # the same samples
    for name, stage in stages.items():
        assert (stage.settings.history == "annotated") == ("oracle" in name)
    both, alone = stages["vidassist-both-rl-1"], stages["vidassist-recipe-rl-1"]
    assert (both.settings.vidassist.candidates, alone.settings.vidassist.candidates) == (2, 4)
    assert both.settings.model.model == "runs/rl-1/grpo/model"
    assert (both.settings.original.model, both.settings.is_external_original) == ("base/model", False)
    assert set(both.needs) == {"grpo-rl-1", "base", "vpa-samples"}
    original = stages["vidassist-original-base"]
    assert [one.settings.answers for one in (both, alone, original)] == [(8, 24), (16, 16), (0, 32)]
    assert stages["vpa-rl-1"].settings.answers == (1, 0)
    baselines = [stages[name].settings for name in ("llm-base", "agent-base")]
    assert [(one.answers, one.tokens) for one in baselines] == [((0, 1), 4 * 48), ((0, 40), 48)]


def test_an_assessor_of_its_own_proposes_in_place_of_the_base() -> None:
    llama = EndpointModel(model="llama", endpoint="http://localhost:8000/v1")
    both = settings(world_study(endpoints=Endpoints(assessor=llama)), "vidassist-both-rl-0")
    assert (both.original, both.is_external_original, both.model.model) == (llama, True, "runs/rl-0/grpo/model")


def actions(proposers: str, run: str = "x", **changed: Any) -> NextActions:
    config = VidAssistConfig.model_validate({"proposers": proposers, "horizon": 4, "candidates": 2})
    direct = NextActions(ModelConfig(model="rl"), False, f"vpa/{run}.jsonl", SamplingConfig(), None, 3)
    fields: dict[str, Any] = {"vidassist": config, "original": ModelConfig(model="base"), "plans": f"plans/{run}.jsonl"}
    return replace(direct, **fields | changed)


def test_all_rows_are_of_the_same_samples(run_dir: Path, engines: Callable[[Engine], None]) -> None:
    engines(Written())
    direct = NextActions(ModelConfig(model="rl"), False, "vpa/direct.jsonl", SamplingConfig(), None, 3)
    for one in (direct, actions("original", "original"), actions("recipe", "recipe"), actions("both", "both")):
        next_actions(run_dir, one, SILENT)
    measured = {name: rows(run_dir / f"vpa/{name}.jsonl") for name in ("direct", "original", "recipe", "both")}
    assert len(measured["direct"]) == 3
    ids = [[row["example_id"] for row in some] for some in measured.values()]
    assert ids == [ids[0]] * 4
    assert {frozenset(row) for some in measured.values() for row in some} == {frozenset(measured["direct"][0])}
    sources = {}
    for name in ("original", "recipe", "both"):
        steps = [step for one in ids[0] for step in read_trace(trace_of(run_dir / f"plans/{name}.jsonl"), one)]
        assert len(steps) == 4 * 3
        sources[name] = {p.source for step in steps for c in step.candidates for p in c.proposals}
    assert sources == {"original": {"original"}, "recipe": {"recipe"}, "both": {"original", "recipe"}}


def test_a_stopped_stage_goes_on_from_its_answers(run_dir: Path, engines: Callable[[Engine], None]) -> None:
    whole, stopped, rest = Written(), Written(most=40), Written()
    engines(whole)
    next_actions(run_dir, actions("both", "whole"), SILENT)
    (run_dir / VIDASSIST_CACHE).rename(run_dir / "elsewhere")
    engines(stopped)
    with pytest.raises(KeyboardInterrupt):
        next_actions(run_dir, actions("both", "again"), SILENT)
    assert not (run_dir / "vpa/again.jsonl").exists()
    engines(rest)
    next_actions(run_dir, actions("both", "again"), SILENT)
    assert len(stopped.asked) + len(rest.asked) == len(whole.asked) > 40
    for kind in ("vpa", "plans"):
        assert (run_dir / kind / "again.jsonl").read_bytes() == (run_dir / kind / "whole.jsonl").read_bytes()


def crosstask(root: Path, folder: Path, *files: Path) -> SampleSource:
    """Write the samples of a CrossTask of ten test videos, three cuts each, with the histories of files."""
    if not root.exists():
        benchmarks(root)
    write_examples(folder / TRAIN, [Example("crosstask/a/1", "crosstask", "a", "x", ("wash cups",), ("dry cups",), 1)])
    source = SampleSource(TextNoise(0, 0, 1, 0, 0), root, files)  # every simulated step is of another goal
    write_samples(folder, source, SILENT)
    return source


def perceived(path: Path, known: Sequence[Example]) -> Path:
    """A file of histories, of steps that no annotation has."""
    write_histories(path, [History(row.example_id, (f"seen {row.cut}",), row.until) for row in known])
    return path


def test_histories_are_phis_and_the_oracle_is_a_row_of_its_own(
    tmp_path: Path, engines: Callable[[Engine], None]
) -> None:
    """Planners, proposers and assessors of a row read what its column says; samples without a history are in no row."""
    root, histories = tmp_path / "data", tmp_path / "histories.jsonl"
    crosstask(root, tmp_path)
    drawn = read_examples(tmp_path / SAMPLES)
    assert len(drawn) == 30
    assert {step for row in drawn for step in row.told_history or ()} == {"wash cups", "dry cups"}  # simulated
    absent = {row.example_id for row in drawn[::5]}
    perceived(histories, [row for row in drawn if row.example_id not in absent])
    own = perceived(tmp_path / "own.jsonl", drawn[:1])  # one more, of another file
    crosstask(root, tmp_path, histories, own)
    kept = read_examples(tmp_path / SAMPLES)
    assert {row.example_id for row in drawn} - {row.example_id for row in kept} == absent - {drawn[0].example_id}
    assert {row.told_history for row in kept} == {(f"seen {cut}",) for cut in range(3)}
    left = read_json(tmp_path / LEFT_OUT["VPA"])["left_out"]
    assert {row["reason"] for row in left} == {"history"}
    assert len(left) == 5
    cases: dict[str, dict[str, Any]] = {"direct": {"vidassist": None}, "both": {}}
    cases |= {name: {"vidassist": VidAssistConfig(method=name, proposers="original")} for name in ("llm", "agent")}
    for name, more in cases.items():
        for history in ("perceived", "annotated"):
            engine = Written()
            engines(engine)
            run = f"{name}-{history}"
            next_actions(tmp_path, actions("both", run, data=root, history=history, **more), SILENT)
            assert [row["example_id"] for row in rows(tmp_path / f"vpa/{run}.jsonl")] == [r.example_id for r in kept]
            asked = " ".join(engine.asked)
            assert ("seen 2" in asked) == (history == "perceived")
            done = [f"{STEPS[0]}\n{number}{STEPS[1]}" in asked for number in ("2. ", "Step 2: ")]  # at cut 2
            assert any(done) == (history == "annotated")
            if "vidassist" not in more or more["vidassist"] is not None:
                written = read_json(manifest_of(tmp_path / f"plans/{run}.jsonl"))["history"]
                assert written == ("oracle" if history == "annotated" else "as told")


def test_nothing_is_perceived_before_time_0(tmp_path: Path) -> None:
    """A sample that starts at second 0 has no history to be read, and is not left out for it."""
    root = tmp_path / "data"
    benchmarks(root)
    annotations = root / "crosstask" / "crosstask_release" / "annotations"
    for file in annotations.iterdir():
        file.write_text("".join(f"{n + 1},{10 * n},{10 * n + 7}\n" for n in range(len(STEPS))))
    crosstask(root, tmp_path)
    drawn = read_examples(tmp_path / SAMPLES)
    histories = perceived(tmp_path / "h.jsonl", [row for row in drawn if row.until])
    crosstask(root, tmp_path, histories)
    kept = read_examples(tmp_path / SAMPLES)
    assert [row.example_id for row in kept] == [row.example_id for row in drawn]
    assert {row.told_history for row in kept if row.cut == 0} == {()}


def test_floors_are_on_the_samples_and_calibrate_them(tmp_path: Path, run_dir: Path) -> None:
    """All videos are the same card in order: what follows most often is right; by chance one in five is."""
    root = tmp_path / "benchmarks"
    crosstask(root, tmp_path)
    measure_floors(tmp_path, root, SILENT)
    found = rows(tmp_path / FLOOR_ROWS)
    assert {row["control"] for row in found} == {*BASELINES}
    means = {name: np.mean([row["3.accuracy"] for row in found if row["control"] == name]) for name in BASELINES}
    assert means["goal-bigram"] == means["bigram"] == 100
    assert means["random-goal"] == pytest.approx(20, abs=2)
    write_examples(run_dir / TRAIN, draw_examples(load_world(), "train", 12))
    write_samples(run_dir, SampleSource(TextNoise()), SILENT)
    measure_floors(run_dir, None, SILENT)
    assert {row["control"] for row in rows(run_dir / FLOOR_ROWS)} == {*BASELINES}


def test_the_table_pairs_rows_and_says_what_was_missing(tmp_path: Path) -> None:
    """With RL 3 points above the base in VidAssist, seed 1 a point above seed 0; scores of RL's search are missing."""
    made = world_study()
    columns = [column.key for column in published("vpa").columns]
    level = {"base": 10.0, "rl": 20.0, "vidassist-both-base": 30.0, "vidassist-both-rl": 33.0}
    for stage in made.stages:
        if stage.work is next_actions:
            own = stage.settings
            run = Path(own.output).stem
            name = run.removesuffix("-0").removesuffix("-1")
            values = [level.get(name, 40.0) + (run[-1] == "1") + n % 4 for n in range(12)]
            measured = ({"example_id": f"e{n}", "goal": f"g{n % 6}"} | dict.fromkeys(columns, value)
                        for n, value in enumerate(values))  # fmt: skip
            write_jsonl(tmp_path / own.output, measured)
            if own.plans:
                missing = 7 if name == "vidassist-both-rl" else 0
                counts = {"candidates": 20, "short": 0, "lost": 0, "unscored": 0, "untold": {"evaluation": missing}}
                write_json(manifest_of(tmp_path / own.plans), {"counts": counts})
    level_of = {"random": 1.0, "random-goal": 15.0, "goal-bigram": 60.0}
    floors = ({"example_id": f"e{n}", "goal": f"g{n % 6}", "control": name} | dict.fromkeys(columns, value + n % 3)
              for name, value in level_of.items() for n in range(12))  # fmt: skip
    write_jsonl(tmp_path / FLOOR_ROWS, floors)
    vpa = measure_table(tmp_path, made, table("vpa"))
    control = {(one.regime, one.column): one for one in vpa.controls}
    assert control["control: random-goal", "3.iou"].published == 23.6
    assert control["control: goal-bigram", "3.iou"].published is None
    assert control["control: goal-bigram", "3.iou"].value.mean == pytest.approx(61)
    assert any("goal-bigram" in one and one.lstrip().startswith("RECIPE-RL ") for one in vpa.not_beaten)
    assert not any("random:" in one for one in vpa.not_beaten)
    told = vpa.labels["history"]
    for row in table("vpa").rows:
        assert told[row.name] == ("annotated" if row.history == "annotated" else "Phi's, simulated")
    found = {(one.regime, one.column): one for one in vpa.figures}
    assert {name for name, _ in found} == {row.name for row in table("vpa").rows}
    assert found["vidassist-both-rl", "3.accuracy"].value.mean == pytest.approx(35)
    assert found["vidassist-both-rl", "3.accuracy"].seeds == (34.5, 35.5)
    assert found["vidassist-both-rl", "3.accuracy"].published == 29.9
    assert found["rl", "3.accuracy"].published is None
    pairs = [one for one in vpa.findings if one.difference and one.difference.mean == pytest.approx(3.5)]
    assert {one.column for one in pairs} == {"1.accuracy", "3.accuracy", "4.accuracy"}
    [note] = vpa.notes
    assert "14 of 40" in note
    scale = ScaleResults("tiny", "2M", "Qwen2.5-3B", (0, 1), "exact validity", (vpa,), assessor="llama-2")
    shown = made_table(scale, vpa)
    assert [row.name for row in shown.rows][:13] == [row.title for row in table("vpa").rows]
    assert len({row.name for row in shown.rows}) == len(shown.rows) == 16
    assert (shown.headings[0].text, shown.rows[0].cells[0].value) == ("history", "Phi's, simulated")
    page = write_page(tmp_path, scale).read_text()
    assert "14 of 40" in page
    assert "llama-2" in page
