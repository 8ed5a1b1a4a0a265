"""Rounds of best-of-N: what is chosen, what is learned from it, and what is recorded."""

import io
import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.utils.data import SequentialSampler
from trl import SFTConfig

from recipe.artifacts import read_json, read_jsonl, write_jsonl
from recipe.config import BestOfNConfig, LoraSettings, ValidationSettings
from recipe.data.examples import read_training_examples
from recipe.errors import ComputeError, InputError
from recipe.models.decoding import token_log_likelihood
from recipe.plan_text import Completion
from recipe.progress import LogLines
from recipe.prompting import PLAIN
from recipe.reward.scorer import Outcome, PromptGroup, plain_reward
from recipe.reward.watchdog import read_records
from recipe.training.best_of_n import RoundRecord, batches_in_order, choose, completion_loss, train_best_of_n
from recipe.training.loop import quiet
from recipe.training.policy import load_policy, lora_config
from recipe.training.sft import SilentSFTTrainer
from recipe.types import Example

SMALL = {"n": 4, "rounds": 1, "epochs": 1, "batch_size": 6, "completions_at_once": 48, "max_completion_tokens": 8}


@pytest.fixture
def config(base_model: Path, examples_file: Path, other_corpus: Path, tmp_path: Path) -> BestOfNConfig:
    return BestOfNConfig(
        model=str(base_model), examples=examples_file, output=tmp_path / "run", corpus=other_corpus,
        learning_rate=1e-2, metrics=(), **SMALL,
    )  # fmt: skip


class WordScorer:
    """Fines each word of a plan; fails, as an encoder may, for some goals."""

    def __init__(self, broken: tuple[str, ...] = ()) -> None:
        self.broken, self.plans = broken, 0

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Outcome]]:
        self.plans += sum(len(group.plans) for group in groups)
        down = ComputeError("The encoder is down.")
        return [
            [
                down if group.goal in self.broken else plain_reward(-float(words(plan)), len(plan))
                for plan in group.plans
            ]
            for group in groups
        ]


def words(plan: Sequence[str]) -> int:
    return sum(len(step.split()) for step in plan)


def records(config: BestOfNConfig, number: int) -> list[dict[str, Any]]:
    return [row for _, row in read_jsonl(config.output / "completions" / f"round-{number:02d}.jsonl")]


def rounds(config: BestOfNConfig) -> list[dict[str, Any]]:
    """The rows of the metrics that are about the plans of a round."""
    return [row for _, row in read_jsonl(config.output / "metrics.jsonl") if "loss" not in row]


def steps(config: BestOfNConfig) -> list[dict[str, Any]]:
    return [row for _, row in read_jsonl(config.output / "metrics.jsonl") if "loss" in row]


def table(rewards: Sequence[Sequence[float | None]], clipped: Sequence[Sequence[bool]]) -> list[RoundRecord]:
    """Plans of prompts with these rewards."""
    return [
        RoundRecord(
            step=1, goal="tea", history=(), completion=Completion.of("1. pour"), clipped=cut, round=1, tokens=[],
            reward=None if reward is None else plain_reward(reward, 1),
        )
        for own, cuts in zip(rewards, clipped, strict=True)
        for reward, cut in zip(own, cuts, strict=True)
    ]  # fmt: skip


tables = st.lists(
    st.lists(st.tuples(st.none() | st.integers(-3, 3).map(float), st.booleans()), min_size=3, max_size=3), max_size=6
)


@settings(max_examples=40, deadline=None)
@given(drawn=tables, how=st.sampled_from(["best", "random"]), cut=st.sampled_from(["keep", "mask"]), seed=st.integers())
def test_of_each_prompt_at_most_one_scored_plan_is_chosen(drawn: Any, how: Any, cut: Any, seed: int) -> None:
    config = BestOfNConfig(model="m", examples="e", output="o", corpus="c", n=3, choose=how, truncated=cut, seed=seed)
    rows = table([[reward for reward, _ in own] for own in drawn], [[cut for _, cut in own] for own in drawn])
    choose(config, 1, rows, 3)
    again = [replace(row, chosen=False) for row in rows]
    choose(config, 1, again, 3)
    assert again == rows
    for place in range(0, len(rows), 3):
        own = rows[place : place + 3]
        open_to = [row for row in own if row.reward is not None and (cut == "keep" or not row.clipped)]
        chosen = [row for row in own if row.chosen]
        assert len(chosen) == bool(open_to)
        for row in chosen:
            assert any(row is record for record in open_to)
            if how == "best":
                assert row.reward.total == max(record.reward.total for record in open_to)


