import math
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import trl.trainer.utils
from safetensors.torch import load_file
from trl import GRPOTrainer

from recipe.artifacts import read_jsonl
from recipe.config import GRPOConfig, LoraSettings
from recipe.data.examples import write_examples
from recipe.errors import ComputeError, ConfigError
from recipe.reward.scorer import PromptGroup, plain_reward
from recipe.training import policy
from recipe.training.grpo import RewardFunction, SilentGRPOTrainer, grpo_trainer, train_grpo, trl_arguments
from recipe.training.loop import quiet
from recipe.training.policy import load_policy
from recipe.training.rewards import prompts_in_order
from recipe.training.runs import open_run
from recipe.types import Example, Reward


@pytest.fixture
def config(base_model: Path, grpo_settings: dict[str, Any]) -> GRPOConfig:
    return GRPOConfig(**grpo_settings | {"model": str(base_model)})


class NumberScorer:
    """Rewards each plan of a step by its place."""

    def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
        return [[plain_reward(float(place), len(plan)) for place, plan in enumerate(group.plans)] for group in groups]


def metrics(config: GRPOConfig) -> list[dict[str, Any]]:
    """The rows of a run without what depends on the clock."""
    rows = [row for _, row in read_jsonl(config.output / "metrics.jsonl")]
    return [
        {name: value for name, value in row.items() if "seconds" not in name and name != "reward_share"} for row in rows
    ]


def test_settings_reach_the_trainer(config: GRPOConfig) -> None:
    plain = GRPOConfig(model="m", examples="e", output=config.output, corpus="c")
    args = trl_arguments(plain, open_run("grpo", plain, config.output, {}))
    assert (args.beta, args.epsilon, args.epsilon_high, args.num_generations) == (0.04, 0.30, None, 4)
    assert (args.loss_type, args.scale_rewards, args.use_bias_correction_kl) == ("grpo", "group", False)
    assert (args.learning_rate, args.lr_scheduler_type, args.warmup_steps) == (1e-4, "constant", 0)
    assert (args.temperature, args.top_p, args.top_k) == (0.7, 1.0, 0)
    assert args.optim == "adamw_torch_fused"
    assert args.report_to == []
    other = trl_arguments(plain.model_copy(update={"loss": "dr_grpo"}), open_run("grpo", plain, config.output, {}))
    assert (other.loss_type, other.scale_rewards) == ("dr_grpo", "none")
    assert plain.lora.model_dump() == {
        "rank": 16, "alpha": 32, "dropout": 0.05, "target_modules": ("q_proj", "v_proj"),
    }  # fmt: skip


def moved_trainer(config: GRPOConfig, scorer: Any, examples: list[Example]) -> GRPOTrainer:
    """A trainer whose adapters are away from the base, without dropout."""
    run = open_run("grpo", config, config.output, {})
    with quiet():
        reward = RewardFunction(config, scorer, run, lambda _: None)
        trainer = grpo_trainer(config, load_policy(config.model), examples, reward, run)
    torch.manual_seed(0)
    for weight in trainer.model.parameters():
        if weight.requires_grad:
            weight.data += 0.05 * torch.randn_like(weight)
    trainer.model.eval()
    return trainer


def test_log_probabilities_are_trls_with_the_output_layer_on_completions_only(
    config: GRPOConfig, scorer: Any, examples: list[Example], monkeypatch: pytest.MonkeyPatch
) -> None:
    fused, projected = trl.trainer.utils._ChunkedLogProbFunction.apply, []

    class Counting:
        @staticmethod
        def apply(hidden: torch.Tensor, *rest: Any) -> Any:
            projected.append(len(hidden))
            return fused(hidden, *rest)

    monkeypatch.setattr(trl.trainer.utils, "_ChunkedLogProbFunction", Counting)
    trainer = moved_trainer(config, scorer, examples)
    ids = torch.randint(20, 200, (3, 12))
    # Padded on the left, on the right, and a completion that is masked as a whole.
    mask = torch.ones_like(ids)
    mask[0, :3] = mask[1, 9:] = mask[2, 7:] = 0
    results = []
    for compute in (SilentGRPOTrainer, GRPOTrainer):
        log_probs, entropies, _ = compute._get_per_token_logps_and_entropies(
            trainer, trainer.model, ids, mask, 5, batch_size=2, compute_entropy=True
        )
        trainer.model.zero_grad()
        (log_probs.sum() + 0.3 * entropies.sum()).backward()
        gradients = [weight.grad for weight in trainer.model.parameters() if weight.requires_grad]
        results.append([log_probs.detach(), entropies.detach(), *gradients])
    assert results[0][0][1, 2:].count_nonzero() == results[0][0][2].count_nonzero() == 0
    assert len(results[0]) > 4
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert projected == [5 + 2, 0, 2 * 11, 11]


