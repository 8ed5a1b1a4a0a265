"""Best-of-N distillation: the policy writes N plans of each prompt, and is fine-tuned on the one with the best reward.

A round moves the policy towards the best of N, which is ln N - (N - 1) / N nats a plan away from what wrote them
(Beirami et al., Theoretical guarantees on the best-of-n alignment policy, 2024; Stiennon et al., Learning to summarize
from human feedback, 2020, appendix G.3). After r rounds of one reward it is at best the best of N^r, so that the bound
becomes

    r ln N - (N^r - 1) / N^r

whatever the reward is. Fine-tuning on a finite sample can go further, which is why the divergence is measured.
Fine-tuning is as in SFT: cross-entropy on the tokens that were written, and a cosine after a warm-up. One adapter goes
on through the rounds. A round is rejection sampling fine-tuning (Touvron et al., Llama 2, 2023, section 3.2.3).

What a run draws follows from its seed, the round and the row, and what it learns from its records. The state of a round
is thus its records and a checkpoint: a run that is killed while it samples, scores or trains ends as one that was not.

The loop is its own: TRL's SFTTrainer would give different numbers, because it draws dropout from one stream of random
numbers over the whole run, where here each step has its own seed. It also reads every prompt in full; here the tokens
that all prompts of a pass begin with are read once. Without dropout both agree up to rounding, which a test checks.
"""

import hashlib
import json
import logging
import math
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from peft import get_peft_model
from transformers.optimization import get_cosine_schedule_with_warmup

from recipe.artifacts import read_json, read_jsonl, write_jsonl
from recipe.config.training import BestOfNConfig
from recipe.data.examples import read_training_examples
from recipe.errors import ComputeError, ConfigError, InputError
from recipe.models.checkpoints import Checkpoint, decode_completions, end_tokens, thought_opening
from recipe.models.decoding import common_head
from recipe.models.devices import use_bf16
from recipe.plan_text import Completion
from recipe.progress import SILENT, Progress
from recipe.reward.scorer import Scorer
from recipe.reward.watchdog import CompletionRecord, Finding, StepStatistics, Watchdog
from recipe.text import copied_share
from recipe.training import ranks
from recipe.training.loop import (
    MetricsLog,
    Row,
    check_finite,
    check_gradient,
    finish_run,
    memory_errors,
    quiet,
    read_head,
)
from recipe.training.policy import (
    load_adapter,
    load_policy,
    lora_config,
    sample,
    trained_in_float32,
    write_errors,
)
from recipe.training.rewards import (
    FIRST_ROUND,
    OnFinding,
    covered_examples,
    open_reward_run,
    prompts_in_order,
    reward_metrics,
    score_completions,
)
from recipe.training.runs import Run, run_prompt
from recipe.training.validation import VALIDATION_ROWS, Measure, Validation, divergences, require_held_out
from recipe.types import Example

_LOG = logging.getLogger(__name__)
# In a checkpoint: the position in the run, the optimiser in the middle of a round, and the metrics.
_STATE = "training.pt"
# What determines round 1's plans.
_SAMPLED = (
    "model", "examples", "prompt", "split", "n", "prompts_per_round", "temperature", "max_completion_tokens", "seed"
)  # fmt: skip
# Fields of a line in a round's record, and their types.
_ROW: dict[str, Any] = {
    "step": int, "round": int, "example_id": str, "goal": str, "history": list, "completion": str, "tokens": list,
    "clipped": bool, "chosen": bool, "reward": dict | None,
}  # fmt: skip
MEASURED_PROMPTS = 128
"""Prompts that the divergence, and after the last round the policy, is measured on, at most: with one plan of each a
mean has a standard error of a tenth of their spread."""
# Label of tokens that the loss ignores.
_IGNORED = -100
_RESTORE = "restore the file, or delete the run's folder to start over"