def test_a_random_choice_is_uniform_over_the_same_plans() -> None:
    config = BestOfNConfig(model="m", examples="e", output="o", corpus="c", n=4, choose="random")
    rows = table([[0.0, 9.0, None, 1.0]] * 900, [[False] * 4] * 900)
    choose(config, 1, rows, 4)
    counts = [sum(row.chosen for row in rows[place::4]) for place in range(4)]
    assert counts[2] == 0
    assert all(abs(count - 300) < 4 * math.sqrt(900 * 2 / 9) for count in (counts[0], counts[1], counts[3]))
    later = table([[0.0, 9.0, None, 1.0]] * 900, [[False] * 4] * 900)
    choose(config, 2, later, 4)
    assert later != rows


def test_the_loss_is_the_likelihood_of_what_was_written(base_model: Path) -> None:
    policy = load_policy(str(base_model))
    policy.model.eval()
    draw = random.Random(0)
    prompts = [[draw.randrange(20, 200) for _ in range(length)] for length in (3, 9, 5)]
    said = [[draw.randrange(20, 200) for _ in range(length)] for length in (6, 1, 4)]
    loss = completion_loss(policy.model, prompts, said)
    loss.backward()
    with torch.no_grad():
        total = token_log_likelihood(policy.model, prompts, said).sum().item()
    assert loss.item() == pytest.approx(-total, rel=1e-4)