@pytest.mark.parametrize("prompts", [(0, 0, 1, 1, 1), (0, 0, 0, 0, 0), (2, 0, 1, 0, 2)])
def test_a_prompt_that_is_read_once_gives_the_loss_and_the_gradient_of_whole_rows(
    config: GRPOConfig, scorer: Any, examples: list[Example], prompts: Sequence[int]
) -> None:
    trainer = moved_trainer(config, scorer, examples)
    # Prompts of 9, 6 and 4 tokens, padded on the left, which begin alike; completions padded on the right.
    head, tails = torch.randint(20, 200, (3,)), [torch.randint(20, 200, (size,)) for size in (6, 3, 1)]
    ids, mask = torch.zeros(len(prompts), 14, dtype=torch.long), torch.zeros(len(prompts), 14, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        own = torch.cat([head, tails[prompt], torch.randint(20, 200, (5 - row % 3,))])
        first = 9 - 3 - len(tails[prompt])
        ids[row, first : first + len(own)], mask[row, first : first + len(own)] = own, 1
    read = list[tuple[int, ...]]()
    body = trainer.model.get_base_model().base_model
    hook = body.register_forward_pre_hook(
        lambda _module, _inputs, options: read.append(tuple(options["input_ids"].shape)), with_kwargs=True
    )
    results, rewards = [], torch.linspace(-1, 1, len(prompts))[:, None]
    for shares in (True, False):
        trainer.shares_prompts = shares
        log_probs, entropies, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, 5, compute_entropy=True
        )
        trainer.model.zero_grad()
        (log_probs * rewards).sum().backward()
        gradients = [weight.grad for weight in trainer.model.parameters() if weight.requires_grad]
        results.append([log_probs.detach(), entropies.detach(), *gradients])
    hook.remove()
    distinct = len({*prompts})
    assert [rows for rows, _ in read] == [1, distinct, len(prompts), len(prompts)]
    assert read[-1][1] == 14
    assert len(results[0]) > 4
    for shared, whole in zip(*results, strict=True):
        assert (shared - whole).norm() <= 1e-4 * whole.norm()