def train_best_of_n(
    config: BestOfNConfig,
    scorer: Scorer | None,
    progress: Progress = SILENT,
    measure: Measure | None = None,
) -> Path:
    """Train adapters in rounds on the plans that the scorer rewards most, and merge them; returns the model's folder.

    Scorer, reward service and `measure` are as in `train_grpo`. A finished run returns at once, a
    killed one resumes with the same result. Raises InputError for a model or examples that cannot be read, ConfigError
    for a run folder of other settings and in one of several processes, ComputeError where a round has no reward or
    where training diverges, ServiceUnavailable.
    """
    ranks.single("recipe train best-of-n")
    with ExitStack() as stack:
        config, scorer, run = open_reward_run("best-of-n", config, scorer, stack)
        if run.finished:
            return run.model
        if scorer is None:
            raise ConfigError("the run needs a scorer; give it one.")
        began = time.monotonic()
        log = MetricsLog(run, dict)
        stack.enter_context(quiet())
        policy = load_policy(config.model, config.revision, bf16=use_bf16(config.bf16))
        examples = read_training_examples(config.examples, config.split)
        if config.validation is not None and not (run.folder / VALIDATION_ROWS).is_file():
            require_held_out(config.validation, config.examples, examples, config.corpus)
        if config.min_coverage is not None:
            everything, examples = examples, covered_examples(config, scorer, examples, run)
            stack.enter_context(progress.task(f"{len(everything) - len(examples)} prompts left out, not covered", 0))

        def on_finding(finding: Finding) -> None:
            _LOG.warning("%s: %s", run.folder.name, finding.sentence)
            stack.enter_context(progress.task(f"watch {run.folder.name}: {finding.headline}", 0))

        rounds = Rounds(config, policy, examples, scorer, run, log, on_finding, progress, measure)
        try:
            with run.on_disk(), write_errors(run.checkpoints), memory_errors():
                rounds.train()
        finally:
            with run.on_disk():
                log.close()
        step, figures, notes = rounds.result()
        check_finite(rounds.model)
        return finish_run(run, rounds.model, policy.tokenizer, step, figures, notes, began)


@dataclass(slots=True, kw_only=True)
class RoundRecord(CompletionRecord):
    """A plan of a round. Its `step` counts batches of prompts over all rounds: what the watchdog compares."""

    round: int
    tokens: list[int]
    chosen: bool = False
    """Whether the round trains on it."""


