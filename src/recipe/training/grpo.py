"""Group relative policy optimisation against the verifier, by TRL (paper, section 3.3 and appendix A.4).

Differs from TRL's defaults where those differ from GRPO as first published: the KL term is not multiplied by the
ratio, the loss is averaged within each sequence before the batch, rewards are scaled within the group, and the learning
rate is constant. The reference policy is the model with its adapter switched off.

TRL's sampler starts over when a run is resumed in a later epoch. The prompts of all steps are therefore laid out
beforehand, in one epoch, so that a resumed run sees what an uninterrupted one would have seen.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase
from trl import GRPOConfig as TrlGRPOConfig
from trl import GRPOTrainer

from recipe.artifacts import write_jsonl
from recipe.config import GRPOConfig
from recipe.data.examples import read_training_examples
from recipe.errors import ComputeError, ConfigError
from recipe.models.checkpoints import Checkpoint, decode_completions, end_tokens, thought_opening
from recipe.models.devices import use_bf16
from recipe.plan_text import Completion
from recipe.progress import SILENT, Progress
from recipe.reward.scorer import Scorer
from recipe.reward.watchdog import CompletionRecord, Finding, Watchdog, read_records, replay
from recipe.text import planner_messages
from recipe.training import ranks
from recipe.training.loop import MetricsLog, Row, SilentGRPOTrainer, fit, quiet, renamed, shared_arguments
from recipe.training.policy import RollOuts, load_policy, lora_config
from recipe.training.rewards import (
    PART,
    OnFinding,
    covered_examples,
    open_reward_run,
    prompts_in_order,
    reward_metrics,
    score_completions,
)
from recipe.training.runs import Run, run_prompt, step_of
from recipe.training.validation import ROWS, Measure, Validation, require_held_out
from recipe.training.video.data import Histories, VideoPrompts, VideoSource, bounded_frames, video_source
from recipe.training.video.trainers import VideoGRPOTrainer, VideoRollOuts
from recipe.types import Example

_FIELDS = (
    {name: name for name in ("reward", "reward_std", "aligned_history", "aligned_full", "rho", "gated", "steps")}
    | {name: name for name in ("malformed", "unscored", "loss", "kl", "kl_plan", "entropy", "grad_norm")}
    | {"clip_ratio/region_mean": "clip_ratio", "completions/mean_length": "completion_tokens"}
    | {"completions/clipped_ratio": "clipped_ratio", "frac_reward_zero_std": "zero_std"}
    | {name: name for name in ("copied", "repeated", "length_growth", "length_pay", "coverage", "corpus_share")}
    | {
        "sampling/sampling_logp_difference/mean": "engine_gap",
        "sampling/sampling_logp_difference/max": "engine_gap_max",
    }
    | {"sampling/importance_sampling_ratio/mean": "engine_ratio"}
    | {name: name for name in ("reward_seconds", "step_seconds")}
)
"""A step's metrics as the trainer names them, and as `metrics.jsonl` does, in its order."""

_LOG = logging.getLogger(__name__)


@ranks.distributed_run()
def train_grpo(
    config: GRPOConfig,
    scorer: Scorer | None,
    progress: Progress = SILENT,
    histories: Histories | None = None,
    measure: Measure | None = None,
) -> Path:
    """Train adapters on the scorer's rewards and merge them; returns the model's folder.

    Of several processes (`recipe.training.ranks`) the first one scores for all; the others need no scorer. With
    `reward_service` the service is the scorer of all, and `scorer` is None.
    `measure` computes what validation chooses by, where that is not the reward.
    With `input = "video"`, `histories` show the examples' histories in place of the videos of `config.videos`. A
    finished run returns at once, a killed one resumes from its newest checkpoint with the same result.
    Raises InputError for a model, examples or videos that cannot be read, ConfigError for a run folder of other
    settings or of another service's verifier, ComputeError where training diverges, ServiceUnavailable.
    """
    if config.rollouts == "vllm":
        import recipe.training.vllm  # noqa: F401, PLC0415 - an extra of its own, missed before a folder is made
    closing = ExitStack()
    source = video_source(config, histories)
    videos = {} if source is None else {"videos": source.held}
    config, scorer, run = open_reward_run("grpo", config, scorer, closing, videos)
    if ranks.from_main(lambda: run.finished):
        return run.model
    log = MetricsLog(run, _metrics_row)
    with quiet(), closing, ExitStack() as shown:
        policy = bounded_frames(load_policy(config.model, config.revision, bf16=use_bf16(config.bf16)), source)
        if ranks.main():
            # The records of steps that are about to be repeated.
            checkpoint = run.latest_checkpoint()
            done = 0 if checkpoint is None else step_of(checkpoint)
            for record in run.completions.glob("step-*.jsonl"):
                if int(record.stem.rpartition("-")[2]) > done:
                    record.unlink()

        def on_finding(finding: Finding) -> None:
            _LOG.warning("%s: %s", run.folder.name, finding.sentence)
            # In view until the run ends.
            shown.enter_context(progress.task(f"watch {run.folder.name}: {finding.headline}"))

        ends = [*end_tokens(policy.model.generation_config, policy.tokenizer), policy.tokenizer.pad_token_id]
        reward = RewardFunction(config, scorer, run, on_finding, policy.tokenizer, ends)
        examples = read_training_examples(config.examples, config.split) if source is None else source.examples
        if config.validation is not None and ranks.main() and not (run.folder / ROWS).is_file():
            require_held_out(config.validation, config.examples, examples, config.corpus)
        if config.min_coverage is not None:
            everything = examples
            examples = ranks.from_main(lambda: covered_examples(config, scorer, everything, run))
            shown.enter_context(progress.task(f"{len(everything) - len(examples)} prompts left out, not covered"))
        trainer = grpo_trainer(config, policy, examples, reward, run, source)
        validation = None
        if config.validation is not None:
            ends = [*trainer.eos_token_ids, trainer.processing_class.pad_token_id]
            rows = config.prompts_per_step * config.group_size
            validation = Validation(config, run, policy, ends, rows, scorer, measure)
        return fit(trainer, run, log, "GRPO", config.steps, progress, policy.video, validation)


