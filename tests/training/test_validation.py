"""Validation while training: what is chosen, kept and merged, and that prompts are held out."""

import json
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from recipe.artifacts import read_json, read_jsonl
from recipe.config import CorpusConfig, EncoderConfig, GRPOConfig, SamplingConfig, ValidationSettings
from recipe.corpus.build import build_corpus
from recipe.data.examples import write_examples
from recipe.errors import ConfigError, InputError
from recipe.evaluation.plan_measures import plan_measure
from recipe.training.grpo import train_grpo
from recipe.training.rewards import open_reward_run
from recipe.training.validation import plan_kl, require_held_out
from recipe.types import Example, Narration, Segment
from recipe.world.examples import draw_examples
from recipe.world.load import load_world


class Scripted:
    """A measure whose mean at each validation is given; counts the validations, and holds what it was asked."""

    def __init__(self, values: Sequence[float]) -> None:
        self.values, self.asked = list(values), list[tuple[list[str], list[tuple[str, ...]]]]()

    def __call__(self, examples: Sequence[Example], plans: Sequence[Sequence[str]]) -> list[float | None]:
        value = self.values[len(self.asked)]
        self.asked.append(([example.example_id for example in examples], [tuple(plan) for plan in plans]))
        return [None, *[value] * (len(plans) - 1)]


@pytest.fixture
def config(base_model: Path, grpo_settings: dict[str, Any], held_out: Path) -> GRPOConfig:
    settings = {"examples": held_out, "every": 2, "measure": "validity", "samples": 2}
    one = {"model": str(base_model), "steps": 5, "save_every": 2, "validation": settings}
    return GRPOConfig(**grpo_settings | one)


def rows(config: GRPOConfig) -> list[dict[str, Any]]:
    return [row for _, row in read_jsonl(config.output / "validation.jsonl")]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_file(folder / "model.safetensors"))


def equal(first: Path, second: Path) -> bool:
    one, other = weights(first), weights(second)
    return all(torch.equal(weight, other[name]) for name, weight in one.items())


@pytest.mark.thorough
def test_the_best_step_is_merged_and_named(config: GRPOConfig, scorer: Any, tmp_path: Path) -> None:
    measure = Scripted([0.2, 0.6, 0.6, 0.3])
    model = train_grpo(config, scorer, measure=measure)
    assert [row["step"] for row in rows(config)] == [0, 2, 4, 5]
    assert [row["validity"] for row in rows(config)] == pytest.approx(measure.values)
    assert [folder.name for folder in (config.output / "best").iterdir()] == ["step-00002"]
    # The weights of a run that ends there; equal values leave the earlier step.
    short = config.model_copy(update={"steps": 2, "validation": None, "output": tmp_path / "short"})
    assert equal(model, train_grpo(short, scorer))
    card = read_json(model / "card.json")
    assert card["step"] == 2
    assert card["figures"]["validation validity"] == pytest.approx(0.6)
    [note] = card["notes"]
    assert "Step 2 was best" in note
    assert "+0.400" in note
    assert read_json(config.output / "run.json")["notes"] == [note]
    assert str(tmp_path) not in json.dumps(card)
    # The same prompts each time, and rows that say what was not measured.
    assert len({tuple(names) for names, _ in measure.asked}) == 1
    assert measure.asked[0][0] == ["he0", "he0", "he1", "he1", "he2", "he2"]
    assert rows(config)[0]["unmeasured"] == pytest.approx(1 / 6)
    assert rows(config)[0]["prompts"] == pytest.approx([0.2] * 3)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("values", "patience", "chosen", "note"),
    [
        ([0.5, 0.4, 0.5, 0.1], None, 0, "No step was better than the base"),
        ([0.2, 0.6, 0.5], 1, 2, "stopped after step 4 of 5"),
    ],
)
def test_a_run_ends_with_the_best_step_or_the_base(
    config: GRPOConfig, scorer: Any, values: list[float], patience: int | None, chosen: int, note: str
) -> None:
    patient = config.validation.model_copy(update={"patience": patience})
    model = train_grpo(config.model_copy(update={"validation": patient}), scorer, measure=Scripted(values))
    assert [row["step"] for row in rows(config)] == [0, 2, 4, 5][: len(values)]
    assert len(list(read_jsonl(config.output / "metrics.jsonl"))) == rows(config)[-1]["step"]
    assert read_json(model / "card.json")["step"] == chosen
    assert note in " ".join(read_json(config.output / "run.json")["notes"])
    assert equal(model, Path(config.model)) == (chosen == 0)
    first, *others = rows(config)
    assert first["kl_plan"] == 0
    assert all(row["kl_plan"] > 0 for row in others)