class Rounds:
    """The rounds of one run. `state`, with the adapter, is what a checkpoint holds."""

    def __init__(
        self,
        config: BestOfNConfig,
        policy: Checkpoint,
        examples: Sequence[Example],
        scorer: Scorer,
        run: Run,
        log: MetricsLog,
        on_finding: OnFinding,
        progress: Progress,
        measure: Measure | None,
    ) -> None:
        self._config, self._run, self._log, self._progress = config, run, log, progress
        self._tokenizer, self._scorer, self._on_finding = policy.tokenizer, scorer, on_finding
        self._prompt = run_prompt(config)
        self._device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        # Before the adapter, half of whose weights are drawn.
        torch.manual_seed(config.seed)
        # The policy: the model with its adapter.
        self.model = get_peft_model(policy.model, lora_config(config.lora, policy.model)).to(self._device)
        trained_in_float32(self.model)
        if config.gradient_checkpointing:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            self.model.enable_input_require_grads()
        self._trained = [weight for weight in self.model.parameters() if weight.requires_grad]
        ends = [*end_tokens(policy.model.generation_config, self._tokenizer), self._tokenizer.pad_token_id]
        self._ends = sorted({token for token in ends if token is not None})
        self._opening = thought_opening(self._tokenizer)
        # Prompts of a round.
        self._size = config.prompts_per_round or len(examples)
        # One round more than is trained: its plans measure the trained policy on prompts that come next.
        self._order = prompts_in_order(examples, (config.rounds + 1) * self._size, config.seed)
        # The tokens of the plans of another run's first round, which must have sampled as this one does.
        self._first_plans: list[list[int]] = []
        if (folder := config.plans) is not None:
            ours, theirs = run.record, read_json(folder / "run.json")
            remedy = "take a run of the same sampling, or leave `plans` out"
            for name in _SAMPLED:
                place = "inputs" if name in ours["inputs"] else "config"
                if (other := theirs.get(place, {}).get(name)) != (own := ours[place].get(name)):
                    values = f", {other!r} where this one has {own!r}" if place == "config" else ""
                    raise InputError.at(folder, f"the run sampled its plans with another {name}{values}", remedy)
            wanted = [example.example_id for example in self._order[: self._size] for _ in range(config.n)]
            if [row.get("example_id") for _, row in read_jsonl(folder / FIRST_ROUND)] != wanted:
                raise InputError.at(folder / FIRST_ROUND, "its plans are for other prompts", remedy)
            self._first_plans = [record.tokens for record in _recorded(folder / FIRST_ROUND, len(wanted))]
        self._watchdog = Watchdog()
        self._validation = None
        if config.validation is not None:
            rows = config.completions_at_once
            self._validation = Validation(config, run, policy, self._ends, rows, scorer, measure, "round")
        # The round under way, from 1, of which the one after the last measures the trained policy; optimiser steps of
        # all rounds, and of the round under way; the metrics so far, one row for the plans of each round and one for
        # each step; the optimiser in the middle of a round.
        self.state: dict[str, Any] = {"round": 1, "step": 0, "begun": 0, "rows": [], "optimiser": None}

    def train(self) -> None:
        """All rounds that are left, and the plans of the trained policy.

        Raises ComputeError where no plan of a round has a reward, and where training diverges.
        """
        checkpoint = self._run.latest_checkpoint()
        if checkpoint is not None:
            self.state = torch.load(checkpoint / _STATE, map_location=self._device)
            load_adapter(self.model, checkpoint)
        config, last, number = self._config, self._config.rounds, self.state["round"]
        # The records of what comes after the checkpoint are removed.
        for record in self._run.completions.glob("round-*"):
            if checkpoint is None or int(record.stem.rpartition("-")[2]) > number:
                record.unlink()
        if self._validation is not None:
            self._validation.open(None if checkpoint is None else number - 1)
        if checkpoint is None:
            # At once, so that plans that are recorded before the first step belong to these settings.
            self._save()
        else:
            # The watchdog has seen the plans of a round once they are trained on.
            for earlier in range(1, number + (self.state["begun"] > 0)):
                for step, seen in _by_step(_recorded(self._record(earlier), self._size * config.n)):
                    self._watchdog.observe(step, seen)
        self._log.open(self.state["rows"])
        with self._progress.task("best of N", last) as advance:
            advance(self.state["round"] - 1)
            while (number := self.state["round"]) <= last + 1:
                validation = self._validation
                if validation is not None and not self.state["begun"]:
                    if validation.due(number - 1, last):
                        validation.validate(self.model, number - 1)
                    if validation.stopped:
                        break
                if number > last:
                    break
                records = self._plans(number, config.n)
                chosen = [record for record in records if record.chosen]
                if not self.state["begun"]:
                    self._log_round(number, records)
                if not chosen:
                    problem = "no prompt has a plan to train on, because of truncated = 'mask'"
                    if number == 1:
                        raise ComputeError(
                            f"Round 1: {problem}; raise max_completion_tokens, or take another reward, with another "
                            "`output`."
                        )
                    _LOG.warning("round %d: %s; training ends", number, problem)
                    return
                self._fine_tune(number, chosen)
                advance(1)
            number = self.state["round"]
            self._log_round(number, self._plans(number, 1, train=False))

    def result(self) -> tuple[int, Row, list[str]]:
        """The step whose weights the model holds, its figures, and sentences about the run.

        With validation these are the weights of the round that it chooses, which the model gets here.
        """
        findings = [finding.sentence for finding in self._watchdog.findings]
        of_rounds = [row for row in self.state["rows"] if "loss" not in row]
        if self._validation is None:
            return self.state["step"], of_rounds[-1], findings
        chosen = of_rounds[self._validation.restore(self.model)]
        notes = [*self._validation.notes(self._config.rounds), *findings]
        return chosen["step"], chosen | self._validation.figures, notes

    def _save(self) -> None:
        check_finite(self.model)
        step = self.state["step"]
        folder = self._run.checkpoints / f"checkpoint-{step}"
        self.model.save_pretrained(folder, save_embedding_layers=False)
        torch.save(self.state, folder / _STATE)
        self._run.keep(step, self._log.last)
        if self._validation is not None and self._validation.rows:
            self._validation.prune()

    def _record(self, number: int) -> Path:
        return self._run.completions / f"round-{number:02d}.jsonl"

    def _plans(self, number: int, n: int, *, train: bool = True) -> list[RoundRecord]:
        """The record of a round: `n` plans of each of its prompts with their rewards, and which ones are trained on.

        Plans that were written before a kill are not written again.
        """
        file = self._record(number)
        prompts = self._order[(number - 1) * self._size : number * self._size][: None if train else MEASURED_PROMPTS]
        if file.is_file():
            return _recorded(file, len(prompts) * n)
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(".partial")
        width = max(1, self._config.completions_at_once // n)
        records = whole_records(partial, width * n, len(prompts) * n)
        write_jsonl(partial, (record.row for record in records))
        label = f"round {number}: plans" if train else f"after round {number - 1}: plans that measure it"
        with self._progress.task(label, len(prompts) * n) as advance, partial.open("a", encoding="utf-8") as stream:
            advance(len(records))
            for first in range(len(records) // n, len(prompts), width):
                # A pass of the model is a sign of life.
                pulse = self.model.get_base_model().register_forward_pre_hook(lambda *_: advance(0))
                batch = self._written(number, prompts[first : first + width], first, n)
                pulse.remove()
                earlier = number > 1 or any(record.reward is not None for record in records)
                score_completions(self._scorer, batch, earlier=earlier)
                stream.writelines(json.dumps(record.row, ensure_ascii=False) + "\n" for record in batch)
                stream.flush()
                # A batch takes minutes of sampling: one that was written is not written again after a kill.
                os.fsync(stream.fileno())
                records += batch
                advance(len(batch))
        # A scorer that fails on every plan is away; plans without any difference would train on chance.
        if all(record.reward is None for record in records):
            partial.unlink()  # so that they are scored again
            raise ComputeError(
                f"Round {number}: not one of {len(records)} completions could be scored, the first for example "
                f"{records[0].example_id!r}; the warnings before say why, and the same command resumes the run."
            )
        if train:
            choose(self._config, number, records, n)
        write_jsonl(file, (record.row for record in records))
        partial.unlink()
        return records

    def _rendered(self, examples: Sequence[Example]) -> list[list[int]]:
        chats = [self._prompt.training_chat(example) for example in examples]
        rendered = self._tokenizer.apply_chat_template(chats, add_generation_prompt=True, return_dict=True)
        return list(rendered["input_ids"])

    def _written(self, number: int, prompts: Sequence[Example], first: int, n: int) -> list[RoundRecord]:
        """`n` plans for each of some prompts of the round, the one at `first` and those after it; not yet scored."""
        config = self._config
        rows = range(first * n, (first + len(prompts)) * n)
        if number == 1 and self._first_plans:
            completions = self._first_plans[rows.start : rows.stop]
        else:
            # Before it is trained the adapter adds 0, and without it plans take half the time.
            with self.model.disable_adapter() if number == 1 else nullcontext():
                completions = sample(
                    self.model.get_base_model(),
                    [tokens for tokens in self._rendered(prompts) for _ in range(n)],
                    [f"{config.seed} round {number} {row}" for row in rows],
                    temperature=config.temperature,
                    longest=config.max_completion_tokens,
                    ends=self._ends,
                )
        texts = decode_completions(self._tokenizer, completions, self._opening)
        batches = -(-self._size // max(1, config.completions_at_once // config.n))
        records = list[RoundRecord]()
        for row, text, tokens in zip(rows, texts, completions, strict=True):
            prompt, clipped = prompts[row // n - first], tokens[-1] not in self._ends
            record = RoundRecord(
                step=(number - 1) * batches + row // n // max(1, config.completions_at_once // n) + 1,
                round=number,
                example_id=prompt.example_id,
                goal=prompt.goal,
                history=prompt.history,
                completion=Completion.of(text, cut=clipped),
                clipped=clipped,
                tokens=tokens,
            )
            records.append(record)
        return records

    def _log_round(self, number: int, records: Sequence[RoundRecord]) -> None:
        """One row of metrics for the plans of a round: of all of them, and under `chosen_...` of those trained on."""
        config, done = self._config, number - 1
        for step, batch in _by_step(records):
            for finding in self._watchdog.observe(step, batch):
                self._on_finding(finding)
        statistics = StepStatistics.of(0, records)
        prompts = {record.example_id for record in records}
        chosen = [(record, record.reward) for record in records if record.chosen and record.reward is not None]
        figures: dict[str, Any] = {
            "reward": statistics.reward,
            **reward_metrics(records, config.reward.grounded),
            "prompts": len(prompts),
            "skipped": len(prompts - {record.example_id for record in records if record.reward is not None}),
            "chosen": len(chosen),
            "completion_tokens": fmean(len(record.tokens) for record in records),
            "clipped_ratio": statistics.clipped,
            "zero_std": statistics.still,
            "copied": statistics.copied,
            "repeated": statistics.repeated,
            "length_pay": statistics.length_pay,
        }
        if chosen:
            figures |= {
                "chosen_reward": fmean(reward.total for _, reward in chosen),
                "chosen_steps": fmean(reward.steps for _, reward in chosen),
                "chosen_copied": fmean(copied_share(record.history, record.completion.steps) for record, _ in chosen),
            }
        # Nats a plan from the policy to the reference, from the first plan of each prompt; before training it is 0.
        divergence = 0.0
        if number > 1:
            examples = self._order[done * self._size : number * self._size][:MEASURED_PROMPTS]
            first = {record.example_id: record.tokens for record in reversed(records)}
            plans = [first[example.example_id] for example in examples]
            divergence = fmean(divergences(self.model, self._rendered(examples), plans, config.temperature))
        # A random choice does not move the policy.
        bounds = {"best": done * math.log(config.n) - 1 + config.n**-done, "random": 0.0}
        row = {"step": self.state["step"], "round": number}
        figures |= {"kl_plan": divergence, "kl_bound": bounds[config.choose], "findings": len(self._watchdog.findings)}
        row |= {name: value for name, value in figures.items() if value is not None}
        self._write(row)

    def _fine_tune(self, number: int, chosen: Sequence[RoundRecord]) -> None:
        """The steps of a round that are left, and its checkpoint. Raises ComputeError where training diverges."""
        config, state = self._config, self.state
        by_name = {example.example_id: example for example in self._order[(number - 1) * self._size :][: self._size]}
        prompts = self._rendered([by_name[record.example_id] for record in chosen])
        taught = [record.tokens for record in chosen]
        batches = batches_in_order(len(chosen), config, number)
        optimiser = torch.optim.AdamW(self._trained, lr=config.learning_rate, weight_decay=0.0, fused=True)
        # The first step of a warm-up has the rate 0: a round of one step would learn nothing.
        warmup = min(math.ceil(config.warmup * len(batches)), len(batches) - 1)
        schedule = get_cosine_schedule_with_warmup(optimiser, warmup, len(batches)).lr_lambdas[0]
        if state["optimiser"] is not None:
            optimiser.load_state_dict(state["optimiser"])
            state["optimiser"] = None
        began = time.monotonic()
        with self._progress.task(f"round {number}: fine-tuning", len(batches)) as advance:
            advance(state["begun"])
            for index in range(state["begun"], len(batches)):
                rate = config.learning_rate * schedule(index)
                for group in optimiser.param_groups:
                    group["lr"] = rate
                batch = batches[index]
                # Dropout of each step by itself, so that a checkpoint needs no random state.
                name = f"{config.seed} {state['step']}"
                torch.manual_seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:7]))
                self.model.train()
                tokens = sum(len(taught[i]) for i in batch)
                width, loss = config.micro_batch or len(batch), 0.0
                for first in range(0, len(batch), width):
                    own = [prompts[i] for i in batch[first : first + width]]
                    written = [taught[i] for i in batch[first : first + width]]
                    with torch.autocast(self._device.type, torch.bfloat16, enabled=use_bf16(config.bf16)):
                        # Divided by the tokens of the whole batch, so that a batch in several passes has the gradient
                        # of one.
                        part = completion_loss(self.model, own, written, not config.gradient_checkpointing) / tokens
                    part.backward()
                    loss += part.item()
                norm = torch.nn.utils.clip_grad_norm_(self._trained, 1.0)
                check_gradient(norm, state["step"] + 1)
                optimiser.step()
                optimiser.zero_grad()
                state |= {"step": state["step"] + 1, "begun": index + 1}
                row = {"step": state["step"], "round": number, "loss": loss, "learning_rate": rate}
                self._write(row | {"grad_norm": float(norm), "step_seconds": time.monotonic() - began})
                began = time.monotonic()
                if state["step"] % config.save_every == 0 and state["begun"] < len(batches):
                    state["optimiser"] = optimiser.state_dict()
                    self._save()
                    state["optimiser"] = None
                advance(1)
        state |= {"round": number + 1, "begun": 0}
        self._save()

    def _write(self, row: Row) -> None:
        self.state["rows"].append(row)
        self._log.write(row)


def choose(config: BestOfNConfig, number: int, records: Sequence[RoundRecord], n: int) -> None:
    """Mark in the record of a round the plans to train on: of each prompt's `n` plans one, or none.

    None is marked for a prompt without a reward, and with `truncated = "mask"` where all plans were cut.
    """
    for first in range(0, len(records), n):
        scored = [(record, record.reward.total) for record in records[first : first + n] if record.reward is not None]
        whole = [pair for pair in scored if config.truncated == "keep" or not pair[0].clipped]
        if not whole:
            continue
        # `max` takes the first of equals, as sampling wrote them: no bias by length or text.
        best, _ = max(whole, key=lambda pair: pair[1])
        # The control: it trains on as many plans of the same prompts, without the reward's choice.
        if config.choose == "random":
            best, _ = random.Random(f"{config.seed} {number} {first // n}").choice(whole)
        best.chosen = True


def batches_in_order(count: int, config: BestOfNConfig, number: int) -> list[list[int]]:
    """Indices of `count` plans in each optimiser step of a round: all once an epoch, in drawn order."""
    batches = []
    for epoch in range(config.epochs):
        order = random.Random(f"{config.seed} {number} {epoch}").sample(range(count), count)
        batches += [order[first : first + config.batch_size] for first in range(0, count, config.batch_size)]
    return batches


def completion_loss(
    model: torch.nn.Module,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    share: bool = True,
) -> torch.Tensor:
    """Minus the log-likelihood in nats of the completions after their prompts, summed over their tokens.

    With `share`, what all prompts begin with is read once, which gradient checkpointing does not allow. The rest is
    padded on the left, so that the output layer is applied to the positions of completions only.
    """
    head = 0
    if share:
        # The last token of a prompt is not shared: it is read with its completion, whose first token it predicts.
        head = common_head(prompts)
    rest = [prompt[head:] for prompt in prompts]
    before, behind = max(map(len, rest)), max(map(len, completions))
    rows = list(zip(rest, completions, strict=True))
    # Any token pads: none attends to it, and none is predicted from it.
    padded = [[*[0] * (before - len(p)), *p, *c, *[0] * (behind - len(c))] for p, c in rows]
    known = [[*[0] * (before - len(p)), *[1] * (len(p) + len(c)), *[0] * (behind - len(c))] for p, c in rows]
    wanted = [[*own, *[_IGNORED] * (behind - len(own))] for own in completions]
    device = next(model.parameters()).device
    mask = torch.tensor(known, device=device)
    cache = None
    if head:
        # Of the head one logit, which is not used: 0 would ask for all of them.
        cache = read_head(model, torch.tensor([prompts[0][:head]], device=device), len(rows), logits_to_keep=1)
    logits = model(
        input_ids=torch.tensor(padded, device=device),
        attention_mask=torch.cat([mask.new_ones(len(rows), head), mask], dim=1),
        position_ids=head + (mask.cumsum(-1) - 1).clamp(min=0),
        past_key_values=cache,
        use_cache=cache is not None,
        # The state before a token predicts it: those from the last of the prompts to the last but one.
        logits_to_keep=torch.arange(before - 1, before + behind - 1, device=device),
    ).logits
    labels = torch.tensor(wanted, device=device)
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=_IGNORED, reduction="sum"
    )


