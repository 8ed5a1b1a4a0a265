"""Group relative policy optimisation against the verifier, by TRL with the settings of the paper.

Differs from TRL's defaults where those differ from GRPO as first published: a KL term with weight beta that
is not multiplied by the ratio, the loss averaged within each sequence before the batch, rewards scaled
within the group, and a constant learning rate. The reference policy is the model with its adapter switched
off.

TRL's sampler starts over when a run is resumed in a later epoch. The prompts of all steps are therefore
laid out beforehand, in one epoch, so that a resumed run sees what an uninterrupted one would have seen.

The history is text, or with `input = "video"` the frames before the cut.
"""

import logging
import random
from contextlib import ExitStack
from pathlib import Path

from datasets import Dataset
from trl import GRPOConfig as TrlGRPOConfig
from trl import GRPOTrainer

from recipe.checkpoints import Checkpoint
from recipe.config import GRPOConfig
from recipe.data.examples import read_training_examples
from recipe.progress import SILENT, Progress
from recipe.reward.adapters import Scorer
from recipe.reward.watchdog import Finding, Watchdog, read_records, replay
from recipe.text import planner_messages
from recipe.training.loop import finish_training, renamed, shared_arguments, uses_bf16
from recipe.training.metrics import MetricsLog, Row
from recipe.training.policy import load_policy, lora_config, trained_in_float32
from recipe.training.quiet import Unreported, quiet
from recipe.training.rollouts import PART, RewardFunction, Tell
from recipe.training.runs import Run, open_run, step_of
from recipe.training.sampling import RollOuts
from recipe.training.video.grpo import VideoGRPOTrainer, VideoRollOuts
from recipe.training.video.prompts import Histories, VideoPrompts
from recipe.training.video.sources import Source, framed, video_source
from recipe.types import Example

_LOG = logging.getLogger(__name__)

_FIELDS = {
    "reward": "reward",
    "reward_std": "reward_std",
    "aligned_history": "aligned_history",
    "aligned_full": "aligned_full",
    "rho": "rho",
    "gated": "gated",
    "steps": "steps",
    "malformed": "malformed",
    "unscored": "unscored",
    "loss": "loss",
    "kl": "kl",
    "entropy": "entropy",
    "grad_norm": "grad_norm",
    "clip_ratio/region_mean": "clip_ratio",
    "completions/mean_length": "completion_tokens",
    "completions/clipped_ratio": "clipped_ratio",
    "frac_reward_zero_std": "zero_std",
    "copied": "copied",
    "repeated": "repeated",
    "length_growth": "length_growth",
    "length_pay": "length_pay",
    "coverage": "coverage",
    "abstained": "abstained",
    "reward_seconds": "reward_seconds",
    "step_seconds": "step_seconds",
}