@pytest.mark.thorough
def test_the_reward_needs_no_measure_and_is_the_scorers(config: GRPOConfig, scorer: Any) -> None:
    by_reward = config.validation.model_copy(update={"measure": "reward"})
    train_grpo(config.model_copy(update={"validation": by_reward, "steps": 1}), scorer)
    first = rows(config)[0]
    assert set(first) >= {"reward", "steps", "kl_plan", "plans", "unscored"}
    assert first["reward"] == pytest.approx(sum(first["prompts"]) / 3)
    assert first["reward"] <= 0  # minus the distance to three steps


def test_plans_are_sampled_at_the_temperature_of_the_run(config: GRPOConfig, scorer: Any, tmp_path: Path) -> None:
    asked = {}
    for name, temperature in (("cold", 0.4), ("warm", 1.6), ("again", 0.4)):
        own = {"temperature": temperature, "steps": 1, "output": tmp_path / name}
        measure = Scripted([0.2, 0.1])
        train_grpo(config.model_copy(update=own), scorer, measure=measure)
        asked[name] = measure.asked[0]  # before the first step: of the base
    assert asked["cold"] == asked["again"] != asked["warm"]


def test_a_run_samples_as_its_plans_are_used(config: GRPOConfig, scorer: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert GRPOConfig(model="m", examples="e", output="o", corpus="c").temperature == SamplingConfig().temperature
    for temperature, warned in ((0.7, False), (1.0, True)):
        caplog.clear()
        own = {"temperature": temperature, "output": config.output / str(temperature)}
        with ExitStack() as closing:
            open_reward_run("grpo", config.model_copy(update=own), scorer, closing)
        assert ("temperature" in caplog.text) == warned


# The process is killed after a validation that found a better step, before its checkpoint.
DOOMED = """
import os, signal, sys
from conftest import LengthScorer
from recipe.config import GRPOConfig
import recipe.training.grpo as grpo
from recipe.training.validation import Validation
validate = Validation.validate
def deadly(self, model, step):
    row = validate(self, model, step)
    if step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return row
Validation.validate = deadly
length = lambda examples, plans: [len(plan) / 10 for plan in plans]
grpo.train_grpo(GRPOConfig.model_validate_json(sys.argv[1]), LengthScorer(), measure=length)
"""


@pytest.mark.thorough
def test_a_killed_run_ends_with_the_same_rows_and_the_same_choice(
    config: GRPOConfig, scorer: Any, in_child: Any
) -> None:
    def length(examples: Sequence[Example], plans: Sequence[Sequence[str]]) -> list[float | None]:
        return [len(plan) / 10 for plan in plans]

    every = config.validation.model_copy(update={"every": 1, "samples": 1})
    config = config.model_copy(update={"validation": every})
    assert in_child(DOOMED, config.model_dump_json()) == -9
    assert [row["step"] for row in rows(config)] == [0, 1, 2, 3]
    whole = config.model_copy(update={"output": config.output.with_name("whole")})
    models = [train_grpo(one, scorer, measure=length) for one in (config, whole)]
    assert rows(config) == rows(whole)
    assert len(rows(config)) == 6
    assert equal(*models)
    # A run that is killed between its end and its model chooses the same.
    for path in (config.output / "model").iterdir():
        path.unlink()
    (config.output / "model").rmdir()
    assert equal(train_grpo(config, scorer, measure=length), models[1])
    assert rows(config) == rows(whole)


@pytest.mark.thorough
def test_other_prompts_are_another_run(config: GRPOConfig, scorer: Any, tmp_path: Path, held_out: Path) -> None:
    train_grpo(config.model_copy(update={"steps": 1}), scorer, measure=Scripted([0.5] * 2))
    config = config.model_copy(update={"steps": 1})
    copy, other = tmp_path / "copy.jsonl", tmp_path / "other.jsonl"
    copy.write_bytes(held_out.read_bytes())
    other.write_bytes(b"".join(held_out.read_bytes().splitlines(keepends=True)[:2]))
    same, changed = (
        config.model_copy(update={"validation": config.validation.model_copy(update={"examples": path})})
        for path in (copy, other)
    )
    train_grpo(same, scorer, measure=Scripted([]))
    with pytest.raises(ConfigError, match="validation examples"):
        train_grpo(changed, scorer, measure=Scripted([]))


@pytest.mark.parametrize(("change", "named"), [({"example_id": "e1"}, "'e1'"), ({"video_id": "v1"}, "'v1'")])
def test_prompts_of_the_training_examples_are_refused(
    examples: list[Example], tmp_path: Path, change: dict[str, str], named: str
) -> None:
    path = tmp_path / "validation.jsonl"
    fresh = [replace(one, example_id=f"x{one.example_id}", video_id=f"x{one.video_id}") for one in examples]
    write_examples(path, [fresh[0], replace(fresh[1], **change)])
    with pytest.raises(InputError, match=rf"validation.jsonl.*{named}.*training examples"):
        require_held_out(ValidationSettings(examples=path), tmp_path / "train.jsonl", examples, None)
    write_examples(path, fresh)
    require_held_out(ValidationSettings(examples=path), tmp_path / "train.jsonl", examples, None)


def test_videos_of_the_corpus_are_refused_also_under_another_id(examples: list[Example], tmp_path: Path) -> None:
    said = [f"now we {word} the very large bowl of warm water with care" for word in ("fill", "lift", "cool", "drain")]
    one = replace(examples[0], example_id="fresh", video_id="fresh", continuation=tuple(said))
    path = tmp_path / "validation.jsonl"
    write_examples(path, [one])
    encoder = CorpusConfig(encoder=EncoderConfig(name="hash:16"))
    other = (Segment("dig a hole and put the small tree in it today"), Segment("then water it well and wait a day"))
    for name, video, segments, fault in (
        ("id", "fresh", other, "'fresh'"),
        ("text", "reupload", tuple(map(Segment, said)), "'reupload'"),
        ("name", "Bowl-fresh", other, "'Bowl-fresh'"),
        ("clean", "another", other, None),
    ):
        build_corpus([Narration(video, segments)], tmp_path / name, encoder)
        settings = ValidationSettings(examples=path)
        if fault is None:
            require_held_out(settings, tmp_path / "train.jsonl", examples, tmp_path / name)
            continue
        with pytest.raises(InputError, match=rf"corpus.*{fault}.*--exclude"):
            require_held_out(settings, tmp_path / "train.jsonl", examples, tmp_path / name)


def test_videos_that_a_corpus_cannot_be_searched_for_are_warned_of(
    examples: list[Example], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = replace(examples[0], example_id="fresh", source="niv", video_id="changing_tire_0101")
    one = replace(one, history=("jack up the car",), continuation=("loosen the nuts",))
    path = tmp_path / "validation.jsonl"
    write_examples(path, [one])
    encoder = CorpusConfig(encoder=EncoderConfig(name="hash:16"))
    build_corpus([Narration("a1B2c3D4e5F", (Segment("stir"),))], tmp_path / "c", encoder)
    require_held_out(ValidationSettings(examples=path), tmp_path / "train.jsonl", examples, tmp_path / "c")
    (record,) = [record for record in caplog.records if record.name == "recipe.corpus.leaks"]
    assert "1 of 1" in record.getMessage()


@pytest.mark.parametrize("measure", ["validity", "matched_f1", "proxy"])
def test_measures_know_the_truth_from_nothing(measure: str, tmp_path: Path) -> None:
    examples = draw_examples(load_world(), "test_cuts", 4)
    compute = plan_measure(ValidationSettings(examples=tmp_path, measure=measure, encoder="hash:256"))
    assert compute is not None
    truth, nothing = (compute(examples, plans) for plans in ([one.continuation for one in examples], [()] * 4))
    assert min(value for value in truth if value is not None) > 0.9
    assert nothing == [0.0] * 4
    if measure == "validity":
        assert compute([replace(examples[0], goal="fly to the moon")], [("start",)]) == [None]


def test_the_estimate_is_the_divergence_of_whole_plans() -> None:
    # Every plan of two tokens from three words, weighted by the policy's probability of it.
    draw = np.random.default_rng(0)
    policy, reference = (draw.dirichlet(np.ones(3), size=(2, 4)) for _ in range(2))
    estimated, true = 0.0, 0.0
    for first, second in product(range(3), repeat=2):
        places = ((0, 0, first), (1, first, second))  # position, what came before, token
        p, q = (np.array([table[at] for at in places]) for table in (policy, reference))
        total, plans = plan_kl(torch.tensor(np.log([p])), torch.tensor(np.log([q])), torch.ones(1, 2)).tolist()
        assert plans == 1
        estimated += p.prod() * total
        true += p.prod() * np.log(p.prod() / q.prod())
    assert estimated == pytest.approx(true, rel=1e-9)


def test_padding_and_completions_that_are_masked_do_not_count() -> None:
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    total, plans = plan_kl(torch.full((2, 3), -1.0), torch.full((2, 3), -2.0), mask).tolist()
    assert (total, plans) == (pytest.approx(2 * math.exp(-1)), 1)