def test_reading_a_common_head_once_changes_no_gradient(base_model: Path) -> None:
    draw = random.Random(1)
    head, *own = ([draw.randrange(20, 200) for _ in range(length)] for length in (12, 3, 9, 5))
    prompts = [[*head, *rest] for rest in own]
    said = [[draw.randrange(20, 200) for _ in range(length)] for length in (6, 1, 4)]
    found = []
    for shared in (True, False):
        model = load_policy(str(base_model), bf16=False).model
        loss = completion_loss(model, prompts, said, shared)
        loss.backward()
        found.append((loss.detach(), [weight.grad for weight in model.parameters()]))
    (ours, own_gradients), (theirs, their_gradients) = found
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)
    for one, other in zip(own_gradients, their_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_every_plan_is_learned_from_once_an_epoch(config: BestOfNConfig) -> None:
    config = config.model_copy(update={"epochs": 2, "batch_size": 4})
    batches = batches_in_order(10, config, 1)
    assert [len(batch) for batch in batches] == [4, 4, 2] * 2
    for epoch in (batches[:3], batches[3:]):
        assert sorted(place for batch in epoch for place in batch) == list(range(10))
    assert batches[:3] != batches[3:]
    assert batches_in_order(10, config, 2) != batches


@pytest.fixture(scope="module")
def finished(base_model: Path, examples_file: Path, tmp_path_factory: pytest.TempPathFactory) -> BestOfNConfig:
    """Two rounds, in each of which half of the prompts come."""
    folder = tmp_path_factory.mktemp("best-of-n")
    config = BestOfNConfig(
        model=str(base_model), examples=examples_file, output=folder / "run", corpus=folder / "no-corpus", metrics=(),
        rounds=2, n=8, prompts_per_round=6, epochs=8, batch_size=3, learning_rate=2e-2, completions_at_once=16,
        max_completion_tokens=24,
    )  # fmt: skip
    scorer, shown = WordScorer(), io.StringIO()
    train_best_of_n(config, scorer, progress=LogLines(shown, every=0.0))
    assert scorer.plans == (2 * 8 + 1) * 6
    counted = [int(number) for number in re.findall(r"round (\d+)", shown.getvalue())]
    assert {*counted} == {1, 2}, shown.getvalue()  # of two rounds there is no third
    return config


def test_rounds_record_rewards_and_count_the_divergence(finished: BestOfNConfig) -> None:
    found = rounds(finished)
    assert [row["round"] for row in found] == [1, 2, 3]
    for row in found[:2]:
        chosen = [plan["reward"]["total"] for plan in records(finished, row["round"]) if plan["chosen"]]
        assert row["chosen_reward"] == pytest.approx(fmean(chosen))
    assert "chosen_reward" not in found[2]
    assert found[0]["kl_plan"] == 0 < found[1]["kl_plan"]
    assert [row["kl_bound"] for row in found] == pytest.approx(
        [math.log(8**done) - (8**done - 1) / 8**done for done in (0, 1, 2)]
    )


def test_every_plan_is_recorded_and_the_best_are_learned_from(finished: BestOfNConfig, examples: list[Example]) -> None:
    names = [{plan["example_id"] for plan in records(finished, number)} for number in (1, 2, 3)]
    assert list(map(len, names)) == [6, 6, 6]
    assert names[0] | names[1] == {example.example_id for example in examples}
    for number, row in enumerate(rounds(finished)[:2], start=1):
        plans = records(finished, number)
        assert len(plans) == row["prompts"] * 8 == 48
        assert row["reward"] == pytest.approx(fmean(plan["reward"]["total"] for plan in plans))
        chosen = {plan["example_id"]: plan["reward"]["total"] for plan in plans if plan["chosen"]}
        assert len(chosen) == row["chosen"]
        assert chosen == {
            name: max(plan["reward"]["total"] for plan in plans if plan["example_id"] == name) for name in chosen
        }
    # Two batches of three plans an epoch.
    assert [(row["step"], row["round"]) for row in steps(finished)] == [(n, 1 + (n > 16)) for n in range(1, 33)]
    # The watchdog reads the batches of all rounds, as it did while they were written.
    assert [step for step, _ in read_records(finished.output)] == list(range(1, 8))


def test_the_model_is_the_adapter_of_the_last_checkpoint_with_a_card(finished: BestOfNConfig) -> None:
    checkpoint, model = finished.output / "checkpoints/checkpoint-32", finished.output / "model"
    before, after = (load_file(Path(folder) / "model.safetensors") for folder in (finished.model, model))
    adapter = load_file(checkpoint / "adapter_model.safetensors")
    name = "model.layers.0.self_attn.q_proj"
    a, b = (adapter[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
    scale = finished.lora.alpha / finished.lora.rank
    torch.testing.assert_close(after[f"{name}.weight"], before[f"{name}.weight"] + scale * b @ a)
    assert torch.equal(after["model.layers.0.mlp.up_proj.weight"], before["model.layers.0.mlp.up_proj.weight"])
    card = read_json(model / "card.json")
    assert (card["stage"], card["step"], card["figures"]["round"]) == ("best-of-n", 32, 3)
    assert card["figures"]["reward"] == pytest.approx(rounds(finished)[-1]["reward"])
    assert read_json(checkpoint / "card.json")["stage"] == "best-of-n"


def test_prompts_without_a_reward_are_skipped_and_a_round_of_them_is_an_error(config: BestOfNConfig) -> None:
    with pytest.raises(ComputeError, match=r"Round 1: not one of 48 completions"):
        train_best_of_n(config, WordScorer(("make tea", "plant a tree", "change a tyre")))
    train_best_of_n(config, WordScorer(("make tea",)))
    [first, _] = rounds(config)
    assert first["unscored"] == pytest.approx(1 / 3)
    assert (first["prompts"], first["skipped"], first["chosen"]) == (12, 4, 8)
    plans = records(config, 1)
    assert all((plan["reward"] is None) == (plan["goal"] == "make tea") for plan in plans)
    assert first["reward"] == pytest.approx(fmean(p["reward"]["total"] for p in plans if p["reward"] is not None))


def test_validation_by_the_training_examples_is_refused(config: BestOfNConfig) -> None:
    settings = ValidationSettings(examples=config.examples, every=1, samples=2)
    with pytest.raises(InputError, match="training examples"):
        train_best_of_n(config.model_copy(update={"validation": settings}), WordScorer())


def interrupted(*_: Any) -> list[float | None]:
    raise KeyboardInterrupt


def test_validation_keeps_the_best_round(config: BestOfNConfig, held_out: Path) -> None:
    values = iter([0.5] * 6 + [0.9] * 6 + [0.1] * 6)
    settings = ValidationSettings(examples=held_out, every=1, samples=2, measure="validity")
    config = config.model_copy(update={"rounds": 2, "validation": settings})
    with pytest.raises(KeyboardInterrupt):  # before the base is validated
        train_best_of_n(config, WordScorer(), measure=interrupted)
    model = train_best_of_n(config, WordScorer(), measure=lambda of, plans: [next(values) for _ in plans])
    rows = [row for _, row in read_jsonl(config.output / "validation.jsonl")]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert [row["validity"] for row in rows] == pytest.approx([0.5, 0.9, 0.1])
    assert rows[0]["kl_plan"] == 0 < rows[1]["kl_plan"]
    assert "Round 1 was best" in read_json(config.output / "run.json")["notes"][0]
    card = read_json(model / "card.json")
    assert (card["step"], card["figures"]["round"]) == (2, 2)
    assert card["figures"]["validation validity"] == pytest.approx(0.9)
    # Of the second round the checkpoint is newer, the weights are not the model's.
    after = load_file(model / "model.safetensors")
    kept = load_file(config.output / "best/step-00001/adapter_model.safetensors")
    before = load_file(Path(config.model) / "model.safetensors")
    name = "model.layers.0.self_attn.v_proj"
    a, b = (kept[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
    torch.testing.assert_close(after[f"{name}.weight"], before[f"{name}.weight"] + 2 * b @ a)


class InOrder(SilentSFTTrainer):
    def _get_train_sampler(self, *_: Any) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)


@pytest.mark.thorough
def test_without_dropout_a_round_learns_as_trls_trainer_does(config: BestOfNConfig, tmp_path: Path) -> None:
    config = config.model_copy(update={"epochs": 2, "learning_rate": 1e-3, "lora": LoraSettings(dropout=0.0)})
    train_best_of_n(config, WordScorer())
    examples = {example.example_id: example for example in read_training_examples(config.examples)}
    policy = load_policy(config.model)
    rows = []
    for record in (row for row in records(config, 1) if row["chosen"]):
        chat = PLAIN.training_chat(examples[record["example_id"]])
        prompt = policy.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
        labels = [-100] * len(prompt) + record["tokens"]
        rows.append({"input_ids": prompt + record["tokens"], "labels": labels})
    order = [index for batch in batches_in_order(len(rows), config, 1) for index in batch]
    with quiet():
        torch.manual_seed(config.seed)
        trainer = InOrder(
            model=policy.model,
            args=SFTConfig(
                output_dir=str(tmp_path / "trl"), use_cpu=True, bf16=False, report_to=[], disable_tqdm=True,
                per_device_train_batch_size=config.batch_size, num_train_epochs=1, learning_rate=config.learning_rate,
                lr_scheduler_type="cosine", warmup_steps=config.warmup, max_length=None, logging_steps=1,
                save_strategy="no", dataset_kwargs={"skip_prepare_dataset": True}, seed=config.seed,
            ),
            train_dataset=Dataset.from_list([rows[index] for index in order]),
            processing_class=policy.tokenizer,
            peft_config=lora_config(config.lora, policy.model),
        )  # fmt: skip
        trainer.train()
    theirs = [row for row in trainer.state.log_history if "loss" in row]
    for field in ("loss", "learning_rate"):
        assert [row[field] for row in steps(config)] == pytest.approx([row[field] for row in theirs], rel=1e-4)


@pytest.mark.parametrize("how", ["keep", "mask"])
@pytest.mark.parametrize("one_ends", [True, False])
def test_cut_plans_are_trained_on_or_never_chosen(
    config: BestOfNConfig, sampled_by: Any, one_ends: bool, how: str
) -> None:
    """Each prompt has a cut plan of the highest reward beside one that ends, or two that are cut."""
    tokenizer = load_policy(config.model).tokenizer
    cut, ended = tokenizer.encode("1. boil"), [*tokenizer.encode("1. boil the water"), tokenizer.eos_token_id]
    pair = [cut, ended if one_ends else cut]
    sampled_by(lambda _model, prompts, *_, **__: (pair * len(prompts))[: len(prompts)])
    many = {"n": 2, "truncated": how, "prompts_per_round": 130, "batch_size": 130}
    config = config.model_copy(update=many)
    chosen = cut if how == "keep" else ended if one_ends else None
    if chosen is None:
        with pytest.raises(ComputeError, match="truncated = 'mask'"):
            train_best_of_n(config, WordScorer())
    else:
        train_best_of_n(config, WordScorer())
        assert rounds(config)[0]["clipped_ratio"] == (0.5 if one_ends else 1)
        assert len(records(config, 2)) == 128  # measured on no more
    assert [plan["tokens"] for plan in records(config, 1) if plan["chosen"]] == [chosen] * 130 * (chosen is not None)


def test_a_round_of_one_step_learns(config: BestOfNConfig, base_model: Path) -> None:
    """The first step of a warm-up has the rate 0."""
    model = train_best_of_n(config.model_copy(update={"rounds": 1, "epochs": 1, "batch_size": 64}), WordScorer())
    before, after = (load_file(folder / "model.safetensors") for folder in (base_model, model))
    assert any(not torch.equal(after[name], before[name].to(after[name])) for name in before)


def test_a_run_learns_from_the_plans_of_another_ones_first_round(config: BestOfNConfig, tmp_path: Path) -> None:
    train_best_of_n(config, WordScorer())
    first = config.output / "completions" / "round-01.jsonl"
    rows = [row for _, row in read_jsonl(first)]
    for row in rows:  # as no policy would sample them
        row["tokens"] = row["tokens"][:1] * 3
    write_jsonl(first, rows)
    shared = config.model_copy(update={"plans": config.output, "output": tmp_path / "shared", "choose": "random"})
    train_best_of_n(shared, WordScorer())
    assert [row["tokens"] for row in records(shared, 1)] == [row["tokens"] for row in rows]
    other = shared.model_copy(update={"n": 2, "output": tmp_path / "other"})
    with pytest.raises(InputError, match="another n, 4 where this one has 2"):
        train_best_of_n(other, WordScorer())