class QuietGRPOTrainer(Unreported, GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, silent."""


def train_grpo(
    config: GRPOConfig, scorer: Scorer, progress: Progress = SILENT, histories: Histories | None = None
) -> Path:
    """Train adapters on the scorer's rewards and merge them; returns the model's folder.

    With `input = "video"`, `histories` show the examples' histories in place of the videos of `config.videos`. A
    finished run returns at once, a killed one resumes from its newest checkpoint with the same result.
    Raises InputError for a model, examples or videos that cannot be read, ConfigError for a run folder of other
    settings, ComputeError where training diverges.
    """
    inputs: dict[str, Path | str] = {"examples": config.examples, "model": Path(config.model), "corpus": config.corpus}
    source = video_source(config, histories)
    if source is not None:
        inputs["videos"] = source.held
    run = open_run("grpo", config, config.output, inputs)
    if run.finished:
        return run.model
    log = MetricsLog(run.folder, config.metrics, run.manifest, _row)
    with quiet(), ExitStack() as shown:
        policy = framed(load_policy(config.model, config.revision, bf16=uses_bf16(config)), source)
        _drop_later_completions(run)
        reward = reward_function(config, scorer, run, _teller(run, progress, shown))
        if source is not None:
            trainer = video_grpo_trainer(config, policy, source, reward, run)
        else:
            trainer = grpo_trainer(config, policy, read_training_examples(config.examples, config.split), reward, run)
        return finish_training(trainer, run, log, "GRPO", config.steps, progress, policy.video)


def _teller(run: Run, progress: Progress, shown: ExitStack) -> Tell:
    """Says a finding in the log, and keeps it in view until the run ends."""

    def tell(finding: Finding) -> None:
        _LOG.warning("%s: %s", run.folder.name, finding.sentence)
        shown.enter_context(progress.task(f"watch {run.folder.name}: {finding.headline}"))

    return tell


def reward_function(config: GRPOConfig, scorer: Scorer, run: Run, tell: Tell) -> RewardFunction:
    """The reward of one run; its watchdog knows the steps that were recorded before."""
    watchdog = replay(read_records(run.completions)) if any(run.completions.glob("*.jsonl")) else Watchdog()
    return RewardFunction(scorer, run.completions, config.max_completion_tokens, watchdog, tell)


def grpo_trainer(
    config: GRPOConfig, policy: Checkpoint, examples: list[Example], reward: RewardFunction, run: Run
) -> GRPOTrainer:
    """The trainer of one run."""
    return QuietGRPOTrainer(
        model=policy.model,
        reward_funcs=reward,
        args=trl_arguments(config, run),
        train_dataset=Dataset.from_list([_row_of(example) for example in prompts_in_order(config, examples)]),
        processing_class=policy.tokenizer,
        peft_config=lora_config(config.lora, policy.model),
        rollout_func=RollOuts(config.temperature, config.max_completion_tokens),
    )


def video_grpo_trainer(
    config: GRPOConfig, policy: Checkpoint, source: Source, reward: RewardFunction, run: Run
) -> VideoGRPOTrainer:
    """The trainer of one run from videos; raises InputError for a model of text."""
    place = {example.example_id: index for index, example in enumerate(source.examples)}
    rows = [
        {**_row_of(example), **_shown(example), "example": place[example.example_id], "draw": draw}
        for draw, example in enumerate(prompts_in_order(config, source.examples))
    ]
    trainer = VideoGRPOTrainer(
        prompts=VideoPrompts(config.model, policy, source.histories),
        examples=source.examples,
        model=policy.model,
        reward_funcs=reward,
        args=trl_arguments(config, run),
        train_dataset=Dataset.from_list(rows),
        processing_class=policy.tokenizer,
        peft_config=lora_config(config.lora, policy.model, video=True),
        rollout_func=VideoRollOuts(config.temperature, config.max_completion_tokens),
    )
    trained_in_float32(trainer.model)
    trainer.merger_rate = config.merger_learning_rate
    return trainer


def trl_arguments(config: GRPOConfig, run: Run) -> TrlGRPOConfig:
    """Our settings as TRL's."""
    completions = config.prompts_per_step * config.group_size
    micro = config.micro_batch or completions
    shared = shared_arguments(config, run)
    # A checkpoint between two passes over the same completions would lose them.
    shared["save_steps"] = -(-config.save_every // config.iterations) * config.iterations
    return TrlGRPOConfig(
        **shared,
        max_steps=config.steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=completions // micro,
        num_generations=config.group_size,
        num_iterations=config.iterations,
        learning_rate=config.learning_rate,
        lr_scheduler_type="constant",
        warmup_steps=0,
        beta=config.beta,
        epsilon=config.clip,
        loss_type="grpo",
        scale_rewards="group",
        use_bias_correction_kl=False,
        temperature=config.temperature,
        top_p=1.0,
        top_k=0,
        max_completion_length=config.max_completion_tokens,
        shuffle_dataset=False,
        remove_unused_columns=False,
        log_completions=False,
    )


def prompts_in_order(config: GRPOConfig, examples: list[Example]) -> list[Example]:
    """The example of each group of the whole run: in drawn order, all once before any comes again."""
    draw = random.Random(config.seed)
    needed = -(-config.steps // config.iterations) * config.prompts_per_step
    order: list[Example] = []
    while len(order) < needed:
        order += draw.sample(examples, len(examples))
    return order[:needed]


def _row_of(example: Example) -> dict[str, object]:
    return {
        "prompt": planner_messages(example.goal, example.history),
        "example_id": example.example_id,
        "goal": example.goal,
        "history": list(example.history),
    }


def _shown(example: Example) -> dict[str, object]:
    """The prompt in words, which TRL asks for: the trainer writes its own, with the clip in place of the history."""
    return {"prompt": planner_messages(example.goal, ())}


def _drop_later_completions(run: Run) -> None:
    """Remove the records of steps that are about to be repeated."""
    checkpoint = run.latest_checkpoint()
    done = 0 if checkpoint is None else step_of(checkpoint)
    for record in run.completions.glob("step-*.jsonl"):
        if int(record.stem.rpartition("-")[2]) > done:
            record.unlink()


def _row(record: Row) -> Row | None:
    return renamed(record, _FIELDS, _derived)


def _derived(record: Row) -> Row:
    parts = {name: value for name, value in record.items() if name.startswith(PART)}
    if "reward_seconds" not in record:
        return parts
    return parts | {"reward_share": record["reward_seconds"] / record["step_seconds"]}