def test_the_plans_of_a_prompt_are_in_one_pass(config: GRPOConfig, scorer: Any, examples: list[Example]) -> None:
    config = config.model_copy(update={"prompts_per_step": 4, "lora": LoraSettings(dropout=0)})
    in_passes = config.model_copy(update={"micro_batch": config.group_size})
    trainer = moved_trainer(in_passes, scorer, examples)
    trainer.model.train()
    loader = iter(trainer.get_train_dataloader())
    with quiet():
        passes = [trainer._prepare_inputs(next(loader))]
        passes += [trainer._prepare_inputs([]) for trainer._step in (1, 2, 3)]
    prompts = [{tuple(row) for row in one["prompt_ids"].tolist()} for one in passes]
    assert [len(own) for own in prompts] == [1] * 4
    assert len(set.union(*prompts)) == 4
    for one, name in ((in_passes, "passes"), (config, "whole")):
        train_grpo(one.model_copy(update={"output": config.output.with_name(name)}), scorer)
    first, other = (
        metrics(config.model_copy(update={"output": config.output.with_name(name)}))[0] for name in ("passes", "whole")
    )
    assert first["loss"] == pytest.approx(other["loss"], abs=1e-4)
    assert first["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-3)


def test_begins_at_the_reference_moves_away_and_leaves_every_completion_with_its_reward(
    config: GRPOConfig, scorer: Any
) -> None:
    train_grpo(config, scorer)
    first, second = metrics(config)
    assert (first["step"], second["step"]) == (1, 2)
    assert first["kl"] == 0 < second["kl"]
    assert first["aligned_full"] == pytest.approx(0.2)
    assert {"reward", "rho", "gated", "steps", "malformed", "entropy", "zero_std", "clipped_ratio"} <= set(first)
    files = sorted((config.output / "completions").iterdir())
    assert [file.name for file in files] == ["step-00001.jsonl", "step-00002.jsonl"]
    rows = [row for _, row in read_jsonl(files[0])]
    assert len(rows) == config.prompts_per_step * config.group_size
    assert len({row["example_id"] for row in rows}) == config.prompts_per_step
    assert set(rows[0]["reward"]) == {field.name for field in fields(Reward)}
    assert first["reward"] == pytest.approx(sum(row["reward"]["total"] for row in rows) / len(rows))


def test_the_policy_reads_the_history_phi_told_and_the_reward_the_clean_one(
    config: GRPOConfig, examples: list[Example], tmp_path: Path, sampled_by: Any
) -> None:
    class RecordingScorer:
        def __init__(self) -> None:
            self.histories = set[tuple[str, ...]]()

        def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
            self.histories |= {group.history for group in groups}
            return [[plain_reward(float(len(plan)), len(plan)) for plan in group.plans] for group in groups]

    prompts: list[str] = []

    def sample(model: Any, asked: Sequence[list[int]], *rest: Any, **options: Any) -> list[list[int]]:
        prompts.extend(load_policy(config.model).tokenizer.batch_decode(asked))
        return plain_sample(model, asked, *rest, **options)

    plain_sample = policy.sample
    sampled_by(sample)
    path = tmp_path / "told.jsonl"
    write_examples(path, [replace(example, told_history=("stir the tea", "sing")) for example in examples])
    scorer = RecordingScorer()
    config = config.model_copy(update={"examples": path})
    train_grpo(config, scorer)
    assert prompts
    assert all("Done:\n1. stir the tea\n2. sing<|im_end|>" in prompt for prompt in prompts)
    assert scorer.histories <= {example.history for example in examples}
    rows = [row for file in (config.output / "completions").iterdir() for _, row in read_jsonl(file)]
    assert {tuple(row["history"]) for row in rows} == scorer.histories


@pytest.mark.thorough
def test_completions_that_are_masked_teach_nothing(config: GRPOConfig, sampled_by: Any) -> None:
    # Every completion is cut, and no two are alike.
    sampled_by(lambda _, prompts, *__, **___: [[20 + n, 40] for n in range(len(prompts))])
    cut = {"max_completion_tokens": 2, "micro_batch": 4, "steps": 1, "beta": 0.0}
    before = load_file(Path(config.model) / "model.safetensors")
    moved = {}
    for name in ("keep", "mask"):
        one = config.model_copy(update={**cut, "truncated": name, "output": config.output.with_name(name)})
        after = load_file(train_grpo(one, NumberScorer()) / "model.safetensors")
        moved[name] = any(not torch.equal(weight, after[key]) for key, weight in before.items())
        assert metrics(one)[0]["clipped_ratio"] == 1
        assert metrics(one)[0]["reward_std"] > 0
    assert moved == {"keep": True, "mask": False}


def test_what_could_not_be_scored_is_missing_not_zero(config: GRPOConfig, scorer: Any, examples: list[Example]) -> None:
    scorer.broken_goal = prompts_in_order(examples, 1, config.seed)[0].goal
    train_grpo(config, scorer)
    rows = [row for _, row in read_jsonl(config.output / "completions" / "step-00001.jsonl")]
    missing = [row for row in rows if row["goal"] == scorer.broken_goal]
    assert missing
    assert all(row["reward"] is None for row in missing)
    scored = [row["reward"]["total"] for row in rows if row["reward"] is not None]
    first = metrics(config)[0]
    assert first["unscored"] == len(missing) / len(rows)
    assert first["reward"] == (pytest.approx(sum(scored) / len(scored)) if scored else None)


@pytest.mark.thorough
def test_rewards_that_are_no_numbers_are_missing_and_a_step_of_them_is_an_error(config: GRPOConfig) -> None:
    class Broken(NumberScorer):
        def score_groups(self, groups: Sequence[PromptGroup]) -> list[list[Reward]]:
            first = [plain_reward(value, 1) for value in (math.nan, math.inf, 1.0, 2.0)]
            return [first if whole else first[:2] * 2 for whole in [self.whole] * len(groups)]

        whole = True

    scorer = Broken()
    config = config.model_copy(update={"steps": 1})
    train_grpo(config, scorer)
    assert metrics(config)[0]["unscored"] == 0.5
    assert metrics(config)[0]["reward"] == 1.5
    scorer.whole = False
    with pytest.raises(ComputeError, match=r"Step 1: not one of 8 completions .* example 'e\d+'"):
        train_grpo(config.model_copy(update={"output": config.output.with_name("none")}), scorer)


def test_finished_run_is_kept_and_other_settings_are_refused(config: GRPOConfig, scorer: Any) -> None:
    model = train_grpo(config, scorer)
    calls = scorer.calls
    assert train_grpo(config, scorer) == model
    assert scorer.calls == calls
    with pytest.raises(ConfigError, match=r"beta was 0.04, is 0.1"):
        train_grpo(config.model_copy(update={"beta": 0.1}), scorer)


def test_prompts_come_round_before_any_returns(config: GRPOConfig, examples: list[Example]) -> None:
    order = prompts_in_order(examples, 24, config.seed)
    assert len(order) == 24
    assert {e.example_id for e in order[:12]} == {e.example_id for e in order[12:]} == {e.example_id for e in examples}
    assert order[:12] != order[12:]