class RewardFunction:
    """The reward as the trainer calls it; writes the step's completions to `step-NNNNN.jsonl` of the run.

    A completion that could not be scored, or whose reward is not a finite number, is None: the trainer leaves it out of
    its group. Raises ComputeError for a step in which that is true of all: nothing would be learned. The watchdog
    sees what the trainer sees, and knows the steps that were recorded before the run was resumed. The first process
    scores, records and watches the completions of all, so that rewards do not depend on the number of processes.
    """

    __name__ = "verifier"

    def __init__(
        self,
        config: GRPOConfig,
        scorer: Scorer | None,
        run: Run,
        on_finding: OnFinding,
        tokenizer: PreTrainedTokenizerBase | None = None,
        ends: Sequence[int | None] = (),
    ) -> None:
        """`ends` are the tokens that end a completion: without one at its limit it was cut.

        With a tokenizer, completions are decoded again, because the trainer drops the tags of a thought where they are
        special tokens.
        """
        self._ends, self._tokenizer = ends, tokenizer
        self._opening = "" if tokenizer is None else thought_opening(tokenizer)
        self._scorer, self._config = scorer, config
        self._folder, self._longest = run.completions, config.max_completion_tokens
        recorded = ranks.main() and any(self._folder.glob("*.jsonl"))
        self._watchdog = replay(read_records(self._folder)) if recorded else Watchdog()
        self.on_finding = on_finding

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        *,
        example_id: Sequence[str],
        goal: Sequence[str],
        history: Sequence[Sequence[str]],
        trainer_state: Any,
        log_metric: Callable[[str, float], None],
        **_: Any,
    ) -> list[float | None]:
        texts = [str(turns[0]["content"]) for turns in completions]
        if self._tokenizer is not None:
            texts = decode_completions(self._tokenizer, completion_ids, self._opening)
        step, records = trainer_state.global_step + 1, list[CompletionRecord]()
        columns = zip(example_id, goal, history, texts, completion_ids, strict=True)
        for own_id, own_goal, own_history, text, tokens in columns:
            clipped = len(tokens) >= self._longest and tokens[-1] not in self._ends
            record = CompletionRecord(
                step=step,
                example_id=own_id,
                goal=own_goal,
                history=tuple(own_history),
                completion=Completion.of(text, cut=clipped),
                clipped=clipped,
            )
            records.append(record)
        of_all = ranks.gathered(records)
        totals = ranks.from_main(lambda: self._scored(step, of_all, log_metric))
        # Every process has an equal share, in the order of their ranks.
        share = len(totals) // ranks.world()
        return totals[ranks.rank() * share : (ranks.rank() + 1) * share]

    def _scored(
        self,
        step: int,
        records: list[CompletionRecord],
        log_metric: Callable[[str, float], None],
    ) -> list[float | None]:
        """The rewards of a step's completions, those of all processes, recorded and watched."""
        if self._scorer is None:
            raise ConfigError("the first process of a run needs a scorer; give it one.")
        began = time.monotonic()
        score_completions(self._scorer, records, earlier=bool(self._watchdog.steps))
        log_metric("reward_seconds", time.monotonic() - began)
        write_jsonl(self._folder / f"step-{step:05d}.jsonl", (record.row for record in records))
        if all(record.reward is None for record in records):
            raise ComputeError(
                f"Step {step}: not one of {len(records)} completions could be scored, the first for example "
                f"{records[0].example_id!r}; the warnings before say why, and the same command resumes the run."
            )
        for finding in self._watchdog.observe(step, records):
            self.on_finding(finding)
        metrics = reward_metrics(records, self._config.reward.grounded) | self._watchdog.metrics()
        for name, value in metrics.items():
            log_metric(name, value)
        return [None if record.reward is None else record.reward.total for record in records]