def _by_step(records: Sequence[RoundRecord]) -> Iterator[tuple[int, list[RoundRecord]]]:
    """The plans of a round as the watchdog sees them."""
    for step in dict.fromkeys(record.step for record in records):
        yield step, [record for record in records if record.step == step]


def _recorded(file: Path, count: int) -> list[RoundRecord]:
    """The `count` plans of a round's record. Raises InputError for a file that is missing or damaged."""
    records = [_record_of(file, line, row) for line, row in read_jsonl(file)]
    if len(records) != count:
        raise InputError.at(file, f"it has {len(records)} rows, not {count}", _RESTORE)
    return records


def whole_records(partial: Path, batch: int, everything: int) -> list[RoundRecord]:
    """The plans of the batches that a killed run wrote to their end."""
    if not partial.is_file():
        return []
    records: list[RoundRecord] = []
    # What follows the last line break was cut off while it was written.
    for number, line in enumerate(partial.read_bytes().split(b"\n")[:-1], start=1):
        try:
            records.append(_record_of(partial, number, json.loads(line)))
        except (ValueError, RecursionError, InputError):  # what a machine that lost its power left
            break
    return records[: everything if len(records) >= everything else len(records) // batch * batch]


def _record_of(file: Path, line: int, row: Any) -> RoundRecord:
    """The plan of a line. Raises InputError."""
    known = row if isinstance(row, dict) else {}
    if fault := next((name for name, kind in _ROW.items() if not isinstance(known.get(name), kind)), None):
        raise InputError.at(file, "the value is missing or damaged", _RESTORE, line=line, field=fault)
    return RoundRecord.of_row(file, line, known, **{name: known[name] for name in ("round", "tokens", "chosen")})
