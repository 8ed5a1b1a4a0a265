"""GRPO against the verifier (paper, section 3.3 and appendix A.4): loop, reward and loss, from top to bottom.

Left to others: TRL's trainer samples, standardises rewards in each group and steps the optimiser; `policy.py` writes
the completions, `rewards.py` opens what scores plans and takes the means that are logged, `loop.py` keeps checkpoints
and the merged model, `validation.py` chooses the step, `video.py` and `vllm.py` are other inputs and another engine.

Settings differ from TRL's where its own differ from GRPO as first published: the KL term is not multiplied by the
ratio, the loss is averaged within each sequence before the batch, rewards are scaled within the group, and the learning
rate is constant. The reference policy is the model with its adapter switched off.

TRL's sampler starts over when a run is resumed in a later epoch. The prompts of all steps are therefore laid out
beforehand, in one epoch, so that a resumed run sees what an uninterrupted one would have seen.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import trl
from datasets import Dataset
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from recipe.artifacts import write_jsonl
from recipe.config.training import LARGEST_RATIO, GRPOConfig
from recipe.data.examples import read_training_examples
from recipe.errors import ComputeError, ConfigError
from recipe.models.checkpoints import Checkpoint, decode_completions, end_tokens, thought_opening
from recipe.models.decoding import common_head
from recipe.models.devices import use_bf16
from recipe.plan_text import Completion
from recipe.progress import SILENT, Progress
from recipe.reward.scorer import Scorer
from recipe.reward.watchdog import CompletionRecord, Finding, Watchdog, read_records
from recipe.text import planner_messages
from recipe.training import ranks
from recipe.training.loop import (
    MetricsLog,
    Row,
    SilentTrainer,
    can_share,
    fit,
    quiet,
    read_head,
    renamed,
    shared_arguments,
)
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
from recipe.training.validation import VALIDATION_ROWS, Measure, Validation, plan_kl, require_held_out
from recipe.training.video import ClipsInPrompts, Histories, VideoPrompts, VideoRollOuts, VideoSource, video_source
from recipe.types import Example

# A step's metrics as the trainer names them, and as `metrics.jsonl` does, in its order.
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
    source = video_source(config, histories)
    videos = {} if source is None else {"videos": source.held}
    with ExitStack() as stack:
        # Before any model is loaded: settings of another run, a missing corpus or a service that is away end here.
        config, scorer, run = open_reward_run("grpo", config, scorer, stack, videos)
        if ranks.from_main(lambda: run.finished):
            return run.model
        log = MetricsLog(run, _metrics_row)
        stack.enter_context(quiet())
        policy = load_policy(config.model, config.revision, bf16=use_bf16(config.bf16))
        policy = policy if source is None else source.bounding(policy)
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
            stack.enter_context(progress.task(f"watch {run.folder.name}: {finding.headline}", 0))

        ends = [*end_tokens(policy.model.generation_config, policy.tokenizer), policy.tokenizer.pad_token_id]
        reward = RewardFunction(config, scorer, run, on_finding, policy.tokenizer, ends)
        examples = read_training_examples(config.examples, config.split) if source is None else source.examples
        # Only before the first validation: a resumed run has been checked.
        if config.validation is not None and ranks.main() and not (run.folder / VALIDATION_ROWS).is_file():
            require_held_out(config.validation, config.examples, examples, config.corpus)
        if config.min_coverage is not None:
            everything = examples
            examples = ranks.from_main(lambda: covered_examples(config, scorer, everything, run))
            stack.enter_context(progress.task(f"{len(everything) - len(examples)} prompts left out, not covered", 0))
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

    # TRL logs a reward function's metrics under this name.
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
        self._watchdog = Watchdog.after(read_records(self._folder)) if recorded else Watchdog()
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
            # A completion of exactly the limit may have ended by itself.
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
        # Written first, so that the record of the step that failed can be read.
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


class SilentGRPOTrainer(SilentTrainer, trl.GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, silent, with prompts read once and the output layer on the tokens of completions only.

    TRL 1.16 reads a prompt again before each of its completions, and applies the output layer to prompts and padding
    too where Triton is missing, as on a CPU, and drops the result. The overrides of private methods are safe while
    TRL's minor version is pinned; a test holds their signatures.
    """

    beta: float
    """Weight of the KL term."""
    _buffered_inputs: Any
    _step: int
    shares_prompts = True
    """Whether completions of one prompt may go on from one reading of it, where the model allows that."""
    _written: torch.Tensor
    """Log-probabilities [B, tokens] that were computed last."""
    _spent: torch.Tensor | float = 0.0
    """Of the passes of the step under way, as `plan_kl` gives it."""

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's loss; a step's last pass logs `kl_plan`, the mean KL of its plans in nats."""
        loss: torch.Tensor = super()._compute_loss(model, inputs)
        if self.beta != 0.0:  # without a KL term TRL computes no reference
            # Summed over the passes of a step: a pass holds some of its plans only.
            self._spent += plan_kl(self._written, inputs["ref_per_token_logps"], inputs["completion_mask"])
            if self.accelerator.sync_gradients:
                total, plans = self.accelerator.reduce(self._spent, reduction="sum").tolist()
                self._spent, kl = 0.0, total / plans if plans else math.nan
                self._metrics["train"]["kl_plan"].append(kl)
        return loss

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """TRL's passes over a step's completions, with those of one prompt together: it shuffles them."""
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        # Only rows of one prompt in one pass share its reading, and TRL deals them out at random. A mean over all
        # passes is the same in any order.
        if self.shares_prompts and self._buffered_inputs is not before and len(self._buffered_inputs) > 1:
            self._buffered_inputs = _by_prompt(self._buffered_inputs)
            inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
        return inputs

    def model_inputs(self, ids: torch.Tensor, mask: torch.Tensor, rows: slice) -> dict[str, torch.Tensor]:
        """What the model reads for some `rows` of the batch, whose ids and mask are [B, L]."""
        return {"input_ids": ids, "attention_mask": mask}

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """Log-probabilities and entropies [B, logits_to_keep] of the completions' tokens, 0 at padding, and the loss
        that balances the experts of a model that has some.
        """
        size = batch_size or len(input_ids)
        routed = {"output_router_logits": True} if compute_aux_loss else {}
        body = self.accelerator.unwrap_model(self.model).get_base_model().base_model
        share = self.shares_prompts and logits_to_keep > 1 and not compute_aux_loss and can_share(body)
        log_probs, entropies, balance = [], [], []
        for start in range(0, len(input_ids), size):
            rows = slice(start, start + size)
            ids, mask = input_ids[rows], attention_mask[rows]
            written = mask[:, -logits_to_keep:].bool()
            labels = ids[:, -logits_to_keep:][written][None]
            with self.accelerator.autocast():
                last = None
                if share:
                    # A prompt of 90 tokens and a completion of 40: read for each of 8 completions it is most of a pass.
                    read, last = _behind_prompts(body, ids, mask, logits_to_keep)
                else:
                    read = self.model_inputs(ids, mask, rows)
                with _hidden_before(body, written, last):
                    # Labels that need no shift are compared with the hidden states one by one.
                    output = model(**read, **routed, shift_labels=labels, fused_lm_head=True)
            balance.append(output.aux_loss)
            nothing = output.log_probs.new_zeros(written.shape)
            log_probs.append(nothing.masked_scatter(written, output.log_probs))
            entropies.append(nothing.masked_scatter(written, output.entropy))
        self._written = torch.cat(log_probs).detach()
        return (
            torch.cat(log_probs),
            torch.cat(entropies) if compute_entropy else None,
            torch.stack(balance).mean() if compute_aux_loss else None,
        )


class VideoGRPOTrainer(ClipsInPrompts, SilentGRPOTrainer):
    """The same loss on prompts with a video."""


def _by_prompt(passes: Sequence[Row]) -> list[Row]:
    """The rows of several passes, those of one prompt next to each other, in as many passes of the same size."""
    prompts = [row for own in passes for row in own["prompt_ids"].tolist()]
    # Any order serves in which equal prompts are neighbours.
    order = sorted(range(len(prompts)), key=prompts.__getitem__)
    size = len(order) // len(passes)
    parts = [order[first : first + size] for first in range(0, len(order), size)]
    grouped: list[Row] = [{} for _ in passes]
    for name, first in passes[0].items():
        if isinstance(first, torch.Tensor) and first.ndim:
            rows = torch.cat([own[name] for own in passes])
            values: list[Any] = [rows[part] for part in parts]
        elif isinstance(first, list):
            every = [row for own in passes for row in own[name]]
            values = [[every[place] for place in part] for part in parts]
        else:
            values = [own[name] for own in passes]
        for own, value in zip(grouped, values, strict=True):
            own[name] = value
    return grouped


def _behind_prompts(
    body: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, kept: int
) -> tuple[dict[str, Any], torch.Tensor]:
    """What a model reads of the last `kept` tokens of rows [B, L], padded on the left, whose prompts `body` has read:
    each once, and what all begin with once; and the states [B, width] of the prompts' last tokens.

    Gradients flow through the prompts, so that loss and gradient are those of whole rows.
    """
    pairs = zip(ids[:, :-kept].tolist(), mask[:, :-kept].tolist(), strict=True)
    prompts = [tuple(token for token, seen in zip(*pair, strict=True) if seen) for pair in pairs]
    place_of = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompts))}
    distinct = [*place_of]
    head = common_head(distinct)
    cache = read_head(body, ids.new_tensor([distinct[0][:head]]), len(distinct)) if head else DynamicCache()
    width = max(map(len, distinct)) - head
    gaps = [width + head - len(prompt) for prompt in distinct]
    rest = ids.new_tensor([[0] * gap + [*prompt[head:]] for gap, prompt in zip(gaps, distinct, strict=True)])
    seen = mask.new_tensor([[1] * head + [0] * gap + [1] * (width - gap) for gap in gaps])
    # Positions count the tokens that are seen, so that padding on the left moves none.
    states = body(
        input_ids=rest,
        attention_mask=seen,
        position_ids=(seen.cumsum(-1) - 1).clamp(min=0)[:, head:],
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    places = torch.tensor([place_of[prompt] for prompt in prompts], device=ids.device)
    cache.batch_select_indices(places)
    seen = torch.cat([seen[places], mask[:, -kept:-1]], dim=1)
    read = {
        "input_ids": ids[:, -kept:-1],
        "attention_mask": seen,
        "position_ids": (seen.cumsum(-1) - 1).clamp(min=0)[:, 1 - kept :],
        "past_key_values": cache,
    }
    return read, states[places, -1]


@contextmanager
def _hidden_before(body: torch.nn.Module, written: torch.Tensor, last: torch.Tensor | None) -> Iterator[None]:
    """Within it, the body of a model returns only the last hidden states [1, tokens, width] that predict the tokens of
    `written` [B, L] at the end of the rows; `last` are those of the prompts' ends where the rows begin behind them.
    """

    def select(module: Any, inputs: Any, output: Any) -> Any:
        states = output.last_hidden_state
        states = states[:, -1 - written.shape[1] : -1] if last is None else torch.cat([last[:, None], states], dim=1)
        output.last_hidden_state = states[written][None]
        return output

    hook = body.register_forward_hook(select)
    try:
        yield
    finally:
        hook.remove()


def grpo_trainer(
    config: GRPOConfig,
    policy: Checkpoint,
    examples: Sequence[Example],
    reward: RewardFunction,
    run: Run,
    source: VideoSource | None = None,
) -> trl.GRPOTrainer:
    """The trainer of one run, from text or from the videos of `source`; raises InputError for videos and a model of
    text.
    """
    prompt, index = run_prompt(config), {example.example_id: number for number, example in enumerate(examples)}
    # The example of each group of the whole run.
    # `iterations` steps pass over the same completions.
    groups = -(-config.steps // config.iterations) * config.prompts_per_step
    rows: list[dict[str, object]] = []
    # TRL repeats each row for the completions of its group.
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

        kind = type("VllmTrainer", (vllm.VllmTrainer, kind), {})
        rollouts = vllm.VllmRollOuts if source is None else vllm.VllmVideoRollOuts
        further = {"config": config, "on_finding": reward.on_finding}
    if source is not None:
        prompts = VideoPrompts(config.model, policy, source.histories)
        further |= {"merger_rate": config.merger_learning_rate, "prompts": prompts, "examples": examples}
    trainer: trl.GRPOTrainer = kind(
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


def trl_arguments(config: GRPOConfig, run: Run) -> trl.GRPOConfig:
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
                "vllm_importance_sampling_clip_max": LARGEST_RATIO,
            }
    return trl.GRPOConfig(
        **shared,
        max_steps=config.steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=accumulated,
        num_generations=config.group_size,
        num_iterations=config.iterations,
        learning_rate=config.learning_rate,
        # Constant and without warm-up (paper, appendix A.4).
        lr_scheduler_type="constant",
        warmup_steps=0,
        # min(rho A, clip(rho, 1 - epsilon, 1 + epsilon) A) - beta KL(pi || pi_ref), with rho the ratio of the policies
        # (Shao et al., DeepSeekMath, 2024; beta .04 and epsilon .30 are the paper's, appendix A.4).
        beta=config.beta,
        epsilon=config.clip,
        loss_type=config.loss,
        # A_i = (R_i - mean R) / std R within the group (paper, section 3.3); Dr. GRPO leaves the deviation out, which
        # weighs prompts by how much their rewards differ.
        scale_rewards="none" if config.loss == "dr_grpo" else "group",
        # TRL would multiply the KL term by the ratio of the policies; GRPO as published does not.
        use_bias_correction_kl=False,
        temperature=config.temperature,
        # The policy itself: samples from a cut distribution would have other probabilities than those that the ratio
        # compares.
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        repetition_penalty=1.0,
        max_completion_length=config.max_completion_tokens,
        mask_truncated_completions=config.truncated == "mask",
        # The rows lie in the order of the run already.
        shuffle_dataset=False,
        # The reward reads goal and history, which no model does.
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