def grpo_trainer(
    config: GRPOConfig,
    policy: Checkpoint,
    examples: Sequence[Example],
    reward: RewardFunction,
    run: Run,
    source: VideoSource | None = None,
) -> GRPOTrainer:
    """The trainer of one run, from text or from the videos of `source`; raises InputError for videos and a model of
    text.
    """
    prompt, index = run_prompt(config), {example.example_id: number for number, example in enumerate(examples)}
    # The example of each group of the whole run.
    groups = -(-config.steps // config.iterations) * config.prompts_per_step
    rows: list[dict[str, object]] = []
    for draw, example in enumerate(prompts_in_order(examples, groups, config.seed)):
        row: dict[str, object] = {"example_id": example.example_id, "goal": example.goal}
        row["history"] = list(example.history)
        if source is None:
            row["prompt"] = prompt.training_chat(example)
        else:
            # TRL asks for a prompt in words; the trainer writes its own, with the clip in place of the history.
            row["prompt"] = planner_messages(example.goal, ())
            row |= {"example": index[example.example_id], "draw": draw}
        rows.append(row)

    kind: Any = SilentGRPOTrainer if source is None else VideoGRPOTrainer
    rollouts: Any = RollOuts if source is None else VideoRollOuts
    further: dict[str, Any] = {}
    if config.rollouts == "vllm":
        from recipe.training import vllm  # noqa: PLC0415 - an extra of its own

        kind = vllm.VllmGRPOTrainer if source is None else vllm.VllmVideoGRPOTrainer
        rollouts = vllm.VllmRollOuts if source is None else vllm.VllmVideoRollOuts
        further = {"config": config, "on_finding": reward.on_finding}
    if source is not None:
        prompts = VideoPrompts(config.model, policy, source.histories)
        further |= {"merger_rate": config.merger_learning_rate, "prompts": prompts, "examples": examples}
    trainer: GRPOTrainer = kind(
        **further,
        model=policy.model,
        reward_funcs=reward,
        args=trl_arguments(config, run),
        train_dataset=Dataset.from_list(rows),
        processing_class=policy.tokenizer,
        peft_config=lora_config(config.lora, policy.model, video=source is not None),
        rollout_func=rollouts(config.temperature, config.max_completion_tokens),
    )
    return trainer


def trl_arguments(config: GRPOConfig, run: Run) -> TrlGRPOConfig:
    """Our settings as TRL's."""
    completions = config.prompts_per_step * config.group_size
    micro, accumulated = ranks.passes(completions, config.micro_batch, "prompts_per_step x group_size")
    shared = shared_arguments(config, run)
    # A checkpoint between two passes over the same completions would lose them.
    shared["save_steps"] = -(-config.save_every // config.iterations) * config.iterations
    if config.rollouts == "vllm":
        shared |= {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "vllm_gpu_memory_utilization": config.vllm.memory,
            "vllm_enable_sleep_mode": config.vllm.sleep,
            "vllm_max_model_length": config.vllm.longest,
            "vllm_importance_sampling_correction": config.vllm.correction != "off",
        }
        if config.vllm.correction != "off":
            shared |= {
                "vllm_importance_sampling_mode": config.vllm.correction,
                "vllm_importance_sampling_clip_max": config.vllm.cap,
            }
    return TrlGRPOConfig(
        **shared,
        max_steps=config.steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=accumulated,
        num_generations=config.group_size,
        num_iterations=config.iterations,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant",
        warmup_steps=0,
        beta=config.beta,
        epsilon=config.clip,
        loss_type=config.loss,
        scale_rewards="none" if config.loss == "dr_grpo" else "group",
        use_bias_correction_kl=False,
        temperature=config.temperature,
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        repetition_penalty=1.0,
        max_completion_length=config.max_completion_tokens,
        mask_truncated_completions=config.truncated == "mask",
        shuffle_dataset=False,
        remove_unused_columns=False,
        log_completions=False,
    )


def _metrics_row(record: Row) -> Row | None:
    row = renamed(record, _FIELDS)
    if row is not None:
        row |= {name: value for name, value in record.items() if name.startswith(PART)}
        if "reward_seconds" in record:
            row["reward_share"] = record["reward_seconds"] / record["step_seconds"]
    return row
